#include <bide/durable/process.hpp>

#include <support/children.hpp>
#include <support/test.hpp>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using bide::durable::is_gone;
using bide::durable::origin;
using bide::durable::this_origin;

namespace {

// A child whose origin its parent knows. It is a zombie from its end until reap().
class child : public test::companion {
public:
    child() : companion([](auto stay) { stay(std::to_string(this_origin(true).start)); }) {
        origin_.pid = pid();
        origin_.start = std::strtoll(said().c_str(), nullptr, 10);
    }
    const origin& where() const { return origin_; }
    void become_zombie() {
        end();
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(pid()), &info, WEXITED | WNOWAIT);
    }

private:
    origin origin_ = this_origin(true);
};

} // namespace

TEST_CASE("process: this process runs, and an earlier one with the same pid does not") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return; // not told here
    }
    REQUIRE(here.pid == ::getpid());
    REQUIRE_FALSE(here.boot.empty());
    REQUIRE_FALSE(is_gone(here, here));
    origin before = here;
    before.start -= 1;
    REQUIRE(is_gone(before, here));
}

TEST_CASE("process: an unbound origin has no pid, and never counts as ended") {
    const origin here = this_origin(true);
    const origin unbound = this_origin(false);
    REQUIRE(unbound.pid == 0);
    REQUIRE(unbound.boot == here.boot);
    REQUIRE_FALSE(is_gone(unbound, here));
}

TEST_CASE("process: a child runs until it ends, and a zombie has ended") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    child it;
    REQUIRE_FALSE(is_gone(it.where(), here));
    it.become_zombie();
    REQUIRE(is_gone(it.where(), here));
    it.reap();
    REQUIRE(is_gone(it.where(), here));
}

TEST_CASE("process: an origin with another start time is another process") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    child it;
    origin earlier = it.where();
    earlier.start -= 1;
    REQUIRE(is_gone(earlier, here));
}

TEST_CASE("process: a process of another boot, namespace or machine cannot be looked up") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    child it;
    it.reap();
    origin elsewhere = it.where();
    elsewhere.boot = "another";
    REQUIRE_FALSE(is_gone(elsewhere, here));
    elsewhere = it.where();
    elsewhere.space += 1;
    REQUIRE_FALSE(is_gone(elsewhere, here));
    REQUIRE_FALSE(is_gone(it.where(), origin{}));
}

TEST_CASE("process: a child learns of its parent's end from the parent's origin") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    child parent;
    origin of_parent = parent.where();
    REQUIRE_FALSE(is_gone(of_parent, of_parent)); // asked by another than itself
    parent.end();
    REQUIRE(test::eventually([&] { return is_gone(of_parent, of_parent); }));
}

#if defined(__linux__)
TEST_CASE("process: in a pid namespace without its own /proc it cannot be looked up") {
    const pid_t outer = ::fork();
    if (outer == 0) {
        if (::unshare(CLONE_NEWPID) != 0) {
            ::_exit(77);
        }
        const pid_t inner = ::fork();
        if (inner == 0) {
            ::_exit(this_origin(true).space == 0 ? 0 : 1);
        }
        int status = -1;
        ::waitpid(inner, &status, 0);
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    int status = -1;
    ::waitpid(outer, &status, 0);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        std::fprintf(stderr, "skipped: no namespace can be made here\n");
        return;
    }
    REQUIRE(WEXITSTATUS(status) == 0);
}
#endif

TEST_CASE("process: a process whose first thread ended runs as long as another thread does") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    int ready[2];
    int end[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(end) == 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        static int* ends = end;
        ::close(end[1]);
        pthread_t other;
        ::pthread_create(
            &other, nullptr,
            [](void*) -> void* {
                char c = 0;
                static_cast<void>(!::read(ends[0], &c, 1));
                ::_exit(0);
            },
            nullptr);
        const origin self = this_origin(true);
        static_cast<void>(!::write(ready[1], &self.start, sizeof self.start));
        ::syscall(SYS_exit, 0); // this thread alone
    }
    ::close(end[0]);
    origin it = here;
    it.pid = pid;
    REQUIRE(::read(ready[0], &it.start, sizeof it.start) == sizeof it.start);
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
    REQUIRE(test::eventually([&] { return bide::durable::detail::stat_of(path).state == 'Z'; }));
    REQUIRE_FALSE(is_gone(it, here));
    ::close(end[1]);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    REQUIRE(is_gone(it, here));
    ::waitpid(pid, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_CASE(
    "process: a watch becomes readable when the process ends, and cannot be made afterwards") {
    const origin here = this_origin(true);
    if (here.space == 0) {
        return;
    }
    child it;
    const int fd = bide::durable::watch_process(it.where(), here);
    if (fd < 0) {
        WARN("no pidfd_open(2) here");
        return;
    }
    pollfd wanted{fd, POLLIN, 0};
    REQUIRE(::poll(&wanted, 1, 0) == 0);
    it.end();
    REQUIRE(::poll(&wanted, 1, 40'000) == 1);
    ::close(fd);
    REQUIRE(bide::durable::watch_process(it.where(), here) == -1);
    REQUIRE(bide::durable::watch_process(here, here) == -1);
}

TEST_CASE("process: the boottime clock never goes back") {
    std::int64_t last = bide::durable::boottime_ms();
    REQUIRE(last >= 0);
    for (int i = 0; i < 1000; ++i) {
        const std::int64_t now = bide::durable::boottime_ms();
        REQUIRE(now >= last);
        last = now;
    }
}
