#include <bide/parallel/parallel_sort_by_cached_key.hpp>
#include <support/alloc.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

namespace {

struct failure {};

// A key that can only be moved, and has no default constructor.
struct owned_key {
    explicit owned_key(int i) : number(std::make_unique<int>(i)) {}
    friend bool operator<(const owned_key& a, const owned_key& b) { return *a.number < *b.number; }
    std::unique_ptr<int> number;
};

// An element, or a key, that is trivially copyable and can only be moved.
struct plainly_moved {
    plainly_moved() = default;
    explicit plainly_moved(int i) : number(i) {}
    plainly_moved(plainly_moved&&) = default;
    plainly_moved& operator=(plainly_moved&&) = default;
    auto operator<=>(const plainly_moved&) const = default;
    int number = 0;
};
static_assert(std::is_trivially_copyable_v<plainly_moved>);

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
            std::sort(expected.begin(), expected.end(), [](const entry& a, const entry& b) {
                return a.key != b.key ? a.key > b.key : a.place < b.place;
            });
            std::atomic<std::size_t> calls{0};
            const auto key = [&calls](const entry& e) { return ++calls, owned_key(-e.key); };
            using narrow = test::narrow_iterator<entry>;
            bide::parallel_sort_by_cached_key(
                s, bide::detail::elements<narrow>{narrow(v.data()), n}, key, std::less<>());
            INFO(n << ", " << workers << " workers");
            REQUIRE(calls == n);
            REQUIRE(v == expected);
        }
    }
}

TEST_CASE("parallel_sort_by_cached_key: elements and keys need no copy") {
    bide::scheduler s(test::with(2, true));
    std::vector<plainly_moved> v;
    for (int i = 0; i < 3'000; ++i) {
        v.emplace_back(i * 7 % 3'000);
    }
    bide::parallel_sort_by_cached_key(
        s, v, [](const plainly_moved& e) { return plainly_moved(-e.number); });
    CHECK(std::ranges::is_sorted(v, std::greater<>()));
}

TEST_CASE("parallel_sort_by_cached_key: what throws leaves the elements as they were",
          "[promise.cached-keys]") {
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
    using owner = std::unique_ptr<int>;
    using key = test::function_ref<int(const owner&)>;
    using order = test::function_ref<bool(int, int)>;
    const auto value = [](const owner& p) { return *p; };
    const auto is_less = [](int a, int b) { return a < b; };
    const auto no_key = [&](const owner& p) {
        return p.get() == places[9'000] ? throw failure() : *p;
    };
    CHECK_THROWS_AS(bide::parallel_sort_by_cached_key(s, v, key(no_key), order(is_less)), failure);
    CHECK(is_unchanged());
    std::atomic<int> compared{0};
    const auto no_order = [&](int a, int b) {
        return ++compared > 50'000 ? throw failure() : a < b;
    };
    CHECK_THROWS_AS(bide::parallel_sort_by_cached_key(s, v, key(value), order(no_order)), failure);
    CHECK(is_unchanged());
    std::stop_source stop;
    compared = 0;
    const auto stops = [&](int a, int b) {
        if (++compared == 50'000) {
            stop.request_stop();
        }
        return a < b;
    };
    CHECK_THROWS_AS(bide::parallel_sort_by_cached_key({s, {.stop = stop.get_token()}}, v,
                                                      key(value), order(stops)),
                    bide::stopped_error);
    CHECK(is_unchanged());
    if (test::counts_allocations()) {
        std::vector<int> few{3, 1, 2};
        const auto same = [](int i) { return i; };
        bool refused = false;
        {
            const test::out_of_memory none;
            try {
                bide::parallel_sort_by_cached_key(s, few, test::function_ref<int(int)>(same));
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
        bide::detail::sort_by_cached_key(test::by_chance(script), all, key, less);
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
