#include <bide/parallel/parallel_fold.hpp>
#include <support/counted.hpp>
#include <support/parallel_rounds.hpp>

namespace {

struct failure {
    int at;
};

// A sum that can only be moved, and says what it has counted.
struct counted_sum {
    explicit counted_sum(test::tally& in) : counted(in, 0) {}
    counted_sum(counted_sum&&) = default;
    counted_sum& operator=(counted_sum&&) = default;

    long sum = 0;
    test::counted counted;
};

template <class Step>
concept is_step = requires(bide::scheduler& s, std::vector<int>& in, Step step) {
    bide::parallel_fold(s, in, [] { return 0L; }, step, std::plus());
};

} // namespace

static_assert(is_step<void (*)(long&, int)>);
static_assert(is_step<long& (*)(long&, int)>);
static_assert(is_step<long (*)(long, int)>);
static_assert(!is_step<int (*)(long, int)>, "it would narrow the sum");
static_assert(!is_step<bool (*)(long&, int)>, "it is not known what the result means");
static_assert(!is_step<void (*)(long&, std::string)>);

TEST_CASE("parallel_fold: each element goes into one accumulator, each accumulator into the "
          "result, in place or by value",
          "[promise.fold]") {
    test::jitter chance(test::run_seed());
    test::on_all_workers(chance, 4, 16, [](const bide::fork_policy& on, std::size_t n) {
        std::vector<int> in(n);
        std::iota(in.begin(), in.end(), 1);
        const long sum = std::accumulate(in.begin(), in.end(), 0L);
        const auto zero = [] { return 0L; };
        const auto adds = [](long& to, int x) { to += x; };
        REQUIRE(bide::parallel_fold(on, in, zero, adds, std::plus()) == sum);
        REQUIRE(bide::parallel_fold(on, in.begin(), in.end(), zero, std::plus<long>(), adds) ==
                sum);
        REQUIRE(bide::parallel_fold(on, 1, static_cast<int>(n) + 1, zero, adds, std::plus()) ==
                sum);

        using seen = std::vector<int>; // larger than what is kept in registers
        const auto push = [](seen& to, int x) { to.push_back(x); };
        const auto append = [](seen& to, seen&& from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        seen all = bide::parallel_fold(on, in, [] { return seen(); }, push, append);
        std::ranges::sort(all);
        REQUIRE(all == in);
    });
}

TEST_CASE("parallel_fold: an accumulator is only moved; an exception of any function leaves the "
          "call; nothing leaks",
          "[promise.fold]") {
    const unsigned workers = GENERATE(1U, 3U);
    bide::scheduler s(test::with(workers, true));
    const std::vector<int> in(1'000, 1);
    test::tally tally;
    enum class thrower { none, make, step, combine };
    for (const thrower by : {thrower::none, thrower::make, thrower::step, thrower::combine}) {
        std::atomic<int> combined = 0;
        const auto fold = [&] {
            return bide::parallel_fold(
                       {s, {.grain = 1}}, in,
                       [&] { return by == thrower::make ? throw failure{0} : counted_sum(tally); },
                       [&](counted_sum& to, const int& x) {
                           if (by == thrower::step && &x == &in[500]) {
                               throw failure{500};
                           }
                           // A nested loop: what runs on top of this call has its own accumulator.
                           bide::parallel_for(s, 0, 2, [](int) {});
                           to.sum += x;
                       },
                       [&](counted_sum& to, counted_sum&& from) {
                           ++combined;
                           to.sum += from.sum;
                           if (by == thrower::combine) {
                               throw failure{1};
                           }
                       })
                .sum;
        };
        try {
            const long sum = fold();
            CHECK(sum == 1'000);
            CHECK((by == thrower::none || (by == thrower::combine && combined == 0)));
        } catch (const failure& failed) {
            CHECK(by != thrower::none);
            CHECK(failed.at == (by == thrower::step ? 500 : by == thrower::combine ? 1 : 0));
        }
        CHECK(tally.alive() == 0);
    }
}

TEST_CASE("parallel_fold: an empty range gives what make() gives; a stop is an exception",
          "[promise.loop-stops]") {
    bide::scheduler s(test::with(2, true));
    const std::vector<int> none;
    const auto seven = [] { return 7; };
    CHECK(bide::parallel_fold(s, none, seven, std::plus(), std::plus()) == 7);
    const std::vector<int> one{1};
    CHECK(bide::parallel_fold(s, one, seven, std::plus(), std::plus()) == 8);
    std::stop_source stop;
    stop.request_stop();
    CHECK_THROWS_AS(
        bide::parallel_fold({s, {.stop = stop.get_token()}}, one, seven, std::plus(), std::plus()),
        bide::stopped_error);
}
