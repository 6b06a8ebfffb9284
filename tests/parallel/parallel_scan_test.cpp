#include <bide/parallel/parallel_scan.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/scheduling.hpp>
#include <support/two_threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace {

struct failure {
    std::size_t at;
};

// Consecutive elements. Only neighbours may be combined, in their order. It has no default
// constructor, and an address and a comma of its own.
struct stretch {
    std::size_t first;
    std::size_t last;

    stretch(std::size_t from, std::size_t to) : first(from), last(to) {}
    stretch* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    friend bool operator==(const stretch& a, const stretch& b) {
        return a.first == b.first && a.last == b.last;
    }
};

std::vector<stretch> elements_of(std::size_t n) {
    std::vector<stretch> all;
    for (std::size_t i = 0; i < n; ++i) {
        all.emplace_back(i + 1, i + 1);
    }
    return all;
}

// A value that can only be moved, and is written as its number.
struct moved_number {
    explicit moved_number(int n) : number(std::make_unique<int>(n)) {}
    operator int() const { return *number; }
    std::unique_ptr<int> number;
};

template <class T> bool has_bits_of(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The scan as the head of the header documents it.
std::vector<double> documented_scan(const std::vector<double>& in, std::size_t grain) {
    std::size_t block = grain;
    for (std::size_t size = 16; grain == 0; size *= 2) {
        block = size;
        if (size * size >= in.size() || size == 2'048) {
            break;
        }
    }
    std::vector<double> out;
    std::optional<double> before;
    for (std::size_t at = 0; at < in.size();) {
        const std::size_t end = in.size() - at < 2 * block ? in.size() : at + block;
        double sum = in[at];
        for (std::size_t i = at;;) {
            out.push_back(before ? *before + sum : sum);
            if (++i == end) {
                break;
            }
            sum += in[i];
        }
        before = before ? *before + sum : sum;
        at = end;
    }
    return out;
}

template <class Out>
concept scans_to = requires(bide::scheduler& s, std::vector<int>& in, Out out) {
    bide::parallel_inclusive_scan(s, in, out);
    bide::parallel_exclusive_scan(s, in.begin(), in.end(), out, 0);
};

} // namespace

static_assert(scans_to<int*>);
static_assert(scans_to<std::deque<long>::iterator>);
static_assert(!scans_to<std::vector<bool>::iterator>);
static_assert(!scans_to<std::back_insert_iterator<std::vector<int>>>);
static_assert(!scans_to<const int*>);

