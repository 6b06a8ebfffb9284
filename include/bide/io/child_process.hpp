// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_CHILD_PROCESS_HPP
#define BIDE_IO_CHILD_PROCESS_HPP

/// \file
/// Starts child processes and waits for their end, in threads and coroutines. Linux 5.4 or later
/// only; empty on other systems.
//
// The thread of io/detail/process_monitor.hpp reaps each child when it has ended, by a descriptor
// of pidfd_open(2). The descriptor names the child even if its number was given to another process.

#include <bide/core/config.hpp>

#if defined(__linux__)

#include <bide/core/callback_wait.hpp>
#include <bide/io/detail/process_monitor.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace bide { inline namespace BIDE_ABI {

/// How a child process has ended.
struct exit_status {
    /// The exit code. If a signal has ended the child, 128 plus its number, as shells report it.
    int code = 0;
    /// The signal that has ended the child; 0 if it has exited.
    int signal = 0;

    /// Compares two of them.
    friend bool operator==(const exit_status&, const exit_status&) = default;
};

/// The result of a wait for a child process: how the child has ended, an errc (stopped, timeout),
/// or an error of the system.
using exit_result = result<exit_status, std::error_code>;

/// The options of child_process::spawn().
struct child_options {
    /// The standard input of the child: a descriptor of this process, or -1 for that of this
    /// process. The caller keeps its descriptor, and closes it as before.
    int in = -1;
    int out = -1; ///< the standard output, as the input
    int err = -1; ///< the standard error, as the input

    /// Variables as "NAME=value". They replace the variables of this process that have the same
    /// names.
    std::vector<std::string> environment{};
    /// If false, the child has the variables in `environment` and no other.
    bool inherits_environment = true;

    /// If true, the child leads a process group of its own. A Ctrl-C in the terminal does not reach
    /// it, and kill(2) with `-child.pid()` sends a signal to the child and its children.
    bool has_own_group = false;

    /// If true, the destructor of the child_process sends SIGKILL to the child.
    bool is_killed_at_end = false;
};

namespace detail {

// A child until it is reaped and its child_process is gone.
class child_state {
    using platform = native_platform;

public:
    child_state(process_monitor& by, ::pid_t its) : pid(its), by_(by) {}
    child_state& operator=(child_state&&) = delete;
    ~child_state() {
        if (fd_ >= 0) {
            by_.io().forget(fd_);
            ::close(fd_);
        }
    }

    // Begins to wait for the end of the child. Returns 0 or the error of the system.
    static int watch(const std::shared_ptr<child_state>& self) noexcept {
        child_state& it = *self;
        it.fd_ = open(it.pid);
        if (it.fd_ < 0) {
            return errno;
        }
        it.self_ = self;
        if (!it.wait_.begin(it.by_.io().async_wait_readable(it.fd_).as_result())) {
            return 0;
        }
        const io_result ended = it.wait_.take();
        if (ended) {
            on_end(&it);
        } else {
            it.self_.reset();
        }
        return ended ? 0 : ended.error().value();
    }

    // Returns a descriptor of the process, or -1 with errno. The C library may lack these functions.
    static int open(::pid_t of) noexcept {
        return static_cast<int>(::syscall(SYS_pidfd_open, of, 0));
    }
    int send(int signal) const noexcept {
        return static_cast<int>(::syscall(SYS_pidfd_send_signal, fd_, signal, nullptr, 0));
    }

    // The child was reaped by another caller, so its status is unknown.
    void set_lost() noexcept {
        error_ = ECHILD;
        ended.arrive(1);
    }

    // Requires: `ended` is open if `what` is granted.
    exit_result outcome(wait_status what) const noexcept {
        if (what != wait_status::granted) {
            return unexpected{make_error_code(errc_of(what))};
        }
        if (error_ != 0) {
            return unexpected{std::error_code(error_, std::system_category())};
        }
        return status_;
    }

    // The operation of a coroutine (core/wait_ops.hpp).
    struct ending : basic_gate<platform>::passing {
        static constexpr const char* waited_for = "a child process";

        const child_state& of;

        exit_result collect(wait_status what) const noexcept { return of.outcome(what); }
    };

    const ::pid_t pid;
    bool is_killed_at_end = false;
    basic_gate<platform> ended{1};

private:
    // Reaps the child. Runs on the thread of the monitor.
    static void on_end(void* of) noexcept {
        const std::shared_ptr<child_state> self = std::move(static_cast<child_state*>(of)->self_);
        constexpr auto by_descriptor = static_cast<idtype_t>(3); // P_PIDFD
        siginfo_t info{};
        int done = 0;
        do {
            done = ::waitid(by_descriptor, static_cast<id_t>(self->fd_), &info, WEXITED);
        } while (done != 0 && errno == EINTR);
        if (done != 0) {
            self->error_ = errno;
        } else if (info.si_code == CLD_EXITED) {
            self->status_.code = info.si_status;
        } else {
            self->status_ = {128 + info.si_status, info.si_status};
        }
        self->ended.arrive(1);
    }

