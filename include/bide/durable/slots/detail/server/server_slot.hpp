// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP

// What the slots of servers share: connections, URLs, waiting for a socket, and the call of a slot.

#include <bide/durable/process.hpp>
#include <bide/sync/semaphore.hpp>

#include <charconv>
#include <compare>
#include <csignal>
#include <deque>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The deleter of an object of a C library, which `End` frees.
template <auto End> struct ended_by {
    template <class T> void operator()(T* of) const noexcept { End(of); }
};

// ---- Texts

// Reads a number from 0 to `most`, without a sign or leading zeros. Returns -1 for anything else.
inline std::int64_t read_number(std::string_view digits, std::int64_t most) noexcept {
    std::int64_t number = -1;
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, number);
    const bool has_zero = digits.size() > 1 && digits.front() == '0';
    const bool fits = error == std::errc() && end == last && !has_zero && number >= 0;
    return fits && number <= most ? number : -1;
}

// Whether the text has one of these parts.
template <class... Parts> bool says(std::string_view text, Parts... parts) noexcept {
    return ((text.find(parts) != text.npos) || ...);
}

// Returns the text. If the text quotes the secret, returns at most its first word, with a remark.
inline std::string without_secret(std::string error_text, std::string_view secret) {
    if (secret.empty() || !says(error_text, secret)) {
        return error_text;
    }
    const std::string first = error_text.substr(0, error_text.find(' '));
    return (says(first, secret) ? "" : first + " ") + "(the error text quotes the password)";
}

// ---- Connections

// The most connections to one server that a process opens for calls. A server commits calls of
// several connections with one write to its disk, so the throughput grows with their number. But a
// server has few connections: 100 for all clients is PostgreSQL's default.
inline constexpr std::size_t most_call_connections = 8;

// A call takes an idle connection. If none is idle and fewer than the bound are open, the call
// opens another one; otherwise it waits in order of arrival, until its deadline.
//
//   a broken connection  The call that finds it closes all idle connections, too: they probably
//                        broke at the same time. The next calls open new ones.
//   a refusal            If a further connection cannot be opened within `longest_share` while
//                        another one is open, the call waits for an open one. When the time
//                        `ask_again_after` has passed, calls try again to open a further one.
//   no more need         When a call ends, connections that were idle for `keep_idle` are closed.
//
// A Connection is used by one caller at a time and has
//
//   using target = ...;                    ordered; names the server
//   explicit Connection(const target&);
//   void end_at(deadline) noexcept;        sets the end of the present call
//   bool is_open() const noexcept;         whether it was opened, and no call has lost it
//   bool is_usable() noexcept;             whether it is open, and has nothing to read
//   std::error_code connect();             closes it, and opens it again
//   void drop() noexcept;                  closes it. In a child of fork(): only the descriptor
//
// `Clock` is the clock for idle times and pauses.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
    struct place {
        explicit place(const typename Connection::target& to) : of(to) {}
        Connection of;
        bool is_used = false; // under lock_, like the members below
        bool is_open = false; // as far as the pool knows
        typename Clock::time_point idle_since{};
    };
    struct returns {
        connection_pool* to = nullptr;
        void operator()(place* at) const noexcept { to->give_back(*at); }
    };

public:
    using target = typename Connection::target;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};
    static constexpr std::chrono::seconds longest_share{1};

    connection_pool(const target& to, std::size_t most)
        : permits_(static_cast<std::ptrdiff_t>(most)) {
        while (places_.size() < most) {
            places_.emplace_back(to);
        }
    }

    // Exclusive use of a connection, until the destructor. Without an error, the connection is
    // open. With an error, it cannot be opened, and no other one is open. If `at` is nullptr, the
    // error is timed_out: other callers had all connections until the deadline.
    struct borrowed {
        std::unique_ptr<place, returns> at{};
        std::error_code error{};

        explicit operator bool() const noexcept { return at != nullptr; }
        Connection& operator*() const noexcept { return at->of; }
        Connection* operator->() const noexcept { return &at->of; }
    };

    // Blocks: until the caller has a connection and it is open, or until the deadline.
    borrowed take(deadline end) {
        do {
            if (!permits_.try_acquire()) {
                allow_refused();
                const std::chrono::nanoseconds until(end.steady_ns());
                if (!permits_.try_acquire_until(std::chrono::steady_clock::time_point(until))) {
                    break;
                }
            }
            borrowed mine{{nullptr, {this}}};
            const deadline share = deadline::after(longest_share);
            const bool has_share = pick(mine) && share.steady_ns() < end.steady_ns();
            mine->end_at(has_share ? share : end);
            mine.error = mine->is_usable() ? std::error_code() : mine->connect();
            mine->end_at(end); // the call has all of the time
            const std::lock_guard held(lock_);
            mine.at->is_open = !mine.error;
            if (!mine.error || !waits_for_another(mine)) {
                return mine;
            }
        } while (!end.has_passed());
        return {{}, std::make_error_code(std::errc::timed_out)};
    }

    // Snapshots: how many connections are open as far as the pool knows, and how many callers wait.
    std::size_t open() const {
        const std::lock_guard held(lock_);
        return open_ones();
    }
    std::size_t waiting() const noexcept { return permits_.waiters(); }

