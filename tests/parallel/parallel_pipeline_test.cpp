#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/sync/event.hpp>
#include <support/alloc.hpp>
#include <support/counted.hpp>
#include <support/forking.hpp>
#include <support/function_ref.hpp>
#include <support/scheduling.hpp>

// Before 16, clang cannot compile the views of libstdc++.
#if !defined(__clang__) || __clang_major__ >= 16
#define HAS_VIEWS 1
#else
#define HAS_VIEWS 0
#endif

namespace {

using namespace bide;

// Sources and stages of few types, because a pipeline is compiled for each combination of them.
using source = test::function_ref<std::optional<int>()>;
using change = test::function_ref<int(int)>;
auto parallel(change f) { return parallel_stage(f); }
auto serial(change f) { return serial_stage(f); }
auto unordered(change f) { return serial_unordered_stage(f); }
auto at_last(test::function_ref<void(int)> f) { return serial_stage(f); }

// The numbers from 0 on, below n.
class numbers_below {
public:
    explicit numbers_below(int n) : n_(n) {}
    std::optional<int> operator()() {
        return next_ == n_ ? std::nullopt : std::optional<int>(next_++);
    }

private:
    int next_ = 0;
    int n_;
};

std::vector<int> iota(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// Counts calls that overlap, and the most that ever did.
class overlap {
public:
    void enter() noexcept {
        const int now = ++now_;
        int seen = most_.load();
        while (now > seen && !most_.compare_exchange_weak(seen, now)) {
        }
    }
    void leave() noexcept { --now_; }
    int most() const noexcept { return most_.load(); }
    int now() const noexcept { return now_.load(); }

    struct scope {
        explicit scope(overlap& in) noexcept : in_(in) { in_.enter(); }
        ~scope() { in_.leave(); }
        overlap& in_;
    };

private:
    std::atomic<int> now_{0};
    std::atomic<int> most_{0};
};

// Takes a random time, so that items overtake each other.
void dawdle(std::uint32_t seed, int item) {
    std::uint32_t x = seed + static_cast<std::uint32_t>(item) * 2'654'435'761u;
    x ^= x >> 15;
    if (x % 64 == 0) {
        std::this_thread::yield();
    }
    for (std::uint32_t i = x % 128; i > 0; --i) {
        bide::native_platform::pause();
    }
}

struct failure {
    int item;
};

} // namespace

TEST_CASE("parallel_pipeline: each item goes once through each stage, up to the first that throws",
          "[promise.pipeline-stages][promise.pipeline-source][promise.pipeline-exception]") {
    test::jitter chance(test::run_seed());
    for (const unsigned workers : {1u, 2u, 5u}) {
        bide::scheduler s(test::with(workers, true));
        for (int round = 0; round < 120; ++round) {
            const auto n = std::size_t{chance.below(1u << (4 + chance.below(7)))};
            const std::size_t tokens = 1 + chance.below(1u << (1 + chance.below(7)));
            const std::uint32_t seed = chance.below(1u << 30);
            // Where each item throws: in the source, in a stage, or nowhere.
            std::vector<std::uint32_t> throws_in(n);
            std::size_t first = n;
            for (std::size_t i = n; i-- > 0;) {
                throws_in[i] = round % 3 == 0 ? 5 : chance.below(20);
                first = throws_in[i] < 5 ? i : first;
            }
            const auto fail_in = [&](std::uint32_t stage, int i) {
                if (throws_in[static_cast<std::size_t>(i)] == stage) {
                    throw failure{i};
                }
            };
            INFO(workers << " workers, " << n << " items, " << tokens << " tokens, first "
                         << first);
            test::tally all;
            std::vector<std::atomic<int>> calls(n);
            std::vector<int> in_order;
            std::vector<int> any;
            std::vector<int> done;
            overlap in_flight;
            overlap in_source;
            overlap in_serial;
            overlap in_unordered;
            overlap in_last;
            int next = 0;
            std::size_t thrown = n;
            try {
                parallel_pipeline(
                    s, tokens,
                    [&]() -> std::optional<test::counted_once> {
                        const overlap::scope here(in_source);
                        if (static_cast<std::size_t>(next) == n) {
                            return std::nullopt;
                        }
                        fail_in(0, next);
                        in_flight.enter();
                        return test::counted_once(all, next++);
                    },
                    parallel_stage([&](test::counted_once c) {
                        dawdle(seed, c.number());
                        ++calls[static_cast<std::size_t>(c.number())];
                        fail_in(1, c.number());
                        return c;
                    }),
                    serial_stage([&](test::counted_once c) {
                        const overlap::scope here(in_serial);
                        in_order.push_back(c.number());
                        fail_in(2, c.number());
                        return c;
                    }),
                    serial_unordered_stage([&](test::counted_once&& c) {
                        const overlap::scope here(in_unordered);
                        any.push_back(c.number());
                        fail_in(3, c.number());
                        return std::move(c);
                    }),
                    parallel_stage([&](test::counted_once c) {
                        dawdle(seed + 1, c.number());
                        return c;
                    }),
                    serial_stage([&](const test::counted_once& c) {
                        const overlap::scope here(in_last);
                        fail_in(4, c.number());
                        done.push_back(c.number());
                        in_flight.leave();
                    }));
            } catch (const failure& f) {
                thrown = static_cast<std::size_t>(f.item);
            }
            REQUIRE(thrown == first);
            REQUIRE(done == iota(static_cast<int>(first)));
            REQUIRE(in_order == iota(static_cast<int>(in_order.size())));
            std::sort(any.begin(), any.end());
            REQUIRE(std::adjacent_find(any.begin(), any.end()) == any.end());
            REQUIRE(std::all_of(calls.begin(), calls.end(),
                                [](const auto& times) { return times.load() <= 1; }));
            REQUIRE(static_cast<std::size_t>(next) <= first + tokens);
            REQUIRE(in_flight.most() <= static_cast<int>(tokens));
            REQUIRE((first != n || in_flight.now() == 0));
            for (const overlap* of : {&in_source, &in_serial, &in_unordered, &in_last}) {
                REQUIRE(of->most() <= 1);
            }
            REQUIRE(all.alive() == 0);
        }
    }
}

TEST_CASE("parallel_pipeline: the source is any input range, or a function",
          "[promise.pipeline-source]") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> got;
    const auto push = [&got](int i) { got.push_back(i); };
    const auto add = at_last(push);