    process_monitor& by_;
    int fd_ = -1;
    int error_ = 0; // it and status_ are written before the gate opens
    exit_status status_;
    std::shared_ptr<child_state> self_; // until the child is reaped
    callback_wait<io_result> wait_{waker(&on_end, this)};
};

} // namespace detail

/// A child process.
///
/// \code
/// bide::child_process child = bide::child_process::spawn({"gzip", "-k", name}).value();
/// bide::exit_result end = co_await child.async_wait().with_timeout(10s);
/// if (!end) { // errc::timeout
///     child.kill(SIGTERM);
///     end = co_await child.async_wait();
/// }
/// \endcode
///
/// bide reaps each child when it has ended, whether or not a thread waits for it, and after the
/// child_process is destroyed. So no child stays a zombie while this process runs. The program must
/// not reap the children of bide itself: wait(2) and a waitpid(2) for any child take the status of
/// the child away, and so does SIGCHLD if it is ignored. Then wait() returns no_child_process.
///
/// The destructor neither waits nor ends the child, which runs on. If
/// child_options::is_killed_at_end is true, the destructor sends SIGKILL. In a child of fork(),
/// neither the destructor nor any other function may be called.
///
/// Thread safety: any thread calls any function, except for a move and the destructor.
class child_process {
public:
    /// Starts a program. `arguments` are its name and its arguments. If the name has no '/', it is
    /// looked up in the PATH of this process. The child inherits the descriptors that are not
    /// closed by exec (O_CLOEXEC); bide's own are. In the child, no signal is blocked, SIGPIPE has
    /// its default action, and other signals that this process ignores stay ignored.
    /// Blocks: until the program has been loaded.
    /// Returns: the child, or the system's error: no_such_file_or_directory, permission_denied,
    /// too_many_files_open and the like; invalid_argument if there are no arguments, or if one
    /// contains a '\\0'. After an error, no child is left.
    /// Throws: std::bad_alloc; std::system_error if the thread that reaps the children cannot be
    /// started. The first use starts it (io/signal_set.hpp).
    static result<child_process, std::error_code> spawn(const std::vector<std::string>& arguments,
                                                        const child_options& options = {}) {
        auto& monitor = detail::process_monitor::get();
        std::vector<char*> argv;
        std::vector<char*> variables;
        bool is_valid = !arguments.empty();
        for (const std::string& each : arguments) {
            is_valid &= add(argv, each);
        }
        for (const std::string& each : options.environment) {
            is_valid &= add(variables, each);
        }
        for (char** each = environ; options.inherits_environment && *each != nullptr; ++each) {
            if (!is_replaced(*each, options.environment)) {
                variables.push_back(*each);
            }
        }
        argv.push_back(nullptr);
        variables.push_back(nullptr);
        const int probe = is_valid ? detail::child_state::open(::getpid()) : -1;
        if (probe < 0) { // no descriptor, or an older kernel
            return failed(is_valid ? errno : EINVAL);
        }
        ::close(probe);
        attributes how(options);
        ::pid_t pid = 0;
        if (how.error == 0) {
            how.error = ::posix_spawnp(&pid, argv[0], &how.files, &how.others, argv.data(),
                                       variables.data());
        }
        if (how.error != 0) {
            return failed(how.error);
        }
        return adopt(monitor, pid, options.is_killed_at_end);
    }

    /// Takes over the child of `other`.
    child_process(child_process&& other) noexcept = default;
    /// Takes over the child of `other`, after what the destructor does.
    child_process& operator=(child_process&& other) noexcept {
        child_process moved(std::move(other));
        std::swap(state_, moved.state_);
        return *this;
    }
    /// Lets the child run on, and bide reaps it. Sends SIGKILL if child_options say so.
    /// Requires: there are no waiters; terminates otherwise.
    ~child_process() {
        if (state_ != nullptr) {
            state_->ended.require_no_waiters("child_process", this);
            if (state_->is_killed_at_end) {
                state_->send(SIGKILL);
            }
        }
    }

    /// Returns the number of the process. After the end of the child, the system may give the
    /// number to another process.
    ::pid_t pid() const noexcept { return state().pid; }

    /// Returns true if the child has ended and is reaped.
    bool has_ended() const noexcept { return state().ended.is_open(); }

