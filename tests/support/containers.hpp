#ifndef BIDE_TESTS_SUPPORT_CONTAINERS_HPP
#define BIDE_TESTS_SUPPORT_CONTAINERS_HPP

// Minimal containers on one machine. A container has its own pid, mount and time namespaces, its
// own /proc and its own boot id. It shares files, memory that was mapped before, and the network
// with the machine. Needs Linux and root.
//
//   container one(directory, shape);
//   if (!one.is_running()) { ... one.trouble() says why ... }
//   if (one.fork() == 0) { ... inside ... }
//
// No other thread may run. A process caches its boot id, and its children inherit the cache. So a
// process that makes containers for durable locks must not have used a durable lock before.

#if defined(__linux__)
#include <sched.h>
#if defined(CLONE_NEWTIME)
#define BIDE_TESTS_HAVE_CONTAINERS 1
#endif
#endif

#if defined(BIDE_TESTS_HAVE_CONTAINERS)

#include <support/temp_directory.hpp>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

struct container_shape {
    std::string boot_id =
        "00000000-0000-4000-8000-000000000001"; // the boot id in /proc; empty: none
    std::int64_t boottime_s = 0;                // how far its clock is ahead, in seconds
    bool has_own_boot_id = true;
    bool has_own_pids = true;
    bool has_own_time = true;
    std::string root{}; // not empty: its root directory, without /proc
};

class container {
public:
    // Makes the container's files in `in`.
    container(const temp_directory& in, container_shape shape) : shape_(std::move(shape)) {
        static int made = 0;
        boot_id_file_ = in.write("boot_id." + std::to_string(++made),
                                 shape_.boot_id.empty() ? "" : shape_.boot_id + "\n");
        start();
    }
    container(const container&) = delete;
    container& operator=(const container&) = delete;
    ~container() {
        if (first_ > 0) {
            ::kill(first_, SIGKILL); // and with it every process of its pid namespace
            ::waitpid(first_, nullptr, 0);
        }
        for (const int fd : {own_pids_, pids_, mounts_, times_}) {
            if (fd >= 0) {
                ::close(fd);
            }
        }
    }

    bool is_running() const noexcept { return trouble_.empty(); }
    const std::string& trouble() const noexcept { return trouble_; }
    const container_shape& shape() const noexcept { return shape_; }

    // Like fork(2): the child runs in the container and is the caller's child. It ends with status
    // 70 if it cannot enter.
    pid_t fork() const {
        if (shape_.has_own_pids && ::setns(pids_, CLONE_NEWPID) != 0) {
            return -1;
        }
        const pid_t child = ::fork();
        if (child != 0) {
            if (shape_.has_own_pids && ::setns(own_pids_, CLONE_NEWPID) != 0) {
                std::perror("back to the own pid namespace");
                std::_Exit(1);
            }
            return child;
        }
        if ((shape_.has_own_time && ::setns(times_, CLONE_NEWTIME) != 0) ||
            ::setns(mounts_, CLONE_NEWNS) != 0 ||
            (!shape_.root.empty() && ::chroot(shape_.root.c_str()) != 0) || ::chdir("/") != 0) {
            std::perror("entering a container");
            ::_exit(70);
        }
        return 0;
    }

private:
    // One process keeps the namespaces; it is the first of the pid namespace, where there is one.
    void start() {
        int to_first[2];
        int to_us[2];
        own_pids_ = ::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
        if (own_pids_ < 0 || ::pipe2(to_first, O_CLOEXEC) != 0 || ::pipe2(to_us, O_CLOEXEC) != 0) {
            trouble_ = because("a container's files");
            return;
        }
        if (shape_.has_own_pids && ::unshare(CLONE_NEWPID) != 0) {
            trouble_ = because("a pid namespace");
        } else {
            first_ = ::fork();
        }
        if (first_ == 0) {
            ::close(to_first[1]);
            ::close(to_us[0]);
            live(to_first[0], to_us[1]);
        }
        if (shape_.has_own_pids && trouble_.empty() && ::setns(own_pids_, CLONE_NEWPID) != 0) {
            trouble_ = because("back to the own pid namespace");
        }
        ::close(to_first[0]);
        ::close(to_us[1]);
        if (trouble_.empty()) {
            // Continues only if its parent still runs; from then on it dies with its parent.
            static_cast<void>(!::write(to_first[1], "g", 1));
            char some[200];
            for (ssize_t n; (n = ::read(to_us[0], some, sizeof some)) > 0;) {
                trouble_.append(some, static_cast<std::size_t>(n));
            }
            const bool is_there = trouble_ == "r";
            trouble_ = is_there ? "" : "no container: " + trouble_;
        }
        ::close(to_first[1]);
        ::close(to_us[0]);
        if (trouble_.empty()) {
            pids_ = space("pid");
            mounts_ = space("mnt");
            times_ = space("time");
        }
        if (trouble_.empty()) {
            trouble_ = enter_once();
        }
    }

    // Why no process can enter it: for one that a sanitizer gave a thread of its own, say.
    std::string enter_once() const {
        const pid_t child = fork();
        if (child == 0) {
            ::_exit(0);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "no process can enter it";
    }

    static std::string because(const char* what) {
        return std::string(what) + ": " + std::strerror(errno);
    }

    int space(const char* name) {
        const std::string path = "/proc/" + std::to_string(first_) + "/ns/" + name;
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            trouble_ = because(path.c_str());
        }
        return fd;
    }

    // The container's first process.
    [[noreturn]] void live(int from_parent, int to_parent) const {
        char go = 0;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::read(from_parent, &go, 1) != 1) {
            ::_exit(1);
        }
        const std::string trouble = furnish();
        const std::string said = trouble.empty() ? "r" : trouble;
        static_cast<void>(!::write(to_parent, said.c_str(), said.size()));
        ::close(to_parent);
        for (;;) {
            ::pause();
        }
    }

    std::string furnish() const {
        if (shape_.has_own_time) {
            if (::unshare(CLONE_NEWTIME) != 0) {
                return because("a time namespace");
            }
            std::ofstream offsets("/proc/self/timens_offsets");
            offsets << "boottime " << shape_.boottime_s << " 0\nmonotonic " << shape_.boottime_s
                    << " 0\n";
            if (!offsets.flush()) {
                return because("the time namespace's offsets");
            }
            const int mine = ::open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
            if (mine < 0 || ::setns(mine, CLONE_NEWTIME) != 0) {
                return because("entering the time namespace");
            }
            ::close(mine);
        }
        if (::unshare(CLONE_NEWNS) != 0) {
            return because("a mount namespace");
        }
        if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
            return because("private mounts");
        }
        if (shape_.has_own_pids && ::mount("proc", "/proc", "proc", 0, nullptr) != 0) {
            return because("a /proc");
        }
        if (shape_.has_own_boot_id &&
            ::mount(boot_id_file_.c_str(), boot_id, nullptr, MS_BIND, nullptr) != 0) {
            return because("a boot id");
        }
        return "";
    }

    static constexpr const char* boot_id = "/proc/sys/kernel/random/boot_id";

    const container_shape shape_;
    std::string boot_id_file_;
    std::string trouble_;
    pid_t first_ = -1;
    int own_pids_ = -1;
    int pids_ = -1;
    int mounts_ = -1;
    int times_ = -1;
};

} // namespace test

#else
#define BIDE_TESTS_HAVE_CONTAINERS 0
#endif

#endif
