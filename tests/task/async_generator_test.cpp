#include <bide/task/async_generator.hpp>

#include <bide/channel/channel.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/this_task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

using bide::async_generator;
using bide::scheduler;
using bide::semaphore;
using bide::sync_wait;
using bide::task;

namespace {

async_generator<int> count_to(int n) {
    for (int i = 1; i <= n; ++i) {
        co_yield i;
    }
}

template <class T> task<std::vector<T>> all_of(async_generator<T> items) {
    std::vector<T> all;
    while (auto item = co_await items.next()) {
        all.push_back(std::move(*item));
    }
    co_return all;
}

async_generator<std::unique_ptr<int>> boxes() {
    co_yield std::make_unique<int>(1);
    auto named = std::make_unique<int>(2);
    co_yield std::move(named);
}
async_generator<int&> elements(std::vector<int>& of) {
    for (int& e : of) {
        co_yield e;
    }
}
async_generator<const std::string&> words() {
    const std::string first = "first";
    co_yield first;
    co_yield "temporary";
}
async_generator<std::string> letters() {
    co_yield "a";
    const std::string constant = "b";
    co_yield constant;
}

async_generator<test::counted> counted_items(test::tally& t, int n, int* left_as = nullptr) {
    const test::counted local(t, 0);
    for (int i = 0; i < n; ++i) {
        co_yield test::counted(t, i);
    }
    test::counted kept(t, n);
    co_yield kept;
    if (left_as != nullptr) {
        *left_as = kept.number();
    }
}

async_generator<int> through(async_generator<int> from) {
    while (auto item = co_await from.next()) {
        co_yield std::move(*item);
    }
}
task<int> sum_of(async_generator<int> items) {
    int sum = 0;
    while (auto item = co_await items.next()) {
        sum += *item & 1;
    }
    co_return sum;
}
test::held add_all(async_generator<int> items, int& sum) {
    while (auto item = co_await items.next()) {
        sum += *item & 1;
    }
}

async_generator<int> waits_for(bide::event& e) {
    co_await e.async_wait();
    int one = 1;
    co_yield std::move(one);
}
async_generator<int> sets(bide::event& e) {
    e.set(); // resumes the other producer here
    int three = 3;
    co_yield std::move(three);
}

// Awaits before each third item: something that is ready, or something that waits.
async_generator<int> pauses(async_generator<int> from, bool waits, bide::semaphore& ready) {
    for (int i = 0; auto item = co_await from.next(); ++i) {
        if (i % 3 == 0 && waits) {
            co_await bide::this_task::yield();
        } else if (i % 3 == 0) {
            const bide::permit one = co_await ready.async_acquire();
        }
        co_yield std::move(*item);
    }
}

async_generator<int> fails_after(int n) {
    for (int i = 0; i < n; ++i) {
        co_yield i;
    }
    throw std::runtime_error("no more");
}

// Its moves throw, or its copies, if it is told.
class fragile {
public:
    explicit fragile(int number, bool on_move, bool on_copy) noexcept
        : number_(number), on_move_(on_move), on_copy_(on_copy) {}
    fragile(const fragile& other)
        : number_(other.number_), on_move_(other.on_move_), on_copy_(other.on_copy_) {
        if (on_copy_) {
            throw std::runtime_error("copy");
        }
    }
    fragile(fragile&& other)
        : number_(other.number_), on_move_(other.on_move_), on_copy_(other.on_copy_) {
        if (on_move_) {
            throw std::runtime_error("move");
        }
    }
    int number() const noexcept { return number_; }

private:
    int number_;
    bool on_move_;
    bool on_copy_;
};

async_generator<fragile> fragile_items(std::string& said) {
    co_yield fragile(1, false, false);
    co_yield fragile(2, true, false);
    co_yield fragile(3, false, false);
    const fragile uncopied(4, false, true);
    try {
        co_yield uncopied;
    } catch (const std::runtime_error& e) {
        said += e.what();
    }
    co_yield fragile(5, false, false);
}

async_generator<int> permits(semaphore& s, test::tally& t) {
    const test::counted local(t, 1);
    for (;;) {
        const auto permit = co_await s.async_acquire();
        co_yield 1;
    }
}
test::held consume_next(async_generator<int>& items, int& got) {
    while (auto item = co_await items.next()) {
        got += *item;
    }
}
task<> consume_deep(async_generator<int>& items, test::tally& t) {
    const test::counted local(t, 1);
    while (auto item = co_await items.next()) {
    }
}
test::held await_deep(async_generator<int>& items, test::tally& t) {
    co_await consume_deep(items, t);
}

async_generator<int> says_goodbye(semaphore& s) {
    bool stopped = false;
    try {
        const auto permit = co_await s.async_acquire();
    } catch (const bide::stopped_error&) {
        stopped = true;
    }
    co_yield stopped ? 7 : 1;
}
task<int> consume_in_scope(async_generator<int> items, bool shielded) {
    std::optional<bide::this_task::shield> guard;
    if (shielded) {
        guard.emplace();
    }
    int sum = 0;
    const auto first = co_await items.next();
    sum += first.value_or(0);
    guard.reset();
    const auto second = co_await items.next();
    co_return sum + second.value_or(0);
}

} // namespace

