#ifndef BIDE_PROGRAMS_BIDE_LOCK_PROCESS_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_PROCESS_HPP

#include "standard.hpp"

extern char** environ;

namespace lock_parts {

// ---- Signals as events that a thread can await together with a file.

using steady = std::chrono::steady_clock;

[[noreturn]] inline void throw_errno(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// A pipe with close-on-exec.
inline bool open_pipe(int (&ends)[2]) noexcept {
    if (::pipe(ends) != 0)
        return false;
    for (const int end : ends)
        ::fcntl(end, F_SETFD, FD_CLOEXEC);
    return true;
}
struct private_pipe {
    int in = -1, out = -1;

    private_pipe() {
        int ends[2];
        if (!open_pipe(ends))
            throw_errno("pipe");
        in = ends[0], out = ends[1];
    }
    private_pipe(const private_pipe&) = delete;
    private_pipe& operator=(const private_pipe&) = delete;
    ~private_pipe() { ::close(in), ::close(out); }
};

// An event: a signal arrived, wake() was called, or the file is readable.
struct event {
    int signal = 0;        // 0: wake(), or the file
    bool is_typed = false; // typed on the terminal: the whole foreground group got it
    bool is_file = false;
};

inline volatile std::sig_atomic_t inbox_end = -1; // used by the handler

// Receives the signals that ask bide-lock to stop and those about children, and returns them one by
// one. A signal that the caller ignores stays ignored, as nohup(1) requires.
class inbox {
public:
    inbox() {
        ::fcntl(pipe_.out, F_SETFL, O_NONBLOCK); // a handler must not block
        inbox_end = pipe_.out;
        sigset_t mine;
        ::sigemptyset(&mine);
        for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD}) {
            struct sigaction before{}, action{};
            ::sigaction(signal, nullptr, &before);
            if (before.sa_handler == SIG_IGN && signal != SIGCHLD)
                continue;
            action.sa_sigaction = &handle;
            action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
            ::sigfillset(&action.sa_mask);
            ::sigaction(signal, &action, nullptr);
            ::sigaddset(&mine, signal);
        }
        ::pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
    }

    inbox(const inbox&) = delete;
    inbox& operator=(const inbox&) = delete;
    ~inbox() { inbox_end = -1; } // from here on, signals are ignored

    void wake() noexcept { post({}); } // any thread may call it

    // Waits for the next event; returns none if the time passed first. file: -1, or a descriptor.
    std::optional<event> next(std::optional<steady::time_point> until = {}, int file = -1) {
        for (;;) {
            pollfd readable[] = {{pipe_.in, POLLIN, 0}, {file, POLLIN, 0}};
            int ms = -1;
            if (until) {
                using std::chrono::milliseconds;
                const auto left = std::chrono::ceil<milliseconds>(*until - steady::now()).count();
                ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
            }
            event e;
            if (::poll(readable, 2, ms) > 0) {
                if ((readable[0].revents & POLLIN) != 0 &&
                    ::read(pipe_.in, &e, sizeof e) == static_cast<ssize_t>(sizeof e))
                    return e;
                if (readable[1].revents != 0)
                    return event{0, false, true};
            }
            if (until && steady::now() >= *until)
                return std::nullopt;
        }
    }

private:
    static void post(const event& e) noexcept {
        const int before = errno;
        // Fails if thousands of events are unread; one more would change nothing.
        [[maybe_unused]] const auto n = ::write(inbox_end, &e, sizeof e);
        errno = before;
    }
    static void handle(int signal, siginfo_t* info, void*) {
#if defined(SI_KERNEL)
        const bool by_kernel = info->si_code == SI_KERNEL;
#else
        const bool by_kernel = info->si_pid == 0;
#endif
        // When a terminal closes, only the leader of its session gets SIGHUP.
        post({signal, by_kernel && signal != SIGHUP});
    }

    private_pipe pipe_;
};

// Ends the process by the signal itself. So a shell that waits for bide-lock sees that its script
// was interrupted, and returns 128 + signal.
[[noreturn]] inline void die_of(int signal) {
    const rlimit none{0, 0}; // no core dump: this is not a crash
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    std::_Exit(128 + signal);
}