    SECTION("a forward_list, whose size is unknown") {
        std::forward_list<int> items{3, 1, 2};
        parallel_pipeline(s, 4, items, add);
        CHECK(got == std::vector{3, 1, 2});
    }
#if HAS_VIEWS
    const auto is_even = [](int i) { return i % 2 == 0; };
    SECTION("a filtered view of a temporary") {
        parallel_pipeline(s, 4, std::views::iota(0, 10) | std::views::filter(is_even), add);
        CHECK(got == std::vector{0, 2, 4, 6, 8});
    }
    SECTION("a view of a stream") {
        std::istringstream in("5 4 3 2 1");
        parallel_pipeline(s, 4, std::ranges::istream_view<int>(in), add);
        CHECK(got == std::vector{5, 4, 3, 2, 1});
    }
#endif
    SECTION("a vector<bool>, whose elements are proxies") {
        const std::vector<bool> items{true, false, true};
        parallel_pipeline(s, 4, items, serial_stage([&got](bool b) { got.push_back(b ? 1 : 0); }));
        CHECK(got == std::vector{1, 0, 1});
    }
    SECTION("a function") {
        parallel_pipeline(s, 4, numbers_below(3), add);
        CHECK(got == std::vector{0, 1, 2});
    }
    SECTION("a function that is changed") {
        numbers_below next(3);
        parallel_pipeline(s, 4, next, add);
        CHECK(got == std::vector{0, 1, 2});
        CHECK_FALSE(next().has_value());
    }
    SECTION("nothing") {
        parallel_pipeline(s, 4, std::list<int>(), add);
        CHECK(got.empty());
    }
}

TEST_CASE("parallel_pipeline: elements of a container are passed by reference, not copied",
          "[promise.pipeline-source]") {
    bide::scheduler s(test::with(2, true));
    test::tally all;
    {
        std::list<test::counted> items;
        for (int i = 0; i < 100; ++i) {
            items.emplace_back(all, i);
        }
        std::vector<const test::counted*> got;
        parallel_pipeline(s, 8, items,
                          parallel_stage([](test::counted& c) -> test::counted& { return c; }),
                          serial_stage([&](const test::counted& c) { got.push_back(&c); }));
        std::vector<const test::counted*> expected;
        for (const auto& c : items) {
            expected.push_back(&c);
        }
        CHECK(got == expected);
        CHECK(all.made.load() == 100);
    }
    CHECK(all.alive() == 0);
}

