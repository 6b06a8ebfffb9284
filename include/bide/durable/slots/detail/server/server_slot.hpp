// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP

// What the slots of servers have in common: shared connections, URLs, waiting for a socket, the
// call of a slot, and the watch.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/text.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <compare>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- Connections

// The most connections to one server that a process opens for calls. A server commits calls of
// several connections with one write to its disk, so the throughput grows with their number. But a
// server has few connections: 100 for all clients is PostgreSQL's default.
inline constexpr std::size_t most_call_connections = 8;

// Connections to one server.
//
// A call takes an idle connection. If none is idle and fewer than the bound are open, the call
// opens another one. Otherwise it waits for a connection, in order of arrival, until its deadline.
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
//   ~Connection();                         in a child of fork(): only closes the descriptor
//   std::error_code make_ready(deadline);  begins a call, which ends at the deadline; connects if
//                                          the connection is not usable
//   void end_at(deadline) noexcept;        moves the end of the call
//   bool is_open() const noexcept;         whether it was opened, and no call has lost it
//   bool is_usable() noexcept;             whether it is open, and its socket is quiet
//
// `Clock` is the clock for idle times and pauses.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
public:
    using target = typename Connection::target;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};
    static constexpr std::chrono::seconds longest_share{1};

    connection_pool(const target& to, std::size_t most)
        : to_(to), most_(most), permits_(static_cast<std::ptrdiff_t>(most)) {
        idle_.reserve(most);
    }

    // In a child of fork(), instead of the destructor: closes the connections that were idle.
    // Closes none if a thread of the parent was changing the list at the time of the fork.
    void leave() noexcept {
        if (lock_.try_lock()) {
            idle_.clear();
            lock_.unlock();
        }
    }

    // Exclusive use of a connection, until the destructor.
    class borrowed {
    public:
        borrowed() = default;
        borrowed(borrowed&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)), of_(std::move(other.of_)),
              is_counted_(other.is_counted_) {}
        borrowed& operator=(borrowed&&) = delete;
        ~borrowed() {
            if (pool_ != nullptr) {
                pool_->give_back(*this);
            }
        }
        explicit operator bool() const noexcept { return pool_ != nullptr; }
        Connection& operator*() const noexcept { return *of_; }
        Connection* operator->() const noexcept { return of_.get(); }

    private:
        friend class connection_pool;
        explicit borrowed(connection_pool& from) noexcept : pool_(&from) {}
        connection_pool* pool_ = nullptr;
        std::unique_ptr<Connection> of_{};
        bool is_counted_ = false; // in in_use_
    };

    // The result of take(). Without an error, the connection is open. With an error and a
    // connection, it cannot be opened, and no other is open. With timed_out and no connection,
    // other callers had all connections until the deadline.
    struct taken {
        borrowed of{};
        std::error_code error{};
    };

    // Takes a connection and opens it if needed.
    // Blocks: until the caller has a connection and it is open, or until the deadline.
    auto take(deadline end) -> taken {
        do {
            if (!permits_.try_acquire()) {
                allow_refused();
                const std::chrono::nanoseconds until(end.steady_ns());
                if (!permits_.try_acquire_until(std::chrono::steady_clock::time_point(until))) {
                    break;
                }
            }
            borrowed mine(*this);
            const bool is_another_open = pick(mine);
            if (mine.of_ == nullptr) {
                mine.of_ = std::make_unique<Connection>(to_);
            }
            const deadline share = deadline::after(longest_share);
            const bool has_share = is_another_open && share.steady_ns() < end.steady_ns();
            const std::error_code error = mine->make_ready(has_share ? share : end);
            mine->end_at(end); // the call has all of the time
            if (!error && !std::exchange(mine.is_counted_, true)) {
                const std::lock_guard held(lock_);
                ++in_use_;
            }
            if (!error || !waits_for_another(mine)) {
                return {std::move(mine), error};
            }
        } while (!end.has_passed());
        return {{}, std::make_error_code(std::errc::timed_out)};
    }

    // Snapshots: how many connections are open as far as the pool knows, and how many callers wait.
    std::size_t open() const {
        const std::lock_guard held(lock_);
        return in_use_ + idle_.size();
    }
    std::size_t waiting() const noexcept { return permits_.waiters(); }