// ---- The processes that descend from this one, and signals to all of them. A subreaper stays the
// ancestor of processes that called setsid() or were forked twice.
//
// All functions are safe between fork() and exec in a program with threads: no allocation, no lock.

struct descendant {
    pid_t pid, parent;
};

#if defined(__linux__)

// Reads a file of /proc in pieces. Calls handle(byte) for each byte. False: it cannot be opened.
template <class Handle> bool read_bytes(const char* path, Handle handle) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    char some[1024];
    ssize_t n = 0;
    while ((n = ::read(file, some, sizeof some)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t i = 0; i < n; ++i)
            handle(some[i]);
    ::close(file);
    return true;
}

// Returns 0 if the process does not exist or /proc does not show its parent.
inline pid_t parent_of(pid_t pid) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    char text[512];
    std::size_t size = 0;
    if (!read_bytes(path, [&](char c) {
            if (size < sizeof text - 1)
                text[size++] = c;
        }))
        return 0;
    text[size] = 0;
    // The name in parentheses may contain anything: the last parenthesis ends it.
    const char* const end = std::strrchr(text, ')');
    return end == nullptr || std::strlen(end) < 5 ? 0 : static_cast<pid_t>(std::atoi(end + 4));
}

// Calls handle(tid) for each thread of a process.
template <class Handle> void each_thread(pid_t pid, Handle handle) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/task", static_cast<int>(pid));
    const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    struct entry { // the layout of getdents64(2)
        std::uint64_t inode;
        std::int64_t offset;
        unsigned short size;
        unsigned char type;
        char name[1];
    };
    alignas(entry) char some[4096];
    long n = 0;
    while ((n = ::syscall(SYS_getdents64, directory, some, sizeof some)) > 0)
        for (long at = 0; at < n;) {
            unsigned short size = 0;
            std::memcpy(&size, some + at + offsetof(entry, size), sizeof size);
            const int tid = std::atoi(some + at + offsetof(entry, name));
            if (tid > 0)
                handle(static_cast<pid_t>(tid));
            at += size;
        }
    ::close(directory);
}

// Calls handle(child) for each child of a process.
template <class Handle> void each_child(pid_t pid, Handle handle) {
    each_thread(pid, [&](pid_t tid) {
        char path[96];
        std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", static_cast<int>(pid),
                      static_cast<int>(tid));
        pid_t child = 0;
        read_bytes(path, [&](char c) {
            if (c >= '0' && c <= '9')
                child = child * 10 + (c - '0');
            else if (child != 0)
                handle(child), child = 0;
        });
        if (child != 0)
            handle(child);
    });
}

#endif

// The list of descendants, static: it is too large for a stack, and nothing may allocate.
class descendant_list {
public:
    // Lists the descendants again, up to `most`. The keeper repeats SIGKILL until none is left.
    void look() {
        size_ = 0;
#if defined(__linux__)
        const pid_t self = ::getpid();
        const auto add = [this](pid_t parent) {
            return [this, parent](pid_t child) {
                if (size_ < most)
                    all_[size_++] = {child, parent};
            };
        };
        each_child(self, add(self));
        for (std::size_t next = 0; next < size_; ++next)
            each_child(all_[next].pid, add(all_[next].pid));
#endif
    }

    struct result {
        int reached = 0, refused = 0; // processes
    };

    // Sends a signal to the group (0: none) and to each descendant outside it.
    result send(pid_t group, int signal) {
        result r;
        if (group > 0) {
            if (::kill(-group, signal) == 0)
                ++r.reached;
            else if (errno == EPERM)
                ++r.refused;
        }
        look();
        for (std::size_t i = 0; i < size_; ++i)
            if (group <= 0 || ::getpgid(all_[i].pid) != group)
                send_one(all_[i], signal, r);
        return r;
    }

private:
    // The parent may have reaped the process, and its pid may be another process's. So this opens a
    // descriptor of the process, checks it, and signals through it.
    static void send_one(const descendant& one, int signal, result& r) {
#if defined(__linux__) && defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
        const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, one.pid, 0));
        if (fd < 0 && errno == ESRCH)
            return;
        const pid_t parent = parent_of(one.pid);
        const bool is_it = parent == one.parent || parent == ::getpid();
        long sent = -1;
        if (is_it)
            sent = fd >= 0 ? ::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0)
                           : ::kill(one.pid, signal);
        const int error = errno;
        if (fd >= 0)
            ::close(fd);
        if (!is_it)
            return; // the next call of look() finds its new place