private:
    // Takes the first idle connection, so that later ones stay idle; if there is none, a closed
    // one. Returns whether another connection is open.
    bool pick(borrowed& to) noexcept {
        const std::lock_guard held(lock_);
        place* found = nullptr;
        for (place& each : places_) {
            if (!each.is_used && (found == nullptr || each.is_open > found->is_open)) {
                found = &each;
            }
        }
        found->is_used = true;
        to.at.reset(found);
        return open_ones() > (found->is_open ? 1U : 0U);
    }

    // Handles a connection that cannot be opened. If another one is open, withholds the permits for
    // further ones until allow_refused(), so that no later call tries to open one. Then returns
    // true: the caller has to wait for an open one. Called under lock_.
    bool waits_for_another(borrowed& refused) noexcept {
        close_idle([](place& each) { return !each.of.is_usable(); });
        const std::size_t others = open_ones();
        if (others == 0) {
            return false;
        }
        if (refused_ + others < places_.size()) { // otherwise other callers were refused before
            refused.at.release()->is_used = false;
            ++refused_;
        }
        while (refused_ + others < places_.size() && permits_.try_acquire()) {
            ++refused_;
        }
        allowed_at_ = Clock::now() + ask_again_after;
        return true;
    }

    // Releases the withheld permits if calls may try again to open further connections.
    void allow_refused() noexcept {
        std::unique_lock held(lock_);
        const bool is_allowed = open_ones() == 0 || Clock::now() >= allowed_at_;
        const std::size_t count = is_allowed ? std::exchange(refused_, 0) : 0;
        held.unlock();
        if (count != 0) {
            permits_.release(static_cast<std::ptrdiff_t>(count));
        }
    }

    void give_back(place& ended) noexcept {
        {
            const std::lock_guard held(lock_);
            const auto now = Clock::now();
            const bool was_lost = ended.is_open && !ended.of.is_open();
            ended.is_open = ended.of.is_open();
            ended.is_used = false;
            ended.idle_since = now;
            close_idle([&](place& each) { return was_lost || each.idle_since + keep_idle <= now; });
        }
        permits_.release(1);
        allow_refused();
    }

    // The functions below are called under lock_.
    template <class F> void close_idle(F is_chosen) noexcept {
        for (place& each : places_) {
            if (each.is_open && !each.is_used && is_chosen(each)) {
                each.of.drop();
                each.is_open = false;
            }
        }
    }
    std::size_t open_ones() const noexcept {
        return static_cast<std::size_t>(std::ranges::count_if(places_, &place::is_open));
    }

    mutable mutex lock_;
    std::deque<place> places_;
    std::size_t refused_ = 0; // withheld permits; under lock_, like allowed_at_
    typename Clock::time_point allowed_at_{};
    semaphore permits_; // a permit for each connection, minus refused_
};

// What the slots of a process for one server share. The last slot closes the connections.
template <class Client> struct BIDE_SHARED shared_server {
    using target = typename Client::target;

    explicit shared_server(const target& to) : calls(to, most_call_connections), renewals(to, 1) {}

    connection_pool<Client> calls;
    connection_pool<Client> renewals;
    typename Client::known known{}; // what these slots have learned about the server

    static std::shared_ptr<shared_server> find(const target& to) {
        return shared_by_key<target, shared_server>::find(
            to, [&] { return std::make_shared<shared_server>(to); });
    }
};

// ---- URLs