TEST_CASE("parallel_scan: gives what std's scans give, whatever the size and the workers",
          "[promise.scan-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    const auto square = [](int i) { return static_cast<long>(i) * i; };
    const auto join = [](const std::string& a, const std::string& b) { return a + b; };
    const auto text = [](int i) { return std::string(1, static_cast<char>('a' + i % 26)); };
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 30; ++round) {
            const std::size_t n = round < 8 ? std::size_t{14} + static_cast<std::size_t>(round) * 9
                                            : chance.below(1u << chance.below(15));
            std::vector<int> in(n);
            std::generate(in.begin(), in.end(), [&] { return static_cast<int>(chance.below(99)); });
            const bide::fork_policy on(
                s, {.grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(200)}});
            INFO(workers << " workers, " << n << " elements, grain " << on.options().grain);
            std::vector<long> wanted(n);
            std::vector<long> out(n + 1, -1);
            const auto is_right = [&](auto end) {
                return end == out.end() - 1 && out.back() == -1 &&
                       std::equal(wanted.begin(), wanted.end(), out.begin());
            };
            std::inclusive_scan(in.begin(), in.end(), wanted.begin());
            REQUIRE(is_right(bide::parallel_inclusive_scan(on, in, out.begin())));
            REQUIRE(is_right(bide::parallel_inclusive_scan(on, in.begin(), in.end(), out.begin(),
                                                           std::plus<>())));
            const std::deque<int> copy(in.begin(), in.end());
            REQUIRE(is_right(bide::parallel_inclusive_scan(on, copy, out.begin())));

            std::inclusive_scan(in.begin(), in.end(), wanted.begin(), std::bit_xor<>(), 7L);
            REQUIRE(
                is_right(bide::parallel_inclusive_scan(on, in, out.begin(), std::bit_xor<>(), 7L)));
            REQUIRE(is_right(bide::parallel_inclusive_scan(on, in.begin(), in.end(), out.begin(),
                                                           std::bit_xor<>(), 7L)));
            const auto largest = [](long a, long b) { return a < b ? b : a; };
            std::inclusive_scan(in.begin(), in.end(), wanted.begin(), largest, 50L);
            REQUIRE(is_right(bide::parallel_inclusive_scan(on, in, out.begin(), largest, 50L)));

            std::exclusive_scan(in.begin(), in.end(), wanted.begin(), 3L);
            REQUIRE(is_right(bide::parallel_exclusive_scan(on, in, out.begin(), 3L)));
            REQUIRE(
                is_right(bide::parallel_exclusive_scan(on, in.begin(), in.end(), out.begin(), 3L)));
            std::exclusive_scan(in.begin(), in.end(), wanted.begin(), 50L, largest);
            REQUIRE(is_right(bide::parallel_exclusive_scan(on, in, out.begin(), 50L, largest)));
            REQUIRE(is_right(bide::parallel_exclusive_scan(on, in.begin(), in.end(), out.begin(),
                                                           50L, largest)));

            std::transform_inclusive_scan(in.begin(), in.end(), wanted.begin(), std::plus<>(),
                                          square);
            REQUIRE(is_right(bide::parallel_transform_inclusive_scan(on, in, out.begin(),
                                                                     std::plus<>(), square)));
            REQUIRE(is_right(bide::parallel_transform_inclusive_scan(
                on, in.begin(), in.end(), out.begin(), std::plus<>(), square)));
            std::transform_inclusive_scan(in.begin(), in.end(), wanted.begin(), largest, square,
                                          9L);
            REQUIRE(is_right(
                bide::parallel_transform_inclusive_scan(on, in, out.begin(), largest, square, 9L)));
            REQUIRE(is_right(bide::parallel_transform_inclusive_scan(
                on, in.begin(), in.end(), out.begin(), largest, square, 9L)));
            std::transform_exclusive_scan(in.begin(), in.end(), wanted.begin(), 9L, std::plus<>(),
                                          square);
            REQUIRE(is_right(bide::parallel_transform_exclusive_scan(on, in, out.begin(), 9L,
                                                                     std::plus<>(), square)));
            REQUIRE(is_right(bide::parallel_transform_exclusive_scan(
                on, in.begin(), in.end(), out.begin(), 9L, std::plus<>(), square)));

            if (n < 400) { // the text of all elements is written for each
                std::vector<std::string> texts(n);
                std::vector<std::string> scanned(n);
                std::transform_exclusive_scan(in.begin(), in.end(), texts.begin(), std::string("<"),
                                              join, text);
                bide::parallel_transform_exclusive_scan(on, in, scanned.begin(), std::string("<"),
                                                        join, text);
                REQUIRE(scanned == texts);
            }
        }
    }
}

TEST_CASE("parallel_scan: the output may be the input", "[promise.scan-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(3, true));
    for (int round = 0; round < 30; ++round) {
        const std::size_t n = chance.below(1u << chance.below(14));
        const bide::fork_policy on(s, {.grain = std::size_t{chance.below(50)}});
        std::vector<unsigned> in(n);
        std::generate(in.begin(), in.end(), [&] { return chance.below(99); });
        std::vector<unsigned> wanted(n);
        std::inclusive_scan(in.begin(), in.end(), wanted.begin());
        std::vector<unsigned> out = in;
        bide::parallel_inclusive_scan(on, out, out.begin());
        REQUIRE(out == wanted);
        std::exclusive_scan(in.begin(), in.end(), wanted.begin(), 5u);
        out = in;
        bide::parallel_exclusive_scan(on, out, out.begin(), 5u);
        REQUIRE(out == wanted);
        // Of an operation that is no std one, a thief's sums go through the output.
        const auto plus = [](unsigned a, unsigned b) { return a + b; };
        out = in;
        bide::parallel_exclusive_scan(on, out, out.begin(), 5u, plus);
        REQUIRE(out == wanted);
        std::inclusive_scan(in.begin(), in.end(), wanted.begin(), plus, 5u);
        out = in;
        bide::parallel_inclusive_scan(on, out, out.begin(), plus, 5u);
        REQUIRE(out == wanted);
    }
}