TEST_CASE("async_generator: yields items in order, then nothing, as often as it is asked",
          "[promise.generator-items]") {
    CHECK(sync_wait(all_of(count_to(3))) == std::vector{1, 2, 3});
    CHECK(sync_wait(all_of(count_to(0))).empty());
    const auto ask_again = [](async_generator<int> items) -> task<int> {
        int nothing = 0;
        static_cast<void>(co_await items.next());
        for (int i = 0; i < 3; ++i) {
            const auto item = co_await items.next();
            nothing += item ? 0 : 1;
        }
        co_return nothing;
    };
    CHECK(sync_wait(ask_again(count_to(1))) == 3);
}

TEST_CASE("async_generator: yields move-only values, references, and what converts to its items") {
    const auto boxed = sync_wait(all_of(boxes()));
    REQUIRE(boxed.size() == 2);
    CHECK(*boxed[0] + *boxed[1] == 3);
    CHECK(sync_wait(all_of(letters())) == std::vector<std::string>{"a", "b"});

    std::vector<int> numbers{1, 2, 3};
    const auto doubled = [](std::vector<int>& of) -> task<> {
        auto items = elements(of);
        while (int* const item = co_await items.next()) {
            *item *= 2;
        }
    };
    sync_wait(doubled(numbers));
    CHECK(numbers == std::vector{2, 4, 6});
    const auto joined = []() -> task<std::string> {
        std::string all;
        auto items = words();
        while (const std::string* const item = co_await items.next()) {
            all += *item;
        }
        co_return all;
    };
    CHECK(sync_wait(joined()) == "firsttemporary");
    STATIC_REQUIRE(std::is_same_v<async_generator<int>::next_type, std::optional<int>>);
    STATIC_REQUIRE(std::is_same_v<async_generator<const int&>::next_type, const int*>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<async_generator<int>>);
    STATIC_REQUIRE(!std::is_copy_constructible_v<async_generator<int>>);
}

