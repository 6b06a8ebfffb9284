#include <bide/durable/detail/background.hpp>

#include <bide/durable/process.hpp>

#include <support/test.hpp>

#include <fcntl.h>
#include <unistd.h>

using bide::detail::lease_monitor;

namespace {

struct counter final : bide::detail::monitor_client {
    void happened() noexcept override { ++times; }
    std::atomic<int> times{0};
};

std::vector<std::shared_ptr<counter>> counters(int number) {
    std::vector<std::shared_ptr<counter>> all;
    for (int i = 0; i < number; ++i) {
        all.push_back(std::make_shared<counter>());
    }
    return all;
}

bool all_told(const std::vector<std::shared_ptr<counter>>& of) {
    return test::eventually([&] {
        for (const auto& one : of) {
            if (one->times == 0) {
                return false;
            }
        }
        return true;
    });
}

} // namespace

TEST_CASE("lease_monitor: all clients with the same time are notified") {
    const auto all = counters(100); // more than it tells at once
    for (const std::int64_t in_ms : {std::int64_t{0}, std::int64_t{20}}) {
        const std::int64_t at = bide::durable::boottime_ms() + in_ms;
        for (const auto& one : all) {
            one->times = 0;
            lease_monitor::here().alarm(one, at);
        }
        REQUIRE(all_told(all));
        REQUIRE(bide::durable::boottime_ms() >= at);
    }
}

TEST_CASE(
    "lease_monitor: an earlier time replaces a later one, and a cancelled client is not notified") {
    const bool was_in_time = test::in_some_time(10ms, [](std::chrono::milliseconds time) {
        const auto all = counters(3);
        const std::int64_t at = bide::durable::boottime_ms() + time.count();
        lease_monitor::here().alarm(all[0], at + 3'600'000);
        lease_monitor::here().alarm(all[1], at);
        lease_monitor::here().cancel(*all[1]);
        if (bide::durable::boottime_ms() >= at) {
            lease_monitor::here().cancel(*all[0]);
            return false; // it may have been told before
        }
        lease_monitor::here().alarm(all[0], at);
        lease_monitor::here().alarm(all[2], at + 10);
        REQUIRE(all_told({all[0], all[2]}));
        REQUIRE(all[1]->times == 0);
        return true;
    });
    REQUIRE(was_in_time);
}

#if defined(__linux__)
TEST_CASE("lease_monitor: a readable file is notified once, and once more after each rearm()") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const auto one = counters(1);
    const auto after = counters(1); // told when the lease_monitor has slept and come back
    REQUIRE(lease_monitor::here().add(ends[0], one[0]));
    REQUIRE(::write(ends[1], "x", 1) == 1);
    REQUIRE(all_told(one));
    lease_monitor::here().alarm(after[0], bide::durable::boottime_ms());
    REQUIRE(all_told(after));
    REQUIRE(one[0]->times == 1);
    one[0]->times = 0;
    lease_monitor::here().rearm(ends[0]);
    REQUIRE(all_told(one));
    lease_monitor::here().remove(ends[0]);
    ::close(ends[0]);
    ::close(ends[1]);
}
#endif
