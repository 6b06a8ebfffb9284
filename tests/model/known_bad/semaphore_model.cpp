// A counter of permits with a list of waiters behind it: how a permit goes astray between the two,
// and how a releaser touches what the one it served has already destroyed.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

struct counter {
    word permits{0};
    spin_lock lock;
    waiter_list waiting;

    bool take() noexcept {
        std::uint32_t seen = permits.load(order::relaxed);
        while (seen != 0 &&
               !permits.compare_exchange_strong(seen, seen - 1, order::acquire, order::relaxed)) {
        }
        return seen != 0;
    }
    // A waiter before the count.
    void release() {
        lock.lock();
        waiter* const first = waiting.pop();
        if (first == nullptr) {
            permits.fetch_add(1, order::release);
        }
        lock.unlock();
        if (first != nullptr) {
            first->rung.ring();
        }
    }
};

// A release between the failed try and the queueing finds an empty queue: the permit goes to
// the count, and its waiter to sleep beside it.
struct decides_before_it_locks : counter {
    void acquire() {
        if (take()) {
            return;
        }
        waiter me;
        lock.lock();
        waiting.push(&me);
        lock.unlock();
        me.rung.wait();
    }
};

// Repaired: another try, which decides, under the lock that release() takes, too.
struct decides_under_the_lock : counter {
    void acquire() {
        if (take()) {
            return;
        }
        waiter me;
        lock.lock();
        const bool taken = take();
        if (!taken) {
            waiting.push(&me);
        }
        lock.unlock();
        if (!taken) {
            me.rung.wait();
        }
    }
};

template <class Semaphore> void one_permit() {
    Semaphore s;
    var<int> work{0};
    model::thread waits([&] {
        s.acquire();
        MODEL_REQUIRE(work == 42);
    });
    work = 42;
    s.release();
}

} // namespace

TEST_CASE("known bad: a semaphore that decides to wait before it locks strands a waiter",
          "[known_bad]") {
    model::find("try, then lock", failure::lost_wakeup, {}, one_permit<decides_before_it_locks>);
    model::check("lock, then try", {}, one_permit<decides_under_the_lock>);
}

// ---- Giving up

namespace {

// A waiter that is no longer in the queue holds a permit, whether it wants it or not.
struct cancel_ignores_the_grant : decides_under_the_lock {
    // Gives up at once. True: the caller has a permit.
    bool acquire_or_give_up() {
        waiter me;
        lock.lock();
        if (take()) {
            lock.unlock();
            return true;
        }
        waiting.push(&me);
        lock.unlock();

        lock.lock();
        const bool granted = !waiting.remove(&me);
        lock.unlock();
        if (granted) {
            me.rung.wait(); // the releaser still has to ring
        }
        return false;
    }
};

// Repaired: the canceller is told that it was granted.
struct cancel_reports_the_grant : decides_under_the_lock {
    bool acquire_or_give_up() {
        waiter me;
        lock.lock();
        if (take()) {
            lock.unlock();
            return true;
        }
        waiting.push(&me);
        lock.unlock();

        lock.lock();
        const bool granted = !waiting.remove(&me);
        lock.unlock();
        if (granted) {
            me.rung.wait();
        }
        return granted;
    }
};

// Permits held and permits left must come to what was released.
template <class Semaphore> void one_permit_given_up() {
    Semaphore s;
    model::thread releaser([&] { s.release(); });
    const bool held = s.acquire_or_give_up();
    releaser.join();
    MODEL_REQUIRE(s.permits.load(order::relaxed) + (held ? 1 : 0) == 1);
}

} // namespace

TEST_CASE("known bad: a cancellation that ignores the grant loses a permit", "[known_bad]") {
    model::find("cancel ignores the grant", failure::assertion, {},
                one_permit_given_up<cancel_ignores_the_grant>);
    model::check("cancel reports the grant", {}, one_permit_given_up<cancel_reports_the_grant>);
}

// ---- The last touch

namespace {

// A waiter, as the releaser sees it. It may sleep elsewhere than on its own word.
struct node {
    word granted{0};
    var<word*> sleeps_on{&granted};
};

// The owner may see the grant before it is woken and return, and with it goes the node.
void grant_and_then_read(node* n) noexcept {
    n->granted.store(1, order::release);
    bide::futex_wake<platform>(static_cast<word*>(n->sleeps_on), 1);
}

// Repaired: what is needed is read before. The grant is the last touch, the wake uses the address
// alone.
void read_and_then_grant(node* n) noexcept {
    word* const address = n->sleeps_on;
    n->granted.store(1, order::release);
    bide::futex_wake<platform>(address, 1);
}

void one_grant(void (*grant)(node*) noexcept) {
    node* const n = new node;
    model::thread releaser([=] { grant(n); });
    while (n->granted.load(order::acquire) == 0) {
        bide::futex_wait<platform>(n->granted, std::uint32_t{0});
    }
    delete n;
}

// The permit is there for all to see, the lock is still held: a thread that takes the permit may destroy
// the semaphore under the unlock.
struct unlocks_after_the_grant : decides_under_the_lock {
    void release() {
        lock.lock();
        if (waiter* const first = waiting.pop()) {
            first->rung.ring();
        } else {
            permits.fetch_add(1, order::release);
        }
        lock.unlock();
    }
};

// Repaired: permits and lock are one word. A permit comes free with the lock, in one step; a waiter
// is served after it, and by then belongs to the releaser.
struct unlocks_with_the_grant {
    static constexpr std::uint32_t locked = 1;
    static constexpr std::uint32_t one = 2;
    word state{0};
    waiter_list waiting;

    // The state as it was, without the lock.
    std::uint32_t lock() noexcept {
        std::uint32_t seen = state.load(order::relaxed);
        for (;;) {
            if ((seen & locked) != 0) {
                platform::pause();
                seen = state.load(order::relaxed);
            } else if (state.compare_exchange_strong(seen, seen | locked, order::acquire,
                                                     order::relaxed)) {
                return seen;
            }
        }
    }
    void acquire() {
        waiter me;
        if (lock() >= one) {
            state.fetch_sub(one + locked, order::release);
            return;
        }
        waiting.push(&me);
        state.fetch_sub(locked, order::release);
        me.rung.wait();
    }
    void release() {
        lock();
        if (waiter* const first = waiting.pop()) {
            state.fetch_sub(locked, order::release);
            first->rung.ring();
        } else {
            state.fetch_add(one - locked, order::release);
        }
    }
};

template <class Semaphore> void destroyed_by_the_served() {
    auto* const s = new Semaphore;
    model::thread releaser([=] { s->release(); });
    s->acquire();
    delete s;
}

} // namespace

TEST_CASE("known bad: a releaser that reads the node after the grant reads freed memory",
          "[known_bad]") {
    model::find("grant, then read", failure::lifetime, {}, [] { one_grant(grant_and_then_read); });
    model::check("read, then grant", {}, [] { one_grant(read_and_then_grant); });
}

TEST_CASE("known bad: a release that unlocks after the grant touches a destroyed semaphore",
          "[known_bad]") {
    model::find("grant, then unlock", failure::lifetime, {},
                destroyed_by_the_served<unlocks_after_the_grant>);
    model::check("grant and unlock in one step", {},
                 destroyed_by_the_served<unlocks_with_the_grant>);
}
