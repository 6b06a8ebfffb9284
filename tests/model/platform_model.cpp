// What the checker's platform does beside atomics: sleep, tell the time, keep what a thread has.

#include <model/check.hpp>
#include <support/test.hpp>

namespace {

using model::atomic;
using model::failure;
using model::options;
using model::platform;
using enum std::memory_order;

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

failure found(const model::body& run, const options& o = {}) { return model::explore(o, run).what; }

} // namespace

TEST_CASE("platform: sleeps end early, comparisons fail and the clock jumps as often as allowed") {
    const auto sleep = [] {
        atomic<std::uint32_t> word{0};
        model::thread other([&] {
            word.store(1, release);
            platform::futex_wake(&word, 1);
        });
        int sleeps = 0;
        bool in_time = true;
        while (word.load(acquire) == 0 && in_time) {
            in_time = platform::futex_wait(word, std::uint32_t{0}, 1'000);
            ++sleeps;
        }
        model::record(std::to_string(sleeps) + (in_time ? "" : "t"));
    };
    // Twice without any of them: to be woken synchronises with nothing, so that the word may look
    // as before; the second wait finds it changed.
    CHECK(model::outcomes({}, sleep) == "0 1 2");
    CHECK(model::outcomes({.spurious = 1}, sleep) == "0 1 2 3");
    CHECK(model::outcomes({.timeouts = 1}, sleep) == "0 1 1t 2");
    CHECK(model::outcomes({.spurious = 1, .timeouts = 1}, sleep) == "0 1 1t 2 2t 3");

    const auto compare = [] {
        atomic<int> word{0};
        int seen = 0;
        const bool done = word.compare_exchange_weak(seen, 1, acq_rel, relaxed);
        model::record(done ? "done" : "failed");
    };
    CHECK(model::outcomes({}, compare) == "done");
    CHECK(model::outcomes({.weak_failures = 1}, compare) == "done failed");

    const auto clock = [] {
        const auto before = platform::now();
        model::record(platform::now() == before ? "same" : "later");
    };
    CHECK(model::outcomes({}, clock) == "same");
    CHECK(model::outcomes({.clock_jumps = 1}, clock) == "later same");
}

TEST_CASE("platform: a timed sleep that no wake ends is a lost wakeup unless it may time out") {
    const auto sleep = [] {
        atomic<std::uint32_t> word{0};
        platform::futex_wait(word, std::uint32_t{0}, 1'000);
    };
    CHECK(found(sleep) == failure::lost_wakeup);
    CHECK(found(sleep, {.timeouts = 1}) == failure::none);
}

TEST_CASE("platform: each thread has its own local, made anew in each execution") {
    struct mine {
        int value = 0;
    };
    CHECK(model::outcomes({}, [] {
              atomic<int> word{0};
              const auto count = [&] {
                  platform::local<mine>().value += 1;
                  word.fetch_add(platform::local<mine>().value, relaxed);
              };
              {
                  model::thread a(count);
                  model::thread b(count);
              }
              model::record(std::to_string(word.load(relaxed)));
          }) == "2");
}

TEST_CASE("platform: a wake may reach any of the sleepers, and one only") {
    const auto which = [] {
        atomic<std::uint32_t> word{0};
        atomic<int> asleep{0};
        atomic<int> woken{0};
        const auto sleep = [&](int me) {
            asleep.fetch_add(1, relaxed);
            platform::futex_wait(word, std::uint32_t{0}, never);
            woken.fetch_add(me, relaxed);
        };
        model::thread first([&] { sleep(1); });
        model::thread second([&] { sleep(2); });
        model::assume(asleep.load(relaxed) == 2);
        platform::futex_wake(&word, 1);
        model::record(std::to_string(woken.load(relaxed)));
        word.store(1, relaxed);
        platform::futex_wake(&word, 2);
    };
    CHECK(model::outcomes({}, which) == "0 1 2");
    CHECK(model::outcomes({.how = options::method::enumerate}, which) == "0 1 2");
}

TEST_CASE("platform: of a long word a futex compares the low half") {
    CHECK(found([] {
              atomic<std::uint64_t> word{0};
              model::thread other([&] {
                  word.store(std::uint64_t{1} << 32, release);
                  platform::futex_wake(&word, 1);
              });
              platform::futex_wait(word, std::uint64_t{0}, never);
          }) == failure::lost_wakeup);
}
