#ifndef BIDE_TESTS_EXAMPLES_LOCK_CHILD_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_CHILD_HPP

// The command, as a process: what it gets, how it is started, signalled and waited for.

#include "lock_signals.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

extern char** environ;

namespace lock_parts {

// What the command gets from our caller, by way of us. Made before anything is opened, or any
// signal caught.
class inheritance {
public:
    inheritance() {
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
        ::sigaction(SIGPIPE, nullptr, &on_broken_pipe_);
        ::sigaction(SIGTTOU, nullptr, &on_background_output_);
        std::error_code error; // not everybody has this directory
        for (std::filesystem::directory_iterator at("/proc/self/fd", error), end;
             !error && at != end; at.increment(error)) {
            const int file = std::atoi(at->path().filename().c_str());
            // The one that lists the directory is not inherited.
            if (file > 2 && (::fcntl(file, F_GETFD) & FD_CLOEXEC) == 0)
                files_.push_back(static_cast<unsigned>(file));
        }
        std::sort(files_.begin(), files_.end());
        is_known_ = !error;
    }

    // In the child, before exec. Not all libraries open their files close-on-exec as we do.
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

private:
    sigset_t mask_{};
    struct sigaction on_broken_pipe_{}, on_background_output_{};
    std::vector<unsigned> files_;
    bool is_known_ = false;
};

// This process's environment, and more.
class environment {
public:
    void set(const std::string& name, const std::string& value) {
        added_.push_back(name + "=" + value);
        names_.push_back(name + "=");
    }
    std::vector<char*> entries() { // end with a nullptr, and are good for as long as this is
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

// Runs a command.
//
// Signals are to reach all of it, a script and what that started, and nobody else, so it gets a
// process group. But a terminal has one group in the foreground: another one gets no Ctrl-C, and is
// stopped when it reads. To move the new group to the foreground is a shell's business, and breaks
// pipelines. So where there is a terminal the command stays in our group, and is signalled alone.
class child {
public:
    // The arguments and the environment end with a nullptr.
    // Throws: std::system_error where there is no process for it; not_executable.
    child(char** arguments, char** environment, const inheritance& inherited) {
        const int terminal = ::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (terminal >= 0)
            ::close(terminal);
        has_group_ = terminal < 0;

        private_pipe trouble;
        sigset_t all, before; // no handler of ours is to run in the child
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0)
            become(arguments, environment, inherited, parent, trouble.out);
        const int error = errno;
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (pid_ < 0)
            throw std::system_error(error, std::generic_category(), "fork");
        if (has_group_)
            ::setpgid(pid_, pid_); // both do it: nobody knows who comes first

        // It is closed by a successful exec.
        trouble.close_out();
        int why = 0;
        ssize_t n = 0;
        while ((n = ::read(trouble.in, &why, sizeof why)) < 0 && errno == EINTR) {
        }
        if (n == sizeof why) {
            while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
            }
            throw not_executable{why};
        }
    }

    struct not_executable {
        int why; // errno
    };

    void send(int signal) const { // Requires: it has not ended, or has company
        ::kill(has_group_ ? -pid_ : pid_, signal);
    }

    bool has_ended() {
        pid_t found = 0;
        if (!has_ended_)
            while ((found = ::waitpid(pid_, &status_, WNOHANG)) < 0 && errno == EINTR) {
            }
        return has_ended_ = has_ended_ || found == pid_;
    }

    int signal() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
    int status() const { return WEXITSTATUS(status_); }

    // After it has ended: whether others are left in its group.
    bool has_company() const { return has_group_ && (::kill(-pid_, 0) == 0 || errno == EPERM); }

private:
    // In the child. Another thread of ours may have held any lock at the time of the fork, so there
    // is nothing here that takes one: no allocation, no setenv().
    [[noreturn]] void become(char** arguments, char** environment, const inheritance& inherited,
                             pid_t parent, int trouble) const {
        if (has_group_)
            ::setpgid(0, 0);
#if defined(__linux__)
        // A bide-lock that is killed by SIGKILL renews nothing, so the command has to end within
        // the lease. As the lock is not bound to bide-lock's process nobody gets it before.
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != parent)
            ::_exit(128 + SIGTERM); // it was killed already
#else
        static_cast<void>(parent);
#endif
        for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD}) {
            struct sigaction action{};
            ::sigaction(signal, nullptr, &action);
            if (action.sa_handler != SIG_IGN)
                ::signal(signal, SIG_DFL);
        }
        inherited.apply();
        environ = environment;
        ::execvp(arguments[0], arguments);
        const int why = errno;
        [[maybe_unused]] const auto n = ::write(trouble, &why, sizeof why);
        ::_exit(127);
    }

    pid_t pid_ = -1;
    int status_ = 0;
    bool has_group_ = false, has_ended_ = false;
};

} // namespace lock_parts

#endif