#else
        const int sent = ::kill(one.pid, signal);
        const int error = errno;
#endif
        if (sent == 0)
            ++r.reached;
        else if (error == EPERM)
            ++r.refused;
    }

    static constexpr std::size_t most = 32'768;
    std::array<descendant, most> all_; // not initialized: its pages are allocated on use
    std::size_t size_ = 0;
};

inline descendant_list all_descendants;

// ---- The keeper: a small process between bide-lock and the command. It is the command's parent, and on
// Linux the subreaper of every process that the command starts. So it finds and ends all of them:
// when bide-lock tells it to, when bide-lock was stopped for longer than its lease, and when
// bide-lock was killed. It has one thread, and does not use the lock.
//
// A program with threads forks it: so it neither allocates nor takes a lock.

// A note between bide-lock and the keeper.
struct note {
    enum class kind : std::int32_t {
        // from bide-lock
        forward,  // send this signal to every process of the command
        finish,   // send SIGTERM, and SIGKILL after this many milliseconds
        good_for, // the lease lasts this many milliseconds more
        leave,    // end, and let the command's processes go on
        // from the keeper
        started,
        not_executable, // errno
        ended,          // the command's first process has ended; its status
        expired,        // the time of good_for has passed
        killing,        // the keeper sends SIGKILL
        refused,        // this many processes belong to another user and cannot be signalled
        gone            // no process is left
    };
    kind what;
    std::int32_t value = 0;
};
inline constexpr std::int32_t longest_note_ms = 2'000'000'000; // 23 days

inline bool tell(int socket, note::kind what, std::int32_t value = 0) {
    const note n{what, value};
    int flags = MSG_DONTWAIT;
#if defined(MSG_NOSIGNAL)
    flags |= MSG_NOSIGNAL;
#endif
    return ::send(socket, &n, sizeof n, flags) == static_cast<ssize_t>(sizeof n);
}

// A socket that keeps the size of a message, or at least does not split one this small.
enum class heard { note, nothing, end };
inline heard hear(int socket, note& n) {
    ssize_t size = 0;
    while ((size = ::recv(socket, &n, sizeof n, MSG_DONTWAIT)) < 0 && errno == EINTR) {
    }
    if (size == static_cast<ssize_t>(sizeof n))
        return heard::note;
    return size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? heard::nothing : heard::end;
}

class keeper {
public:
    // socket: to bide-lock; -1: it has ended. group: the command's process group; 0: none.
    // good_ms: as good_for, which may come late: bide-lock may be stopped before it; 0: no lease.
    keeper(int socket, pid_t first, pid_t group, std::int64_t grace_ms, std::int64_t good_ms = 0)
        : socket_(socket), first_(first), group_(group), grace_ms_(grace_ms),
          good_until_(good_ms > 0 ? now() + good_ms : 0) {
#if defined(__linux__)
        if (socket >= 0) { // all signals are blocked here
            sigset_t child;
            ::sigemptyset(&child);
            ::sigaddset(&child, SIGCHLD);
            children_ = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        }
#endif
        if (socket < 0)
            finish(grace_ms);
    }

