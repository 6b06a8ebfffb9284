#include <bide/sched/run_queue.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// The ring of a worker: each job that it takes comes out once, by the owner's pop or a thief; in
// order; and with what the owner wrote before.

namespace {

using model::platform;
// It does not grow, unless its largest capacity is given.
template <unsigned Capacity, unsigned Max = Capacity>
using run_queue = bide::basic_run_queue<platform, Capacity, Max>;

constexpr auto seq_cst = std::memory_order_seq_cst;

struct job : bide::runnable {
    platform::var<int> number{0};
};

// The jobs that one thread took, oldest first.
struct bag {
    int numbers[8] = {};
    std::size_t count = 0;

    void put(bide::runnable* r) noexcept {
        if (r != nullptr) {
            numbers[count++] = static_cast<job*>(r)->number;
        }
    }
    template <class Queue> void drain(Queue& q) noexcept {
        while (bide::runnable* const r = q.pop()) {
            put(r);
        }
    }
    // One steal.
    template <class Queue> void steal(Queue& victim, Queue& mine) noexcept {
        unsigned taken = 0;
        bide::runnable* const first = victim.steal_into(mine, taken);
        MODEL_REQUIRE((first == nullptr) == (taken == 0));
        put(first);
    }
    bool in_order() const noexcept {
        for (std::size_t i = 1; i < count; ++i) {
            if (numbers[i - 1] >= numbers[i]) {
                return false;
            }
        }
        return true;
    }
};

// The numbers 1 to n, each once.
template <class... Bags> bool are_all(int n, const Bags&... bags) {
    int seen[16] = {};
    int count = 0;
    const auto look = [&](const bag& b) {
        for (std::size_t i = 0; i < b.count; ++i) {
            ++seen[b.numbers[i]];
            ++count;
        }
    };
    (look(bags), ...);
    for (int i = 1; i <= n; ++i) {
        if (seen[i] != 1) {
            return false;
        }
    }
    return count == n;
}

// Jobs that are numbered as they are pushed.
struct jobs {
    job all[8];
    int pushed = 0;