private:
    struct idle_connection {
        std::unique_ptr<Connection> of;
        typename Clock::time_point since;
    };

    // Takes the first idle connection, so that later ones stay idle. Returns whether another
    // connection is open.
    bool pick(borrowed& to) noexcept {
        const std::lock_guard held(lock_);
        const std::size_t open_ones = in_use_ + idle_.size();
        if (!idle_.empty()) {
            to.of_ = std::move(idle_.front().of);
            idle_.erase(idle_.begin());
            to.is_counted_ = true;
            ++in_use_;
        }
        return open_ones > (to.is_counted_ ? 1U : 0U);
    }

    // Handles a connection that cannot be opened. If another connection is open, returns true: the
    // caller has to wait for one. Until allow_refused(), there are only as many permits as open
    // connections, so that one refusal is enough.
    bool waits_for_another(borrowed& refused) noexcept {
        std::unique_lock held(lock_);
        in_use_ -= std::exchange(refused.is_counted_, false) ? 1 : 0;
        std::erase_if(idle_, [](auto& each) { return !each.of->is_usable(); });
        const std::size_t others = in_use_ + idle_.size();
        if (others == 0) {
            return false;
        }
        refused.pool_ = nullptr;
        const bool is_withheld = refused_ + others < most_;
        refused_ += is_withheld ? 1 : 0;
        while (refused_ + others < most_ && permits_.try_acquire()) {
            ++refused_;
        }
        allowed_at_ = Clock::now() + ask_again_after;
        held.unlock();
        if (!is_withheld) { // other callers were refused before
            permits_.release(1);
        }
        return true;
    }

    // Requires: the caller holds the lock. Returns the number of withheld permits that the caller
    // must release, because calls may try again to open further connections.
    std::size_t allowed() noexcept {
        const bool is_allowed = in_use_ + idle_.size() == 0 || Clock::now() >= allowed_at_;
        return is_allowed ? std::exchange(refused_, 0) : 0;
    }
    void allow_refused() {
        std::unique_lock held(lock_);
        const std::size_t count = allowed();
        held.unlock();
        if (count != 0) {
            permits_.release(static_cast<std::ptrdiff_t>(count));
        }
    }

    void give_back(borrowed& ended) noexcept {
        std::unique_lock held(lock_);
        const bool is_open = ended.of_ != nullptr && ended.of_->is_open();
        const auto now = Clock::now();
        in_use_ -= ended.is_counted_ ? 1 : 0;
        std::erase_if(idle_, [&](auto& each) { return !is_open || each.since + keep_idle <= now; });
        if (is_open) {
            idle_.insert(idle_.begin(), {std::move(ended.of_), now});
        }
        const std::size_t count = 1 + allowed();
        held.unlock();
        permits_.release(static_cast<std::ptrdiff_t>(count));
    }

    const target to_;
    const std::size_t most_;
    mutable mutex lock_;
    std::vector<idle_connection> idle_{}; // under lock_, like the members below
    std::size_t in_use_ = 0;              // open connections that have a user
    std::size_t refused_ = 0;             // withheld permits
    typename Clock::time_point allowed_at_{};
    semaphore permits_; // a permit for each connection, minus refused_
};

// The state that the slots of a process share if they name the same server. Its member `known` has
// the facts that these slots have learned about the server.
template <class Client> struct BIDE_SHARED shared_server {
    using target = typename Client::target;

    explicit shared_server(const target& to) : calls(to, most_call_connections), renewals(to, 1) {}
    shared_server(const shared_server&) = delete;
    shared_server& operator=(const shared_server&) = delete;

    connection_pool<Client> calls;
    connection_pool<Client> renewals;
    typename Client::known known{};

    // A slot's reference. The last one closes the connections.
    struct reference {
        std::shared_ptr<shared_server> of;
        void leave() noexcept {
            of->calls.leave();
            of->renewals.leave();
        }
    };

    // Returns the object of this process. Makes it if there is none.
    static reference find(const target& to) {
        table* const here = process_wide<table, native_platform>::get([] { return new table; });
        if (here == nullptr) {
            BIDE_THROW(std::bad_alloc());
        }
        const std::lock_guard held(here->lock);
        std::erase_if(here->all, [](const auto& each) { return each.second.expired(); });
        std::weak_ptr<shared_server>& known_one = here->all[to];
        reference found{known_one.lock()};
        if (found.of == nullptr) {
            known_one = found.of = std::make_shared<shared_server>(to);
        }
        return found;
    }

private:
    struct table {
        mutex lock;
        std::map<target, std::weak_ptr<shared_server>> all; // under lock
    };
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
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
        was_pending_ = is_pending();
    }
    no_sigpipe(const no_sigpipe&) = delete;
    no_sigpipe& operator=(const no_sigpipe&) = delete;
    ~no_sigpipe() {
        const int error = errno;
        int number = 0;
        if (!was_pending_ && is_pending()) {
            ::sigwait(&pipe_, &number);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }

private:
    static bool is_pending() noexcept {
        ::sigset_t all;
        sigpending(&all);
        return sigismember(&all, SIGPIPE) == 1;
    }

    ::sigset_t pipe_;
    ::sigset_t before_;
    bool was_pending_;
};

// Returns true if the text of a TLS library says that the server refuses the client's certificate,
// or refuses a client without a certificate.
inline bool refuses_certificate(std::string_view text) noexcept {
    const auto says = [text](auto... parts) { return ((text.find(parts) != text.npos) || ...); };
    return says("alert") && says("ertificate", "unknown ca", "access denied");
}

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