    /// Sends a signal to the child. It never reaches another process.
    /// Returns: no error if it was sent; no_such_process if the child has ended; another error of
    /// the system.
    std::error_code kill(int signal) const noexcept {
        return {state().send(signal) == 0 ? 0 : errno, std::system_category()};
    }

    /// Waits until the child has ended.
    /// Blocks: until then.
    /// Returns: how it has ended. no_child_process if another caller has reaped the child.
    exit_result wait() const noexcept { return wait_until(deadline::never()); }
    /// Waits as wait() does, but at most `rest`.
    /// Returns: errc::timeout if the child still runs.
    exit_result wait_for(deadline::from_now rest) const noexcept {
        return wait_until(deadline(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    exit_result wait_until(deadline when) const noexcept {
        auto& of = state();
        return of.outcome(of.ended.wait_until(when) ? wait_status::granted
                                                    : wait_status::timed_out);
    }
    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if the child still runs.
    exit_result wait(const native_platform::stop_token& token) const noexcept {
        auto& of = state();
        return of.outcome(of.ended.wait(token) ? wait_status::granted : wait_status::stopped);
    }

    /// Waits as wait() does, for a coroutine. A wait that ends early does nothing to the child.
    /// Returns: an operation for co_await; its value is an exit_result.
    async_op<exit_result> async_wait() const noexcept {
        return {detail::child_state::ending{{state().ended}, state()}};
    }

private:
    explicit child_process(std::shared_ptr<detail::child_state> state) noexcept
        : state_(std::move(state)) {}

    detail::child_state& state() const noexcept {
        if (state_ == nullptr) {
            detail::fatal("child_process", this, "was moved from");
        }
        return *state_;
    }

    static unexpected<std::error_code> failed(int error) noexcept {
        return unexpected{std::error_code(error, std::system_category())};
    }

    // Watches a child that was started. After an error, ends the child.
    static result<child_process, std::error_code> adopt(detail::process_monitor& monitor,
                                                        ::pid_t pid, bool is_killed_at_end) {
        auto made = std::make_shared<detail::child_state>(monitor, pid);
        made->is_killed_at_end = is_killed_at_end;
        if (const int error = detail::child_state::watch(made); error == ESRCH) {
            made->set_lost(); // SIGCHLD is ignored, and the child has ended
        } else if (error != 0) {
            ::kill(pid, SIGKILL);
            while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
            }
            return failed(error);
        }
        return child_process(std::move(made));
    }

    // Appends a string. Returns false if it contains a '\0'.
    static bool add(std::vector<char*>& to, const std::string& each) {
        to.push_back(const_cast<char*>(each.c_str()));
        return each.find('\0') == std::string::npos;
    }
    static bool is_replaced(std::string_view variable,
                            const std::vector<std::string>& by) noexcept {
        const std::string_view name = variable.substr(0, variable.find('=') + 1);
        for (const std::string& each : by) {
            if (!name.empty() && each.compare(0, name.size(), name) == 0) {
                return true;
            }
        }
        return false;
    }

    // What posix_spawn() has to do in the child.
    struct attributes {
        explicit attributes(const child_options& options) noexcept {
            ::posix_spawn_file_actions_init(&files);
            ::posix_spawnattr_init(&others);
            const int wanted[] = {options.in, options.out, options.err};
            for (int to = 0; to < 3; ++to) {
                int from = wanted[to];
                if (from >= 0 && from < to) { // an earlier redirection replaces it
                    from = copies[to - 1] = ::fcntl(from, F_DUPFD_CLOEXEC, 3);
                }
                check(from == -1 && wanted[to] >= 0 ? errno : 0);
                if (from >= 0) {
                    check(::posix_spawn_file_actions_adddup2(&files, from, to));
                }
            }
            sigset_t set;
            ::sigemptyset(&set);
            ::posix_spawnattr_setsigmask(&others, &set);
            ::sigaddset(&set, SIGPIPE);
            ::posix_spawnattr_setsigdefault(&others, &set);
            const int group = options.has_own_group ? POSIX_SPAWN_SETPGROUP : 0; // 0: its own pid
            check(::posix_spawnattr_setflags(
                &others,
                static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group)));
        }
        attributes& operator=(attributes&&) = delete;
        ~attributes() {
            ::posix_spawn_file_actions_destroy(&files);
            ::posix_spawnattr_destroy(&others);
            for (const int copy : copies) {
                if (copy >= 0) {
                    ::close(copy);
                }
            }
        }
        void check(int result) noexcept { error = error != 0 ? error : result; }

        posix_spawn_file_actions_t files;
        posix_spawnattr_t others;
        int copies[2] = {-1, -1};
        int error = 0;
    };

    std::shared_ptr<detail::child_state> state_;
};

}} // namespace bide::BIDE_ABI

#endif

#endif
