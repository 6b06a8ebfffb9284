// What textbooks wait and communicate with, on the simulated platform. None spins before it sleeps,
// unless its name says that it spins. More locks: tests/model/locks.hpp.
#ifndef BIDE_BENCH_SIMULATED_PEERS_HPP
#define BIDE_BENCH_SIMULATED_PEERS_HPP

#include <bide/model/simulated_platform.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace simulated {

using platform = bide::model::simulated_platform;
template <class T> using atomic = platform::atomic<T>;
using enum std::memory_order;

// Sleeps while `word` contains `expected`.
template <class Word> void sleep_on(const atomic<Word>& word, Word expected) {
    platform::futex_wait(word, expected, (std::numeric_limits<std::int64_t>::max)());
}
inline constexpr int all_sleepers = (std::numeric_limits<int>::max)();

// Drepper, "Futexes Are Tricky", section 5: 0 free, 1 locked, 2 locked with sleepers.
class futex_mutex {
public:
    void lock() {
        unsigned seen = 0;
        if (!word_.compare_exchange_strong(seen, 1, acquire)) {
            while (word_.exchange(2, acquire) != 0) {
                sleep_on(word_, 2u);
            }
        }
    }
    void unlock() {
        if (word_.exchange(0, release) == 2) {
            platform::futex_wake(&word_, 1);
        }
    }

private:
    atomic<unsigned> word_{0};
};

// For readers alone: a writer would set the lowest bit.
class one_counter_lock {
public:
    void lock_shared() {
        while ((readers_.fetch_add(2, acquire) & 1) != 0) {
            readers_.fetch_sub(2, relaxed);
            platform::pause();
        }
    }
    void unlock_shared() { readers_.fetch_sub(2, release); }

private:
    atomic<unsigned> readers_{0};
};

// A count, and the number of sleepers, so that a release without sleepers makes no call.
class futex_semaphore {
public:
    explicit futex_semaphore(int count) : count_(count) {}

    void acquire() {
        while (!try_acquire()) {
            sleepers_.fetch_add(1);
            sleep_on(count_, 0);
            sleepers_.fetch_sub(1);
        }
    }
    void release() {
        count_.fetch_add(1);
        if (sleepers_.load() != 0) {
            platform::futex_wake(&count_, 1);
        }
    }

private:
    bool try_acquire() {
        for (int seen = count_.load(relaxed); seen > 0;) {
            if (count_.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire)) {
                return true;
            }
        }
        return false;
    }

    atomic<int> count_;
    atomic<int> sleepers_{0};
};

// Opens at a count of zero, and wakes all sleepers by one call: a latch, and with 1 an event.
class futex_gate {
public:
    explicit futex_gate(unsigned count = 1) : count_(count) {}

    void count_down() {
        if (count_.fetch_sub(1) == 1) {
            platform::futex_wake(&count_, all_sleepers);
        }
    }
    void set() { count_down(); }
    void wait() {
        for (unsigned seen = count_.load(acquire); seen != 0; seen = count_.load(acquire)) {
            sleep_on(count_, seen);
        }
    }

private:
    atomic<unsigned> count_;
};

// Mellor-Crummey and Scott, 1991, section 3.1. The number of the phase is the sense.
template <bool Spins> class central_barrier {
public:
    explicit central_barrier(unsigned threads) : threads_(threads), missing_(threads) {}

    void arrive_and_wait() {
        const unsigned phase = phase_.load(relaxed);
        if (missing_.fetch_sub(1) == 1) {
            missing_.store(threads_, relaxed);
            phase_.store(phase + 1, release);
            if (!Spins) {
                platform::fence(seq_cst);
                platform::futex_wake(&phase_, all_sleepers);
            }
            return;
        }
        while (phase_.load(acquire) == phase) {
            if (Spins) {
                platform::pause();
            } else {
                sleep_on(phase_, phase);
            }
        }
    }

private:
    const unsigned threads_;
    atomic<unsigned> missing_;
    alignas(64) atomic<unsigned> phase_{0};
};

// A condition variable of a futex_mutex.
class futex_condition {
public:
    void wait(futex_mutex& m) {
        const unsigned seen = epoch_.load(relaxed);
        m.unlock();
        sleep_on(epoch_, seen);
        m.lock();
    }
    void notify(int count) {
        epoch_.fetch_add(1);
        platform::futex_wake(&epoch_, count);
    }

private:
    atomic<unsigned> epoch_{0};
};

