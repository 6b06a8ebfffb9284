// Processes that wait for a lock are woken by the process that grants it to them. Nothing
// here wakes up by itself within the time of a test: the interval of polls is an hour.

#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/file.hpp>
#include <support/children.hpp>
#include <support/temp_directory.hpp>
#include <support/test.hpp>
#include <support/unhurried.hpp>

#if defined(__linux__)
#include <sched.h>
#endif

#if defined(__linux__)

namespace {

constexpr std::size_t most = 8;

struct counts {
    std::atomic<int> loads{0};
    std::atomic<int> stores{0};
};

// A file slot that counts its operations.
class counting_slot : public bide::slot {
public:
    counting_slot(const std::string& path, counts& in) : of_(path), in_(&in) {}

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        ++in_->loads;
        return of_.load();
    }
    bide::cas_result compare_exchange(bide::slot_version version, std::string_view value) override {
        ++in_->stores;
        return of_.compare_exchange(version, value);
    }
    bide::result<std::shared_ptr<bide::slot_presence>, std::error_code> be_present() override {
        return of_.be_present();
    }
    bide::presence is_present(std::int64_t mark) const override { return of_.is_present(mark); }
    static constexpr bide::slot_guarantees guarantees = bide::file_slot::guarantees;

private:
    bide::file_slot of_;
    counts* in_;
};

// The same file as a server would be: without marks of presence, with a clock.
class remote_slot : public counting_slot {
public:
    using counting_slot::counting_slot;

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        auto seen = counting_slot::load();
        if (seen) {
            seen->server_ms = bide::durable::unix_ms();
        }
        return seen;
    }
    bide::cas_result compare_exchange(bide::slot_version version, std::string_view value) override {
        auto tried = counting_slot::compare_exchange(version, value);
        if (tried.current) {
            tried.current->server_ms = bide::durable::unix_ms();
        }
        return tried;
    }
    bide::result<std::shared_ptr<bide::slot_presence>, std::error_code> be_present() override {
        return slot::be_present();
    }
    bide::presence is_present(std::int64_t mark) const override { return slot::is_present(mark); }
    static constexpr bide::slot_guarantees guarantees{
        .keeps_acknowledged = true, .multi_host = true, .clock = bide::lock_clock::server};
};

bide::slot_ref slot_on(bool is_remote, const std::string& path, counts& in) {
    return is_remote ? bide::slot_ref(remote_slot(path, in))
                     : bide::slot_ref(counting_slot(path, in));
}

bide::durable_options never_polling(bool is_observed = false) {
    bide::durable_options o = test::unhurried();
    if (is_observed) { // as on etcd: no grants are passed on
        o.clock = bide::lock_clock::observed;
    }
    o.poll_least = o.poll_most = 1h;
    o.lease = 1h;
    return o;
}

struct board {
    std::array<counts, most> of{};
    std::atomic<int> inside{0};
    std::atomic<int> turn{0}; // of those that enter the queue one after the other
};

template <class Done> void await(Done done) {
    if (!test::eventually(done)) {
        test::give_up(test::where(), "the others did not come");
    }
}
// Waits until so many contenders are in the queue.
void await_waiters(bide::durable_mutex& in, std::size_t count) {
    await([&] {
        const auto seen = in.inspect();
        return seen && *seen && (*seen)->live.waiters.size() == count;
    });
}

} // namespace

// In the first round each process opens its socket, and reads the record once more for that. So only the
// second round is counted.
TEST_CASE("wake_socket: each waiting process reads the record once for its own turn, and no more",
          "[promise.durable-directed-wake]") {
    constexpr int waiters = 5;
    const bool is_remote = GENERATE(false, true);
    const test::temp_directory directory("wake-socket");
    const std::string path = directory.path() + "/lock";
    const test::shared_with_children<board> all;
    test::children processes(waiters + 1, [&](int i, const auto& gate) -> std::string {
        gate();
        counts& mine = all->of[static_cast<std::size_t>(i)];
        bide::durable_mutex lock(slot_on(is_remote, path, mine), never_polling());
        std::string said;
        for (const int round : {0, 10}) {
            if (i == 0) { // holds it until all wait, one after the other
                const auto held = lock.acquire();
                for (int n = 1; held && n <= waiters; ++n) {
                    all->turn = round + n;
                    await_waiters(lock, static_cast<std::size_t>(n));
                }
                continue;
            }
            await([&] { return all->turn == round + i; });
            mine.loads = mine.stores = 0;
            const auto held = lock.acquire();
            const bool is_alone = held && all->inside.fetch_add(1) == 0;
            // It enters the queue, and finds its grant. On a server, a store may take the place of
            // a load: it shows whether the record is the one that the process has seen last.
            const int loads = mine.loads;
            said = !is_alone                                ? "not alone"
                   : loads == 2 || (is_remote && loads < 2) ? std::to_string(loads + mine.stores)
                                                            : std::to_string(loads) + " loads";
            --all->inside;
        }
        return said;
    });
    processes.go();
    const auto reports = processes.reports();
    REQUIRE(reports.size() == waiters + 1);
    for (std::size_t i = 1; i < reports.size(); ++i) {
        CHECK(reports[i] == "3"); // requests
    }
}