TEST_CASE("parallel_scan: neighbours are combined in order, whichever thread does it",
          "[promise.scan-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    for (int round = 0; round < 400; ++round) {
        const std::size_t n = chance.below(1u << chance.below(11));
        const bide::fork_options options{.grain = std::size_t{chance.below(30)}};
        test::chance_forks::script script(test::run_seed() + static_cast<unsigned>(round));
        script.thieves = chance.below(5);
        script.hunger = chance.below(5);
        INFO("round " << round << ", " << n << " elements, grain " << options.grain);
        std::vector<stretch> in = elements_of(n);
        bool in_order = true;
        auto op = [&](const stretch& a, const stretch& b) {
            in_order = in_order && a.last + 1 == b.first;
            return stretch(a.first, b.last);
        };
        std::identity map;
        std::vector<stretch> out = in;
        const bide::detail::elements<stretch*> all{in.data(), n};
        using bide::detail::scan_kind;
        bide::detail::scan_on<scan_kind::inclusive, stretch>(
            test::chance_forks(script), options, all, out.data(), op, map, std::nullopt);
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(out[i] == stretch(1, i + 1));
        }
        bide::detail::scan_on<scan_kind::exclusive, stretch>(
            test::chance_forks(script), options, all, in.data(), op, map, stretch(0, 0));
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(in[i] == stretch(0, i));
        }
        REQUIRE(in_order);
    }
}

TEST_CASE("parallel_scan: the tree is the documented one, with the same bits on any workers",
          "[promise.scan-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    for (const std::size_t n : {0u, 1u, 15u, 16u, 31u, 32u, 33u, 256u, 257u, 5'003u, 70'001u}) {
        for (const std::size_t grain : {0u, 1u, 7u, 1'000u}) {
            std::vector<double> in(n);
            std::generate(in.begin(), in.end(), [&] { return 1.0 / (1 + chance.below(99)); });
            const std::vector<double> wanted = documented_scan(in, grain);
            for (const unsigned workers : {1u, 2u, 4u, 16u}) {
                INFO(n << " elements, grain " << grain << ", " << workers << " workers");
                bide::scheduler s(test::with(workers, true));
                const bide::fork_policy on(s, {.grain = grain});
                std::vector<double> out(n);
                bide::parallel_inclusive_scan(on, in, out.begin());
                REQUIRE(has_bits_of(out, wanted));
                test::two_threads both;
                const auto same = [&](double element) {
                    both.come();
                    return element;
                };
                if (workers > 1 && n >= 3 * std::max<std::size_t>(grain, 16)) {
                    bide::parallel_transform_inclusive_scan(on, in, out.begin(), std::plus<>(),
                                                            same);
                    REQUIRE(both.met());
                    REQUIRE(has_bits_of(out, wanted));
                }
                // The output is no double, so that nothing is kept there.
                std::vector<long double> wide(n);
                bide::parallel_inclusive_scan(on, in, wide.begin());
                REQUIRE(std::equal(wide.begin(), wide.end(), wanted.begin(), wanted.end()));
            }
        }
    }
}

