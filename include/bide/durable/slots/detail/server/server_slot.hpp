// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP

// What the slots of servers have in common: the call on a shared connection, the watch, URLs,
// and waiting for a socket.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/connections.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <compare>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- URLs

// The parts of scheme://[user[:password]@]host[:port][/path], RFC 3986.
struct server_url {
    std::string scheme{}; // in lower case
    std::string user{};
    std::string password{};
    std::string host{}; // an IPv6 address has no brackets
    int port = 0;       // 0: the URL names none
    std::string path{}; // as it is written, without the '/' before it
};

// Decodes a percent-encoded part: "%41" is "A". Returns false for a '%' without two hexadecimal
// digits, for a NUL byte, and for a byte that must be encoded.
inline bool decode_url_part(std::string_view text, std::string& to) {
    to.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned byte = static_cast<unsigned char>(text[i]);
        bool fits = byte > ' ' && byte <= '~' && byte != '\\';
        if (text[i] == '%') {
            const std::string_view digits = text.substr(i + 1, 2);
            const char* const last = digits.data() + digits.size();
            fits = digits.size() == 2 &&
                   std::from_chars(digits.data(), last, byte, 16).ptr == last && byte != 0;
            i += 2;
        }
        if (!fits) {
            return false;
        }
        to += static_cast<char>(byte);
    }
    return true;
}

