#include <bide/model/linearizable.hpp>
#include <bide/sched/fork_deque.hpp>
#include <bide/sched/idle.hpp>
#include <model/at_random.hpp>
#include <support/test.hpp>

// The forks of a thread: each job is run once, by its owner or by a thief, in whichever slot it
// was; no thief's request is lost; and a worker that goes to sleep sees published jobs.

namespace {

using bide::fork_pop;
using model::platform;

// Its number of runs is plain data, and so are the slots: only the thread that runs it may touch
// it.
struct job {
    platform::var<int> runs{0};
    platform::atomic<int> ended{0};

    void run() noexcept { runs = runs + 1; }
};

template <unsigned First> using deque = bide::basic_fork_deque<platform, job, First>;

template <class Deque> bool steal(Deque& from) noexcept {
    job* const j = from.steal();
    if (j != nullptr) {
        j->run();
        // Releases what it did, and the slot.
        j->ended.store(1, std::memory_order_release);
    }
    return j != nullptr;
}

template <class Deque> void steal_some(Deque& from, int attempts) noexcept {
    for (; attempts > 0; --attempts) {
        steal(from);
    }
}

// Publishes what the owner keeps private, and steals up to `attempts` jobs.
template <class Deque> void publish_and_steal(Deque& from, int attempts) noexcept {
    from.publish_all();
    steal_some(from, attempts);
}

// Two thieves, which try so often. Their end is waited for.
template <class Deque> struct two_thieves {
    two_thieves(Deque& from, int attempts, int attempts_of_another)
        : one([&from, attempts] { steal_some(from, attempts); }),
          another([&from, attempts_of_another] { steal_some(from, attempts_of_another); }) {}

    model::thread one;
    model::thread another;
};

void await(const job& j) noexcept {
    while (j.ended.load(std::memory_order_acquire) == 0) {
        platform::pause();
    }
}

// Joins the youngest fork, the job `j`.
template <class Deque> void join(Deque& mine, job& j, std::uint32_t wanted = 0) noexcept {
    const auto at = mine.depth() - 1;
    if (mine.pop(at, [wanted]() noexcept { return wanted; }) == fork_pop::stolen) {
        await(j);
        mine.reset(at);
    } else {
        j.run();
    }
    MODEL_REQUIRE(j.runs == 1);
    MODEL_REQUIRE(mine.depth() == at);
}

// Joins the first `n` forks, the youngest first.
template <class Deque, std::size_t N>
void join_first(Deque& mine, job (&all)[N], std::size_t n) noexcept {
    while (n-- > 0) {
        join(mine, all[n]);
    }
}
template <class Deque, std::size_t N> void join_all(Deque& mine, job (&all)[N]) noexcept {
    join_first(mine, all, N);
}

template <class Deque, std::size_t N> void push_all(Deque& mine, job (&all)[N]) {
    for (job& j : all) {
        mine.push(j);
    }
}

// Nested forks beside thieves, each of which steals so often.
template <unsigned First, std::size_t Forks> auto nested(int steals, int steals_of_another = 0) {
    return [=] {
        deque<First> d;
        job all[Forks];
        {
            const two_thieves beside(d, steals, steals_of_another);
            push_all(d, all);
            join_all(d, all);
        }
        MODEL_REQUIRE(d.is_empty_to_thieves());
        MODEL_REQUIRE(d.steal() == nullptr);
    };
}

TEST_CASE("fork_deque: the last job is the owner's or the thief's") {
    model::check_weak("a fork, a thief", nested<1, 1>(1));
    model::check_weak("a fork, two thieves", nested<1, 1>(1, 1));
}

TEST_CASE("fork_deque: each job is run once, beside thieves") {
    model::check_weak("two forks, a thief comes twice", nested<4, 2>(2));
    model::check("two forks, two thieves", nested<4, 2>(1, 1));
    // The third is private until the first two are stolen.
    model::check("three forks, a thief comes three times", nested<4, 3>(3));
    model::check("four forks, a thief comes three times", nested<4, 4>(3));
    // Of the last six, three are published at once.
    model::check("half of the private ones, a thief comes three times", [] {
        deque<8> d;
        job all[8];
        push_all(d, all);
        steal(d);
        steal(d);
        MODEL_REQUIRE(d.pop(7) == fork_pop::popped_and_published);
        join(d, all[6]);
        join(d, all[5]);
        model::thread thief([&] { steal_some(d, 3); });
        join(d, all[4]);
        join(d, all[3]);
    });
}

TEST_CASE("fork_deque: each job is run once, whatever number is wanted") {
    // The owner takes the public jobs back one by one, or publishes the third after the second theft.
    const auto wanting = [](std::uint32_t at_push, std::uint32_t at_pop, int steals, int others) {
        return [=] {
            deque<4> d;
            job all[3];
            const two_thieves beside(d, steals, others);
            for (job& j : all) {
                d.push(j, [at_push]() noexcept { return at_push; });
            }
            for (std::size_t i = 3; i-- > 0;) {
                join(d, all[i], at_pop);
            }
        };
    };
    model::check("three are wanted, a thief comes three times", wanting(3, 3, 3, 0));
    model::check("three are wanted, two thieves", wanting(3, 3, 1, 1));
    model::check("three are wanted, then two, a thief comes twice", wanting(3, 2, 2, 0));
    model::check("two are wanted, then three, a thief comes three times", wanting(2, 3, 3, 0));
}

TEST_CASE("fork_deque: each job is run once while its buffer grows") {
    model::check("two forks of one that fits, a thief", nested<1, 2>(2));
    model::check("three forks of one that fits, a thief", nested<1, 3>(2));
    model::check("three forks of two that fit, a thief", nested<2, 3>(3));
    model::check("two forks of one that fits, two thieves", nested<1, 2>(1, 1));
}

TEST_CASE("fork_deque: a slot is used again after its job has ended") {
    const auto one_by_one = [](int steals, int steals_of_another) {
        return [=] {
            deque<1> d;
            job all[2];
            const two_thieves beside(d, steals, steals_of_another);
            for (job& j : all) {
                d.push(j);
                join(d, j);
            }
        };
    };
    model::check_weak("two forks in turn, a thief", one_by_one(2, 0));
    model::check("two forks in turn, two thieves", one_by_one(1, 1));
}

TEST_CASE("fork_deque: a joiner that waits for a thief forks above the job") {
    const auto waiting = [](int steals, int steals_of_another) {
        return [=] {
            deque<2> d;
            job all[3];
            const two_thieves beside(d, steals, steals_of_another);
            d.push(all[0]);
            if (d.pop(0) != fork_pop::stolen) {
                all[0].run();
                return;
            }
            d.push(all[1]);
            d.push(all[2]);
            join(d, all[2]);
            join(d, all[1]);
            await(all[0]);
            d.reset(0);
            MODEL_REQUIRE(all[0].runs == 1);
        };
    };
    model::check("a fork above a stolen one, a thief", waiting(2, 0));
    model::check("a fork above a stolen one, two thieves", waiting(1, 1));
}

// Three forks, of which two were stolen, and thieves publish the third one. The owner may fork once
// more meanwhile.
auto hidden(bool forks, int steals, bool publishes_twice = false) {
    return [=] {
        deque<4> d;
        job all[4];
        for (std::size_t i = 0; i < 3; ++i) {
            d.push(all[i]);
        }
        steal(d);
        steal(d);
        MODEL_REQUIRE(d.hides_jobs());
        const auto publish = [&d, steals] { publish_and_steal(d, steals); };
        model::thread one(publish);
        std::unique_ptr<model::thread> another;
        if (publishes_twice) {
            another = std::make_unique<model::thread>(publish);
        }
        if (forks) {
            d.push(all[3]);
            join(d, all[3]);
        }
        join_first(d, all, 3);
    };
}

TEST_CASE("fork_deque: each job is run once, also if a thief publishes it") {
    model::check_weak("a pop", hidden(false, 1));
    model::check("a push, two pops", hidden(true, 1));
    // The owner publishes three of five, and takes them back.
    model::check("pops that publish", [] {
        deque<8> d;
        job all[7];
        push_all(d, all);
        steal(d);
        steal(d);
        model::thread thief([&] { publish_and_steal(d, 2); });
        for (std::size_t i = 7; i-- > 3;) {
            join(d, all[i]);
        }
    });
    // The owner's pushes look only if they see the request in time.
    model::check("a push that may not look", [] {
        deque<4> d;
        job all[3];
        {
            d.push(all[0]);
            d.push(all[1]);
            model::thread thief([&] { publish_and_steal(d, 3); });
            d.push(all[2]);
        }
        join_all(d, all);
    });
    model::check("two pushes and a pop that may not look", [] {
        deque<4> d;
        job all[4];
        {
            d.push(all[0]);
            d.push(all[1]);
            model::thread thief([&] { publish_and_steal(d, 3); });
            d.push(all[2]);
            d.push(all[3]);
            join(d, all[3]);
        }
        join_first(d, all, 3);
    });
    model::check("an owner that is busy", [] {
        deque<4> d;
        job all[4];
        push_all(d, all);
        steal(d);
        steal(d);
        {
            model::thread thief([&] {
                MODEL_REQUIRE(d.publish_all());
                MODEL_REQUIRE(!d.publish_all());
                steal_some(d, 2);
            });
        }
        MODEL_REQUIRE(all[2].runs == 1 && all[3].runs == 1);
    });
}

TEST_CASE("fork_deque: each job is run once, also if a thief publishes twice") {
    // The first push finds its job published. The later push and the pop may not look.
    model::check("a thief publishes twice", [] {
        deque<8> d;
        job all[5];
        for (std::size_t i = 0; i < 3; ++i) {
            d.push(all[i]);
        }
        steal(d);
        steal(d);
        {
            model::thread thief([&] {
                if (d.publish_all() && d.publish_all()) {
                    steal_some(d, 3);
                }
            });
            d.push(all[3]);
            d.push(all[4]);
            join(d, all[4]);
        }
        join_first(d, all, 4);
    });
}

// After any steals, the owner's next push makes a job public.
template <class Deque> void require_next(Deque& d) {
    job next;
    const bool was_empty = d.is_empty_to_thieves();
    const bool published = d.push(next);
    MODEL_REQUIRE(published || !was_empty);
    MODEL_REQUIRE(!d.is_empty_to_thieves());
    d.pop(d.depth() - 1);
}

TEST_CASE("fork_deque: the thief of the last public job requests, and no request is lost") {
    model::check("four pushes beside two steals", [] {
        deque<4> d;
        job all[4];
        {
            model::thread thief([&] { steal_some(d, 2); });
            push_all(d, all);
        }
        require_next(d);
    });
    model::check("a push, a push, a pop, beside two steals", [] {
        deque<4> d;
        job all[4];
        for (std::size_t i = 0; i < 2; ++i) {
            d.push(all[i]);
        }
        {
            model::thread thief([&] { steal_some(d, 2); });
            d.push(all[2]);
            d.push(all[3]);
            MODEL_REQUIRE(d.pop(3) != fork_pop::stolen);
        }
        require_next(d);
    });
    model::check("two pops beside two thieves", [] {
        deque<4> d;
        job all[4];
        push_all(d, all);
        {
            const two_thieves beside(d, 1, 1);
            MODEL_REQUIRE(d.pop(3) != fork_pop::stolen);
            if (d.pop(2) == fork_pop::stolen) {
                await(all[2]);
                d.reset(2);
            }
        }
        require_next(d);
    });
    // The thief of the first job requests after the thief of the last job.
    model::check("five pushes beside a late request and another", [] {
        deque<8> d;
        job all[5];
        {
            d.push(all[0]);
            model::thread late([&] { steal(d); });
            for (std::size_t i = 1; i < 4; ++i) {
                d.push(all[i]);
            }
            model::thread last([&] { steal_some(d, 2); });
            d.push(all[4]);
        }
        require_next(d);
    });
    // The request of the thief of the first job comes after the second job was pushed.
    model::check("two forks in turn, then two, beside a thief", [] {
        deque<4> d;
        job all[4];
        {
            model::thread thief([&] { steal_some(d, 2); });
            d.push(all[0]);
            join(d, all[0]);
            for (std::size_t i = 1; i < 4; ++i) {
                d.push(all[i]);
            }
        }
        require_next(d);
    });
}

TEST_CASE("fork_deque: a worker that goes to sleep sees a published job, or is woken") {
    using idle = bide::basic_idle<platform>;
    constexpr unsigned none = idle::none;
    // Worker 0 goes to sleep, 1 has the deque.
    model::check_weak("a push publishes", [] {
        idle i(2);
        deque<1> d;
        job j;
        unsigned woken = none;
        {
            model::thread forking([&] {
                MODEL_REQUIRE(d.push(j));
                woken = i.wake_one();
            });
            i.announce(0, false, false);
            if (!d.is_empty_to_thieves() && i.retract(0)) {
                return;
            }
        }
        MODEL_REQUIRE(woken == 0);
    });
    // Two public jobs were stolen: one is private.
    model::check_weak("a thief publishes", [] {
        idle i(2);
        deque<4> d;
        job all[3];
        push_all(d, all);
        steal(d);
        steal(d);
        unsigned woken = none;
        {
            model::thread thief([&] {
                MODEL_REQUIRE(d.publish_all());
                woken = i.wake_one();
            });
            i.announce(0, false, false);
            if (!d.is_empty_to_thieves() && i.retract(0)) {
                return;
            }
        }
        MODEL_REQUIRE(woken == 0);
    });
    // Two public jobs were stolen: two are private.
    model::check_weak("a pop publishes", [] {
        idle i(2);
        deque<4> d;
        job all[4];
        push_all(d, all);
        steal(d);
        steal(d);
        unsigned woken = none;
        {
            model::thread forking([&] {
                MODEL_REQUIRE(d.pop(3) == fork_pop::popped_and_published);
                woken = i.wake_one();
            });
            i.announce(0, false, false);
            if (!d.is_empty_to_thieves() && i.retract(0)) {
                return;
            }
        }
        MODEL_REQUIRE(woken == 0);
    });
}

TEST_CASE("fork_deque: each job is run once beside two thieves, in every execution", "[.long]") {
    model::check("three forks, two thieves come twice", nested<2, 3>(2, 2));
    model::check("four forks, two thieves", nested<2, 4>(2, 1));
    model::check("two thieves publish", hidden(false, 1, true));
}

// A tree of forks, `Depth` levels of them.
template <unsigned First> void grow_tree(deque<First>& d, job*& next, int depth) {
    if (depth == 0) {
        return;
    }
    job& j = *next++;
    d.push(j);
    grow_tree(d, next, depth - 1);
    join(d, j);
    grow_tree(d, next, depth - 1);
}

template <unsigned First> auto tree(int depth, int steals) {
    return [=] {
        deque<First> d;
        job all[16];
        job* next = all;
        const two_thieves beside(d, steals, steals);
        model::thread third([&] { steal_some(d, steals); });
        grow_tree(d, next, depth);
        MODEL_REQUIRE(next - all == (1 << depth) - 1);
    };
}

template <unsigned First> auto tree_beside_publishers(int depth, int steals) {
    return [=] {
        deque<First> d;
        job all[16];
        job* next = all;
        const auto publish = [&d, steals] {
            for (int i = 0; i < steals; ++i) {
                steal(d);
                d.publish_all();
            }
        };
        model::thread one(publish);
        model::thread another(publish);
        grow_tree(d, next, depth);
    };
}

TEST_CASE("fork_deque: each job of a tree is run once, beside three thieves") {
    model::options random;
    random.runs = 4'000;
    random.weak_failures = 1;
    // Without mutants: a mutant would read behind the end of a small buffer.
    const auto check_at_random = [&random](const char* name, const model::body& body) {
        model::check_at_random(name, random, body);
    };
    check_at_random("a tree of 7, at random", tree<1>(3, 3));
    check_at_random("a tree of 15, at random", tree<2>(4, 4));
    check_at_random("a tree of 15 beside thieves that publish, at random",
                    tree_beside_publishers<16>(4, 4));
    random.depth = 5;
    check_at_random("eight forks, two thieves, at random", nested<2, 8>(4, 4));
}

// The calls of an owner and its thieves. A job is its number.
struct numbered_forks {
    void push(int) { forks.push(all[forks.depth()]); }
    std::optional<int> pop() {
        const auto at = forks.depth() - 1;
        return forks.pop(at) == fork_pop::stolen ? std::nullopt : std::optional<int>(at);
    }
    std::optional<int> steal() {
        const job* const j = forks.steal();
        return j == nullptr ? std::nullopt : std::optional<int>(static_cast<int>(j - all));
    }

    deque<4> forks;
    job all[2];
};

struct specified_forks : model::spec::queue<int> {
    std::optional<int> pop() { return try_pop_back(); }
    // Finds nothing beside another thief, and if all jobs are private.
    std::optional<int> steal() { return model::spec::maybe() ? std::nullopt : try_pop(); }
};

TEST_CASE("fork_deque: an owner and two thieves see a deque") {
    model::check("its specification", [] {
        numbered_forks d;
        model::linearizable checked(d, specified_forks(), "d");
        const auto steal = [&] {
            const auto stolen = checked.call("steal", [](auto& o) { return o.steal(); });
            if (stolen.has_value()) {
                d.all[*stolen].ended.store(1, std::memory_order_release);
            }
        };
        model::thread a(steal);
        model::thread b(steal);
        for (int i = 0; i < 2; ++i) {
            checked.call("push", [](auto& o, int n) { o.push(n); }, i);
        }
        for (int i = 2; i-- > 0;) {
            if (!checked.call("pop", [](auto& o) { return o.pop(); }).has_value()) {
                await(d.all[i]);
                d.forks.reset(static_cast<std::uint32_t>(i));
            }
        }
    });
}

} // namespace