    // Runs until no process of the command is left, or until bide-lock says to leave.
    void run() {
        for (;;) {
            const bool reaped = reap();
            if (is_empty_)
                return say(note::kind::gone);
            if (killing_) {
                const descendant_list::result r = all_descendants.send(group(), SIGKILL);
                if (r.reached == 0 && r.refused != 0) { // all belong to another user
                    if (pause_ms_ != 100)
                        say(note::kind::refused, r.refused);
                    pause_ms_ = 100;
                    if (first_ended_)
                        return say(note::kind::gone);
                }
            } else if (kill_at_ != 0 && now() >= kill_at_) {
                killing_ = true;
                say(note::kind::killing);
                continue;
            }
            if (good_until_ != 0 && now() >= good_until_ && kill_at_ == 0) {
                say(note::kind::expired);
                finish(grace_ms_);
            }
            if (!(killing_ && reaped) && !listen())
                return;
        }
    }

private:
    static std::int64_t now() { // milliseconds, on a clock that advances while the machine sleeps
        timespec t{};
#if defined(CLOCK_BOOTTIME)
        ::clock_gettime(CLOCK_BOOTTIME, &t);
#else
        ::clock_gettime(CLOCK_MONOTONIC, &t);
#endif
        return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
    }

    void say(note::kind what, std::int32_t value = 0) {
        if (socket_ >= 0)
            tell(socket_, what, value);
    }

    // The group has the first process's number. After that process was reaped, the number may
    // belong to another group. On Linux the descendants are found without the group.
    pid_t group() const {
#if defined(__linux__)
        return first_ended_ ? 0 : group_;
#else
        return group_;
#endif
    }

    // True: a process has ended.
    bool reap() {
        bool reaped = false;
        int status = 0;
        pid_t found = 0;
        while ((found = ::waitpid(-1, &status, WNOHANG)) > 0 || (found < 0 && errno == EINTR)) {
            reaped = reaped || found > 0;
            if (found == first_) {
                first_ended_ = true;
                say(note::kind::ended, status);
            }
        }
        is_empty_ = found < 0;
#if !defined(__linux__)
        if (is_empty_ && group_ > 0 && ::kill(-group_, 0) == 0)
            is_empty_ = false;
#endif
        return reaped;
    }

    void finish(std::int64_t grace_ms) {
        if (kill_at_ != 0)
            return;
        kill_at_ = now() + grace_ms;
        send(SIGTERM);
    }
    void send(int signal) { // every signal that bide-lock passes on asks to end
        all_descendants.send(group(), signal);
        all_descendants.send(group(), SIGCONT); // a stopped process must continue to end
    }

    // Waits for an event and executes bide-lock's notes. False: bide-lock said to leave.
    bool listen() {
        std::int64_t left = -1;
        const auto until = [&left](std::int64_t time) {
            const std::int64_t rest = std::clamp<std::int64_t>(time - now(), 0, 60'000);
            left = left < 0 ? rest : std::min(left, rest);
        };
        if (killing_)
            left = pause_ms_;
        else if (kill_at_ != 0)
            until(kill_at_);
        else if (good_until_ != 0)
            until(good_until_);
        if (children_ < 0) // no descriptor reports the end of a process
            left = left < 0 ? 20 : std::min<std::int64_t>(left, 20);
        pollfd both[] = {{socket_, POLLIN, 0}, {children_, POLLIN, 0}};
        ::poll(both, 2, static_cast<int>(left));
#if defined(__linux__)
        signalfd_siginfo info;
        while (children_ >= 0 && ::read(children_, &info, sizeof info) > 0) {
        }
#endif
        note n{};
        while (socket_ >= 0) {
            switch (hear(socket_, n)) {
            case heard::nothing: return true;
            case heard::end:
                ::close(socket_);
                socket_ = -1;
                finish(grace_ms_);
                return true;
            case heard::note: break;
            }
            if (n.what == note::kind::leave)
                return false;
            if (n.what == note::kind::forward)
                send(n.value);
            else if (n.what == note::kind::finish)
                finish(n.value);
            else if (n.what == note::kind::good_for)
                good_until_ = now() + n.value;
        }
        return true;
    }

    int socket_, children_ = -1;
    const pid_t first_, group_;
    const std::int64_t grace_ms_;
    std::int64_t good_until_, kill_at_ = 0; // 0: none
    std::int64_t pause_ms_ = 5;             // between two searches for processes after SIGKILL
    bool first_ended_ = false, is_empty_ = false, killing_ = false;
};

// ---- The command as a process: what it inherits, and how bide-lock starts, signals and awaits it.

// What the command inherits from bide-lock's caller. Construct it before bide-lock opens a file or
// catches a signal.
class inheritance {
public:
    inheritance() {
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
        ::sigaction(SIGPIPE, nullptr, &on_broken_pipe_);
        ::sigaction(SIGTTOU, nullptr, &on_background_output_);
        std::error_code error; // some systems lack this directory
        for (std::filesystem::directory_iterator at("/proc/self/fd", error), end;
             !error && at != end; at.increment(error)) {
            const int file = std::atoi(at->path().filename().c_str());
            // The descriptor that lists the directory is not inherited.
            if (file > 2 && (::fcntl(file, F_GETFD) & FD_CLOEXEC) == 0)
                files_.push_back(static_cast<unsigned>(file));
        }
        std::sort(files_.begin(), files_.end());
        is_known_ = !error;
    }

