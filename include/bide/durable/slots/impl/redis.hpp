// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP
#define BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP

// libcurl connects and moves the bytes, and hiredis parses replies.

#include <bide/durable/slots/detail/server/curl.hpp>
#include <bide/durable/slots/redis.hpp>

#include <hiredis/hiredis.h>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- Protocol

// What identifies a connection. The URL's path is the number of the database, empty for 0.
struct redis_target {
    server_url url{};
    tls_files trust{};

    bool is_tls() const noexcept { return url.scheme == "rediss"; }
    std::string name() const { // for messages, without the password
        return (is_tls() ? "redis (TLS) at " : "redis at ") + host_in_url(url.host) + ':' +
               std::to_string(url.port) + (url.path.empty() ? "" : ", database " + url.path) +
               (url.user.empty() ? "" : ", user " + url.user);
    }

    friend auto operator<=>(const redis_target&, const redis_target&) = default;
};

using redis_reply = std::unique_ptr<redisReply, ended_by<&::freeReplyObject>>;
using redis_answer = server_answer<redis_reply>; // never an error reply

inline std::string_view redis_text(const redisReply& reply) noexcept {
    return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

// Returns the code of an error reply. permission_denied, invalid_argument and
// operation_not_supported mean that an operator has to act.
inline std::error_code redis_error(std::string_view text) noexcept {
    const auto is = [text](auto... prefixes) { return (text.starts_with(prefixes) || ...); };
    if (is("NOAUTH ", "WRONGPASS ", "NOPERM ", "DENIED ", "ERR invalid password", "ERR AUTH ",
           "ERR Client sent AUTH") ||
        says(text, "ACL failure in script", "user executing the script can't run")) {
        return std::make_error_code(std::errc::permission_denied);
    }
    if (is("ERR DB index is out of range", "ERR invalid DB index", "ERR wrong number of arg")) {
        return std::make_error_code(std::errc::invalid_argument);
    }
    if (is("ERR unknown command", "ERR SELECT is not allowed", "MOVED ", "CROSSSLOT ")) {
        return std::make_error_code(std::errc::operation_not_supported);
    }
    if (is("LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "ASK ",
           "ERR max number of clients")) {
        return std::make_error_code(std::errc::resource_unavailable_try_again);
    }
    return make_error_code(durable_errc::storage_error);
}

// Returns true if the server itself reports the error; then the script has stored nothing. A proxy
// reports its own errors as "ERR", and the server behind it may have run the script.
inline bool is_certain_redis_error(std::string_view text) {
    constexpr std::string_view known = " NOAUTH WRONGPASS NOPERM LOADING BUSY MASTERDOWN "
                                       "CLUSTERDOWN TRYAGAIN NOSCRIPT OOM MISCONF "
                                       "NOREPLICAS READONLY MOVED ASK CROSSSLOT ";
    const std::string word = " " + std::string(text.substr(0, text.find(' '))) + " ";
    return says(known, word) || says(text, "@user_script", "unknown command");
}

// The script for a load and for a compare-and-swap. Its reply has four elements: what the key has,
// the server's time in milliseconds, and two texts:
//
//   0  nothing; "0" and ""
//   1  a record; its version and value
//   2  a value that no slot has written, or the last possible version; the key's type and ""
//   3  what was stored now; its version and ""
//
// KEYS: the key. ARGV to load: none. ARGV to store: the expected version and the value. A new
// version is the larger of the server's time in microseconds and the previous version plus one. A
// number of Lua is exact up to 2^53. After HSET the script cannot fail.
//
// PERSIST is a write command. A replica refuses it, and so the load fails there: the value of a
// replica may be old. A store does not call PERSIST before HSET: if the script has written anything
// before, a server that lacks memory no longer refuses HSET.
inline constexpr std::string_view redis_script =
    "local t = redis.call('TIME')\n"
    "local ms = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local kind = redis.call('TYPE', KEYS[1]).ok\n"
    "local found, version, value = 0, '0', ''\n"
    "local is_ours = kind == 'none'\n"
    "if kind == 'hash' then\n"
    "  local both = redis.call('HMGET', KEYS[1], 'v', 'p')\n"
    "  found, version, value = 1, both[1], both[2]\n"
    "  is_ours = version and value and string.find(version, '^[1-9]%d*$')\n"
    "end\n"
    "if not is_ours then return {2, ms, kind, ''} end\n"
    "if version ~= ARGV[1] then\n"
    "  redis.call('PERSIST', KEYS[1])\n"
    "  return {found, ms, version, value}\n"
    "end\n"
    "local number = math.max(t[1] * 1000000 + t[2], tonumber(version) + 1)\n"
    "if number > 9007199254740991 then return {2, ms, kind, ''} end\n"
    "local text = string.format('%.0f', number)\n"
    "redis.call('HSET', KEYS[1], 'v', text, 'p', ARGV[2])\n"
    "return {3, ms, text, ''}\n";
// The SHA-1 of the script, by which a server knows it once it has run.
inline constexpr std::string_view redis_script_name = "a341e10931e6b3f82261f624a6f79a171223c194";

// Reads the script's reply. The error is protocol_error if the reply is not one of this script, and
// corrupt_record if the key holds a value that no slot stores.
inline slot_answer read_redis_record(const redisReply& reply, bool is_load) {
    constexpr int types[] = {REDIS_REPLY_INTEGER, REDIS_REPLY_INTEGER, REDIS_REPLY_STRING,
                             REDIS_REPLY_STRING};
    const bool is_whole =
        reply.elements == std::size(types) &&
        std::equal(std::begin(types), std::end(types), reply.element,
                   [](int type, const redisReply* each) { return each->type == type; });
    const long long found = is_whole ? reply.element[0]->integer : -1;
    if (found < 0 || found > (is_load ? 2 : 3) || reply.element[1]->integer < 0) {
        return {{},
                std::make_error_code(std::errc::protocol_error),
                true,
                "not a reply of the slot's script"};
    }
    const std::string_view third = redis_text(*reply.element[2]);
    const std::int64_t number = read_number(third, (std::int64_t{1} << 53) - 1);
    if (found == 2 || (found != 0 && number < 1)) {
        return {{},
                durable_errc::corrupt_record,
                false,
                found == 2 ? "the key holds what no slot has written: a " + std::string(third)
                           : "the key's version is not a number that a slot stores"};
    }
    const auto version = static_cast<slot_version>(number);
    if (found == 3) {
        return {{.status = cas_status::stored, .version = version}};
    }
    return {{.status = cas_status::conflict,
             .current = slot_snapshot{.version = version,
                                      .value = std::string(redis_text(*reply.element[3])),
                                      .server_ms = reply.element[1]->integer}}};
}

// ---- Connections

class redis_connection final : public server_client<redis_target>, public curl_handle {
public:
    using server_client::server_client;

    std::error_code connect() {
        drop();
        message_.clear();
        std::error_code error = open();
        error = error ? error : greet();
        if (error) {
            drop();
        }
        return error;
    }

    // True if it is open and has nothing to read. libcurl handles the session tickets of TLS.
    bool is_usable() {
        char one;
        std::size_t n = 0;
        const auto look = [&] { return read(&one, 1, n); };
        return is_open() && reader_->pos == reader_->len && once(look) == CURLE_AGAIN;
    }
    bool is_open() const noexcept { return handle_ != nullptr; }

    slot_answer load(const server_terms& of, known&) { return run({of.key}); }

    slot_answer exchange(const server_terms& of, known&, slot_version version,
                         std::string_view value) {
        slot_answer got = run({of.key, std::to_string(version), value});
        if (got.may_have_stored && got.error == durable_errc::storage_error) {
            got.error = durable_errc::indeterminate; // storage_error says that nothing was stored
        }
        return got;
    }

private:
    slot_answer run(std::initializer_list<std::string_view> words) {
        std::vector<std::string_view> command{"EVALSHA", redis_script_name, "1"};
        command.insert(command.end(), words);
        redis_answer got = ask(command);
        if (is_open() && got.error_text.starts_with("NOSCRIPT ")) { // the server has not run it yet
            command[0] = "EVAL";
            command[1] = redis_script;
            got = ask(command);
        }
        return got.error ? std::move(got).refused_as<cas_result>()
                         : read_redis_record(*got.of, words.size() == 1);
    }

    redis_answer ask(const std::vector<std::string_view>& command) {
        const std::error_code unsent = send(command);
        if (unsent) { // the server may have sent the reason before it closed the connection
            end_ = deadline::poll();
        }
        auto reply = receive();
        const bool is_error = reply && (*reply)->type == REDIS_REPLY_ERROR;
        if (!reply || (unsent && !is_error)) {
            const bool says_more = !reply && !message_.empty();
            drop();
            return {{}, unsent && !says_more ? unsent : reply.error(), !unsent, message_};
        }
        if (!is_error) {
            return {*std::move(reply), {}, true, {}};
        }
        const std::string_view text = redis_text(**reply);
        set_text(text);
        // If a request was sent in part, the next request would complete it. If the server is a
        // replica, the next connection may reach the master.
        if (unsent || says(text, "READONLY ") || text.starts_with("MASTERDOWN ")) {
            drop();
        }
        return {{}, redis_error(text), !unsent && !is_certain_redis_error(text), message_};
    }

    std::error_code open() {
        const std::string url = (to_.is_tls() ? "https://" : "http://") +
                                host_in_url(to_.url.host) + ':' + std::to_string(to_.url.port);
        reader_.reset(::redisReaderCreate());
        if (reader_ == nullptr || !make(to_.trust) || !set(CURLOPT_URL, url.c_str()) ||
            !set(CURLOPT_CONNECT_ONLY, 1L) || !set(CURLOPT_SSL_ENABLE_ALPN, 0L) ||
            !set(CURLOPT_DEBUGFUNCTION, &note) || !set(CURLOPT_DEBUGDATA, this) ||
            !set(CURLOPT_CONNECTTIMEOUT_MS, std::max(ms_until(end_), 1L))) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        limits_ = *reader_->fn;
        limits_.createArray = &make_array;
        reader_->privdata = reader_->fn;
        reader_->fn = &limits_;
        const std::error_code error = failure(perform());
        set(CURLOPT_VERBOSE, 1L); // from now on, note() gets the text of each error
        return error;
    }

    // libcurl's own buffer keeps only the first text. After a handshake, that may be about
    // getpeername(), which fails if the server has closed the connection. The text that a later
    // read adds tells why the server has closed it.
    static int note(CURL*, curl_infotype kind, char* text, std::size_t size, void* of) noexcept {
        if (kind == CURLINFO_TEXT) {
            char* const to = static_cast<redis_connection*>(of)->text_;
            *std::copy_n(text, std::min<std::size_t>(size, CURL_ERROR_SIZE - 1), to) = '\0';
        }
        return 0;
    }

    // Makes an array of a reply. hiredis allocates memory for as many elements as the server
    // announces: a reply of 13 bytes would cost 13 GB. No reply to a slot has more than 4 elements.
    // hiredis reports a refused array as a lack of memory.
    template <class Count> static void* make_array(const redisReadTask* task, Count n) {
        const auto* const own = static_cast<const redisReplyObjectFunctions*>(task->privdata);
        return n > 16 ? nullptr : own->createArray(task, n);
    }

    std::error_code greet() {
        redis_answer got;
        if (!to_.url.password.empty()) {
            got = to_.url.user.empty() ? ask({"AUTH", to_.url.password})
                                       : ask({"AUTH", to_.url.user, to_.url.password});
        }
        if (!got.error && !to_.url.path.empty()) {
            got = ask({"SELECT", to_.url.path});
        }
        if (got.error) {
            return got.error;
        }
        got = ask({"PING"}); // a user may lack the right to it
        const bool may_fail = is_open() && !message_.starts_with("DENIED ") &&
                              !message_.starts_with("ERR max number of clients");
        return may_fail ? std::error_code() : got.error;
    }

    // After an error, at most a part of the request was sent, which the server ignores.
    std::error_code send(const std::vector<std::string_view>& words) {
        message_.clear();
        std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
        for (const std::string_view each : words) {
            bytes.append("$").append(std::to_string(each.size())).append("\r\n");
            bytes.append(each).append("\r\n");
        }
        std::string_view rest(bytes);
        while (!rest.empty()) {
            std::size_t sent = 0;
            const std::error_code error = repeat(POLLOUT, [&] {
                return ::curl_easy_send(handle_.get(), rest.data(), rest.size(), &sent);
            });
            if (error) {
                return error;
            }
            rest.remove_prefix(sent);
        }
        return {};
    }

    // Receives the next reply, which may be an error reply.
    result<redis_reply, std::error_code> receive() {
        char some[16 * 1024];
        std::size_t heard = 0;
        for (;;) {
            void* found = nullptr;
            if (::redisReaderGetReply(reader_.get(), &found) != REDIS_OK) {
                const std::string_view text(some, heard);
                set_text("not a reply of Redis: " + std::string(text.substr(0, text.find('\n'))));
                return unexpected{std::make_error_code(std::errc::protocol_error)};
            }
            if (found != nullptr) {
                return redis_reply(static_cast<redisReply*>(found));
            }
            const std::error_code error =
                repeat(POLLIN, [&] { return read(some, sizeof some, heard); });
            if (error || heard == 0) { // 0: the server has closed the connection
                return unexpected{error ? error
                                        : std::make_error_code(std::errc::connection_reset)};
            }
            if (::redisReaderFeed(reader_.get(), some, heard) != REDIS_OK) {
                return unexpected{std::make_error_code(std::errc::not_enough_memory)};
            }
        }
    }

    CURLcode read(char* to, std::size_t room, std::size_t& n) noexcept {
        return ::curl_easy_recv(handle_.get(), to, room, &n);
    }
    // Calls step(). Without TLS, libcurl writes without a signal.
    template <class Step> CURLcode once(Step step) noexcept {
        return to_.is_tls() ? without_sigpipe(step) : step();
    }

    // Repeats a step of libcurl until it is done, and waits for the socket in between.
    template <class Step> std::error_code repeat(short event, Step step) {
        for (;;) {
            const CURLcode code = once(step);
            if (code != CURLE_AGAIN) {
                return failure(code);
            }
            if (const std::error_code error = wait_for(socket(), event, end_)) {
                return error;
            }
        }
    }
    std::error_code failure(CURLcode code) {
        const std::error_code error = error_of(code);
        if (error) {
            set_text(text_);
        }
        return error;
    }

    void set_text(std::string_view text) {
        message_ = without_secret(one_line(text), to_.url.password);
    }

    redisReplyObjectFunctions limits_{}; // hiredis's own, but for arrays
    std::unique_ptr<redisReader, ended_by<&::redisReaderFree>> reader_;
};

// ---- Slots

// Reads a URL into the target; `password` is for a URL without one. Returns the error, or nullptr.
inline const char* read_redis_url(std::string_view text, std::string password,
                                  redis_target& target) {
    auto url = read_server_url(text);
    if (!url) {
        return url.error();
    }
    if (url->scheme != "redis" && url->scheme != "rediss") {
        return "the URL begins with neither redis:// nor rediss://";
    }
    target.url = *std::move(url);
    server_url& to = target.url;
    to.port = to.port == 0 ? 6379 : to.port;
    if (to.password.empty()) {
        to.password = std::move(password);
    }
    if (!to.user.empty() && to.password.empty()) {
        return "the URL has a user and no password; a password alone is written with a ':' before "
               "it";
    }
    const bool is_number = to.path.empty() || read_number(to.path, 1'000'000) >= 0;
    to.path = to.path == "0" ? "" : std::move(to.path);
    return is_number ? nullptr : "the URL's path is not the number of a database";
}

} // namespace detail

BIDE_DURABLE_INLINE redis_slot::redis_slot(std::string_view url, std::string key,
                                           redis_slot_options options) {
    detail::redis_target target{.trust = {std::move(options.ca_file), std::move(options.cert_file),
                                          std::move(options.key_file)}};
    detail::check_argument("bide::redis_slot",
                           key.empty()
                               ? "the key is empty"
                               : detail::read_redis_url(url, std::move(options.password), target));
    core_ = std::make_unique<detail::server_slot<detail::redis_connection>>(
        std::move(target),
        detail::server_terms{std::move(key), options.retry_time, options.max_value});
}

}} // namespace bide::BIDE_ABI

#endif