TEST_CASE("async_generator: moves what is an rvalue, and copies what is not, once") {
    test::tally t;
    int left_as = 0;
    {
        const auto all = sync_wait(all_of(counted_items(t, 10, &left_as)));
        REQUIRE(all.size() == 11);
        CHECK(all.back().number() == 10);
        CHECK(left_as == 10);
        CHECK(t.copied == 1);
    }
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: no item allocates", "[promise.generator-items]") {
    const auto loop = []() -> task<std::size_t> {
        auto items = count_to(1'000);
        static_cast<void>(co_await items.next());
        const std::size_t before = test::allocations_here();
        int sum = 0;
        while (auto item = co_await items.next()) {
            sum += *item;
        }
        co_return test::allocations_here() - before + (sum == 500'499 ? 0u : 1'000u);
    };
    CHECK(sync_wait(loop()) == 0);
}

TEST_CASE("async_generator: 200,000 items use a bounded stack", "[promise.generator-items]") {
    CHECK(sync_wait(sum_of(count_to(200'000))) == 100'000);
    CHECK(sync_wait(sum_of(through(through(count_to(200'000))))) == 100'000);
    int sum = 0;
    test::held other = add_all(count_to(200'000), sum);
    other.start();
    CHECK(other.done());
    CHECK(sum == 100'000);
}

TEST_CASE("async_generator: a producer that another producer resumes yields to its own consumer",
          "[promise.generator-items]") {
    bide::event e;
    int waited = 0;
    int set = 0;
    test::held first = add_all(waits_for(e), waited);
    first.start();
    test::held second = add_all(sets(e), set);
    second.start();
    CHECK(first.done());
    CHECK(second.done());
    CHECK(waited == 1);
    CHECK(set == 1);
}

TEST_CASE("async_generator: producers that wait now and then yield to their consumers in order") {
    bide::semaphore ready(1);
    for (const int depth : {1, 2, 3, 7, 8, 9, 20}) {
        for (unsigned which = 0; which < 8; ++which) {
            async_generator<int> all = count_to(50);
            for (int level = 0; level < depth; ++level) {
                all = pauses(std::move(all), ((which >> (level % 3)) & 1) != 0, ready);
            }
            bide::scheduler s(test::workers(2));
            const std::vector<int> got = sync_wait(s, all_of(std::move(all)));
            CHECK(got == sync_wait(all_of(count_to(50))));
        }
    }
}

TEST_CASE("async_generator: a producer may be taken over by a long chain between two items") {
    const auto consume = []() -> task<std::vector<int>> {
        std::vector<int> all;
        async_generator<int> items = count_to(20);
        for (int level = 0; level < 12; ++level) {
            auto item = co_await items.next();
            all.push_back(*item);
            items = through(std::move(items));
        }
        while (auto item = co_await items.next()) {
            all.push_back(*item);
        }
        co_return all;
    };
    CHECK(sync_wait(consume()) == sync_wait(all_of(count_to(20))));
}

TEST_CASE("async_generator: the producer runs where its consumer does, for each item anew",
          "[promise.generator-executor]") {
    scheduler a(test::workers(1));
    scheduler b(test::workers(1));
    const auto places = []() -> async_generator<bide::executor_ref> {
        for (;;) {
            co_await bide::this_task::yield();
            bide::executor_ref here = bide::current_worker<bide::native_platform>();
            co_yield std::move(here);
        }
    };
    auto items = places();
    const auto is_here = [](async_generator<bide::executor_ref>& from) -> task<bool> {
        const auto where = co_await from.next();
        co_return where == bide::current_worker<bide::native_platform>();
    };
    for (int i = 0; i < 3; ++i) {
        CHECK(sync_wait(a, is_here(items)));
        CHECK(sync_wait(b, is_here(items)));
        CHECK(sync_wait(is_here(items)));
    }
}

TEST_CASE("async_generator: an exception of the producer leaves next() once, and ends it",
          "[promise.generator-exception]") {
    const auto consume = [](async_generator<int> items) -> task<std::string> {
        std::string said;
        for (int i = 0; i < 4; ++i) {
            try {
                const auto item = co_await items.next();
                said += item ? "item " : "nothing ";
            } catch (const std::runtime_error& e) {
                said += std::string(e.what()) + " ";
            }
        }
        co_return said;
    };
    CHECK(sync_wait(consume(fails_after(2))) == "item item no more nothing ");
    CHECK(sync_wait(consume(fails_after(0))) == "no more nothing nothing nothing ");
    CHECK_THROWS_AS(sync_wait(sum_of(through(fails_after(1)))), std::runtime_error);
}

TEST_CASE(
    "async_generator: a move that throws loses that item alone; a copy throws in the producer") {
    std::string said;
    const auto consume = [](async_generator<fragile> items) -> task<int> {
        int seen = 0;
        for (bool over = false; !over;) {
            try {
                const auto item = co_await items.next();
                over = !item;
                seen = 10 * seen + (item ? item->number() : 0);
            } catch (const std::runtime_error&) {
                seen = 10 * seen + 9;
            }
        }
        co_return seen;
    };
    CHECK(sync_wait(consume(fragile_items(said))) == 19'350);
    CHECK(said == "copy");
}

TEST_CASE("async_generator: destroyed early, it destroys its producer at the co_yield",
          "[promise.generator-destroyed]") {
    test::tally t;
    {
        const auto never_started = counted_items(t, 3);
    }
    CHECK(t.made == 0);
    const auto take_two = [](async_generator<test::counted> items) -> task<int> {
        const auto a = co_await items.next();
        const auto b = co_await items.next();
        co_return a->number() + b->number();
    };
    CHECK(sync_wait(take_two(counted_items(t, 3))) == 1);
    CHECK(t.made > 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: moves with its producer, and has ended where it was moved from") {
    test::tally t;
    const auto consume = [](test::tally& in) -> task<int> {
        auto items = counted_items(in, 3);
        static_cast<void>(co_await items.next());
        auto moved = std::move(items);
        const auto gone = co_await items.next();
        const auto second = co_await moved.next();
        auto other = counted_items(in, 1);
        static_cast<void>(co_await other.next());
        moved = std::move(other); // destroys the first producer
        const auto last = co_await moved.next();
        co_return (gone ? 100 : 0) + 10 * second->number() + last->number();
    };
    CHECK(sync_wait(consume(t)) == 11);
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: of tasks, keeps the parameters of its producer until it is destroyed",
          "[promise.generator-destroyed]") {
    test::tally t;
    const auto calls = [](auto make) -> async_generator<task<int>> {
        co_yield make();
        co_yield make();
    };
    const auto consume = [&](test::tally& in) -> task<int> {
        auto tasks =
            calls([value = test::counted(in, 2)]() -> task<int> { co_return value.number(); });
        auto first = co_await tasks.next();
        auto second = co_await tasks.next();
        const auto none = co_await tasks.next();
        const auto again = co_await tasks.next();
        const int kept = in.alive();
        const int one = co_await std::move(*first);
        const int two = co_await std::move(*second);
        co_return none || again ? 0 : 10 * kept + one + two;
    };
    CHECK(sync_wait(consume(t)) == 14);
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: if its consumer is destroyed while it waits, it has ended",
          "[promise.generator-destroyed]") {
    const bool through_task = GENERATE(false, true);
    CAPTURE(through_task);
    test::tally t;
    semaphore s{0};
    auto items = permits(s, t);
    int got = 0;
    {
        test::held consumer = through_task ? await_deep(items, t) : consume_next(items, got);
        consumer.start();
        CHECK(s.waiters() == 1);
        CHECK(t.alive() == (through_task ? 2 : 1));
    }
    CHECK(s.waiters() == 0);
    CHECK(t.alive() == 0);
    const auto ask = [](async_generator<int>& from) -> task<bool> {
        const auto item = co_await from.next();
        co_return item.has_value();
    };
    CHECK(!sync_wait(ask(items)));
}

TEST_CASE(
    "async_generator: a pipeline of 200,000 passes items on and is destroyed on a bounded stack",
    "[promise.generator-items]") {
    test::tally t;
    semaphore s{0};
    const auto pipeline = [&](async_generator<int> items) {
        for (int i = 0; i < 200'000; ++i) {
            items = through(std::move(items));
        }
        return items;
    };
    CHECK(sync_wait(sum_of(pipeline(count_to(3)))) == 2);
    auto items = pipeline(permits(s, t));
    int got = 0;
    {
        test::held consumer = consume_next(items, got);
        consumer.start();
        CHECK(s.waiters() == 1);
    }
    CHECK(s.waiters() == 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: a cancellation of the consumer stops what the producer waits for",
          "[promise.generator-cancel]") {
    scheduler on(test::workers(2));
    semaphore s{0};
    test::tally t;
    auto stopped = on.spawn(consume_in_scope(permits(s, t), false));
    auto caught = on.spawn(consume_in_scope(says_goodbye(s), false));
    REQUIRE(test::eventually([&s] { return s.waiters() == 2; }));
    CHECK(stopped.cancel());
    CHECK(caught.cancel());
    CHECK_THROWS_AS(std::move(stopped).join(), bide::stopped_error);
    CHECK(std::move(caught).join() == 7);
    CHECK(t.alive() == 0);
}

TEST_CASE("async_generator: a shield of the consumer keeps a cancellation from the producer",
          "[promise.generator-cancel]") {
    scheduler on(test::workers(2));
    semaphore s{0};
    auto shielded = on.spawn(consume_in_scope(says_goodbye(s), true));
    REQUIRE(test::eventually([&s] { return s.waiters() == 1; }));
    CHECK(shielded.cancel());
    CHECK(s.waiters() == 1);
    s.release();
    CHECK(std::move(shielded).join() == 1);
}

TEST_CASE(
    "async_generator: a time-out of the producer's operation leaves the item to the next wait") {
    bide::channel<int> numbers(1);
    const auto patient = [](bide::channel<int>& from) -> async_generator<int> {
        for (;;) {
            const auto got = co_await from.async_recv().with_timeout(1ms);
            if (got && !*got) {
                co_return;
            }
            co_yield got ? **got : -1;
        }
    };
    const auto consume = [&numbers](async_generator<int> items) -> task<bool> {
        const auto early = co_await items.next();
        static_cast<void>(co_await numbers.async_send(5));
        const auto late = co_await items.next();
        numbers.close();
        const auto over = co_await items.next();
        co_return early == -1 && late == 5 && !over;
    };
    CHECK(sync_wait(consume(patient(numbers))));
}
