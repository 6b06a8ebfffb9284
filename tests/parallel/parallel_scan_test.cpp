#include <bide/parallel/parallel_scan.hpp>
#include <support/counted.hpp>
#include <support/function_ref.hpp>
#include <support/parallel_rounds.hpp>
#include <support/two_threads.hpp>

namespace {

struct failure {
    int at;
};

// Consecutive elements. Only neighbours may be combined, in their order. It has no default
// constructor, and an address and a comma of its own.
struct stretch {
    int first;
    int last;
    test::counted counted;

    stretch(test::tally& in, int from, int to) : first(from), last(to), counted(in, from) {}
    stretch* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
};

// A value that can only be moved, and is written as its number.
struct moved_number {
    explicit moved_number(int n) : number(std::make_unique<int>(n)) {}
    operator int() const { return *number; }
    std::unique_ptr<int> number;
};

// The same, and trivially copyable.
struct plainly_moved {
    explicit plainly_moved(int n) : number(n) {}
    plainly_moved(plainly_moved&&) = default;
    plainly_moved& operator=(plainly_moved&&) = default;
    operator int() const { return number; }
    int number;
};
static_assert(std::is_trivially_copyable_v<plainly_moved>);

// The results and exceptions on workers: algorithms_test.cpp.

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

TEST_CASE("parallel_scan: neighbours are combined in order, whichever thread does it; the first "
          "call in order that throws leaves it; nothing leaks",
          "[promise.scan-as-std]") {
    test::jitter chance(test::run_seed());
    test::tally tally;
    for (int round = 0; round < 400; ++round) {
        test::chance_run given(chance, round);
        given.may_lack_memory(chance);
        const bool throws = chance.below(2) == 0;
        INFO("round " << round << ", " << given.n << " elements, "
                      << (throws ? "thrown at " : "not thrown at ") << given.first);
        std::vector<stretch> in;
        for (int i = 1; i <= given.n; ++i) {
            in.emplace_back(tally, i, i);
        }
        std::vector<stretch> out = in;
        bool in_order = true;
        const auto combine = [&](const stretch& a, const stretch& b) {
            in_order = in_order && a.last + 1 == b.first;
            return stretch(tally, a.first, b.last);
        };
        const auto same = [&](const stretch& s) -> const stretch& {
            const int at = s.first - 1;
            return throws && (at == given.first || at == given.second) ? throw failure{at} : s;
        };
        test::function_ref<stretch(const stretch&, const stretch&)> op = combine;
        test::function_ref<const stretch&(const stretch&)> map = same;
        const bide::detail::elements<stretch*> all{in.data(), in.size()};
        const int alive = tally.alive();
        const auto place_thrown_by = [&](const auto& scan) {
            try {
                scan();
                return -1;
            } catch (const failure& failed) {
                return failed.at;
            } catch (const std::bad_alloc&) {
                return -2;
            }
        };
        using bide::detail::scan_kind;
        const int inclusive = place_thrown_by([&] {
            bide::detail::scan<scan_kind::inclusive, stretch>(given.policy(), all, out.data(), op,
                                                              map);
        });
        const int exclusive = place_thrown_by([&] { // in place
            bide::detail::scan<scan_kind::exclusive, stretch>(given.policy(), all, in.data(), op,
                                                              map, stretch(tally, 0, 0));
        });
        const int expected = throws && given.first < given.n ? given.first : -1;
        REQUIRE((inclusive == expected || (given.is_out_of_memory && inclusive == -2)));
        REQUIRE((exclusive == expected || (given.is_out_of_memory && exclusive == -2)));
        REQUIRE(tally.alive() == alive);
        REQUIRE(in_order);
        for (int i = 0; i < given.n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            REQUIRE((inclusive != -1 || (out[at].first == 1 && out[at].last == i + 1)));
            REQUIRE((exclusive != -1 || (in[at].first == 0 && in[at].last == i)));
        }
    }
}

TEST_CASE("parallel_scan: the tree is the documented one, with the same bits on any workers",
          "[promise.scan-as-std]") {
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
                const bool is_shared = workers > 1 && n >= 3 * std::max<std::size_t>(grain, 16);
                test::two_threads both;
                const auto same = [&](double element) {
                    if (is_shared) {
                        both.come();
                    }
                    return element;
                };
                const test::function_ref<double(double)> map = same;
                std::vector<double> out(n);
                bide::parallel_transform_inclusive_scan(on, in, out.begin(), std::plus<>(), map);
                REQUIRE(both.met() == is_shared);
                REQUIRE(has_bits_of(out, wanted));
                std::fill(out.begin(), out.end(), 0.0);
                bide::parallel_inclusive_scan(on, in, out.begin()); // blocks in turn
                REQUIRE(has_bits_of(out, wanted));
                // The output is no double, so that nothing is kept there.
                std::vector<long double> wide(n);
                bide::parallel_transform_inclusive_scan(on, in, wide.begin(), std::plus<>(), map);
                REQUIRE(std::equal(wide.begin(), wide.end(), wanted.begin(), wanted.end()));
            }
        }
    }
}

