#include <bide/parallel/parallel_sort_by_cached_key.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/alloc.hpp>
#include <support/catch.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {};

// A key that can only be moved, and has no default constructor.
struct text_key {
    explicit text_key(int i) : text(std::make_unique<std::string>(std::to_string(i))) {}
    friend bool operator<(const text_key& a, const text_key& b) { return *a.text < *b.text; }
    std::unique_ptr<std::string> text;
};

std::vector<int> numbers(std::size_t n, std::uint32_t below, test::jitter& chance) {
    std::vector<int> made(n);
    for (int& e : made) {
        e = static_cast<int>(chance.below(below));
    }
    return made;
}

} // namespace

TEST_CASE("parallel_sort_by_cached_key: sorts stably, and computes each key once",
          "[promise.cached-keys]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    struct entry {
        int key;
        int place;
        bool operator==(const entry&) const = default;
    };
    for (const unsigned workers : {1u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        for (const std::size_t n : {0u, 1u, 2u, 17u, 511u, 1'024u, 4'097u, 60'013u}) {
            std::vector<entry> v;
            for (const int key : numbers(n, static_cast<std::uint32_t>(n / 2 + 1), chance)) {
                v.push_back({key, static_cast<int>(v.size())});
            }
            auto expected = v;
            auto by_text = v;
            std::sort(expected.begin(), expected.end(), [](const entry& a, const entry& b) {
                return a.key != b.key ? a.key > b.key : a.place < b.place;
            });
            std::atomic<std::size_t> calls{0};
            bide::parallel_sort_by_cached_key(
                s, v,
                [&calls](const entry& e) {
                    ++calls;
                    return e.key;
                },
                std::greater<>());
            INFO(n << ", " << workers << " workers");
            REQUIRE(calls == n);
            REQUIRE(v == expected);

            expected = by_text;
            std::sort(expected.begin(), expected.end(), [](const entry& a, const entry& b) {
                return a.key != b.key ? std::to_string(a.key) < std::to_string(b.key)
                                      : a.place < b.place;
            });
            using narrow = test::narrow_iterator<entry>;
            bide::parallel_sort_by_cached_key(
                s, narrow(by_text.data()), narrow(by_text.data() + n),
                [](const entry& e) { return text_key(e.key); }, std::less<>());
            REQUIRE(by_text == expected);
        }
    }
}

TEST_CASE("parallel_sort_by_cached_key: what throws leaves the elements as they were",
          "[promise.cached-keys]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    std::vector<std::unique_ptr<int>> v;
    for (const int key : numbers(20'000, 1u << 28, chance)) {
        v.push_back(std::make_unique<int>(key));
    }
    std::vector<int*> places;
    for (const auto& p : v) {
        places.push_back(p.get());
    }
    const auto is_unchanged = [&] {
        return std::equal(v.begin(), v.end(), places.begin(),
                          [](const auto& p, int* q) { return p.get() == q; });
    };
    const auto key = [](const auto& p) { return *p; };
    CHECK_THROWS_AS(
        bide::parallel_sort_by_cached_key(
            s, v, [&](const auto& p) { return p.get() == places[9'000] ? throw failure() : *p; }),
        failure);
    CHECK(is_unchanged());
    std::atomic<int> compared{0};
    CHECK_THROWS_AS(
        bide::parallel_sort_by_cached_key(
            s, v, key, [&](int a, int b) { return ++compared > 50'000 ? throw failure() : a < b; }),
        failure);
    CHECK(is_unchanged());
    std::stop_source stop;
    compared = 0;
    CHECK_THROWS_AS(bide::parallel_sort_by_cached_key({s, {.stop = stop.get_token()}}, v, key,
                                                      [&](int a, int b) {
                                                          if (++compared == 50'000) {
                                                              stop.request_stop();
                                                          }
                                                          return a < b;
                                                      }),
                    bide::stopped_error);
    CHECK(is_unchanged());
    if (test::counts_allocations()) {
        std::vector<int> few{3, 1, 2};
        bool refused = false;
        {
            const test::out_of_memory none;
            try {
                bide::parallel_sort_by_cached_key(s, few, [](int i) { return i; });
            } catch (const std::bad_alloc&) {
                refused = true;
            }
        }
        CHECK(refused);
        CHECK(few == std::vector<int>{3, 1, 2});
    }
}

TEST_CASE("parallel_sort_by_cached_key: without memory to fork no element is lost",
          "[promise.cached-keys]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::chance_forks::script script(test::run_seed());
    constexpr int n = 30'000;
    const auto sort_fresh = [&](std::vector<std::unique_ptr<int>>& v) {
        v.clear();
        for (int i = 0; i != n; ++i) {
            v.push_back(std::make_unique<int>(i * 271 % n));
        }
        script.forks = 0;
        auto key = [](const std::unique_ptr<int>& p) { return *p; };
        std::less<> less;
        const bide::detail::elements<std::unique_ptr<int>*> all{v.data(), n};
        bide::detail::sort_by_cached_key_on(test::chance_forks(script), all, key, less, {});
    };
    std::vector<std::unique_ptr<int>> v;
    sort_fresh(v);
    const int all = script.forks;
    for (int round = 0; round != 12; ++round) {
        script.last_fork =
            round < 3 ? all - 1 - round
                      : static_cast<int>(script.chance.below(static_cast<std::uint32_t>(all)));
        try {
            sort_fresh(v);
        } catch (const std::bad_alloc&) {
        }
        std::vector<char> seen(n);
        int found = 0;
        for (const auto& p : v) {
            found += p != nullptr && seen[static_cast<std::size_t>(*p)]++ == 0 ? 1 : 0;
        }
        REQUIRE(found == n);
    }
}

TEST_CASE("parallel_sort_by_cached_key: the progress counts each element twice",
          "[promise.sort-stops]") {
    bide::scheduler s(test::with(2, true));
    test::jitter chance(2);
    auto v = numbers(5'000, 100, chance);
    bide::fork_progress progress;
    bide::parallel_sort_by_cached_key({s, {.grain = 10, .progress = &progress}}, v,
                                      [](int i) { return -i; });
    CHECK(progress.done() == 10'000);
    CHECK(progress.total() == 10'000);
    CHECK(std::is_sorted(v.begin(), v.end(), std::greater<>()));
}
