// A lock-free count of items, and receivers that sleep in a list under a lock. A flag tells senders
// whether to look into the list; every wake that is taken out of it must end at a waiter that uses
// it.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

// [flag] A sender adds an item and reads the flag, a receiver sets the flag and looks for an item:
// a pair, all four seq_cst.
struct queue {
    word items{0};
    word anyone{0};
    spin_lock lock;
    waiter_list waiting;

    bool take() noexcept {
        std::uint32_t seen = items.load(order::seq_cst);
        while (seen != 0 &&
               !items.compare_exchange_strong(seen, seen - 1, order::relaxed, order::relaxed)) {
        }
        return seen != 0;
    }
    // True: it is queued. False: it has got an item.
    bool enter(waiter& me) {
        lock.lock();
        anyone.store(1, order::seq_cst);
        const bool queued = !take();
        if (queued) {
            waiting.push(&me);
        } else {
            lower_the_flag();
        }
        lock.unlock();
        return queued;
    }
    void lower_the_flag() noexcept {
        if (waiting.empty()) {
            anyone.store(0, order::relaxed);
        }
    }
    void wake_one() {
        lock.lock();
        waiter* const first = waiting.pop();
        lock.unlock();
        if (first != nullptr) {
            first->rung.ring();
        }
    }
    void send() {
        items.fetch_add(1, order::seq_cst);
        if (anyone.load(order::seq_cst) != 0) {
            wake_one();
        }
    }
    void receive() {
        waiter me;
        while (enter(me)) {
            me.rung.wait();
        }
    }
};

// A place for one receiver, so that senders need no lock: a sender finds the place empty, a
// receiver takes it, and the sender looks into the list, which is empty, too.
struct fast_place_beside_the_list : queue {
    platform::atomic<waiter*> fast{nullptr};

    void send() {
        items.fetch_add(1, order::seq_cst);
        if (anyone.load(order::seq_cst) == 0) {
            return;
        }
        if (waiter* const w = fast.exchange(nullptr, order::acq_rel)) {
            w->rung.ring();
        } else {
            wake_one();
        }
    }
    void receive() {
        waiter me;
        for (;;) {
            lock.lock();
            anyone.store(1, order::seq_cst);
            if (take()) {
                lock.unlock();
                return;
            }
            waiter* none = nullptr;
            if (!fast.compare_exchange_strong(none, &me, order::release, order::relaxed)) {
                waiting.push(&me);
            }
            lock.unlock();
            me.rung.wait();
        }
    }
};

// The flag is lowered for a list that was empty, on one that is not any more.
struct flag_lowered_without_the_lock : queue {
    void receive() {
        waiter me;
        for (;;) {
            lock.lock();
            anyone.store(1, order::seq_cst);
            if (take()) {
                const bool last = waiting.empty();
                lock.unlock();
                if (last) {
                    anyone.store(0, order::relaxed);
                }
                return;
            }
            waiting.push(&me);
            lock.unlock();
            me.rung.wait();
        }
    }
};

// Repaired: one list and its flag, both changed under the lock.
using one_list_and_its_flag = queue;

template <class Queue> void one_item() {
    Queue q;
    model::thread receiver([&] { q.receive(); });
    q.send();
}

template <class Queue> void two_items() {
    Queue q;
    model::thread receiver([&] { q.receive(); });
    model::thread other([&] { q.receive(); });
    q.send();
    q.send();
}

} // namespace

TEST_CASE("known bad: a place for one waiter beside the list loses a wake", "[known_bad]") {
    model::find("a place beside the list", failure::lost_wakeup, {},
                one_item<fast_place_beside_the_list>);
    model::check("one list", {}, one_item<one_list_and_its_flag>);
}

TEST_CASE("known bad: a flag that is lowered without the lock loses a wake", "[known_bad]") {
    model::find("lowered without the lock", failure::lost_wakeup, {},
                two_items<flag_lowered_without_the_lock>);
    model::check("lowered under the lock", {}, two_items<one_list_and_its_flag>);
}

// ---- Giving up

namespace {

// A popped waiter was given a wake. To give up then is to take it along.
struct cancel_drops_the_wake : queue {
    // Gives up at once. True: it has got an item.
    bool receive_or_give_up() {
        waiter me;
        if (!enter(me)) {
            return true;
        }
        lock.lock();
        const bool popped = !waiting.remove(&me);
        lock.unlock();
        if (popped) {
            me.rung.wait(); // the sender still has to ring
        }
        return false;
    }
};

// Repaired: the wake goes to the next.
struct cancel_passes_the_wake_on : queue {
    bool receive_or_give_up() {
        waiter me;
        if (!enter(me)) {
            return true;
        }
        lock.lock();
        const bool popped = !waiting.remove(&me);
        lock.unlock();
        if (popped) {
            me.rung.wait();
            wake_one();
        }
        return false;
    }
};

template <class Queue> void one_gives_up() {
    Queue q;
    model::thread receiver([&] { q.receive(); });
    model::thread sender([&] { q.send(); });
    if (q.receive_or_give_up()) {
        q.send(); // for the other
    }
}

} // namespace

TEST_CASE("known bad: a cancelled waiter that drops its wake strands another", "[known_bad]") {
    model::find("cancel drops the wake", failure::lost_wakeup, {},
                one_gives_up<cancel_drops_the_wake>);
    model::check("cancel passes the wake on", {}, one_gives_up<cancel_passes_the_wake_on>);
}
