// choice: exactly one of several waits is granted, and the rest take nothing. A releaser that meets
// the claim of another waits for it and does not skip the wait. No cycle of waiters arises.

#include <bide/core/waiter.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/sync/detail/permit_queue.hpp>
#include <model/channel_support.hpp>
#include <support/test.hpp>

using namespace channel_model;

namespace {

using choice = bide::basic_choice<platform>;
using core = basic_core<platform>;
using receiving = basic_receiving<platform>;
using sending = basic_sending<platform>;

// For three threads, and for two threads with long programs.
using awake_choice = bide::basic_choice<awake>;
using awake_core = basic_core<awake>;
using awake_receiving = basic_receiving<awake>;
using awake_sending = basic_sending<awake>;
using awake_node = bide::basic_waiter<awake>;
using permit_queue = bide::detail::basic_permit_queue<awake>;
using gate = bide::detail::basic_gate<awake>;

void nothing(void*) noexcept {}

// Makes waits cases of a choice.
template <class Choice, class... Waits> void contest(Choice& of, Waits&... waits) {
    (waits.w.contest(&nothing, of), ...);
}

// Queues the waits one after the other, until one has happened or the choice is decided.
template <class Choice, class First, class Second>
void queue_both(Choice& of, auto& first_in, First& first, auto& second_in, Second& second) {
    if (first.enqueue(first_in) == wait_status::waiting && !of.is_decided()) {
        second.enqueue(second_in);
    }
}

// Waits until one of them has happened, and takes the other out.
template <class First, class Second>
void await_either(auto& first_in, First& first, auto& second_in, Second& second) {
    while (!first.w.is_complete() && !second.w.is_complete()) {
        platform::pause();
    }
    if (first.w.is_complete()) {
        second.cancel(second_in);
    } else {
        first.cancel(first_in);
    }
}

// A wait for a permit.
template <class Queue> struct waiting {
    explicit waiting(std::ptrdiff_t n = 1) noexcept : w(n) {}
    wait_status enqueue(Queue& q) noexcept { return q.enqueue(w); }
    bool cancel(Queue& q) noexcept { return q.cancel(w, wait_status::stopped); }
    bool is_granted() const noexcept { return w.outcome() == wait_status::granted; }
    awake_node w;
};
using acquiring = waiting<permit_queue>;
using passing = waiting<gate>;

TEST_CASE("choice: exactly one of two releasers decides it") {
    model::check("choice: two claim it", [] {
        choice c;
        var<int> by{0};
        bool other = false;
        const auto decide = [&](int releaser) {
            if (!c.claim()) {
                return false;
            }
            by = releaser;
            c.commit();
            return true;
        };
        model::thread claiming([&] { other = decide(1); });
        const bool mine = decide(2);
        claiming.join();
        MODEL_REQUIRE(mine != other && by == (mine ? 2 : 1) && c.is_decided());
        MODEL_REQUIRE(!c.claim());
    });
    model::check("choice: a claim is abandoned", [] {
        choice c;
        var<int> by{0};
        model::thread abandoning([&] {
            if (c.claim()) {
                by = 1;
                by = 0;
                c.abandon();
            }
        });
        MODEL_REQUIRE(c.claim()); // another releaser may hold the claim for a while
        by = 2;
        c.commit();
        abandoning.join();
        MODEL_REQUIRE(by == 2);
    });
}

TEST_CASE("choice: of two waits on two channels one gets an item, and the other item stays") {
    check("choice: two senders and one receiver on either", {0, 1}, {}, [](std::size_t n) {
        core left(n);
        core right(n);
        choice c;
        receiving a;
        receiving b;
        contest(c, a, b);
        a.enqueue(left);
        b.enqueue(right);
        wait_status other{};
        model::thread sender([&] { other = offer(left, 1); });
        const wait_status mine = offer(right, 2);
        sender.join();
        MODEL_REQUIRE(a.got.has_value() != b.got.has_value());
        a.cancel(left);
        b.cancel(right);
        MODEL_REQUIRE(n == 0 ? mine != other
                             : mine == wait_status::granted && other == wait_status::granted);
        const int taken = a.got ? a.take() : b.take();
        MODEL_REQUIRE(taken + poll(left) + poll(right) ==
                      (mine == wait_status::granted ? 2 : 0) +
                          (other == wait_status::granted ? 1 : 0));
    });
    check("choice: two receivers and one sender on either", {0, 1}, {}, [](std::size_t n) {
        core left(n);
        core right(n);
        if (n == 1) {
            offer(left, 1);
            offer(right, 2);
        }
        choice c;
        sending a(10);
        sending b(20);
        contest(c, a, b);
        a.enqueue(left);
        b.enqueue(right);
        int other = 0;
        model::thread receiver([&] { other = poll(left); });
        const int mine = poll(right);
        receiver.join();
        MODEL_REQUIRE(a.is_gone() != b.is_gone());
        a.cancel(left);
        b.cancel(right);
        MODEL_REQUIRE(mine + other + poll(left) + poll(right) ==
                      (a.is_gone() ? 10 : 20) + (n == 1 ? 3 : 0));
    });
}

// The wait that is not chosen is not the last in its queue.
TEST_CASE("choice: the next waiter gets the item of a wait that was not chosen") {
    check("choice: an item for the one behind", {0, 1}, {}, [](std::size_t n) {
        awake_core left(n);
        awake_core right(n);
        awake_choice c;
        awake_receiving a;
        awake_receiving b;
        awake_receiving behind;
        contest(c, a, b);
        a.enqueue(left);
        b.enqueue(right);
        behind.enqueue(left);
        model::thread sender([&] { put(left, 1); });
        offer(right, 2);
        sender.join();
        MODEL_REQUIRE(a.got ? !b.got : b.got && behind.got);
        if (a.got) {
            b.cancel(right);
            behind.cancel(left);
        }
    });
    model::check("choice: permits that came in part", [] {
        permit_queue q(1);
        gate g(1);
        awake_choice c;
        acquiring both(2);
        acquiring behind(1);
        passing opened;
        contest(c, both, opened);
        both.enqueue(q); // gets one of the two permits
        opened.enqueue(g);
        behind.enqueue(q);
        model::thread opening([&] { g.arrive(1); });
        q.give(1);
        opening.join();
        MODEL_REQUIRE(both.is_granted() != opened.is_granted());
        both.cancel(q);
        opened.cancel(g);
        MODEL_REQUIRE(behind.is_granted() == opened.is_granted());
        MODEL_REQUIRE(q.available() == (behind.is_granted() ? 1 : 0));
        MODEL_REQUIRE(behind.is_granted() || behind.cancel(q));
    });
    model::check("choice: permits for one that is decided and asks for more", [] {
        permit_queue q(1);
        gate g(1);
        awake_choice c;
        acquiring many(5);
        acquiring behind(1);
        passing opened;
        contest(c, many, opened);
        many.enqueue(q);
        opened.enqueue(g);
        behind.enqueue(q);
        model::thread opening([&] { g.arrive(1); });
        q.give(1); // granted in part, or to the next waiter
        opening.join();
        q.give(1);
        MODEL_REQUIRE(opened.is_granted() && behind.is_granted()); // although it was not taken out
        many.cancel(q);
        MODEL_REQUIRE(q.available() == 2 && q.waiters() == 0);
    });
    model::check("choice: a wait that is cancelled while another settles it", [] {
        permit_queue q(0);
        permit_queue p(0);
        awake_choice c;
        acquiring a;
        acquiring b;
        contest(c, a, b);
        a.enqueue(q);
        b.enqueue(p);
        model::thread giving([&] {
            p.give(1);
            q.give(1);
        });
        await_either(q, a, p, b);
        giving.join();
        MODEL_REQUIRE(a.is_granted() != b.is_granted());
        MODEL_REQUIRE(q.available() + p.available() == 1);
    });
    model::check("choice: close and open for a wait on either", [] {
        permit_queue q(0);
        gate g(1);
        awake_choice c;
        acquiring a;
        passing b;
        passing beside;
        contest(c, a, b);
        a.enqueue(q);
        b.enqueue(g);
        beside.enqueue(g);
        model::thread closing([&] { q.close(); });
        g.arrive(1);
        await(beside.w);
        closing.join();
        MODEL_REQUIRE((a.w.outcome() == wait_status::closed) != b.is_granted());
        a.cancel(q);
        b.cancel(g);
        MODEL_REQUIRE(q.waiters() == 0 && g.is_open());
    });
}

// The first wait is decided while the second is queued, and the other way round.
TEST_CASE("choice: a wait is queued while another wait of its choice is decided") {
    model::check("choice: an item while permits are asked for", [] {
        awake_core from(1);
        permit_queue q(1);
        awake_choice c;
        awake_receiving a;
        acquiring b;
        contest(c, a, b);
        model::thread sender([&] { put(from, 1); });
        queue_both(c, from, a, q, b);
        await_either(from, a, q, b);
        sender.join();
        MODEL_REQUIRE(a.got.has_value() != b.is_granted());
        MODEL_REQUIRE(q.available() == (a.got ? 1 : 0) && from.size() == (a.got ? 0 : 1));
    });
    model::check("choice: an item while an event is looked at", [] {
        awake_core from(1);
        gate g(0);
        awake_choice c;
        awake_receiving a;
        passing b;
        contest(c, a, b);
        model::thread sender([&] { put(from, 1); });
        queue_both(c, from, a, g, b);
        await_either(from, a, g, b);
        sender.join();
        MODEL_REQUIRE(a.got.has_value() != b.is_granted());
        MODEL_REQUIRE(from.size() == (a.got ? 0 : 1));
    });
    model::check("choice: an item while a place is looked for", [] {
        awake_core from(1);
        awake_core to(1);
        awake_choice c;
        awake_receiving a;
        awake_sending b(2);
        contest(c, a, b);
        offer(to, 3);
        model::thread other([&] {
            put(from, 1);
            get(to);
        });
        queue_both(c, from, a, to, b);
        await_either(from, a, to, b);
        other.join();
        MODEL_REQUIRE(a.got.has_value() != b.is_gone());
        MODEL_REQUIRE(from.size() == (a.got ? 0 : 1) && to.size() == (a.got ? 0 : 1));
    });
}

// Each choice sends on one channel and receives on the other, and queues its waits in its own
// order.
class meeting {
public:
    struct one {
        explicit one(int v, awake_choice& c, awake_core& out, awake_core& in) noexcept
            : value(v), of(c), to(out), from(in), s(v) {
            contest(c, s, r);
        }
        // Queues both waits, or the second one if the first is queued.
        void queue(bool sends_first) {
            sends_first ? queue_both(of, to, s, from, r) : queue_both(of, from, r, to, s);
        }
        // Returns true if it has sent.
        bool end() {
            await_either(to, s, from, r);
            MODEL_REQUIRE(s.is_gone() != r.got.has_value());
            MODEL_REQUIRE(!r.got || r.take() == 3 - value);
            return s.is_gone();
        }
        int value;
        awake_choice& of;
        awake_core& to;
        awake_core& from;
        awake_sending s;
        awake_receiving r;
    };

