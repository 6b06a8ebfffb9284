#ifndef BIDE_TESTS_EXAMPLES_LOCK_CHILD_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_CHILD_HPP

// The command as a process: what it inherits, and how bide-lock starts, signals and awaits it.

#include "lock_keeper.hpp"
#include "lock_signals.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

extern char** environ;

namespace lock_parts {

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
        has_keeper_ = false;
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

    bool has_keeper() const { return has_keeper_; } // false: it was killed
    bool has_ended() const { return has_ended_; }   // the command's first process
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
        private_ends trouble;
        if (!trouble.are_open()) {
            tell(socket, note::kind::not_executable, errno);
            ::_exit(1);
        }
        const pid_t parent = ::getpid();
        const pid_t first = ::fork();
        if (first == 0)
            become(how, inherited, group, parent, trouble.out);
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
        close_all_but(trouble.in, socket, how.hold);

        // A successful exec closes it.
        int why = 0;
        ssize_t n = 0;
        while ((n = ::read(trouble.in, &why, sizeof why)) < 0 && errno == EINTR) {
        }
        if (n == static_cast<ssize_t>(sizeof why)) {
            while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
            }
            tell(socket, note::kind::not_executable, why);
            ::_exit(1);
        }
        ::close(trouble.in);
        tell(socket, note::kind::started, first);
        keeper(socket, first, has_group_ ? first : 0, how.grace_ms).run();
        ::_exit(0);
    }

    struct private_ends {
        int in = -1, out = -1;
        private_ends() {
            int ends[2];
            if (::pipe(ends) != 0)
                return;
            in = ends[0], out = ends[1];
            ::fcntl(in, F_SETFD, FD_CLOEXEC);
            ::fcntl(out, F_SETFD, FD_CLOEXEC);
        }
        bool are_open() const { return in >= 0; }
    };

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
    bool has_group_ = false, has_ended_ = false, has_keeper_ = true;
    bool is_subreaper_ = false, is_waited_for_ = false;
};

} // namespace lock_parts

#endif