TEST_CASE("wake_socket: if a holder or a waiter is killed, the one that depends on it notices") {
    const test::temp_directory directory("wake-socket");
    const std::string path = directory.path() + "/lock";
    const test::shared_with_children<board> all;
    const bool is_first_killed = GENERATE(false, true);
    const bool is_remote = GENERATE(false, true);
    const bool is_observed = GENERATE(false, true);
    test::children processes(3, [&](int i, const auto& gate) -> std::string {
        gate();
        bide::durable_mutex mine(slot_on(is_remote, path, all->of[0]), never_polling(is_observed));
        if (i == 0) {
            auto held = mine.acquire();
            all->turn = 1;
            await_waiters(mine, 1);
            all->turn = 2;
            await_waiters(mine, 2);
            all->turn = 3; // the first waiter is killed, unless this one is
            if (is_first_killed) {
                ::raise(SIGKILL);
            }
            await_waiters(mine, 1);
            const bool is_released = held->release().has_value();
            await([&] { return all->inside == 1; }); // the end of this process would wake it, too
            return is_released ? "released" : "failed";
        }
        await([&] { return all->turn == i; });
        bide::acquire_request request;
        if (i == 1 && !is_first_killed) {
            std::thread([&all] {
                await([&] { return all->turn == 3; });
                ::raise(SIGKILL);
            }).detach();
        }
        const auto held = mine.acquire(request);
        ++all->inside;
        return held ? "acquired" : held.error().message();
    });
    processes.go();
    const auto reports = processes.reports();
    CHECK(reports[0] == (is_first_killed ? "\n! the process ended with status 9\n" : "released"));
    CHECK(reports[1] == (is_first_killed ? "acquired" : "\n! the process ended with status 9\n"));
    CHECK(reports[2] == "acquired");
}

TEST_CASE("wake_socket: processes of different network namespaces wake each other by the file",
          "[promise.durable-directed-wake]") {
    const test::temp_directory directory("wake-socket");
    const std::string path = directory.path() + "/lock";
    const test::shared_with_children<board> all;
    test::children processes(4, [&](int i, const auto& gate) -> std::string {
        const bool is_apart = i % 2 == 1;
        const bool could = !is_apart || ::unshare(CLONE_NEWNET) == 0;
        gate();
        bide::durable_mutex mine(bide::file_slot(path), never_polling());
        if (i == 0) {
            auto held = mine.acquire();
            for (int n = 1; n < 4; ++n) {
                all->turn = n;
                await_waiters(mine, static_cast<std::size_t>(n));
            }
            return held->release() ? "acquired" : "failed";
        }
        await([&] { return all->turn == i; });
        const auto held = mine.acquire();
        return !held ? held.error().message() : could ? "acquired" : "acquired, but not apart";
    });
    processes.go();
    for (const std::string& said : processes.reports()) {
        if (said == "acquired, but not apart") {
            WARN("no network namespace could be made");
        } else {
            CHECK(said == "acquired");
        }
    }
}

TEST_CASE("wake_socket: a release wakes a process that waits for an inheritable grant",
          "[promise.durable-directed-wake]") {
    const test::temp_directory directory("wake-socket");
    const std::string path = directory.path() + "/lock";
    const test::shared_with_children<board> all;
    test::children processes(3, [&](int i, const auto& gate) -> std::string {
        gate();
        bide::durable_mutex mine(bide::file_slot(path), never_polling());
        bide::acquire_request request;
        request.inheritable = true;
        await([&] { return all->turn == i; });
        for (int round = 0; round < 2; ++round) { // the second one has another mark
            auto held = mine.acquire(request);
            if (!held) {
                return held.error().message();
            }
            if (i + round == 0) {
                all->turn = 1;
                await_waiters(mine, 1);
                all->turn = 2;
                await_waiters(mine, 2);
            }
            if (!held->release()) {
                return "failed";
            }
        }
        return "";
    });
    processes.go();
    for (const std::string& said : processes.reports()) {
        CHECK(said == "");
    }
}

TEST_CASE("wake_socket: no process waits for ever among processes that acquire and give up",
          "[promise.durable-directed-wake]") {
    constexpr int permits = 2;
    const int rounds = 60;
    const bool is_remote = GENERATE(false, true);
    const bool is_observed = GENERATE(false, true);
    const test::temp_directory directory("wake-socket");
    const std::string path = directory.path() + "/lock";
    const test::shared_with_children<board> all;
    test::children processes(5, [&](int i, const auto& gate) -> std::string {
        bide::durable_semaphore mine(slot_on(is_remote, path, all->of[0]), permits,
                                     never_polling(is_observed));
        gate();
        for (int n = 0; n < rounds; ++n) {
            bide::acquire_request request;
            request.weight = 1 + (n + i) % permits;
            const bool is_patient = (n + i) % 3 != 0;
            request.timeout = is_patient ? std::chrono::nanoseconds::max() : 1ms * (n % 5);
            const auto held = mine.acquire(request);
            if (!held && is_patient) {
                return held.error().message();
            }
            if (held) {
                const int now = all->inside += static_cast<int>(request.weight);
                if (now > permits) {
                    return "more are inside than permits";
                }
                all->inside -= static_cast<int>(request.weight);
            }
        }
        return "";
    });
    processes.go();
    for (const std::string& said : processes.reports()) {
        CHECK(said == "");
    }
}

#endif