// Reads host:port or [address]:port. An address may have a zone: "fe80::1%25eth0".
inline bool read_url_host(std::string_view text, server_url& to) {
    constexpr std::string_view known =
        "0123456789-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const bool is_address = text.substr(0, 1) == "[";
    const std::size_t end = std::min(text.find(is_address ? ']' : ':'), text.size());
    if (!decode_url_part(text.substr(is_address ? 1 : 0, end - (is_address ? 1 : 0)), to.host)) {
        return false;
    }
    const std::size_t zone = to.host.find('%');
    in6_addr read{};
    const bool is_good =
        is_address ? end < text.size() && zone + 1 != to.host.size() &&
                         ::inet_pton(AF_INET6, to.host.substr(0, zone).c_str(), &read) == 1
                   : !to.host.empty() && to.host.find_first_not_of(known) == to.host.npos &&
                         to.host.front() != '-' && to.host.front() != '.';
    text.remove_prefix(std::min(end + (is_address ? 1 : 0), text.size()));
    if (!text.empty()) {
        to.port = text.front() == ':' ? static_cast<int>(read_number(text.substr(1), 65'535)) : -1;
    }
    return is_good && (text.empty() || to.port > 0);
}

// Reads a URL. Refuses what two readers could read in two ways, such as a second '@'. If it fails,
// returns a text about what is wrong, which quotes no part of the URL.
inline result<server_url, const char*> read_server_url(std::string_view url) {
    constexpr auto wrong = [](const char* error_text) { return unexpected{error_text}; };
    server_url read;
    const std::size_t colon = url.find("://");
    if (colon == url.npos || colon == 0) {
        return wrong("the URL does not begin with a scheme and ://");
    }
    for (const char c : url.substr(0, colon)) {
        read.scheme += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    const std::string_view rest = url.substr(colon + 3);
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const std::size_t at = rest.find('@');
    const std::string_view login = at == rest.npos ? std::string_view() : rest.substr(0, at);
    const std::size_t middle = std::min(login.find(':'), login.size());
    if (rest.find_first_of("?#") != rest.npos ||
        (at != rest.npos && (at > slash || rest.find('@', at + 1) != rest.npos)) ||
        !decode_url_part(login.substr(0, middle), read.user) ||
        !decode_url_part(login.substr(std::min(middle + 1, login.size())), read.password)) {
        return wrong("the URL's user or password is not percent-encoded: in them, write @ as %40, "
                     "/ as %2F, ? as %3F and # as %23");
    }
    const std::size_t from = at == rest.npos ? 0 : at + 1;
    if (!read_url_host(rest.substr(from, slash - from), read)) {
        return wrong("the URL's host is not a name or an [IPv6 address], or its port not a number "
                     "from 1 to 65535");
    }
    std::string decoded;
    if (!decode_url_part(rest.substr(std::min(slash + 1, rest.size())), decoded)) {
        return wrong("the URL's path is not percent-encoded");
    }
    read.path = rest.substr(std::min(slash + 1, rest.size()));
    return read;
}

// The PEM files of TLS.
struct tls_files {
    std::string ca_file{};   // empty: the system's authorities
    std::string cert_file{}; // empty: the client has no certificate
    std::string key_file{};  // empty: the key is in cert_file
    friend auto operator<=>(const tls_files&, const tls_files&) = default;
};

// ---- Sockets

// Returns the time until the deadline in milliseconds, rounded up; at most one hour.
inline long ms_until(deadline end) noexcept {
    constexpr std::int64_t hour = 3'600'000'000'000;
    const std::int64_t ns =
        std::clamp<std::int64_t>(end.steady_ns() - native_platform::now(), 0, hour);
    return static_cast<long>((ns + 999'999) / 1'000'000);
}

// Waits for the events. timed_out: the deadline passes first.
inline std::error_code wait_for(int fd, short events, deadline end) noexcept {
    for (;;) {
        pollfd looked{fd, events, 0};
        const long ms = ms_until(end);
        const int n = ::poll(&looked, 1, static_cast<int>(ms));
        if (n > 0) {
            return {};
        }
        if (n < 0 && errno != EINTR) {
            return {errno, std::generic_category()};
        }
        if (ms == 0) {
            return std::make_error_code(std::errc::timed_out);
        }
    }
}

// Blocks SIGPIPE in this thread while the object lives, and discards a SIGPIPE that a broken
// connection has raised. TLS libraries raise SIGPIPE when they write.
class no_sigpipe {
public:
    no_sigpipe() noexcept {
        ::sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        if (!was_pending_) {
            ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
        }
    }
    no_sigpipe(const no_sigpipe&) = delete;
    no_sigpipe& operator=(const no_sigpipe&) = delete;
    ~no_sigpipe() {
        if (was_pending_) {
            return; // it was pending before this guard, and is not discarded
        }
        const int error = errno;
        ::sigset_t pending;
        sigpending(&pending);
        int number = 0;
        if (sigismember(&pending, SIGPIPE) == 1) {
            ::sigwait(&pipe_, &number);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    ::sigset_t pipe_;
    ::sigset_t before_;
    bool was_pending_;
};

// ---- Slots

// The answer of a server; or the error, its text, and whether a value may have been stored.
template <class T> struct server_answer {
    T of{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string error_text{};
};

// Throws: std::system_error (invalid_argument) with this text about the argument of a slot.
[[noreturn]] inline void refuse_argument([[maybe_unused]] std::string error_text) {
    BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument), error_text));
}

// A Client is a Connection of a pool, with `answer` and lost(), which drops it and returns an
// answer.
template <class Client> struct server_slot {
    std::string key;
    std::chrono::milliseconds retry_time;
    std::size_t max_value;
    shared_connection<Client> client;
    std::string last_error_text{}; // of the last operation that failed

    const auto& target() const noexcept { return client.of().target; }

    std::string explain() const {
        return one_line(target().name() + ", key " + key +
                            (last_error_text.empty() ? "" : ": " + last_error_text),
                        1'000);
    }

    // Sets the text that explain() returns. Returns the error.
    std::error_code failed(std::error_code error, std::string error_text = {}) {
        last_error_text = !error_text.empty() ? std::move(error_text) : error.message();
        return error;
    }
    cas_result not_stored(cas_status status, std::error_code error, std::string error_text = {}) {
        return {.status = status, .error = failed(error, std::move(error_text))};
    }

    // Calls question(client) on a connection. The call ends within `retry_time`.
    template <class Question> typename Client::answer ask(Question question) {
        const auto got = client.get().take(deadline::after(retry_time));
        if (!got.of) {
            return {{}, got.error, false, "the connections are in use"};
        }
        return got.error ? got.of->lost(got.error, false) : question(*got.of);
    }
};

// Tells of the messages on one channel of a server, on a connection of its own. A process has at
// most `most` such watches; further ones fail, and the waiters read their slots at intervals.
template <class Connection> class channel_watch final : public slot_watch {
public:
    static constexpr int most = 8;

    // Makes a watch. If it fails, `error_text` has the reason.
    // Blocks: until the server has confirmed the subscription, or until the deadline.
    static result<std::unique_ptr<slot_watch>, std::error_code>
    make(const typename Connection::key& at, const std::string& channel, deadline end,
         std::string& error_text) {
        auto made = std::make_unique<channel_watch>(at);
        std::error_code error = std::make_error_code(std::errc::too_many_files_open);
        // Order: relaxed; only the number counts.
        if (count().load(std::memory_order_relaxed) <= most) {
            error = made->of_.subscribe(channel, end);
            error_text = made->of_.message();
        }
        if (error) {
            return unexpected{error};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

    explicit channel_watch(const typename Connection::key& at) : of_(at) {
        count().fetch_add(1, std::memory_order_relaxed); // Order: relaxed; only the number counts.
    }
    ~channel_watch() override {
        count().fetch_sub(1, std::memory_order_relaxed); // Order: relaxed; only the number counts.
    }

    int fd() const noexcept override { return of_.fd(); }
    std::error_code drain() noexcept override {
        std::error_code error = std::make_error_code(std::errc::operation_not_permitted);
        if (owner_ == ::getpid() && !try_to([&] { error = of_.drain(); })) {
            error = std::make_error_code(std::errc::not_enough_memory);
        }
        return error;
    }

private:
    static native_platform::atomic<int>& count() noexcept {
        static native_platform::atomic<int> open{0};
        return open;
    }

    Connection of_;
    const pid_t owner_ = ::getpid();
};

}}} // namespace bide::BIDE_ABI::detail

#endif
