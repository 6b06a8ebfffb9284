#ifndef BIDE_TESTS_SUPPORT_FROZEN_FILESYSTEM_HPP
#define BIDE_TESTS_SUPPORT_FROZEN_FILESYSTEM_HPP

// A filesystem of a test's own that can be frozen, as fsfreeze(8) does it: then a write waits in the
// kernel, no signal ends that wait, and reads and file locks go on. Linux, root, mkfs.ext4, and a
// loop device.
//
//   frozen_filesystem disk;
//   if (!disk.is_there()) { ... disk.trouble() says why ... }
//
// A child process thaws and unmounts it: a test that was killed could not end before that.

#if defined(__linux__)
#define BIDE_TESTS_CAN_FREEZE 1

#include <support/gate.hpp>
#include <support/server_process.hpp>
#include <support/temp_directory.hpp>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

class frozen_filesystem {
public:
    // Made on the main thread: the child notices the end of the thread that made it.
    frozen_filesystem() : trouble_(make()) {}
    frozen_filesystem(const frozen_filesystem&) = delete;
    frozen_filesystem& operator=(const frozen_filesystem&) = delete;
    ~frozen_filesystem() {
        if (root_ >= 0) {
            ::close(root_);
        }
        if (keeper_ > 0) {
            ::kill(keeper_, SIGTERM);
            while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
    }

    bool is_there() const noexcept { return trouble_.empty(); }
    const std::string& trouble() const noexcept { return trouble_; }
    std::string operator/(const std::string& name) const { return mount_point() + "/" + name; }

    // A write that was under way has ended when it returns. False: it was refused.
    bool freeze() { return ::ioctl(root_, freezes, 0) == 0; }
    // False: it was thawed before, by the child.
    bool thaw() { return ::ioctl(root_, thaws, 0) == 0; }

private:
    // FIFREEZE and FITHAW of <linux/fs.h>, which glibc 2.36 cannot have beside <sys/mount.h>.
    static constexpr unsigned long freezes = _IOWR('X', 119, int);
    static constexpr unsigned long thaws = _IOWR('X', 120, int);

    std::string mount_point() const { return files_ / "disk"; }

    // Why there is none; empty: there is.
    std::string make() {
        const std::string make_fs = find_program({"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"});
        const std::string mount = find_program({"/usr/bin/mount", "/bin/mount"});
        if (::geteuid() != 0 || make_fs.empty() || mount.empty()) {
            return "only root, with mkfs.ext4 and mount, can freeze a filesystem";
        }
        const std::string image = files_.write("image", "");
        const std::string log = files_ / "log";
        std::error_code error;
        std::filesystem::resize_file(image, 16 << 20, error);
        if (error || ::mkdir(mount_point().c_str(), 0700) != 0 ||
            !runs({{make_fs, "-q", "-F", image}, log}) ||
            !runs({{mount, "-o", "loop", image, mount_point()}, log})) {
            return "no filesystem can be made here: " + bytes_of(log);
        }
        root_ = ::open(mount_point().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        start_keeper();
        if (root_ < 0 || keeper_ < 0 || !freeze() || !thaw()) {
            return std::string("the filesystem cannot be frozen: ") + std::strerror(errno);
        }
        return "";
    }

    static std::string bytes_of(const std::string& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    // The child ends with this, with the thread that made it, or after a time in which every test
    // has ended. It is in a session of its own, so that it is not ended together with the test.
    void start_keeper() {
        const std::string at = mount_point();
        const pid_t parent = ::getpid();
        sigset_t ends;
        sigset_t before;
        sigemptyset(&ends);
        sigaddset(&ends, SIGTERM);
        sigaddset(&ends, SIGALRM);
        ::pthread_sigmask(SIG_BLOCK, &ends, &before); // neither may come before it is waited for
        keeper_ = ::fork();
        if (keeper_ == 0) { // from here on only what a signal handler may call
            ::prctl(PR_SET_PDEATHSIG, SIGTERM);
            ::setsid();
            ::alarm(static_cast<unsigned>(3 * patience.count()));
            int number = 0;
            while (::getppid() == parent && ::sigwait(&ends, &number) != 0) {
            }
            const int root = ::open(at.c_str(), O_RDONLY | O_DIRECTORY);
            ::ioctl(root, thaws, 0);
            ::close(root);
            ::umount2(at.c_str(), MNT_DETACH);
            ::_exit(0);
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (keeper_ < 0) {
            ::umount2(at.c_str(), MNT_DETACH);
        }
    }

    const temp_directory files_{"frozen"};
    int root_ = -1;
    pid_t keeper_ = -1;
    const std::string trouble_; // the last: it is found by making all the rest
};

} // namespace test

#else
#define BIDE_TESTS_CAN_FREEZE 0
#endif

#endif