TEST_CASE("parallel_scan: two blocks in turn give the bits of one after the other, also in place",
          "[promise.scan-as-std]") {
    using bide::detail::scan_kind;
    using numbers = bide::detail::elements<double*>;
    using in_turn = bide::detail::element_blocks<scan_kind::inclusive, double*, double*, double,
                                                 std::plus<>, std::identity>;
    static_assert(in_turn::in_pairs);
    test::jitter chance(test::run_seed());
    for (int round = 0; round < 300; ++round) {
        test::chance_run given(chance, round);
        std::vector<double> in(static_cast<std::size_t>(given.n));
        std::generate(in.begin(), in.end(), [&] { return 1.0 / (1 + chance.below(99)); });
        INFO("round " << round << ", " << given.n << " elements, grain " << given.options.grain);
        const std::vector<double> wanted = documented_scan(in, given.options.grain);
        std::plus<> plus;
        std::identity same;
        std::vector<double> out(in.size());
        bide::detail::scan<scan_kind::inclusive, double>(
            given.policy(), numbers{in.data(), in.size()}, out.data(), plus, same);
        REQUIRE(has_bits_of(out, wanted));
        // One that may throw is called for one block after the other.
        test::function_ref<double(double, double)> slow = plus;
        bide::detail::scan<scan_kind::exclusive, double>(given.policy(),
                                                         numbers{in.data(), in.size()}, out.data(),
                                                         slow, same, std::optional(0.3));
        bide::detail::scan<scan_kind::exclusive, double>(given.policy(),
                                                         numbers{in.data(), in.size()}, in.data(),
                                                         plus, same, std::optional(0.3));
        REQUIRE(has_bits_of(in, out));
    }
}

TEMPLATE_TEST_CASE(
    "parallel_scan: values may be move-only, without a default constructor, and narrow", "",
    moved_number, plainly_moved) {
    bide::scheduler s(test::with(3, true));
    const std::vector<int> numbers(2'000, 2);
    std::vector<int> sums(2'000);
    const auto add = [](const TestType& a, const TestType& b) { return TestType(a + b); };
    bide::parallel_transform_exclusive_scan({s, {.grain = 7}}, numbers, sums.begin(), TestType(1),
                                            add, [](int i) { return TestType(i); });
    for (std::size_t i = 0; i < sums.size(); ++i) {
        REQUIRE(sums[i] == 1 + 2 * static_cast<int>(i));
    }
    const short few[] = {1, 2, 3};
    short sum[3];
    CHECK(bide::parallel_inclusive_scan(s, few, few + 3, sum) == sum + 3);
    CHECK(sum[2] == 6);
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

TEST_CASE("parallel_scan_chunks: each chunk gets the combination of all before it, whichever "
          "thread takes it; the first call in order that throws leaves it",
          "[promise.scan-as-std]") {
    test::jitter chance(test::run_seed());
    for (int round = 0; round < 200; ++round) {
        test::chance_run given(chance, round);
        const bool throws = chance.below(2) == 0;
        INFO("round " << round << ", " << given.n << " elements");
        std::vector<int> in(static_cast<std::size_t>(given.n));
        std::iota(in.begin(), in.end(), 0);
        std::vector<int> written(in.size(), 0);
        // The result of a chunk is its end: of neighbours only the later one counts.
        struct end_of {
            std::unique_ptr<int> at;
        };
        bool in_order = true;
        const auto body = [&](auto chunk, const end_of* before) {
            const int first = static_cast<int>(chunk.index());
            if (throws && before != nullptr && first <= given.first &&
                given.first < first + static_cast<int>(chunk.size())) {
                throw failure{first};
            }
            for (std::size_t i = 0; before != nullptr && i != chunk.size(); ++i) {
                in_order = in_order && *before->at == first;
                ++written[chunk.index() + i];
            }
            return end_of{std::make_unique<int>(first + static_cast<int>(chunk.size()))};
        };
        const auto later = [](const end_of&, const end_of& b) {
            return end_of{std::make_unique<int>(*b.at)};
        };
        const bide::detail::elements<int*> all{in.data(), in.size()};
        const auto blocks = bide::detail::blocks_of(all.size, given.options);
        bide::detail::chunk_blocks<int*, end_of, const decltype(body), const decltype(later)> work(
            all, blocks, body, later);
        bide::detail::scan_front<end_of, decltype(work)> front(
            blocks, work, std::optional(end_of{std::make_unique<int>(0)}));
        const auto policy = given.policy();
        int failed_at = -1;
        try {
            bide::detail::run_in_order(policy.forks(), policy.options(), all.size, blocks.block,
                                       front);
            CHECK(*front.total().at == given.n);
        } catch (const failure& failed) {
            failed_at = failed.at;
        }
        REQUIRE(in_order);
        if (throws && given.first < given.n) {
            REQUIRE((failed_at >= 0 && failed_at <= given.first));
        } else {
            REQUIRE(failed_at == -1);
            REQUIRE(std::ranges::count(written, 1) == given.n);
        }
    }
}

TEST_CASE("parallel_scan_chunks: the same bits on any number of workers; no element is no call",
          "[promise.scan-as-std]") {
    std::vector<double> in(10'000);
    for (std::size_t i = 0; i != in.size(); ++i) {
        in[i] = 1.0 / static_cast<double>(i + 1);
    }
    std::vector<double> expected;
    for (const unsigned workers : {1U, 2U, 16U}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 20; ++round) {
            std::vector<double> out(in.size());
            const auto body = [&](auto chunk, const double* before) {
                double sum = 0;
                for (std::size_t i = 0; i != chunk.size(); ++i) {
                    sum += chunk[i];
                    if (before != nullptr) {
                        out[chunk.index() + i] = *before + sum;
                    }
                }
                return sum;
            };
            const double total =
                bide::parallel_scan_chunks(s, in.begin(), in.end(), 1.0, body, std::plus());
            CHECK(total == out.back());
            if (expected.empty()) {
                expected = out;
            }
            CHECK(has_bits_of(out, expected));
        }
        const auto none = [](auto, const int*) -> int { throw failure{0}; };
        CHECK(bide::parallel_scan_chunks(s, std::span<int>(), 3, none, std::plus()) == 3);
    }
}
