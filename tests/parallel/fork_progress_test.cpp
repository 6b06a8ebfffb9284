#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>

using indexed = test::function_ref<void(int)>;

TEST_CASE("fork_progress: a new one has done 0 of 0") {
    const bide::fork_progress progress;
    CHECK(progress.done() == 0);
    CHECK(progress.total() == 0);
}

TEST_CASE("fork_progress: done() never decreases, and equals total() at the end",
          "[promise.progress]") {
    bide::scheduler s(test::with(2, true));
    bide::fork_progress progress;
    constexpr int n = 20'000;
    std::vector<std::uint64_t> seen;
    std::atomic<bool> over{false};
    std::atomic<bool> ready{false};
    test::team watcher(1, [&](int) {
        std::uint64_t last = 0;
        while (!over.load()) {
            const std::uint64_t done = progress.done();
            const std::uint64_t total = progress.total();
            if (done != last || seen.empty()) {
                seen.push_back(done);
            }
            if (done > total) {
                seen.push_back(~std::uint64_t{0});
            }
            last = done;
            ready.store(true);
            std::this_thread::yield();
        }
    });
    const bool is_watched = test::eventually([&] { return ready.load(); });
    std::atomic<int> calls{0};
    const auto count = [&](int) { ++calls; };
    bide::parallel_for({s, {.grain = 50, .progress = &progress}}, 0, n, indexed(count));
    over.store(true);
    watcher.join();

    CHECK(is_watched);
    CHECK(calls.load() == n);
    CHECK(progress.done() == n);
    CHECK(progress.total() == n);
    CHECK(std::is_sorted(seen.begin(), seen.end()));
    CHECK(seen.back() <= n);
}

TEST_CASE("fork_progress: a leaf counts when it has ended, and not if it was left out or threw") {
    const bool throws = GENERATE(false, true);
    struct failure {};
    test::chance_forks::script script(test::run_seed());
    script.hunger = 0;  // the loop is not divided
    script.thieves = 0; // and its leaves run in order
    bide::fork_progress progress;
    std::stop_source source;
    const bide::fork_options options{10, source.get_token(), &progress};
    std::vector<std::uint64_t> seen;
    const auto sees = [&](int i) {
        seen.push_back(progress.done());
        if (i == 34 && throws) {
            throw failure();
        }
        if (i == 34) {
            source.request_stop();
        }
    };
    indexed body = sees;
    bool has_thrown = false;
    try {
        bide::detail::for_indices(test::by_chance(script, options), 0, 100, body);
        CHECK(false);
    } catch (const bide::stopped_error&) {
    } catch (const failure&) {
        has_thrown = true;
    }
    CHECK(has_thrown == throws);
    CHECK(progress.done() == (throws ? 30 : 40));
    CHECK(progress.total() == 100);
    REQUIRE(seen.size() == (throws ? 35 : 40));
    for (std::size_t i = 0; i < seen.size(); ++i) {
        CHECK(seen[i] == i / 10 * 10);
    }
}