// Reports the messages on one channel of a server, on a connection of its own. A process has at
// most `most` such watches; further ones fail, and the waiters read their slots at intervals.
template <class Connection> class channel_watch final : public slot_watch {
public:
    static constexpr int most = 8;

    // Throws: std::bad_alloc.
    explicit channel_watch(const typename Connection::target& at)
        : of_(at),
          count_(process_wide<watch_count, native_platform>::get(+[] { return new watch_count; })) {
        if (count_ == nullptr) {
            BIDE_THROW(std::bad_alloc());
        }
        // Order: relaxed; only the number counts.
        count_->open.fetch_add(1, std::memory_order_relaxed);
    }
    ~channel_watch() override {
        // Order: relaxed; only the number counts. A child of fork() has another one.
        count_->open.fetch_sub(1, std::memory_order_relaxed);
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    // Subscribes to the channel. If that fails, message() may have the reason.
    // Blocks: until the server has confirmed the subscription, or until the deadline.
    std::error_code open(const std::string& channel, deadline end) {
        // Order: relaxed; only the number counts.
        if (count_->open.load(std::memory_order_relaxed) > most) {
            return std::make_error_code(std::errc::too_many_files_open);
        }
        if (const std::error_code error = of_.subscribe(channel, end)) {
            return error;
        }
        fd_ = ::fcntl(of_.fd(), F_DUPFD_CLOEXEC, 0);
        return {fd_ < 0 ? errno : 0, std::generic_category()};
    }
    const std::string& message() const noexcept { return of_.message(); }

    int fd() const noexcept override { return fd_; }
    std::error_code drain() noexcept override {
        std::error_code error = std::make_error_code(std::errc::operation_not_permitted);
        if (owner_ == ::getpid() && !try_to([&] { error = of_.drain(); })) {
            error = std::make_error_code(std::errc::not_enough_memory);
        }
        return error;
    }

private:
    // Of this process: a child of fork() begins with none.
    struct BIDE_SHARED watch_count {
        native_platform::atomic<int> open{0};
    };

    Connection of_;
    watch_count* const count_;
    int fd_ = -1; // of the same socket: stays open when drain() finds that the connection ended
    const pid_t owner_ = ::getpid();
};

// What a slot is made of.
template <class Target> struct server_terms {
    Target target;
    std::string key;
    std::chrono::milliseconds retry_time; // of one operation
    std::size_t max_value;
    bool notifies = false;
    bool is_for_renewals = false;
};

// The common part of the slots of servers. A Client is a Connection of a pool (see above). It also
// has a type `answer`, and a function lost(), which closes the connection and returns an answer.
template <class Client> class server_slot : public slot {
public:
    using terms_type = server_terms<typename Client::target>;

    explicit server_slot(terms_type of) : terms(std::move(of)) {}

    std::string store() const override { return terms.target.name(); }
    std::string explain() const override {
        return one_line(terms.target.name() + ", key " + terms.key +
                            (last_error_text_.empty() ? "" : ": " + last_error_text_),
                        1'000);
    }
    result<std::int64_t, std::error_code> server_now() override {
        const auto seen = load();
        if (!seen) {
            return unexpected{seen.error()};
        }
        return seen->server_ms.value_or(0);
    }

protected:
    terms_type terms_for_renewals() const {
        terms_type other = terms;
        other.is_for_renewals = true;
        return other;
    }

    // Sets the text that explain() returns. Returns the error.
    std::error_code failed(std::error_code error, std::string error_text = {}) {
        last_error_text_ = error_text.empty() && error ? error.message() : std::move(error_text);
        return error;
    }
    cas_result not_stored(bool may_have_stored, std::error_code error, std::string text = {}) {
        return {.status = may_have_stored ? cas_status::indeterminate : cas_status::failed,
                .error = failed(error, std::move(text))};
    }

    // What the slots of this process share for this server.
    shared_server<Client>& here() {
        return *in_process_.get([this] { return shared_server<Client>::find(terms.target); }).of;
    }

    // The end of an operation that begins now.
    deadline until() const { return deadline::after(terms.retry_time); }

    // Calls question(client) on a connection. The call ends at the deadline.
    template <class Question> typename Client::answer ask(deadline end, Question question) {
        const auto got = (terms.is_for_renewals ? here().renewals : here().calls).take(end);
        if (!got.of) {
            return {{},
                    got.error,
                    false,
                    "no free connection in time: other calls of this process had them all"};
        }
        return got.error ? got.of->lost(got.error, false) : question(*got.of);
    }

    result<std::unique_ptr<slot_watch>, std::error_code>
    watch_channel(const typename Client::target& at, const std::string& channel, deadline end) {
        auto made = std::make_unique<channel_watch<Client>>(at);
        if (const std::error_code error = made->open(channel, end)) {
            return unexpected{failed(error, made->message())};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }
    std::error_code watches_not() {
        return failed(std::make_error_code(std::errc::operation_not_supported),
                      "its options do not say notify");
    }

    const terms_type terms;

private:
    std::string last_error_text_{}; // of the last operation that failed
    per_process<typename shared_server<Client>::reference> in_process_{};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
