#include <bide/parallel/parallel_pipeline.hpp>
#include <model/at_random.hpp>
#include <support/test.hpp>

// The threads of a pipeline: which one reads, runs a serial stage, or sleeps, and the end. What the source
// and the serial stages touch is plain data, so two calls that are not ordered are found.

namespace {

using awake = model::platform_without_lock_sleep;
using platform = awake;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;

// The threads of the model are the arms.
struct no_forks {
    using platform = awake;
};

struct item {
    var<int> number;
};

using model::check_at_random;

// So many items go through the stages on so many threads.
template <class... Stages>
void run(int items, std::uint32_t tokens, int threads, Stages... stages) {
    const bide::fork_options options;
    var<int> read{0};
    auto next = [&]() -> std::optional<item> {
        if (read == items) {
            return std::nullopt;
        }
        read = read + 1;
        return item{read - 1};
    };
    auto source = bide::detail::source_of(next);
    using machine = bide::detail::pipeline<no_forks, decltype(source), Stages...>;
    machine all(no_forks(), tokens, source, options, stages...);
    const auto work = [&] {
        all.run_here();
        MODEL_REQUIRE(!all.leaves_out(static_cast<std::uint64_t>(items)));
    };
    {
        model::thread second(work);
        std::unique_ptr<model::thread> third;
        if (threads == 3) {
            third = std::make_unique<model::thread>(work);
        }
        work();
    }
    MODEL_REQUIRE(read == items);
}

auto body(int items, std::uint32_t tokens, int threads) {
    return [=] {
        var<int> done{0};
        run(items, tokens, threads, bide::parallel_stage([](item i) { return i; }),
            bide::serial_stage([&done](item i) {
                MODEL_REQUIRE(i.number == done);
                done = done + 1;
            }));
        MODEL_REQUIRE(done == items);
    };
}

auto unordered_body(int items, std::uint32_t tokens, int threads) {
    return [=] {
        var<int> done{0};
        run(items, tokens, threads, bide::serial_unordered_stage([&done](item i) {
                done = done + 1;
                return i;
            }),
            bide::parallel_stage([](item) {}));
        MODEL_REQUIRE(done == items);
    };
}

// What threads do with the source alone: so many items, which end at once. With one token, one item ends
// after the other.
auto reading_body(int items, std::uint32_t tokens) {
    return [=] {
        bide::detail::basic_pipeline_work<platform> work(tokens);
        var<int> read{0};
        var<int> ended{0};
        const auto take_all = [&] {
            bool has_token = false;
            while (work.take(has_token) != work.over) {
                has_token = true;
                if (read == items) {
                    work.close_source();
                } else {
                    read = read + 1;
                    work.put_source();
                    if (tokens == 1) {
                        ended = ended + 1;
                    }
                }
            }
            MODEL_REQUIRE(tokens != 1 || ended == items);
        };
        model::thread second(take_all);
        take_all();
        MODEL_REQUIRE(read == items);
    };
}

TEST_CASE("pipeline: the stage and the item meet in one thread") {
    model::check("a stage against an item", [] {
        bide::detail::basic_pipeline_queue<platform, item> queue(2);
        var<int> done{0};
        const auto run = [&](int expected) {
            MODEL_REQUIRE(done == expected);
            done = done + 1;
            if (queue.advance()) {
                MODEL_REQUIRE(queue.next().item.get().number == 1);
                MODEL_REQUIRE(done == 1);
                done = done + 1;
                MODEL_REQUIRE(!queue.advance());
            }
        };
        model::thread second([&] {
            bool is_reached = queue.is_reached(1);
            if (!is_reached) {
                queue.slot_of(1).item.emplace([] { return item{1}; });
                is_reached = !queue.leave(1);
            }
            if (is_reached) {
                run(1);
            }
        });
        if (queue.is_reached(0)) {
            run(0);
        }
        second.join();
        MODEL_REQUIRE(done == 2);
    });
}

// The first place of a slot has passed the stage, and the token of its item is in use again. The item that
// has the token arrives, and then an item that was read before that: it finds its slot, which is the first
// one, as the first place has left it.
void slot_is_used_again() {
    bide::detail::basic_pipeline_queue<platform, item> queue(2);
    var<int> done{0};
    atomic<bool> has_ended{false};
    const auto pass = [&](std::uint64_t place) {
        bool is_reached = queue.is_reached(place);
        if (!is_reached) {
            queue.slot_of(place).item.emplace([] { return item{1}; });
            is_reached = !queue.leave(place);
        }
        for (; is_reached; is_reached = queue.advance()) {
            done = done + 1;
        }
    };
    const std::uint64_t first = queue.arrive();
    model::thread before([&] { pass(queue.arrive()); });
    model::thread after([&] {
        while (!has_ended.load(std::memory_order_acquire)) {
            platform::pause();
        }
        pass(queue.arrive());
    });
    pass(first);
    has_ended.store(true, std::memory_order_release);
    before.join();
    after.join();
    MODEL_REQUIRE(done == 3);
}

TEST_CASE("pipeline: a slot is used again after its place has passed the stage") {
    model::check("three items, two slots", slot_is_used_again);
}

// One thread reads twice, and another one reads then, or between.
void read_by_another() {
    bide::detail::basic_pipeline_work<platform> work(2);
    var<int> read{0};
    const auto read_one = [&](bool has_token) {
        MODEL_REQUIRE(work.take(has_token) == work.source);
        read = read + 1;
        work.put_source();
    };
    model::thread another([&] { read_one(false); });
    read_one(false);
    read_one(true);
    another.join();
    MODEL_REQUIRE(read == 3);
}

TEST_CASE("pipeline: one thread at a time reads the source, and all see its end") {
    model::check("3 reads, 2 tokens", read_by_another);
    model::check("no item, 1 token", reading_body(0, 1));
    model::check("1 item, 1 token", reading_body(1, 1));
    check_at_random("4 items, 2 tokens", 20'000, reading_body(4, 2));
}

TEST_CASE("pipeline: a serial stage takes the items in order, one after the other") {
    check_at_random("2 items, 2 tokens, 2 threads", 20'000, body(2, 2, 2));
    check_at_random("3 items, 1 token, 2 threads", 20'000, body(3, 1, 2));
    check_at_random("4 items, 2 tokens, 3 threads", 20'000, body(4, 2, 3));
    check_at_random("5 items, 4 tokens, 3 threads", 20'000, body(5, 4, 3));
}

TEST_CASE("pipeline: an unordered serial stage takes the items one after the other") {
    check_at_random("2 items, 2 tokens, 2 threads", 20'000, unordered_body(2, 2, 2));
    check_at_random("4 items, 2 tokens, 3 threads", 20'000, unordered_body(4, 2, 3));
}

} // namespace