// The parts of scheme://[user[:password]@]host[:port][/path], RFC 3986.
struct server_url {
    std::string scheme{}; // in lower case
    std::string user{};
    std::string password{};
    std::string host{}; // an IPv6 address has no brackets
    int port = 0;       // 0: the URL names none
    std::string path{}; // as it is written, without the '/' before it

    friend auto operator<=>(const server_url&, const server_url&) = default;
};

// Decodes a percent-encoded part: "%41" is "A". Returns nothing for a '%' without two hexadecimal
// digits, for a NUL byte, and for a byte that must be encoded.
inline std::optional<std::string> decode_url_part(std::string_view text) {
    std::string decoded;
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
            return std::nullopt;
        }
        decoded += static_cast<char>(byte);
    }
    return decoded;
}

// Reads a URL. Refuses a URL that two programs could read in different ways, such as one with a
// second '@'. If it fails, returns a text about what is wrong, which quotes no part of the URL.
inline result<server_url, const char*> read_server_url(std::string_view url) {
    // Removes the text before `by`, and `by`, from the front of `rest`. Returns that text.
    constexpr auto cut = [](std::string_view& rest, std::string_view by) {
        const std::string_view front = rest.substr(0, rest.find(by));
        rest.remove_prefix(std::min(front.size() + by.size(), rest.size()));
        return front;
    };
    server_url read;
    const bool has_scheme = says(url, "://");
    for (const char c : cut(url, "://")) {
        read.scheme += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    if (!has_scheme || read.scheme.empty()) {
        return unexpected{"the URL does not begin with a scheme and ://"};
    }
    const bool is_encoded = decode_url_part(url) && url.find_first_of("?#") == url.npos;
    std::string_view host = cut(url, "/"); // [user[:password]@]host[:port]
    read.path = url;
    std::string_view login = says(host, "@") ? cut(host, "@") : std::string_view();
    if (!is_encoded || says(host, "@") || says(url, "@")) {
        return unexpected{"the URL's user, password or path is not percent-encoded: in them, write "
                          "@ as %40, / as %2F, ? as %3F and # as %23"};
    }
    read.user = *decode_url_part(cut(login, ":"));
    read.password = *decode_url_part(login);

    const bool is_address = host.starts_with('[');
    const std::size_t end = is_address ? host.find(']') + 1 : std::min(host.find(':'), host.size());
    const std::string_view port = host.substr(end);
    read.host =
        is_address ? host.substr(1, std::max<std::size_t>(end, 2) - 2) : host.substr(0, end);
    if (!port.empty()) {
        read.port = port[0] == ':' ? static_cast<int>(read_number(port.substr(1), 65'535)) : -1;
    }
    constexpr std::string_view known =
        "0123456789-._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    in6_addr parsed{};
    const bool is_host = is_address
                             ? ::inet_pton(AF_INET6, read.host.c_str(), &parsed) == 1
                             : read.host.find_first_not_of(known) == read.host.npos &&
                                   !read.host.empty() && read.host[0] != '-' && read.host[0] != '.';
    if (!is_host || (!port.empty() && read.port <= 0)) {
        return unexpected{"the URL's host is not a name or an [IPv6 address], or its port not a "
                          "number from 1 to 65535"};
    }
    return read;
}

// Returns the host as it stands in a URL: an IPv6 address in brackets.
inline std::string host_in_url(const std::string& host) {
    return says(host, ":") ? '[' + host + ']' : host;
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

// Waits for the events. Returns timed_out if the deadline passes first.
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

// Calls f, which may write to a socket through a TLS library. Blocks SIGPIPE in this thread
// meanwhile, and discards a SIGPIPE that a broken connection has raised. Keeps f's errno.
template <class F> auto without_sigpipe(F f) noexcept {
    constexpr auto is_pending = [] {
        ::sigset_t all;
        sigpending(&all);
        return sigismember(&all, SIGPIPE) == 1;
    };
    ::sigset_t pipe{};
    ::sigset_t before{};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const bool was_pending = is_pending();
    ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
    const auto done = f();
    const int error = errno;
    int number = 0;
    if (!was_pending && is_pending()) {
        ::sigwait(&pipe, &number);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return done;
}

// ---- Slots

// The answer of a server; or the error, its text, and whether a value may have been stored.
template <class T> struct server_answer {
    T of{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string error_text{};
    bool may_pass = false; // another transaction was in the way: the call is worth another try

    // Returns the same error in an answer of another type.
    template <class U> server_answer<U> refused_as() && {
        return {{}, error, may_have_stored, std::move(error_text), may_pass};
    }
};

// The answer to a load, which has the value in `current`, or to a compare-and-swap.
using slot_answer = server_answer<cas_result>;

// `wrong` is a text about a wrong argument of the slot, or nullptr if all are right.
// Throws: std::system_error (invalid_argument) if `wrong` is not nullptr.
inline void check_argument([[maybe_unused]] const char* slot_name, const char* wrong) {
    if (wrong != nullptr) {
        BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument),
                                     std::string(slot_name) + ": " + wrong));
    }
}

struct server_terms {
    std::string key;
    std::chrono::milliseconds retry_time; // of one operation
    std::size_t max_value;
    std::string table{}; // PostgreSQL's, with its schema, quoted
    bool is_for_renewals = false;
};

template <class Target> class server_client {
public:
    using target = Target;
    struct known {}; // what the slots of this process learn about the server

    explicit server_client(const target& to) : to_(to) {}
    server_client(const server_client&) = delete;
    server_client& operator=(const server_client&) = delete;

    void end_at(deadline end) noexcept { end_ = end; }
    // The text about the last error, in one line without the password.
    const std::string& message() const noexcept { return message_; }

protected:
    ~server_client() = default;

    const target to_;
    deadline end_ = deadline::poll(); // of the present call
    std::string message_{};
};

// A slot on a server. A Client is a server_client and a Connection of a pool (see above), and has
//
//   slot_answer load(const server_terms&, known&);    without an error, it has `current`
//   slot_answer exchange(const server_terms&, known&, slot_version, std::string_view);
template <class Client> class server_slot final : public slot {
public:
    server_slot(typename Client::target to, server_terms of)
        : target_(std::move(to)), terms_(std::move(of)) {}

    result<slot_snapshot, std::error_code> load() override {
        slot_answer got =
            ask(true, [this](Client& to, auto& known) { return to.load(terms_, known); });
        if (got.error) {
            return unexpected{got.error};
        }
        return *std::move(got.of.current);
    }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        if (value.size() > terms_.max_value) {
            const std::error_code error = durable_errc::too_large;
            last_error_text_ = error.message();
            return {.error = error};
        }
        slot_answer got = ask(false, [&](Client& to, auto& known) {
            return to.exchange(terms_, known, version, value);
        });
        if (got.error) {
            got.of.status = got.may_have_stored ? cas_status::indeterminate : cas_status::failed;
            got.of.error = got.error;
        }
        return std::move(got.of);
    }

    std::string store() const override { return target_.name(); }
    std::string explain() const override {
        return one_line(target_.name() + ", key " + terms_.key +
                            (last_error_text_.empty() ? "" : ": " + last_error_text_),
                        1'000);
    }
    std::unique_ptr<slot> for_renewals() const override {
        auto other = std::make_unique<server_slot>(target_, terms_);
        other->terms_.is_for_renewals = true;
        return other;
    }

private:
    // Calls question() with a connection and `known`. If another transaction blocks the call, takes
    // a connection and calls again, for at most half of `retry_time`. If `may_repeat` is true and
    // the connection was lost, as an idle one may be, calls question() once more.
    template <class Question> slot_answer ask(bool may_repeat, Question question) {
        const deadline end = deadline::after(terms_.retry_time);
        const deadline passing_end = deadline::after(terms_.retry_time / 2);
        shared_server<Client>& server =
            *in_process_.get([this] { return shared_server<Client>::find(target_); });
        auto& pool_of_calls = terms_.is_for_renewals ? server.renewals : server.calls;
        for (;;) {
            slot_answer got;
            {
                const auto taken = pool_of_calls.take(end);
                if (!taken.error) {
                    got = question(*taken, server.known);
                } else {
                    got.error = taken.error;
                    got.error_text =
                        taken ? taken->message()
                              : "no free connection in time: other calls of this process had "
                                "them all";
                }
            }
            const bool was_cut = got.error == std::errc::connection_reset;
            if (!(got.may_pass && !passing_end.has_passed()) &&
                !(was_cut && std::exchange(may_repeat, false))) {
                last_error_text_ =
                    got.error && got.error_text.empty() ? got.error.message() : got.error_text;
                return got;
            }
        }
    }

    const typename Client::target target_;
    server_terms terms_;
    std::string last_error_text_{}; // of the last operation, if it failed
    per_process<std::shared_ptr<shared_server<Client>>> in_process_{};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