    // Call it in the child, before exec. Some libraries open files without close-on-exec.
    void apply() const noexcept {
#if defined(CLOSE_RANGE_CLOEXEC)
        unsigned from = 3;
        for (const unsigned file : files_) {
            if (is_known_ && file > from)
                ::close_range(from, file - 1, CLOSE_RANGE_CLOEXEC);
            from = file + 1;
        }
        if (is_known_)
            ::close_range(from, ~0U, CLOSE_RANGE_CLOEXEC);
#endif
        ::sigaction(SIGPIPE, &on_broken_pipe_, nullptr);
        ::sigaction(SIGTTOU, &on_background_output_, nullptr);
        ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }

    // Returns a free number for one more descriptor of the command, larger than the numbers that
    // scripts use. -1: there is none.
    int spare_number() const {
        rlimit most{};
        ::getrlimit(RLIMIT_NOFILE, &most);
        for (unsigned number = 100; number < 200 && number < most.rlim_cur; ++number)
            if (!std::binary_search(files_.begin(), files_.end(), number) &&
                ::fcntl(static_cast<int>(number), F_GETFD) < 0)
                return static_cast<int>(number);
        return -1;
    }

private:
    sigset_t mask_{};
    struct sigaction on_broken_pipe_{}, on_background_output_{};
    std::vector<unsigned> files_;
    bool is_known_ = false;
};

// This process's environment with additions.
class environment {
public:
    void set(const std::string& name, const std::string& value) {
        added_.push_back(name + "=" + value);
        names_.push_back(name + "=");
    }
    void remove(const std::string& name) { names_.push_back(name + "="); }
    std::vector<char*> entries() { // end with a nullptr; valid while this object lives
        std::vector<char*> all;
        for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
            const auto is_this = [one](const auto& name) {
                return std::string_view(*one).starts_with(name);
            };
            if (std::none_of(names_.begin(), names_.end(), is_this))
                all.push_back(*one);
        }
        for (auto& one : added_)
            all.push_back(one.data());
        all.push_back(nullptr);
        return all;
    }

private:
    std::vector<std::string> added_, names_;
};

// The command, a child of its keeper.
//
// Signals must reach every process of the command and no other process, so the command gets a
// process group. But a terminal has one foreground group: another group gets no Ctrl-C, and is
// stopped when it reads. Only a shell may move a group to the foreground; otherwise pipelines
// break. So on a terminal the command stays in the caller's group, and bide-lock signals its
// processes one by one.
class child {
public:
    struct setting {
        char** arguments;   // end with a nullptr
        char** environment; // ends with a nullptr
        int hold = -1;      // the descriptor that holds the lock; -1: none
        int hold_as = -1;   // its number in the command; -1: not inherited
        std::int64_t grace_ms = 0;
        std::int64_t good_ms = 0; // the lease lasts this long; 0: there is none
    };

    struct not_executable {
        int why; // errno
    };