    one mine() { return one(1, choices_[first_], a_, b_); }
    one yours() { return one(2, choices_[1 - first_], b_, a_); }

private:
    std::array<awake_choice, 2> choices_; // an array: one has the lower address
    std::size_t first_ = static_cast<std::size_t>(model::choose(2));
    awake_core a_{0};
    awake_core b_{0};
};

void two_that_queue_both() {
    const bool mine_first = model::choose(2) == 0;
    const bool yours_first = model::choose(2) == 0;
    meeting m;
    bool other = false;
    model::thread t([&] {
        auto yours = m.yours();
        yours.queue(yours_first);
        other = yours.end();
    });
    auto mine = m.mine();
    mine.queue(mine_first);
    const bool sent = mine.end();
    t.join();
    MODEL_REQUIRE(sent != other);
}

// One wait of each choice is queued first, and then the other waits, on two threads.
void two_that_queue_the_second(bool sends) {
    meeting m;
    auto mine = m.mine();
    auto yours = m.yours();
    const auto queue = [](meeting::one& o, bool send) {
        send ? o.s.enqueue(o.to) : o.r.enqueue(o.from);
    };
    queue(mine, !sends);
    queue(yours, !sends);
    model::thread t([&] { queue(yours, sends); });
    queue(mine, sends);
    t.join();
    const bool sent = mine.end();
    MODEL_REQUIRE(sent != yours.end());
}

TEST_CASE("choice: two choices that could meet on two channels meet on one", "[long]") {
    model::check("choice: the sends are queued, then the receives",
                 [] { two_that_queue_the_second(false); });
    model::check("choice: two that queue both", random_or_long(5'000), two_that_queue_both);
    model::check("choice: the receives are queued, then the sends",
                 model::brief_or_long(random(5'000), {}), [] { two_that_queue_the_second(true); });
}

TEST_CASE("choice: it does not match its own two cases") {
    model::check("choice: sends and receives on one channel", [] {
        awake_core c(0);
        awake_choice mine;
        awake_sending s(1);
        awake_receiving r;
        contest(mine, s, r);
        bool sends = false;
        int got = 0;
        model::thread other([&] {
            sends = model::choose(2) == 0;
            if (sends) {
                put(c, 2);
            } else {
                got = get(c);
            }
        });
        queue_both(mine, c, s, c, r);
        await_either(c, s, c, r);
        other.join();
        MODEL_REQUIRE(sends ? r.got && r.take() == 2 : s.is_gone() && got == 1);
    });
    // The receiver serves the waiting senders, and its own case is one of them.
    model::check("choice: sends and receives on one channel, capacity 1", [] {
        awake_core c(1);
        offer(c, 1);
        awake_choice mine;
        awake_sending s(2);
        awake_receiving r;
        contest(mine, s, r);
        int other = 0;
        model::thread t([&] { other = poll(c); });
        queue_both(mine, c, s, c, r);
        await_either(c, s, c, r);
        t.join();
        MODEL_REQUIRE(s.is_gone() != r.got.has_value());
        const int got = r.got ? r.take() : 0;
        MODEL_REQUIRE(other + got + poll(c) == (s.is_gone() ? 3 : 1));
    });
}

// Two releasers decide at once. One of them finds no item and abandons its claim.
TEST_CASE("choice: an abandoned claim hides no wait from another releaser") {
    model::check("choice: claimed in vain by one, in earnest by the other", [] {
        awake_core left(0);
        awake_core right(1);
        awake_choice c;
        awake_receiving a;
        awake_receiving b;
        contest(c, a, b);
        a.enqueue(left);
        b.enqueue(right);
        awake_receiving behind;
        // Checks whether the first waiter can be served: it cannot.
        model::thread looking([&] { behind.enqueue(left); });
        MODEL_REQUIRE(offer(right, 1) == wait_status::granted);
        looking.join();
        MODEL_REQUIRE(b.got && b.take() == 1);
        a.cancel(left);
        MODEL_REQUIRE(behind.cancel(left));
    });
}

} // namespace
