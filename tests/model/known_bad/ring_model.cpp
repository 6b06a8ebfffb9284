// A ring of slots that a sender claims and publishes in two steps. In between the slot is neither
// empty nor full: a receiver that takes it for empty leaves an item behind.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

struct ring {
    word tail{0}; // slots claimed
    std::array<word, 2> published{};
    std::array<var<int>, 2> items{};
    spin_lock lock;
    var<std::uint32_t> head{0}; // slots taken; under the lock
    waiter_list waiting;

    void put(int item) noexcept {
        const std::uint32_t slot = tail.fetch_add(1, order::relaxed);
        items[slot] = item;
        published[slot].store(1, order::release);
    }
    // Under the lock.
    bool may_take() noexcept { return head < 2 && published[head].load(order::acquire) != 0; }
    int take() noexcept {
        const int item = items[head];
        head = head + 1;
        return item;
    }
    void wake_one() {
        lock.lock();
        waiter* const first = waiting.pop();
        lock.unlock();
        if (first != nullptr) {
            first->rung.ring();
        }
    }
};

// A sender that has claimed the first slot stalls; another publishes the second one and wakes a
// receiver, which finds the first unpublished, takes the ring for empty and sleeps again. The first
// sender then wakes one receiver for the two items.
struct one_wake_for_one_item : ring {
    void send(int item) {
        put(item);
        wake_one();
    }
    int receive() {
        waiter me;
        lock.lock();
        while (!may_take()) {
            waiting.push(&me);
            lock.unlock();
            me.rung.wait();
            lock.lock();
        }
        const int item = take();
        lock.unlock();
        return item;
    }
};

// Repaired: a receiver that takes an item and knows of more claimed slots wakes the next.
struct taker_wakes_the_next : one_wake_for_one_item {
    int receive() {
        const int item = one_wake_for_one_item::receive();
        lock.lock();
        const bool more = tail.load(order::relaxed) != head;
        lock.unlock();
        if (more) {
            wake_one();
        }
        return item;
    }
};

// Repaired another way: a wake is an item. A thread that has changed something serves all threads that can be
// served, under the lock.
struct wake_is_an_item : ring {
    void send(int item) {
        put(item);
        lock.lock();
        settle();
    }
    int receive() {
        waiter me;
        lock.lock();
        waiting.push(&me);
        settle();
        me.rung.wait();
        return me.item;
    }
    // Called with the lock held, returns without.
    void settle() {
        waiter_list served;
        while (!waiting.empty() && may_take()) {
            waiter* const first = waiting.pop();
            first->item = take();
            served.push(first);
        }
        lock.unlock();
        while (waiter* const one = served.pop()) {
            one->rung.ring();
        }
    }
};

template <class Ring> void two_senders_two_receivers() {
    Ring r;
    int first = 0;
    model::thread receiver([&] { first = r.receive(); });
    model::thread sender([&] { r.send(1); });
    model::thread other([&] { r.send(2); });
    const int second = r.receive();
    receiver.join();
    MODEL_REQUIRE(first + second == 3);
}

constexpr model::options at_random{.how = model::options::method::pct};

} // namespace

TEST_CASE("known bad: a claimed slot that is taken for empty strands an item", "[known_bad]") {
    model::find("one wake for one item", failure::lost_wakeup, {},
                two_senders_two_receivers<one_wake_for_one_item>);
    model::find("one wake for one item, at random", failure::lost_wakeup, at_random,
                two_senders_two_receivers<one_wake_for_one_item>);
    model::check("a wake is an item", {}, two_senders_two_receivers<wake_is_an_item>);
    model::check("the taker wakes the next, at random", at_random,
                 two_senders_two_receivers<taker_wakes_the_next>);
}

TEST_CASE("known bad: no item is stranded where the taker wakes the next", "[known_bad][.long]") {
    model::check("the taker wakes the next", {}, two_senders_two_receivers<taker_wakes_the_next>);
}

// ---- Closing

namespace {

struct slot {
    static constexpr std::uint32_t mark = 0x80000000; // of tail: closed
    word tail{0};
    word published{0};
    var<int> item{0};

    void publish() noexcept {
        item = 42;
        published.store(1, order::release);
    }
};

// A sender that has seen the flag down is accepted, after the receiver has seen it up.
struct closed_flag_beside_the_tail : slot {
    word closed{0};

    bool send() noexcept {
        if (closed.load(order::seq_cst) != 0) {
            return false;
        }
        tail.fetch_add(1, order::seq_cst);
        publish();
        return true;
    }
    void close() noexcept { closed.store(1, order::seq_cst); }
    // False: closed and drained.
    bool receive() noexcept {
        while (tail.load(order::seq_cst) == 0) {
            if (closed.load(order::seq_cst) != 0) {
                return false;
            }
            platform::pause();
        }
        while (published.load(order::acquire) == 0) {
            platform::pause();
        }
        return item == 42;
    }
};

struct mark_in_the_tail : slot {
    bool send() noexcept {
        std::uint32_t seen = 0;
        if (!tail.compare_exchange_strong(seen, 1, order::relaxed, order::relaxed)) {
            return false; // marked
        }
        publish();
        return true;
    }
    void close() noexcept { tail.fetch_or(mark, order::relaxed); }
};

// The mark is where it belongs, but the slot is asked whether there is an item: it lags behind.
struct closed_by_the_slot : mark_in_the_tail {
    bool receive() noexcept {
        while (published.load(order::acquire) == 0) {
            if ((tail.load(order::relaxed) & mark) != 0) {
                return false;
            }
            platform::pause();
        }
        return item == 42;
    }
};

// Repaired: closed is a bit of the word that sends are counted in, and drained is decided there. A
// claimed slot is waited for.
struct closed_by_the_tail : mark_in_the_tail {
    bool receive() noexcept {
        for (;;) {
            const std::uint32_t seen = tail.load(order::relaxed);
            if (seen == mark) {
                return false;
            }
            if (seen != 0) {
                break;
            }
            platform::pause();
        }
        while (published.load(order::acquire) == 0) {
            platform::pause();
        }
        return item == 42;
    }
};

// What was accepted must be received.
template <class Channel> void send_and_close() {
    Channel c;
    bool accepted = false;
    model::thread sender([&] { accepted = c.send(); });
    c.close();
    const bool received = c.receive();
    sender.join();
    MODEL_REQUIRE(received == accepted);
}

} // namespace

TEST_CASE("known bad: a closed flag beside the tail loses an accepted item", "[known_bad]") {
    model::find("a flag beside the tail", failure::assertion, {},
                send_and_close<closed_flag_beside_the_tail>);
    model::find("closed by the slot", failure::assertion, {}, send_and_close<closed_by_the_slot>);
    model::check("closed by the tail", {}, send_and_close<closed_by_the_tail>);
}