    template <class Queue> void push(Queue& q, bag& over, int n = 1) noexcept {
        for (int i = 0; i < n; ++i) {
            job& j = all[pushed++];
            j.number = pushed;
            if (!q.push(j)) {
                over.put(&j);
            }
        }
    }
};

// The ring is filled by the body. Then the owner pushes and pops, and a thief steals.
template <unsigned Capacity, unsigned Max = Capacity>
auto owner_and_thief(int before, int pops, int pushes, int steals) {
    return [=] {
        run_queue<Capacity, Max> q(0xffff'fffeU);
        run_queue<Capacity, Max> theirs;
        jobs all;
        bag owner;
        bag over;
        bag thief;
        all.push(q, over, before);
        model::thread stealing([&] {
            for (int i = 0; i < steals; ++i) {
                thief.steal(q, theirs);
                thief.drain(theirs);
            }
        });
        for (int i = 0; i < pops; ++i) {
            owner.put(q.pop());
        }
        all.push(q, over, pushes);
        stealing.join();
        owner.drain(q);
        MODEL_REQUIRE(are_all(before + pushes, owner, over, thief));
        MODEL_REQUIRE(owner.in_order() && over.in_order() && thief.in_order());
        MODEL_REQUIRE(q.empty() && q.size() == 0);
    };
}

TEST_CASE("run_queue: each job comes out once, beside a thief") {
    model::check_weak("ring of 2: push two, steal two", owner_and_thief<2>(0, 0, 2, 2));
    model::check_weak("ring of 2: pop, push, beside two steals", owner_and_thief<2>(2, 1, 1, 2));
    model::check_weak("ring of 4: pop two, push two, beside a steal",
                      owner_and_thief<4>(3, 2, 2, 1));
    model::check_weak("ring of 4: pop three beside two steals", owner_and_thief<4>(4, 3, 0, 2));
}

TEST_CASE("run_queue: a thief that reads an old tail takes no job twice") {
    model::check_weak("push, pop, beside a steal", [] {
        run_queue<2> q(0xffff'ffff); // includes the wrap
        run_queue<2> theirs;
        jobs all;
        bag owner;
        bag over;
        bag thief;
        model::thread stealing([&] { thief.steal(q, theirs); });
        for (int i = 0; i < 2; ++i) {
            all.push(q, over);
            owner.put(q.pop());
        }
        stealing.join();
        MODEL_REQUIRE(are_all(2, owner, thief));
        MODEL_REQUIRE(q.empty());
    });
}

TEST_CASE("run_queue: each job comes out once, or a full ring does not take it, beside a thief") {
    model::check_weak("ring of 2, full: push, beside a steal", owner_and_thief<2>(2, 0, 1, 1));
    model::check_weak("ring of 2, full: push two, beside two steals",
                      owner_and_thief<2>(2, 0, 2, 2));
    model::check_weak("ring of 4, full: push two, beside a steal", owner_and_thief<4>(4, 0, 2, 1));
    model::check_weak("ring of 4: push, pop, push", owner_and_thief<4>(3, 1, 3, 2));
}

// Two thieves, which may steal from each other's rings, too.
template <unsigned Capacity> auto two_thieves(int before, bool owner_works) {
    return [=] {
        run_queue<Capacity> q;
        run_queue<Capacity> rings[2];
        jobs all;
        bag owner;
        bag over;
        bag thieves[2];
        all.push(q, over, before);
        model::thread first([&] { thieves[0].steal(q, rings[0]); });
        model::thread second([&] {
            thieves[1].steal(q, rings[1]);
            thieves[1].steal(rings[0], rings[1]);
        });
        if (owner_works) {
            owner.put(q.pop());
            all.push(q, over);
        }
        first.join();
        second.join();
        owner.drain(q);
        MODEL_REQUIRE(owner.in_order());
        thieves[0].drain(rings[0]);
        thieves[1].drain(rings[1]);
        MODEL_REQUIRE(are_all(all.pushed, owner, over, thieves[0], thieves[1]));
    };
}

TEST_CASE("run_queue: each job comes out once, beside two thieves") {
    model::check_weak("ring of 4: two thieves", two_thieves<4>(3, false));
    model::check("ring of 2: an owner and two thieves", two_thieves<2>(2, true));
    model::check("ring of 4: an owner and two thieves", two_thieves<4>(4, true));
}

TEST_CASE("run_queue: each job comes out once, from a ring that grows beside a thief") {
    model::check_weak("2 to 4 slots: push beside a steal", owner_and_thief<2, 4>(2, 0, 1, 1));
    model::check_weak("2 to 4 slots: push, pop, beside two steals",
                      owner_and_thief<2, 4>(2, 0, 2, 2));
    model::check_weak("2 to 8 slots: pop, push four, beside a steal",
                      owner_and_thief<2, 8>(2, 1, 4, 1));
    model::check("2 to 8 slots: push four beside two steals", owner_and_thief<2, 8>(1, 0, 4, 2));
}

// The owner shrinks the ring and makes it grow again, beside a thief.
void owner_that_trims(int thieves) {
    run_queue<2, 8> q;
    run_queue<2, 8> rings[2];
    jobs all;
    bag owner;
    bag over;
    bag thief[2];
    all.push(q, over, 5);
    for (int i = 0; i < 4; ++i) {
        owner.put(q.pop());
    }
    all.push(q, over);
    MODEL_REQUIRE(q.capacity() == 8 && over.count == 0);
    model::thread first([&] {
        thief[0].steal(q, rings[0]);
        thief[0].drain(rings[0]);
    });
    model::thread second([&] {
        if (thieves == 2) {
            thief[1].steal(q, rings[1]);
            thief[1].drain(rings[1]);
        }
    });
    owner.put(q.pop());
    q.trim();
    all.push(q, over, 2);
    first.join();
    second.join();
    owner.drain(q);
    q.trim();
    MODEL_REQUIRE(are_all(8, owner, over, thief[0], thief[1]));
    MODEL_REQUIRE(owner.in_order() && q.empty() && q.capacity() == 2);
}

TEST_CASE("run_queue: each job comes out once, from a ring that shrinks beside thieves") {
    model::check_weak("8 slots: pop, trim, push, beside a steal", [] { owner_that_trims(1); });
    model::check("8 slots: pop, trim, push, beside two steals", [] { owner_that_trims(2); });
}

TEST_CASE("run_queue: a ring grows, or does not take the new job beside a thief") {
    CHECK(model::outcomes({}, [] {
              run_queue<2, 4> q;
              run_queue<2, 4> theirs;
              jobs all;
              bag over;
              bag thief;
              all.push(q, over, 2);
              model::thread stealing([&] { thief.steal(q, theirs); });
              all.push(q, over);
              stealing.join();
              model::record(over.count != 0 ? "refused" : q.capacity() == 4 ? "grown" : "room");
          }) == "grown refused room");
}

TEST_CASE("run_queue: a thief's ring grows beside a thief that steals from it") {
    model::check_weak("a growing thief is stolen from", [] {
        run_queue<2, 8> mine;
        run_queue<2, 8> theirs;
        jobs all;
        bag over;
        bag thief;
        bag other;
        all.push(mine, over, 2);
        model::thread stealing([&] { other.steal(mine, theirs); });
        run_queue<2, 8> victim;
        all.push(victim, over, 5);
        thief.steal(victim, mine); // up to three
        stealing.join();
        thief.drain(mine);
        other.drain(theirs);
        bag rest;
        rest.drain(victim);
        MODEL_REQUIRE(are_all(7, thief, other, rest));
        MODEL_REQUIRE(over.count == 0);
    });
}

TEST_CASE("run_queue: a thief does not write where another thief still reads") {
    model::check_weak("a thief is stolen from", [] {
        run_queue<4> q;
        run_queue<4> mine;
        run_queue<4> theirs;
        jobs all;
        bag over;
        bag thief;
        bag other;
        all.push(q, over, 3);
        all.push(mine, over, 4);
        model::thread stealing([&] { other.steal(mine, theirs); });
        thief.put(mine.pop());
        thief.put(mine.pop());
        thief.steal(q, mine); // two: one goes where the first of the other's was
        stealing.join();
        thief.drain(mine);
        other.drain(theirs);
        bag rest;
        rest.drain(q);
        MODEL_REQUIRE(are_all(7, thief, other, rest));
    });
}

// A busy worker evens out a longer ring with its own, beside the longer ring's owner and a thief that
// steals from either.
template <unsigned Capacity, unsigned Max> auto balance(int theirs, int mine, bool from_longer) {
    return [=] {
        run_queue<Capacity, Max> longer(0xffff'fffeU);
        run_queue<Capacity, Max> shorter;
        run_queue<Capacity, Max> stolen;
        jobs all;
        bag over;
        bag owner;
        bag balancer;
        bag thief;
        all.push(shorter, over, mine);
        all.push(longer, over, theirs);
        model::thread stealing([&] { thief.steal(from_longer ? longer : shorter, stolen); });
        model::thread owning([&] {
            owner.put(longer.pop());
            all.push(longer, over);
        });
        balancer.put(shorter.pop());
        unsigned taken = 0;
        const auto most = static_cast<unsigned>(theirs - mine) / 2;
        balancer.put(longer.steal_into(shorter, taken, most));
        MODEL_REQUIRE(taken <= most);
        owning.join();
        stealing.join();
        owner.drain(longer);
        balancer.drain(shorter);
        thief.drain(stolen);
        MODEL_REQUIRE(owner.in_order() && thief.in_order());
        MODEL_REQUIRE(are_all(all.pushed, owner, over, balancer, thief));
    };
}

TEST_CASE("run_queue: each job comes out once, from two rings that are evened out beside a thief") {
    model::check("a longer ring is evened out, a steal from it", balance<4, 4>(4, 1, true));
    model::check("a longer ring is evened out, a steal from the shorter",
                 balance<4, 4>(4, 1, false));
    model::check("a growing ring is evened out, a steal from it", balance<2, 8>(5, 1, true));
    model::check("a growing ring is evened out, a steal from the shorter",
                 balance<2, 8>(5, 1, false));
}

// A thread pushes into a queue and looks whether its worker sleeps. The worker says so, and looks into the queue.
template <class Queue, class Push> void push_and_announce(const Queue& q, Push push) {
    platform::atomic<int> sleeps{0};
    bool seen = false;
    model::thread pushing([&] {
        push();
        seen = sleeps.load(seq_cst) != 0;
    });
    sleeps.exchange(1, seq_cst);
    const bool empty = q.empty();
    pushing.join();
    MODEL_REQUIRE(seen || !empty);
}

TEST_CASE("run_queue: a worker that announces sees the push, or the pusher sees the announcement") {
    model::check("a push, an announcement", [] {
        run_queue<2> q;
        jobs all;
        bag over;
        push_and_announce(q, [&] { all.push(q, over); });
    });
    model::check("a push that grows, an announcement", [] {
        run_queue<2, 4> q;
        jobs all;
        bag over;
        all.push(q, over, 2);
        push_and_announce(q, [&] {
            static_cast<void>(q.pop());
            static_cast<void>(q.pop());
            all.push(q, over, 3);
        });
    });
    model::check("a thief's push, an announcement", [] {
        run_queue<4> q;
        run_queue<4> mine;
        jobs all;
        bag over;
        bag thief;
        all.push(q, over, 3);
        push_and_announce(mine, [&] { thief.steal(q, mine); });
        MODEL_REQUIRE(thief.count == 1 && mine.size() == 1);
    });
}

} // namespace
