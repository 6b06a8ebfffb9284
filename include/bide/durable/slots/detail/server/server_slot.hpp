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
#include <bide/durable/detail/try_to.hpp>
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

// The connections to one server that all slots of a process share.
//
// A call takes an idle connection. If none is idle and fewer than the bound are open, the call
// opens another one. Otherwise it waits for a connection, in order of arrival, until its deadline.
//
//   a broken connection  The call that finds it closes all idle connections, too: they probably
//                        broke at the same time. The next calls open new ones.
//   a refusal            If the server refuses a further connection while another one is open, the
//                        call waits for an open one. When the time `ask_again_after` has passed,
//                        calls try again to open a further one.
//   no answer            A call waits for a further connection for `longest_share` at most while
//                        another one is open. Then it does as after a refusal.
//   no more need         When a call ends, connections that were idle for `keep_idle` are closed.
//   fork()               A child opens its own connections. It closes the descriptors of inherited
//                        connections that were idle at the fork. It destroys no inherited
//                        connection: another thread of the parent may have been using it.

// The most connections to one server that a process opens for calls. A server commits calls of
// several connections with one write to its disk, so the throughput grows with their number. But a
// server has few connections: 100 for all clients is PostgreSQL's default.
inline constexpr std::size_t most_call_connections = 8;

// The key of a connection_pool. Calls and renewals have connections of their own.
template <class Target> struct BIDE_SHARED connection_key {
    Target target;
    bool is_for_renewals = false;

    std::size_t most_connections() const noexcept {
        return is_for_renewals ? 1 : most_call_connections;
    }
    friend auto operator<=>(const connection_key&, const connection_key&) = default;
};

// A reference to this process's T for a key: all slots of a process share one. Its last user
// destroys it. A T has
//
//   using key = ...;            ordered; objects with equal keys are interchangeable
//   explicit T(const key&);     runs with the table locked: it must not block or connect
//   void leave() noexcept;      in a child of fork(): called instead of the destructor
template <class T> class BIDE_SHARED shared_in_process {
public:
    using key = typename T::key;

    explicit shared_in_process(key of) : key_(std::move(of)) {}

    const key& of() const noexcept { return key_; }

    // Returns the object. Makes it if this process has none.
    // Throws: std::bad_alloc.
    T& get() {
        if (held_ == nullptr || held_->process != ::getpid()) {
            held_ = find(key_);
        }
        return held_->object;
    }

private:
    struct entry {
        explicit entry(const key& of) : object(of) {}
        T object;
        const pid_t process = ::getpid();
        entry* inherited_before = nullptr; // in a child of fork()
    };
    struct table {
        mutex lock;
        std::map<key, std::weak_ptr<entry>> entries; // under lock
        entry* inherited = nullptr;                  // under lock: objects that are never destroyed
    };

    static table& here() {
        table* const found = process_wide<table, native_platform>::get([] { return new table; });
        if (found == nullptr) {
            BIDE_THROW(std::bad_alloc());
        }
        return *found;
    }

    static std::shared_ptr<entry> find(const key& of) {
        table& all = here();
        const std::lock_guard held(all.lock);
        std::erase_if(all.entries, [](const auto& each) { return each.second.expired(); });
        std::weak_ptr<entry>& known = all.entries[of];
        std::shared_ptr<entry> found = known.lock();
        if (found == nullptr) {
            found = std::shared_ptr<entry>(new entry(of), &let_go);
            known = found;
        }
        return found;
    }

    static void let_go(entry* last) noexcept {
        if (last->process == ::getpid()) {
            delete last; // the next find() erases its expired entry in the table
            return;
        }
        last->object.leave();
        table& all = here();
        const std::lock_guard held(all.lock);
        last->inherited_before = std::exchange(all.inherited, last);
    }

    key key_;
    std::shared_ptr<entry> held_{};
};

