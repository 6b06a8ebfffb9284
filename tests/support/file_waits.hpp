#ifndef BIDE_TESTS_SUPPORT_FILE_WAITS_HPP
#define BIDE_TESTS_SUPPORT_FILE_WAITS_HPP

// Coroutines that wait for a driver, and pipes and sockets to wait for.

#include <bide/core/deadline.hpp>
#include <bide/io/driver.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

#if defined(__linux__)
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

namespace test {

// The outcome of a wait, or of an operation on `bytes` bytes.
struct file_outcome {
    std::error_code why;
    std::size_t bytes = 0;
    std::atomic<bool> done{false}; // written last

    template <class R> void note(const R& got) noexcept {
        why = got ? std::error_code() : got.error();
        if constexpr (std::is_convertible_v<typename R::value_type, std::size_t>) {
            bytes = got ? static_cast<std::size_t>(*got) : 0;
        }
        done = true;
    }
    bool is_granted() const noexcept { return done && !why; }
    bool has(std::size_t n) const noexcept { return is_granted() && bytes == n; }
    template <class E> bool is(E error) const noexcept { return done && why == error; }
    std::string said() const {
        return !done                                   ? "waits"
               : !why                                  ? "granted"
               : why == bide::errc::closed             ? "closed"
               : why == bide::errc::stopped            ? "stopped"
               : why == bide::errc::timeout            ? "timeout"
               : why == std::errc::bad_file_descriptor ? "nofile"
               : why == bide::errc::no_driver          ? "undriven"
                                                       : why.message();
    }
};

// Coroutines without an executor: they resume inside wait().
template <class Op> held await(Op op, file_outcome& out) {
    const auto got = co_await std::move(op);
    out.note(got);
}
template <class Op> detached await_detached(Op op, file_outcome& out) {
    const auto got = co_await std::move(op);
    out.note(got);
}
template <class Driver> auto readable(Driver& d, int fd) {
    return d.async_wait_readable(fd).as_result();
}
template <class Driver> auto writable(Driver& d, int fd) {
    return d.async_wait_writable(fd).as_result();
}

// Waits that have begun, each of a coroutine, and how they have ended.
class file_waits {
public:
    template <class Op> file_outcome& add(Op op) {
        file_outcome& out = outs_.emplace_back();
        frames_.push_back(await(std::move(op), out));
        frames_.back().start();
        return out;
    }
    void destroy(std::size_t i) { frames_[i].destroy(); }
    std::size_t granted() const {
        return static_cast<std::size_t>(std::count_if(
            outs_.begin(), outs_.end(), [](const file_outcome& out) { return out.is_granted(); }));
    }

    // A word for each.
    std::string said() const {
        std::string all;
        for (const file_outcome& out : outs_) {
            all += (all.empty() ? "" : " ") + out.said();
        }
        return all;
    }
    // Calls wait() until they have said that.
    bool come_to(bide::driver& d, const std::string& expected) const;

private:
    std::deque<file_outcome> outs_;
    std::vector<held> frames_;
};

inline unsigned look(bide::driver& d) { return d.wait(bide::deadline::poll()); }

// Calls wait() until that is so.
template <class Condition> bool waits_until(bide::driver& d, Condition condition) {
    const auto end = bide::deadline::after(patience);
    while (!condition() && !end.has_passed()) {
        d.wait(end);
    }
    return condition();
}

inline bool file_waits::come_to(bide::driver& d, const std::string& expected) const {
    const bool all = waits_until(d, [&] { return said() == expected; });
    UNSCOPED_INFO("they say " << said());
    return all;
}

// A thread that calls wait() in a loop.
class driving {
public:
    explicit driving(bide::driver& d)
        : driver_(d), thread_([this] {
              while (!over_) {
                  driver_.wait(bide::deadline::never());
              }
          }) {}
    driving(const driving&) = delete;
    driving& operator=(const driving&) = delete;
    ~driving() {
        over_ = true;
        driver_.wake();
        thread_.join();
    }

private:
    bide::driver& driver_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

// Whether each wake ends one wait(), and publishes what was done before.
inline bool wakes_in_order(bide::driver& d, int rounds) {
    std::atomic<int> seen{0};
    int said = 0; // published by wake() only
    bool in_order = true;
    run_threads(2, [&](int i) {
        for (int round = 1; round <= rounds; ++round) {
            if (i == 0) {
                d.wait(bide::deadline::never());
                in_order = in_order && said == round;
                seen = round;
            } else {
                said = round;
                d.wake();
                while (seen != round) {
                    std::this_thread::yield();
                }
            }
        }
    });
    return in_order;
}

#if defined(__linux__)

inline void close_file(int& fd) {
    if (fd >= 0) {
        ::close(std::exchange(fd, -1));
    }
}

// Two ends of a pipe or of a socket. What is written to `out` is read from `in`.
class ends {
public:
    static ends pipe(int flags = O_NONBLOCK) {
        int both[2];
        if (::pipe2(both, O_CLOEXEC | flags) != 0) {
            give_up(where(), "no pipe");
        }
        return ends(both);
    }
    static ends sockets(int flags = SOCK_NONBLOCK) {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0, both) != 0) {
            give_up(where(), "no sockets");
        }
        return ends(both);
    }
    // A socket whose `out` cannot be written to, until `in` was drained.
    static ends full_sockets() {
        ends made = sockets();
        fill(made.out);
        return made;
    }
    ends(ends&& other) noexcept
        : in(std::exchange(other.in, -1)), out(std::exchange(other.out, -1)) {}
    ends& operator=(ends&&) = delete;
    ~ends() {
        close_file(in);
        close_file(out);
    }

    void put(std::string_view text = "x") const { write(out, text); }
    void put_back() const { write(in, "x"); } // through a socket
    static std::size_t fill(int fd) {
        char bytes[4'096] = {};
        std::size_t sum = 0;
        for (ssize_t n; (n = ::write(fd, bytes, sizeof bytes)) > 0;) {
            sum += static_cast<std::size_t>(n);
        }
        return sum;
    }
    static std::size_t drain(int fd) {
        char bytes[4'096];
        std::size_t sum = 0;
        for (ssize_t n; (n = ::read(fd, bytes, sizeof bytes)) > 0;) {
            sum += static_cast<std::size_t>(n);
        }
        return sum;
    }
    // What lies in the socket and was not read.
    std::string rest() const {
        std::string text(64, '\0');
        const ssize_t n = ::recv(in, text.data(), text.size(), MSG_DONTWAIT);
        text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
        return text;
    }

    int in;
    int out;

private:
    explicit ends(const int (&both)[2]) noexcept : in(both[0]), out(both[1]) {}

    static void write(int fd, std::string_view text) {
        if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
            give_up(where(), "cannot write");
        }
    }
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

inline sockaddr_in loopback(std::uint16_t port = 0) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = port;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}
inline sockaddr_in address_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
        give_up(where(), "no address");
    }
    return at;
}
// A socket that is connected to that address.
inline int connected_to(const sockaddr_in& at) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
        give_up(where(), "no connection");
    }
    return fd;
}

// The open descriptors of this process.
inline std::size_t open_files() {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
        ++n;
    }
    return n;
}

// While one lives, the process can open no further descriptor, apart from `room`.
class no_descriptors {
public:
    explicit no_descriptors(rlim_t room = 0) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        rlimit small = before_;
        small.rlim_cur = room;
        ::setrlimit(RLIMIT_NOFILE, &small);
    }
    no_descriptors(const no_descriptors&) = delete;
    no_descriptors& operator=(const no_descriptors&) = delete;
    ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

#endif

} // namespace test

#endif