// A ring under one mutex, with two condition variables. A notification that no thread waits for
// makes no call.
class locked_queue {
public:
    // `woken`: how many waiters are woken for an item, and for a place.
    explicit locked_queue(std::size_t capacity, int woken = 1) : ring_(capacity), woken_(woken) {}

    void send(unsigned item) {
        mutex_.lock();
        wait_while(not_full_, senders_, [&] { return end_ - begin_ == ring_.size(); });
        ring_[end_ % ring_.size()] = item;
        end_ = end_ + 1;
        finish(not_empty_, receivers_);
    }
    std::optional<unsigned> recv() {
        mutex_.lock();
        wait_while(not_empty_, receivers_, [&] { return begin_ == end_ && closed_ == 0; });
        if (begin_ == end_) {
            mutex_.unlock();
            return std::nullopt;
        }
        const unsigned item = ring_[begin_ % ring_.size()];
        begin_ = begin_ + 1;
        finish(not_full_, senders_);
        return item;
    }
    void close() {
        mutex_.lock();
        closed_ = 1;
        mutex_.unlock();
        not_empty_.notify(all_sleepers);
    }

private:
    using count = platform::var<std::size_t>;

    template <class Condition> void wait_while(futex_condition& on, count& waiters, Condition c) {
        while (c()) {
            waiters = waiters + 1;
            on.wait(mutex_);
            waiters = waiters - 1;
        }
    }
    void finish(futex_condition& on, const count& waiters) {
        const bool is_awaited = waiters != 0;
        mutex_.unlock();
        if (is_awaited) {
            on.notify(woken_);
        }
    }

    futex_mutex mutex_;
    count begin_{0}, end_{0}, senders_{0}, receivers_{0}, closed_{0};
    futex_condition not_full_, not_empty_;
    std::vector<platform::var<unsigned>> ring_;
    const int woken_;
};

// Vyukov's bounded queue: each place has a number that says whose turn it is. Waiters spin.
class spinning_ring {
public:
    explicit spinning_ring(std::size_t capacity) : places_(capacity) {
        for (std::size_t i = 0; i < capacity; ++i) {
            places_[i].turn.store(i, relaxed);
        }
    }

    void send(unsigned item) {
        claim(end_, 0, [&](place& at, std::size_t turn) {
            at.item = item;
            at.turn.store(turn + 1, release);
        });
    }
    std::optional<unsigned> recv() {
        unsigned item = 0;
        const bool found = claim(begin_, 1, [&](place& at, std::size_t turn) {
            item = at.item;
            at.turn.store(turn + places_.size(), release);
        });
        return found ? std::optional(item) : std::nullopt;
    }
    void close() { closed_.store(1, release); }

private:
    struct place {
        atomic<std::size_t> turn{0};
        platform::var<unsigned> item{0};
    };

    // Claims the place at `index` when its number is index + ahead. Returns false if the queue is
    // closed and empty.
    template <class Use> bool claim(atomic<std::size_t>& index, std::size_t ahead, Use use) {
        for (;;) {
            std::size_t mine = index.load(relaxed);
            place& at = places_[mine % places_.size()];
            const std::size_t turn = at.turn.load(acquire);
            if (turn == mine + ahead) {
                if (index.compare_exchange_weak(mine, mine + 1, relaxed)) {
                    use(at, mine);
                    return true;
                }
            } else if (turn < mine + ahead) { // full, or empty
                if (ahead == 1 && closed_.load(acquire) != 0 && end_.load(acquire) == mine) {
                    return false;
                }
                platform::pause();
            }
        }
    }

    alignas(128) atomic<std::size_t> begin_{0};
    alignas(128) atomic<std::size_t> end_{0};
    alignas(128) atomic<unsigned> closed_{0};
    std::vector<place> places_;
};

// Hanson's synchronous queue: a sender returns when a receiver has its item.
class three_semaphores {
public:
    void send(unsigned item) {
        may_send_.acquire();
        item_ = item;
        has_item_.release();
        taken_.acquire();
    }
    std::optional<unsigned> recv() {
        has_item_.acquire();
        if (closed_.load() != 0) {
            has_item_.release(); // for the next receiver
            return std::nullopt;
        }
        const unsigned item = item_;
        taken_.release();
        may_send_.release();
        return item;
    }
    void close() {
        closed_.store(1);
        has_item_.release();
    }

private:
    futex_semaphore may_send_{1}, has_item_{0}, taken_{0};
    atomic<unsigned> closed_{0};
    platform::var<unsigned> item_{0};
};

} // namespace simulated

#endif