    // Throws: std::system_error if fork() fails; not_executable.
    child(const setting& how, const inheritance& inherited) : grace_ms_(how.grace_ms) {
        const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (terminal >= 0)
            ::close(terminal);
        has_group_ = terminal < 0;
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            throw_errno("socketpair");
        for (const int end : ends)
            ::fcntl(end, F_SETFD, FD_CLOEXEC);
        socket_ = ends[0];
#if defined(__linux__)
        // If the keeper is killed, its descendants become children of this process. This process
        // may have other children, if its caller started them before it executed bide-lock.
        siginfo_t info;
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD)
            is_subreaper_ = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
#endif
        sigset_t all, before; // no handler of bide-lock may run in the child
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        const pid_t group = ::getpgrp();
        keeper_ = ::fork();
        if (keeper_ == 0)
            keep(how, inherited, group, ends[0], ends[1]);
        const int error = errno;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        ::close(ends[1]);
        if (keeper_ < 0)
            throw std::system_error(error, std::generic_category(), "fork");
        note n{};
        pollfd readable{socket_, POLLIN, 0};
        heard got = heard::nothing;
        while ((got = hear(socket_, n)) == heard::nothing)
            ::poll(&readable, 1, -1);
        if (got == heard::note && n.what == note::kind::not_executable) {
            wait_for_keeper();
            throw not_executable{n.value};
        }
        first_ = got == heard::note ? n.value : 0;
    }
    child(const child&) = delete;
    child& operator=(const child&) = delete;

    // Becomes the command, without a keeper. Returns errno if that fails.
    static int replace(const setting& how, const inheritance& inherited) {
        inherited.apply();
        if (how.hold >= 0 && how.hold_as >= 0) {
            const bool is_open = how.hold == how.hold_as
                                     ? ::fcntl(how.hold, F_SETFD, 0) == 0
                                     : ::dup2(how.hold, how.hold_as) == how.hold_as;
            if (!is_open)
                return errno;
        }
        environ = how.environment;
        ::execvp(how.arguments[0], how.arguments);
        return errno;
    }

    int socket() const { return socket_; } // readable when hear() has a note

    void send(int signal) {
        tell(socket_, note::kind::forward, signal);
        ::kill(keeper_, SIGCONT); // the keeper may have been stopped
    }
    void good_for(std::int64_t ms) {
        tell(socket_, note::kind::good_for, in_note(std::max<std::int64_t>(ms, 1)));
    }

    // Sends SIGTERM, later SIGKILL. Continues a stopped keeper for that.
    void finish() {
        tell(socket_, note::kind::finish, in_note(grace_ms_));
        ::kill(keeper_, SIGCONT);
    }

    // Returns the keeper's next note, or none if there is none yet. If the keeper was killed, ends
    // every process of the command first, and then returns `gone`.
    std::optional<note> listen() {
        note n{};
        switch (hear(socket_, n)) {
        case heard::nothing: return std::nullopt;
        case heard::note:
            if (n.what == note::kind::ended)
                status_ = n.value, has_ended_ = true;
            return n;
        case heard::end: break;
        }
        wait_for_keeper();
        if (is_subreaper_)
            keeper(-1, 0, 0, grace_ms_).run();
        else if (has_group_ && first_ > 0)
            finish_group();
        return note{note::kind::gone, 0};
    }

    // Ends the keeper. The remaining processes of the command go on.
    void leave() {
        tell(socket_, note::kind::leave);
        ::kill(keeper_, SIGCONT);
        wait_for_keeper();
    }
    void wait_for_keeper() {
        if (!std::exchange(is_waited_for_, true))
            while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
            }
    }

    bool has_ended() const { return has_ended_; } // the command's first process
    int signal() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
    int status() const { return WEXITSTATUS(status_); }

