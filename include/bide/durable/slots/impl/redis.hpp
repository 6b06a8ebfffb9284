// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP
#define BIDE_DURABLE_SLOTS_IMPL_REDIS_HPP

// hiredis connects and parses replies. The socket does not block, so that one time limit holds for
// a whole call: hiredis's own time limit begins again with each part of a reply.

#include <bide/durable/slots/detail/server/server_slot.hpp>
#include <bide/durable/slots/redis.hpp>

#include <initializer_list>

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#if defined(BIDE_DURABLE_OPENSSL)
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#endif

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- TLS, by OpenSSL 1.1.1 or later (hiredis has TLS from 1.0 on)

// The result of a step: done, or the event to wait for before it is repeated, or the error.
struct tls_step {
    std::size_t count = 0; // bytes
    short wanted = 0;
    std::error_code error{};
};

#if defined(BIDE_DURABLE_OPENSSL)

// One session. The destructor sends nothing, so that a child of fork() may run it.
class redis_tls {
public:
    std::error_code error = std::make_error_code(std::errc::not_enough_memory); // of the session
    std::string error_text{}; // about the last error, or empty

    // Makes a session, or sets `error`. A missing file is found here, before a socket is opened.
    redis_tls(const std::string& host, const tls_files& trust) {
        ::ERR_clear_error();
        const std::unique_ptr<SSL_CTX, ended_by<&::SSL_CTX_free>> with(
            ::SSL_CTX_new(::TLS_client_method()));
        if (with != nullptr) {
            set_up(with.get(), host, trust);
        }
    }

    // Shakes hands over the socket, and verifies the server's certificate and name.
    tls_step shake_hands(int fd) {
        if (::SSL_get_fd(ssl_.get()) < 0) {
            ::SSL_set_fd(ssl_.get(), fd);
        }
        return step([&](std::size_t&) { return ::SSL_connect(ssl_.get()); });
    }
    tls_step write(const char* from, std::size_t size) {
        return step([&](std::size_t& n) { return ::SSL_write_ex(ssl_.get(), from, size, &n); });
    }
    tls_step read(char* to, std::size_t room) {
        return step([&](std::size_t& n) { return ::SSL_read_ex(ssl_.get(), to, room, &n); });
    }
    // Returns true if there is nothing to read, except session tickets, which this call handles.
    bool is_quiet() {
        char one;
        const tls_step looked =
            step([&](std::size_t& n) { return ::SSL_peek_ex(ssl_.get(), &one, 1, &n); });
        return looked.wanted == POLLIN;
    }

private:
    void set_up(SSL_CTX* to, const std::string& host, const tls_files& trust) {
        ::SSL_CTX_set_min_proto_version(to, TLS1_2_VERSION);
        ::SSL_CTX_set_mode(to, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        ::SSL_CTX_set_verify(to, SSL_VERIFY_PEER, nullptr);
        // The password of a key, so that OpenSSL does not ask for it on the terminal.
        ::SSL_CTX_set_default_passwd_cb_userdata(to, const_cast<char*>(""));
        const std::string& cert = trust.cert_file;
        const std::string& key = trust.key_file.empty() ? cert : trust.key_file;
        if (trust.ca_file.empty()) {
            ::SSL_CTX_set_default_verify_paths(to); // if that fails, no certificate is trusted
        } else if (::SSL_CTX_load_verify_locations(to, trust.ca_file.c_str(), nullptr) != 1) {
            return refuse("the authorities in ", trust.ca_file);
        }
        if (!cert.empty() && ::SSL_CTX_use_certificate_chain_file(to, cert.c_str()) != 1) {
            return refuse("the certificate in ", cert);
        }
        if (!cert.empty() &&
            ::SSL_CTX_use_PrivateKey_file(to, key.c_str(), SSL_FILETYPE_PEM) != 1) {
            return refuse("the key in ", key);
        }
        ssl_.reset(::SSL_new(to));
        if (ssl_ != nullptr && set_host(host)) {
            error.clear();
        }
    }

    void refuse(const char* what, const std::string& file) {
        const int number = ::access(file.c_str(), R_OK) == 0 ? EINVAL : errno;
        error = {number, std::generic_category()};
        error_text = what + file + ": " + (number != EINVAL ? error.message() : reason());
    }

    static const char* reason() noexcept {
        const char* const text = ::ERR_reason_error_string(::ERR_peek_error());
        return text != nullptr ? text : "unknown error";
    }

    // Accepts only a certificate for this name or address.
    bool set_host(const std::string& host) {
        X509_VERIFY_PARAM* const checked = ::SSL_get0_param(ssl_.get());
        if (::X509_VERIFY_PARAM_set1_ip_asc(checked, host.c_str()) == 1) {
            return true; // an address is not sent as a name
        }
        ::X509_VERIFY_PARAM_set_hostflags(checked, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return ::X509_VERIFY_PARAM_set1_host(checked, host.c_str(), host.size()) == 1 &&
               ::SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) == 1;
    }

    template <class Call> tls_step step(Call call) {
        std::size_t count = 0;
        ::ERR_clear_error();
        const int done = without_sigpipe([&] {
            errno = 0;
            return call(count);
        });
        if (done > 0) {
            return {count};
        }
        const int number = errno != 0 ? errno : ECONNRESET;
        switch (::SSL_get_error(ssl_.get(), done)) {
        case SSL_ERROR_WANT_READ: return {0, POLLIN};
        case SSL_ERROR_WANT_WRITE: return {0, POLLOUT};
        case SSL_ERROR_SYSCALL: return {0, 0, {number, std::generic_category()}};
        case SSL_ERROR_ZERO_RETURN: // the server closed the session
            return {0, 0, std::make_error_code(std::errc::connection_reset)};
        default: return {0, 0, refusal()};
        }
    }

    // Returns the error of a failed step, and sets its text. permission_denied and protocol_error
    // mean that an operator has to act.
    std::error_code refusal() {
        const long verdict = ::SSL_get_verify_result(ssl_.get());
        const int number = ERR_GET_REASON(::ERR_peek_error());
        error_text = std::string("TLS: ") + reason();
#if defined(SSL_R_UNEXPECTED_EOF_WHILE_READING)
        if (number == SSL_R_UNEXPECTED_EOF_WHILE_READING) { // OpenSSL 3: the connection ended
            error_text.clear();
            return std::make_error_code(std::errc::connection_reset);
        }
#endif
        if (verdict != X509_V_OK) {
            error_text = std::string("TLS: the server's certificate is not trusted: ") +
                         ::X509_verify_cert_error_string(verdict);
        } else if (refuses_certificate(error_text)) {
            error_text += " (the server requires a client certificate that it trusts)";
        } else if (number == SSL_R_TLSV1_ALERT_INTERNAL_ERROR) {
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        } else {
            const bool is_plain =
                number == SSL_R_WRONG_VERSION_NUMBER || number == SSL_R_HTTP_REQUEST;
            error_text += is_plain ? " (the server does not speak TLS at this port)" : "";
            return std::make_error_code(std::errc::protocol_error);
        }
        return std::make_error_code(std::errc::permission_denied);
    }

    std::unique_ptr<SSL, ended_by<&::SSL_free>> ssl_;
};

#else

class redis_tls {
public:
    std::error_code error = std::make_error_code(std::errc::function_not_supported);
    std::string error_text = "TLS: this program was built without OpenSSL";