// A Connection is used by one caller at a time and has
//
//   using key = ...;                       ordered; key.most_connections() is the pool's bound
//   explicit Connection(const key&);
//   std::error_code make_ready(deadline);  begins a call, which ends at the deadline; connects if
//                                          the connection is not usable
//   bool is_open() const noexcept;         whether it was opened, and no call has lost it
//   bool is_usable() noexcept;             whether it is open, and its socket is quiet
//   void drop() noexcept;                  closes it without waiting for the server
//   void disown() noexcept;                in a child of fork(): only closes its descriptors
//
// `Clock` is the clock for idle times and pauses.
template <class Connection, class Clock = std::chrono::steady_clock> class connection_pool {
    struct entry;

public:
    using key = typename Connection::key;

    static constexpr std::chrono::seconds keep_idle{10};
    static constexpr std::chrono::seconds ask_again_after{5};
    static constexpr std::chrono::seconds longest_share{1};

    explicit connection_pool(const key& of)
        : key_(of), entries_(of.most_connections()),
          turns_(static_cast<std::ptrdiff_t>(entries_.size())) {}

    // In a child of fork(), instead of the destructor.
    void leave() noexcept {
        for (entry& each : entries_) {
            // Order: acquire [pool.rest]; if the connection was idle at the fork, the changes of
            // its last user are complete.
            if (each.is_at_rest.load(std::memory_order_acquire)) {
                each.connection->disown();
            }
        }
    }

    // Exclusive use of a connection, until the destructor.
    class turn {
    public:
        turn() = default;
        turn(turn&& other) noexcept
            : pool_(std::exchange(other.pool_, nullptr)), entry_(other.entry_) {}
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (pool_ != nullptr) {
                pool_->give_back(*entry_);
            }
        }
        explicit operator bool() const noexcept { return pool_ != nullptr; }
        Connection& operator*() const noexcept { return *entry_->connection; }
        Connection* operator->() const noexcept { return &*entry_->connection; }

    private:
        friend class connection_pool;
        turn(connection_pool* its_pool, entry* of) noexcept : pool_(its_pool), entry_(of) {}
        connection_pool* pool_ = nullptr;
        entry* entry_ = nullptr;
    };

    // The result of take(). A turn is the exclusive use of a connection. Without an error, the
    // connection is open. With an error and a turn, the connection cannot be opened, and no other
    // is open. With timed_out and no turn, other callers had all connections until the deadline.
    struct taken {
        turn of{};
        std::error_code error{};
    };

    // Takes a connection and opens it if needed.
    // Blocks: until the caller has a turn and the connection is open, or until the deadline.
    auto take(deadline end) -> taken {
        for (;;) {
            if (!turns_.try_acquire()) {
                allow_refused();
                const std::chrono::nanoseconds until(end.steady_ns());
                if (!turns_.try_acquire_until(std::chrono::steady_clock::time_point(until))) {
                    return {{}, std::make_error_code(std::errc::timed_out)};
                }
            }
            bool is_another_open = false;
            turn mine(this, &pick(is_another_open));
            entry& own = *mine.entry_;
            if (!own.connection) {
                own.connection.emplace(key_);
            }
            const deadline share = deadline::after(longest_share);
            const bool has_share = is_another_open && share.steady_ns() < end.steady_ns();
            std::error_code error = mine->make_ready(has_share ? share : end);
            if (!error && has_share) {
                error = mine->make_ready(end); // the call has all of the time
            }
            if (!error && !own.is_open) {
                const std::lock_guard held(lock_);
                own.is_open = true;
            }
            if (!error || !waits_for_another(mine)) {
                return {std::move(mine), error};
            }
            if (end.has_passed()) {
                return {{}, std::make_error_code(std::errc::timed_out)};
            }
        }
    }

    // Snapshots: how many connections are open as far as the pool knows, and how many callers wait.
    std::size_t open() const {
        const std::lock_guard held(lock_);
        return count_open();
    }
    std::size_t waiting() const noexcept { return turns_.waiters(); }