private:
    static std::int32_t in_note(std::int64_t ms) {
        return static_cast<std::int32_t>(std::min<std::int64_t>(ms, longest_note_ms));
    }
    // For a command without a keeper, if this process is not a subreaper.
    void finish_group() const {
        const auto end = steady::now() + std::chrono::milliseconds(grace_ms_);
        for (const int signal : {SIGTERM, SIGCONT})
            ::kill(-first_, signal);
        while (::kill(-first_, 0) == 0) {
            if (steady::now() >= end)
                ::kill(-first_, SIGKILL);
            ::poll(nullptr, 0, 10);
        }
    }

    // Runs in the keeper and in the command. Another thread of bide-lock may have held a lock at
    // the fork. So nothing here takes a lock: no allocation, no setenv().
    [[noreturn]] void keep(const setting& how, const inheritance& inherited, pid_t group,
                           int other_end, int socket) const {
        ::close(other_end);
        // A signal to bide-lock's group, as timeout(1) sends it, must not reach the keeper. Neither
        // must a SIGKILL to processes with bide-lock's name.
        ::setpgid(0, 0);
#if defined(__linux__)
        ::prctl(PR_SET_NAME, "bide-keeper");
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
        int trouble[2];
        if (!open_pipe(trouble)) {
            tell(socket, note::kind::not_executable, errno);
            ::_exit(1);
        }
        const pid_t parent = ::getpid();
        const pid_t first = ::fork();
        if (first == 0)
            become(how, inherited, group, parent, trouble[1]);
        const int error = errno;
        if (first < 0) {
            tell(socket, note::kind::not_executable, error);
            ::_exit(1);
        }
        if (has_group_)
            ::setpgid(first, first); // both processes do it: either may run first

        // So that a pipeline ends with the command, and the keeper does not share the store's files
        // and connections.
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
            null >= 0 ? ::dup2(null, stream) : ::close(stream);
        close_all_but(trouble[0], socket, how.hold);

        // A successful exec closes it.
        int why = 0;
        ssize_t n = 0;
        while ((n = ::read(trouble[0], &why, sizeof why)) < 0 && errno == EINTR) {
        }
        if (n == static_cast<ssize_t>(sizeof why)) {
            while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
            }
            tell(socket, note::kind::not_executable, why);
            ::_exit(1);
        }
        ::close(trouble[0]);
        tell(socket, note::kind::started, first);
        keeper(socket, first, has_group_ ? first : 0, how.grace_ms, how.good_ms).run();
        ::_exit(0);
    }

    static void close_all_but(int one, int two, int three) {
        int kept[] = {one, two, three};
        std::sort(std::begin(kept), std::end(kept));
        int from = 3;
        for (const int file : kept) {
            if (file > from)
                close_range(from, file - 1);
            from = std::max(from, file + 1);
        }
        close_range(from, -1);
    }
    static void close_range(int from, int to) { // to: -1: all
#if defined(CLOSE_RANGE_CLOEXEC)
        if (::close_range(static_cast<unsigned>(from), static_cast<unsigned>(to), 0) == 0)
            return;
#endif
        const long most = ::sysconf(_SC_OPEN_MAX);
        const int last = to >= 0 ? to : static_cast<int>(std::clamp(most, 1024L, 65'536L));
        for (int file = from; file <= last; ++file)
            ::close(file);
    }

    [[noreturn]] void become(const setting& how, const inheritance& inherited, pid_t group,
                             pid_t parent, int trouble) const {
        ::setpgid(0, has_group_ ? 0 : group);
#if defined(__linux__)
        ::prctl(PR_SET_NAME, "bide-command");
        // If bide-lock and the keeper are both killed, the first process gets this signal.
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != parent)
            ::_exit(128 + SIGTERM); // the keeper was killed already
#else
        static_cast<void>(parent);
#endif
        for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD}) {
            struct sigaction action{};
            ::sigaction(signal, nullptr, &action);
            if (action.sa_handler != SIG_IGN)
                ::signal(signal, SIG_DFL);
        }
        const int why = replace(how, inherited);
        [[maybe_unused]] const auto n = ::write(trouble, &why, sizeof why);
        ::_exit(127);
    }

    pid_t keeper_ = -1, first_ = 0;
    int socket_ = -1;
    std::int64_t grace_ms_ = 0;
    int status_ = 0;
    bool has_group_ = false, has_ended_ = false;
    bool is_subreaper_ = false, is_waited_for_ = false;
};

} // namespace lock_parts

#endif