TEST_CASE("parallel_pipeline: hostile item types", "[promise.pipeline-source]") {
    bide::scheduler s(test::with(2, true));
    struct no_default {
        explicit no_default(int n) : number(n) {}
        int number;
        no_default* operator&() = delete;
        const no_default* operator&() const = delete;
        void operator,(const no_default&) const = delete;
    };
    struct immovable {
        explicit immovable(int n) : number(n) {}
        immovable(immovable&&) = delete;
        int number;
    };
    struct holder {
        int number;
        int get() const { return number; }
    };
    int sum = 0;
    parallel_pipeline(s, 4, numbers_below(100), parallel_stage([](int i) { return no_default(i); }),
                      serial_stage([](no_default n) { return n; }),
                      parallel_stage([](const no_default& n) { return immovable(n.number); }),
                      parallel_stage([](immovable&& i) { return std::any(i.number); }),
                      serial_stage([](std::any a) { return holder{std::any_cast<int>(a)}; }),
                      parallel_stage(&holder::get), serial_stage([&](int i) { sum += i; }));
    CHECK(sum == 4'950);
    // A stage may return an empty optional: it is an item as any other.
    int empty = 0;
    parallel_pipeline(s, 4, numbers_below(10), parallel_stage([](int i) {
                          return i % 2 == 0 ? std::optional<int>(i) : std::nullopt;
                      }),
                      serial_stage([&](std::optional<int> i) { empty += i.has_value() ? 0 : 1; }));
    CHECK(empty == 5);
}

TEST_CASE("parallel_pipeline: a stage that is an lvalue is called in place",
          "[promise.pipeline-source]") {
    bide::scheduler s(test::with(2, true));
    struct adder {
        int sum = 0;
        void operator()(int i) { sum += i; }
    };
    auto add = serial_stage(adder());
    parallel_pipeline(s, 4, numbers_below(10), add);
    parallel_pipeline(s, 4, numbers_below(10), add);
    CHECK(add.call.sum == 90);
    // What the stages before return depends on whether they are const.
    struct converts {
        int operator()(int i) const { return i; }
        std::string operator()(int i) { return std::to_string(i); }
    };
    std::string text;
    const auto as_number = parallel_stage(converts());
    parallel_pipeline(s, 4, numbers_below(3), as_number, parallel_stage(converts()),
                      serial_stage([&](std::string item) { text += item; }));
    CHECK(text == "012");
}

TEST_CASE("parallel_pipeline: no tokens are refused, and any other number is accepted",
          "[promise.pipeline-stages]") {
    bide::scheduler s(test::with(2, true));
    int calls = 0;
    const auto increase = [&](int) { ++calls; };
    const auto count = at_last(increase);
    CHECK_THROWS_AS(parallel_pipeline(s, 0, numbers_below(3), count), std::invalid_argument);
    CHECK_THROWS_AS(parallel_pipeline(s, 0, iota(3), count), std::invalid_argument);
    CHECK(calls == 0);
    parallel_pipeline(s, 1, numbers_below(3), count);
    CHECK(calls == 3);
    // The slots of a sized source are no more than its items.
    parallel_pipeline(s, (std::numeric_limits<std::size_t>::max)(), iota(3), count);
    CHECK(calls == 6);
}

TEST_CASE("parallel_pipeline: the number of allocations does not depend on the number of items",
          "[promise.pipeline-source]") {
    if (!test::counts_allocations()) {
        return;
    }
    bide::scheduler s(test::with(2, true));
    const auto allocations = [&](int n) {
        const std::size_t before = test::allocations();
        std::int64_t sum = 0;
        const auto same = [](int i) { return i; };
        parallel_pipeline(s, 16, numbers_below(n), parallel(same), unordered(same),
                          at_last([&](int i) { sum += i; }));
        return test::allocations() - before;
    };
    static_cast<void>(allocations(10'000)); // threads get their lanes
    CHECK(allocations(10'000) <= 12);
}

TEST_CASE("parallel_pipeline: as many stages run at the same time as there are workers",
          "[promise.pipeline-parallel]") {
    for (const bool from_worker : {false, true}) {
        for (const unsigned workers : {2u, 4u, 16u}) {
            bide::scheduler s(test::with(workers, true));
            // Each call waits until all are there.
            std::atomic<unsigned> here{0};
            bool is_complete = true;
            const auto run = [&] {
                parallel_pipeline(
                    s, 2 * workers, numbers_below(static_cast<int>(workers)), parallel([&](int) {
                        ++here;
                        return test::eventually([&] { return here.load() == workers; }) ? 1 : 0;
                    }),
                    at_last([&](int met) { is_complete = is_complete && met == 1; }));
            };
            if (from_worker) {
                s.spawn(run).join();
            } else {
                run();
            }
            INFO(workers << " workers, from a worker: " << from_worker);
            REQUIRE(is_complete);
        }
    }
}

TEST_CASE("parallel_pipeline: threads that slept take part when there is work again",
          "[promise.pipeline-parallel]") {
    bide::scheduler s(test::with(4, true));
    // Between two meetings of four calls, the source is slow, so that threads fall asleep.
    constexpr int rounds = 20;
    std::atomic<int> here{0};
    bool is_complete = true;
    numbers_below next(4 * rounds);
    const auto reads = [&] {
        const std::optional<int> item = next();
        if (item && *item % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return item;
    };
    parallel_pipeline(s, 8, source(reads), parallel([&](int i) {
                          ++here;
                          const int all = (i / 4 + 1) * 4;
                          return test::eventually([&] { return here.load() >= all; }) ? 1 : 0;
                      }),
                      at_last([&](int met) { is_complete = is_complete && met == 1; }));
    CHECK(is_complete);
}

TEST_CASE("parallel_pipeline: threads that sleep leave their workers to the loops of stages",
          "[promise.pipeline-nests]") {
    constexpr int workers = 4;
    bide::scheduler s(test::with(workers, true));
    bool is_complete = true;
    s.spawn([&] {
         parallel_pipeline(s, 8, numbers_below(5), at_last([&](int) {
                               std::atomic<int> here{0};
                               bide::parallel_for({s, {.grain = 1}}, 0, workers, [&](int) {
                                   ++here;
                                   if (!test::eventually([&] { return here.load() == workers; })) {
                                       test::give_up(test::where(), "not all run at a time");
                                   }
                               });
                               is_complete = is_complete && here.load() == workers;
                           }));
     }).join();
    CHECK(is_complete);
}

TEST_CASE(
    "parallel_pipeline: the source is read, and serial stages run, beside a stage that blocks",
    "[promise.pipeline-parallel]") {
    bide::scheduler s(test::with(2, true));
    bide::event others;
    std::vector<int> got;
    std::vector<int> before;
    bool was_set = false;
    parallel_pipeline(s, 8, numbers_below(8), serial([&](int i) {
                          before.push_back(i);
                          if (i == 7) {
                              others.set();
                          }
                          return i;
                      }),
                      parallel([&](int i) {
                          if (i == 0) { // the first item waits until the last one has come as far
                              was_set = others.wait_for(test::patience);
                          }
                          return i;
                      }),
                      at_last([&](int i) { got.push_back(i); }));
    CHECK(was_set);
    CHECK(before == iota(8));
    CHECK(got == iota(8));
}

TEST_CASE("parallel_pipeline: without stealing the stages of an item follow one another",
          "[promise.pipeline-stages]") {
    bide::scheduler s(test::with_serial_forks());
    std::vector<std::string> calls;
    const auto note = [&](const char* what, int i) { calls.push_back(what + std::to_string(i)); };
    parallel_pipeline(s, 100, numbers_below(2), parallel([&](int i) { return note("a", i), i; }),
                      unordered([&](int i) { return note("b", i), i; }),
                      at_last([&](int i) { note("c", i); }));
    CHECK(calls == std::vector<std::string>{"a0", "b0", "c0", "a1", "b1", "c1"});
}

TEST_CASE("parallel_pipeline: pipelines and loops inside stages, from several threads",
          "[promise.pipeline-nests]") {
    for (const unsigned workers : {1u, 2u, 4u}) {
        bide::scheduler s(test::with(workers, true));
        const auto count_by_pipeline = [&](int n) {
            int counted = 0;
            parallel_pipeline(s, 3, numbers_below(n), parallel([](int k) { return k; }),
                              at_last([&](int) { ++counted; }));
            return counted;
        };
        std::vector<int> sums[3];
        test::run_threads(3, [&](int me) {
            const auto add_by_loop = [&](int i) {
                std::atomic<int> sum{0};
                const auto add = [&](int k) { sum += k; };
                bide::parallel_for({s, {.grain = 1}}, 0, i, test::function_ref<void(int)>(add));
                return sum.load();
            };
            const auto push = [&](int sum) { sums[me].push_back(sum); };
            parallel_pipeline(s, 4, numbers_below(30), parallel(add_by_loop),
                              serial(count_by_pipeline), // a serial stage may fork, too
                              parallel(count_by_pipeline), at_last(push));
        });
        std::vector<int> expected;
        for (int i = 0; i < 30; ++i) {
            expected.push_back(i * (i - 1) / 2);
        }
        for (const auto& each : sums) {
            CHECK(each == expected);
        }
    }
}

TEST_CASE("parallel_pipeline: items that wait behind one that throws are destroyed, not called",
          "[promise.pipeline-exception]") {
    bide::scheduler s(test::with(2, true));
    test::tally all;
    std::atomic<bool> is_read{false};
    bool was_read = false;
    int next = 0;
    int thrown = -1;
    int calls = 0;
    try {
        parallel_pipeline(
            s, 8,
            [&]() -> std::optional<test::counted_once> {
                // The threads that read the last item have left others at the serial stage.
                is_read.store(is_read.load() || next == 7);
                return test::counted_once(all, next++);
            },
            parallel_stage([&](test::counted_once c) {
                if (c.number() == 0) {
                    was_read = test::spin_until(is_read);
                    throw failure{0};
                }
                return c;
            }),
            serial_stage([&](const test::counted_once&) { ++calls; }));
    } catch (const failure& f) {
        thrown = f.item;
    }
    CHECK(was_read);
    CHECK(thrown == 0);
    CHECK(calls == 0);
    CHECK(next == 8);
    CHECK(all.alive() == 0);
}

TEST_CASE("parallel_pipeline: a move that throws is an exception of its item",
          "[promise.pipeline-exception]") {
    struct fragile {
        fragile(int n, std::atomic<bool>& to) : number(n), thrown(&to) {}
        fragile(fragile&& other) : number(other.number), thrown(other.thrown) {
            if (number == 3) {
                thrown->store(true);
                throw failure{number};
            }
        }
        int number;
        std::atomic<bool>* thrown;
    };
    bide::scheduler s(test::with(2, true));
    // Item 0 waits, so that the others must be moved to the queue.
    std::atomic<bool> has_thrown{false};
    bool was_moved = false;
    std::vector<int> got;
    int thrown = -1;
    try {
        parallel_pipeline(s, 8, numbers_below(5), parallel_stage([&](int i) {
                              if (i == 0) {
                                  was_moved = test::spin_until(has_thrown);
                              }
                              return fragile(i, has_thrown);
                          }),
                          serial_stage([&](const fragile& f) { got.push_back(f.number); }));
    } catch (const failure& f) {
        thrown = f.item;
    }
    CHECK(was_moved);
    CHECK(thrown == 3);
    CHECK(got == iota(3));
}

TEST_CASE("parallel_pipeline: exceptions of iterators and of the first read",
          "[promise.pipeline-exception]") {
    bide::scheduler s(test::with(2, true));
    std::vector<int> got;
    const auto push = [&](int i) { got.push_back(i); };
    const auto add = at_last(push);
#if HAS_VIEWS
    const auto below_five = [](int i) { return i < 5 ? true : throw failure{i}; };
    CHECK_THROWS_AS(
        parallel_pipeline(s, 4, std::views::iota(0, 10) | std::views::filter(below_five), add),
        failure);
    CHECK(got == iota(5));
    got.clear();
#endif
    const auto fails = []() -> std::optional<int> { throw failure{0}; };
    CHECK_THROWS_AS(parallel_pipeline(s, 4, source(fails), add), failure);
    CHECK(got.empty());
}

TEST_CASE("parallel_pipeline: after a stop, the items that were read go through all stages",
          "[promise.pipeline-exception]") {
    for (const unsigned workers : {1u, 3u}) {
        bide::scheduler s(test::with(workers, true));
        std::stop_source stop;
        bide::fork_progress progress;
        int read = 0;
        std::vector<int> got;
        const bide::fork_policy on(s, {.stop = stop.get_token(), .progress = &progress});
        const auto reads = [&] { return std::optional<int>(read++); };
        const auto stops = [&](int i) {
            if (i == 1'000) {
                stop.request_stop();
            }
            return i;
        };
        const auto push = [&](int i) { got.push_back(i); };
        const auto run = [&] {
            parallel_pipeline(on, 8, source(reads), parallel(stops), at_last(push));
        };
        CHECK_THROWS_AS(run(), bide::stopped_error);
        CHECK(read >= 1'001);
        CHECK(read <= 1'001 + 8);
        CHECK(got == iota(read));
        CHECK(progress.done() == static_cast<std::uint64_t>(read));
        CHECK(progress.total() == static_cast<std::uint64_t>(read));
        // A stop that was requested before: nothing is read.
        CHECK_THROWS_AS(run(), bide::stopped_error);
        CHECK(got.size() == static_cast<std::size_t>(read));
    }
}

TEST_CASE("parallel_pipeline: a stop after the last element has no effect, an exception has",
          "[promise.pipeline-exception]") {
    bide::scheduler s(test::with(2, true));
    std::stop_source stop;
    int calls = 0;
    const bide::fork_policy on(s, {.stop = stop.get_token()});
    const std::vector<int> items{1, 2, 3};
    parallel_pipeline(on, 1, items, at_last([&](int i) {
                          ++calls;
                          if (i == 3) {
                              stop.request_stop();
                          }
                      }));
    CHECK(calls == 3);
    CHECK_THROWS_AS(parallel_pipeline(on, 1, items, at_last([](int) {})), bide::stopped_error);
    std::stop_source later;
    const bide::fork_policy both(s, {.stop = later.get_token()});
    CHECK_THROWS_AS(parallel_pipeline(both, 1, items, at_last([&](int i) {
                                          later.request_stop();
                                          throw failure{i};
                                      })),
                    failure);
}

TEST_CASE("parallel_pipeline: progress counts the items that have ended, of a known size",
          "[promise.pipeline-exception]") {
    bide::scheduler s(test::with(2, true));
    bide::fork_progress progress;
    const bide::fork_policy on(s, {.progress = &progress});
    const std::vector<int> items = iota(100);
    std::vector<std::uint64_t> totals;
    parallel_pipeline(on, 4, items, at_last([&](int) { totals.push_back(progress.total()); }));
    CHECK(totals == std::vector<std::uint64_t>(100, 100));
    CHECK(progress.done() == 100);
    CHECK_THROWS_AS(
        parallel_pipeline(on, 1, items, at_last([](int i) { i == 40 ? throw failure{i} : 0; })),
        failure);
    CHECK(progress.done() == 140);
    CHECK(progress.total() == 200);
}

TEST_CASE("parallel_pipeline: goes on with fewer threads if there is no memory to fork",
          "[promise.pipeline-parallel]") {
    for (int last_fork = 0; last_fork < 4; ++last_fork) {
        test::chance_forks::script script(test::run_seed());
        script.last_fork = last_fork;
        std::vector<int> got;
        const auto push = [&](int i) { got.push_back(i); };
        const auto itself = [](int i) { return i; };
        auto add = at_last(push);
        auto same = parallel(itself);
        numbers_below next(100);
        bide::detail::run_pipeline(test::by_chance(script), 8, bide::detail::source_of(next), same,
                                   add);
        CHECK(got == iota(100));
    }
}

TEST_CASE("parallel_pipeline: tasks run while its threads have nothing to do",
          "[promise.pipeline-parallel]") {
    bide::scheduler s(test::with(2, true));
    // The source waits for a task that comes later, while all other threads of the pipeline sleep.
    std::atomic<bool> ran{false};
    bool was_seen = false;
    s.spawn([&] {
         int read = 0;
         const auto reads = [&]() -> std::optional<int> {
             if (read == 3) {
                 return std::nullopt;
             }
             if (read == 2) {
                 test::fall_asleep(s);
                 bide::event done;
                 s.spawn([&] {
                      ran.store(true);
                      done.set();
                  }).detach();
                 was_seen = done.wait_for(test::patience / 2);
             }
             return read++;
         };
         const auto same = [](int i) { return i; };
         parallel_pipeline(s, 4, source(reads), parallel(same), at_last([](int) {}));
     }).join();
    CHECK(was_seen);
    CHECK(ran.load());
}

namespace {

template <class Source, class... Stages>
concept fits = requires(bide::scheduler& s, Source source, Stages... stages) {
    parallel_pipeline(s, 1, source, stages...);
};
using eats_int = decltype(serial_stage([](int) {}));

static_assert(fits<std::list<int>, eats_int>);
static_assert(fits<numbers_below, eats_int>);
static_assert(!fits<numbers_below>, "a pipeline has a stage");
static_assert(!fits<int, eats_int>, "an int is no source");
static_assert(!fits<int (*)(), eats_int>, "a source function returns an optional");
static_assert(!fits<numbers_below, void (*)(int)>, "a stage says how its calls may overlap");

} // namespace