    redis_tls(const std::string&, const tls_files&) {}
    tls_step shake_hands(int) { return {}; }
    tls_step write(const char*, std::size_t) { return {}; }
    tls_step read(char*, std::size_t) { return {}; }
    bool is_quiet() { return false; }
};

#endif

// ---- Protocol

// What identifies a connection. The URL's path is the number of the database, empty for 0.
struct redis_target {
    server_url url{};
    tls_files trust{};

    // Returns a text for messages, without the password.
    std::string name() const {
        return (url.scheme == "rediss" ? "redis (TLS) at " : "redis at ") + host_in_url(url.host) +
               ':' + std::to_string(url.port) + (url.path.empty() ? "" : ", database " + url.path) +
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
// version is the server's time in microseconds. If that is not greater than the previous version,
// the new version is the previous one plus one. A number of Lua is exact up to 2^53. After HSET the
// script cannot fail.
//
// PERSIST makes a replica refuse the load, because the value of a replica may be old. A store does
// not call PERSIST before HSET: if the script has written anything before, a server that lacks
// memory no longer refuses HSET.
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

class redis_connection final : public server_client<redis_target> {
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
    // Closes the connection without a message to the server.
    void drop() noexcept {
        tls_.reset();
        link_.reset();
    }

    // Returns true if the connection is open, and no byte waits to be read.
    bool is_usable() {
        return is_open() && link_->reader->pos == link_->reader->len &&
               (tls_ != nullptr
                    ? tls_->is_quiet()
                    : wait_for(link_->fd, POLLIN, deadline::poll()) == std::errc::timed_out);
    }
    bool is_open() const noexcept { return link_ != nullptr; }

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
        if (to_.url.scheme == "rediss") { // first: a missing file is not an error of the network
            tls_ = std::make_unique<redis_tls>(to_.url.host, to_.trust);
            if (tls_->error) {
                message_ = tls_->error_text;
                return tls_->error;
            }
        }
        const long ms = std::max(ms_until(end_), 1L);
        timeval limit{};
        limit.tv_sec = static_cast<decltype(limit.tv_sec)>(ms / 1'000);
        limit.tv_usec = static_cast<decltype(limit.tv_usec)>(ms % 1'000 * 1'000);
        errno = 0;
        link_.reset(::redisConnectWithTimeout(to_.url.host.c_str(), to_.url.port, limit));
        if (link_ == nullptr || link_->err == REDIS_ERR_OOM) {
            return std::make_error_code(std::errc::not_enough_memory);
        }
        if (link_->err == REDIS_ERR_IO && errno != 0) {
            return {errno == EINPROGRESS ? ETIMEDOUT : errno, std::generic_category()};
        }
        if (link_->err != 0) { // the look-up of the host's name
            message_ = link_->errstr;
            return std::make_error_code(std::errc::host_unreachable);
        }
        const int on = 1;
        ::fcntl(link_->fd, F_SETFD, FD_CLOEXEC);
        ::fcntl(link_->fd, F_SETFL, O_NONBLOCK);
        ::setsockopt(link_->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#if defined(SO_NOSIGPIPE)
        ::setsockopt(link_->fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
        limits_ = *link_->reader->fn;
        limits_.createArray = &make_array;
        link_->reader->privdata = link_->reader->fn;
        link_->reader->fn = &limits_;
        if (tls_ == nullptr) {
            return {};
        }
        const auto done = repeat([this] { return tls_->shake_hands(link_->fd); });
        return done ? std::error_code() : done.error();
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

    // Sends a request. After an error, at most a part of the request was sent. The server ignores
    // an incomplete request.
    std::error_code send(const std::vector<std::string_view>& words) {
        message_.clear();
        std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
        for (const std::string_view each : words) {
            bytes.append("$").append(std::to_string(each.size())).append("\r\n");
            bytes.append(each).append("\r\n");
        }
        std::string_view rest(bytes);
        while (!rest.empty()) {
            const auto sent = repeat([&] { return write(rest); });
            if (!sent) {
                return sent.error();
            }
            rest.remove_prefix(*sent);
        }
        return {};
    }

    // Receives the next reply, which may be an error reply.
    result<redis_reply, std::error_code> receive() {
        char some[16 * 1024];
        std::size_t heard = 0;
        for (;;) {
            void* found = nullptr;
            if (::redisReaderGetReply(link_->reader, &found) != REDIS_OK) {
                const std::string_view text(some, heard);
                set_text("not a reply of Redis: " + std::string(text.substr(0, text.find('\n'))));
                return unexpected{std::make_error_code(std::errc::protocol_error)};
            }
            if (found != nullptr) {
                return redis_reply(static_cast<redisReply*>(found));
            }
            const auto n = repeat([&] { return read(some, sizeof some); });
            if (!n) {
                return unexpected{n.error()};
            }
            heard = *n;
            if (::redisReaderFeed(link_->reader, some, heard) != REDIS_OK) {
                return unexpected{std::make_error_code(std::errc::not_enough_memory)};
            }
        }
    }

    // Repeats a step until it is done, and waits for the socket in between.
    // Returns: how many bytes it read or wrote.
    template <class Step> result<std::size_t, std::error_code> repeat(Step step) {
        for (;;) {
            tls_step done = step();
            if (!done.error && done.wanted == 0) {
                return done.count;
            }
            if (!done.error) {
                done.error = wait_for(link_->fd, done.wanted, end_);
            } else if (tls_ != nullptr) {
                message_ = tls_->error_text;
            }
            if (done.error) {
                return unexpected{done.error};
            }
        }
    }
    tls_step write(std::string_view bytes) {
#if defined(MSG_NOSIGNAL)
        constexpr int no_signal = MSG_NOSIGNAL;
#else
        constexpr int no_signal = 0;
#endif
        return tls_ != nullptr
                   ? tls_->write(bytes.data(), bytes.size())
                   : outcome(::send(link_->fd, bytes.data(), bytes.size(), no_signal), POLLOUT);
    }
    tls_step read(char* to, std::size_t room) {
        return tls_ != nullptr ? tls_->read(to, room)
                               : outcome(::recv(link_->fd, to, room, 0), POLLIN);
    }
    static tls_step outcome(ssize_t n, short event) noexcept {
        if (n > 0) {
            return {static_cast<std::size_t>(n)};
        }
        const int number = n == 0 ? ECONNRESET : errno;
        return number == EAGAIN || number == EWOULDBLOCK || number == EINTR
                   ? tls_step{0, event}
                   : tls_step{0, 0, {number, std::generic_category()}};
    }

    void set_text(std::string_view text) {
        message_ = without_secret(one_line(text), to_.url.password);
    }

    redisReplyObjectFunctions limits_{}; // hiredis's own, but for arrays
    std::unique_ptr<redisContext, ended_by<&::redisFree>> link_;
    std::unique_ptr<redis_tls> tls_;
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