TEST_CASE("parallel_scan: values may be move-only, without a default constructor, and narrow") {
    bide::scheduler s(test::with(3, true));
    const std::vector<int> numbers(2'000, 2);
    std::vector<int> sums(2'000);
    const auto add = [](const moved_number& a, const moved_number& b) {
        return moved_number(a + b);
    };
    bide::parallel_transform_exclusive_scan({s, {.grain = 7}}, numbers, sums.begin(),
                                            moved_number(1), add,
                                            [](int i) { return moved_number(i); });
    for (std::size_t i = 0; i < sums.size(); ++i) {
        REQUIRE(sums[i] == 1 + 2 * static_cast<int>(i));
    }
    const short few[] = {1, 2, 3};
    short sum[3];
    CHECK(bide::parallel_inclusive_scan(s, few, sum) == sum + 3);
    CHECK(sum[2] == 6);
    CHECK(bide::parallel_inclusive_scan(s, few, few + 2, sum, std::multiplies<>()) == sum + 2);
    CHECK(sum[1] == 2);
}

TEST_CASE("parallel_scan: the first call in order that throws leaves it, and nothing leaks",
          "[promise.scan-as-std]") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 200; ++round) {
        test::chance_forks::script script(test::run_seed() + static_cast<unsigned>(round));
        script.last_fork = chance.below(3) == 0 ? static_cast<int>(chance.below(20)) : 1 << 30;
        const std::size_t first = 1 + chance.below(500);
        const std::size_t second = first + chance.below(100);
        std::vector<test::counted> in;
        for (int i = 0; i < 600; ++i) {
            in.emplace_back(tally, i);
        }
        const int alive = tally.alive();
        std::size_t thrown_at = 0;
        bool is_out_of_memory = false;
        auto map = [&](const test::counted& element) {
            const auto at = static_cast<std::size_t>(element.number());
            if (at == first || at == second) {
                throw failure{at};
            }
            return test::counted(tally, element.number());
        };
        auto op = [&](const test::counted& a, const test::counted& b) {
            return test::counted(tally, std::max(a.number(), b.number()));
        };
        std::vector<test::counted> out(in);
        try {
            bide::detail::scan_on<bide::detail::scan_kind::inclusive, test::counted>(
                test::chance_forks(script), {.grain = 10},
                bide::detail::elements<test::counted*>{in.data(), in.size()}, out.data(), op, map,
                std::nullopt);
        } catch (const failure& failed) {
            thrown_at = failed.at;
        } catch (const std::bad_alloc&) {
            is_out_of_memory = true;
        }
        REQUIRE((is_out_of_memory || thrown_at == first));
        REQUIRE(tally.alive() == 2 * alive);
    }
}

TEST_CASE("parallel_scan: a grain of more than all elements is one of all") {
    bide::scheduler s(test::with(2, true));
    constexpr std::size_t most = ~std::size_t{0};
    const std::vector<double> in(1'000, 1.0);
    for (const std::size_t grain :
         {std::size_t{1'000}, most / 2, most / 2 + 1, most / 2 + 9, most}) {
        std::vector<double> out(in.size());
        bide::parallel_inclusive_scan({s, {.grain = grain}}, in, out.begin());
        CHECK(out.front() == 1.0);
        CHECK(out.back() == 1'000.0);
        CHECK(bide::parallel_exclusive_scan({s, {.grain = grain}}, in.begin(), in.begin(),
                                            out.begin(), 5.0) == out.begin());
    }
}

namespace {

struct unassigned {
    operator int() const { return number; }
    const int number;
};
struct adds {
    unassigned operator()(const unassigned& a, const unassigned& b) const {
        return {a.number + b.number};
    }
};
template <class T, class Op>
concept scans = requires(bide::scheduler& s, std::vector<T> in, int* out, Op op) {
    bide::parallel_inclusive_scan(s, in, out, op);
};

} // namespace

static_assert(scans<int, std::plus<>>);
static_assert(!scans<unassigned, adds>, "the sum is assigned to");

TEST_CASE("parallel_scan: a stop ends it early, and its progress counts each element once") {
    bide::scheduler s(test::with(3, true));
    std::vector<int> in(10'000, 1);
    std::vector<int> out(10'000);
    for (const std::size_t grain : {0u, 10u}) {
        bide::fork_progress progress;
        bide::parallel_inclusive_scan({s, {.grain = grain, .progress = &progress}}, in,
                                      out.begin());
        CHECK(progress.done() == 10'000);
        std::stop_source stop;
        std::atomic<int> calls{0};
        const auto stops = [&](int a, int b) {
            if (++calls == 100) {
                stop.request_stop();
            }
            return a + b;
        };
        CHECK_THROWS_AS(
            bide::parallel_exclusive_scan({s, {.grain = grain, .stop = stop.get_token()}}, in,
                                          out.begin(), 0, stops),
            bide::stopped_error);
        CHECK(calls.load() < 9'999);
    }
}