private:
    using time = typename Clock::time_point;

    struct entry {
        // The connection exists and is not in use: a child of fork() may close it.
        native_platform::atomic<bool> is_at_rest{false};
        std::optional<Connection> connection{}; // for its user; without a user, under lock_
        bool is_used = false;                   // under lock_, like the members below
        bool is_open = false; // in use: its user has an open connection; only the user sets this
        time idle_since{};
    };

    // These require the lock.
    std::size_t count_open() const noexcept {
        return static_cast<std::size_t>(
            std::count_if(entries_.begin(), entries_.end(),
                          [](auto& one) { return one.is_used ? one.is_open : is_idle(one); }));
    }
    static bool is_idle(const entry& e) noexcept {
        return !e.is_used && e.connection && e.connection->is_open();
    }
    void use(entry& e) noexcept {
        e.is_used = true;
        // Order: seq_cst; if a fork finds a change of the connection, it finds this change, too.
        e.is_at_rest.exchange(false, std::memory_order_seq_cst);
    }
    void rest(entry& e) noexcept {
        e.is_used = false;
        // Order: release [pool.rest]; publishes the user's changes of the connection.
        e.is_at_rest.store(e.connection.has_value(), std::memory_order_release);
    }

    void close(entry& idle) noexcept {
        use(idle);
        idle.connection->drop();
        rest(idle);
    }

    // Returns an entry that is not in use: the first with an open connection, so that later ones
    // stay idle; otherwise the first one. The caller's permit guarantees that there is one.
    auto pick(bool& is_another_open) -> entry& {
        const std::lock_guard held(lock_);
        auto found = std::find_if(entries_.begin(), entries_.end(), &is_idle);
        if (found == entries_.end()) {
            found = std::find_if(entries_.begin(), entries_.end(),
                                 [](const entry& each) { return !each.is_used; });
        }
        use(*found);
        found->is_open = found->connection && found->connection->is_open();
        is_another_open = count_open() > (found->is_open ? 1U : 0U);
        return *found;
    }

    // Handles a connection that cannot be opened. If another connection is open, ends the turn and
    // returns true. Each open connection keeps a permit. All other permits are withheld until
    // allow_refused(), so one refusal is enough.
    bool waits_for_another(turn& refused) noexcept {
        std::unique_lock held(lock_);
        refused.entry_->is_open = false;
        for (entry& each : entries_) {
            if (is_idle(each) && !each.connection->is_usable()) {
                close(each); // not open after all: the server was restarted
            }
        }
        const std::size_t others = count_open();
        if (others == 0) {
            return false;
        }
        const std::ptrdiff_t most_refused = static_cast<std::ptrdiff_t>(entries_.size() - others);
        const bool takes_permit = refused_ < most_refused;
        refused_ += takes_permit ? 1 : 0;
        while (refused_ < most_refused && turns_.try_acquire()) {
            ++refused_;
        }
        allowed_at_ = Clock::now() + ask_again_after;
        rest(*refused.entry_);
        refused.pool_ = nullptr;
        held.unlock();
        if (!takes_permit) { // other callers were refused before
            turns_.release(1);
        }
        return true;
    }

    // Returns the permits of refused connections, if the last refusal was `ask_again_after` ago.
    void allow_refused() noexcept {
        std::unique_lock held(lock_);
        if (refused_ != 0 && Clock::now() >= allowed_at_) {
            const std::ptrdiff_t count = std::exchange(refused_, 0);
            held.unlock();
            turns_.release(count);
        }
    }

    void give_back(entry& e) noexcept {
        {
            const std::lock_guard held(lock_);
            const bool is_broken = !e.connection || !e.connection->is_open(); // none: no memory
            const time now = Clock::now();
            for (entry& each : entries_) {
                if (is_idle(each) && (is_broken || each.idle_since + keep_idle <= now)) {
                    close(each);
                }
            }
            e.is_open = false;
            e.idle_since = now;
            rest(e);
        }
        turns_.release(1);
    }

    const key key_;
    mutable mutex lock_;
    std::vector<entry> entries_; // never resized
    semaphore turns_;            // a permit for each entry, minus refused_
    std::ptrdiff_t refused_ = 0; // under lock_, like allowed_at_; less than the entries
    time allowed_at_{};
};

// A slot's reference to a pool of this process.
template <class T> using shared_connection = shared_in_process<connection_pool<T>>;

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

// Whether the text of a TLS library says that the server refuses the client's certificate, or the
// lack of one.
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

// Reports the messages on one channel of a server, on a connection of its own. A process has at
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
        if (made->count_->open.load(std::memory_order_relaxed) <= most) {
            error = made->of_.subscribe(channel, end);
            error_text = made->of_.message();
        }
        if (!error) {
            made->fd_ = ::fcntl(made->of_.fd(), F_DUPFD_CLOEXEC, 0);
            error = {made->fd_ < 0 ? errno : 0, std::generic_category()};
        }
        if (error) {
            return unexpected{error};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

    // Throws: std::bad_alloc.
    explicit channel_watch(const typename Connection::key& at)
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

}}} // namespace bide::BIDE_ABI::detail

#endif
