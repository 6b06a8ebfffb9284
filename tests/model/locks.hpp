#ifndef BIDE_TESTS_MODEL_LOCKS_HPP
#define BIDE_TESTS_MODEL_LOCKS_HPP

// Locks of the textbooks, on the simulated platform.

#include <bide/model/simulated_platform.hpp>

using spinning = bide::model::simulated_platform;

struct tas_lock {
    spinning::atomic<int> word{0};

    void lock() {
        while (word.exchange(1) != 0) {
            spinning::pause();
        }
    }
    void unlock() { word.store(0, std::memory_order_release); }
};

struct ttas_lock {
    spinning::atomic<int> word{0};

    void lock() {
        while (word.exchange(1) != 0) {
            while (word.load() != 0) {
                spinning::pause();
            }
        }
    }
    void unlock() { word.store(0, std::memory_order_release); }
};

struct ticket_lock {
    spinning::atomic<unsigned> next{0}, serving{0};

    void lock() {
        const unsigned mine = next.fetch_add(1);
        while (serving.load() != mine) {
            spinning::pause();
        }
    }
    void unlock() { serving.store(serving.load() + 1, std::memory_order_release); }
};

struct mcs_lock {
    struct alignas(64) node {
        spinning::atomic<node*> next{nullptr};
        spinning::atomic<bool> waits{false};
    };
    spinning::atomic<node*> tail{nullptr};

    void lock() {
        node& mine = spinning::local<node>();
        mine.next.store(nullptr, std::memory_order_relaxed);
        mine.waits.store(true, std::memory_order_relaxed);
        if (node* const before = tail.exchange(&mine)) {
            before->next.store(&mine, std::memory_order_release);
            while (mine.waits.load()) {
                spinning::pause();
            }
        }
    }
    void unlock() {
        node& mine = spinning::local<node>();
        if (mine.next.load() == nullptr) {
            node* expected = &mine;
            if (tail.compare_exchange_strong(expected, nullptr)) {
                return;
            }
            while (mine.next.load() == nullptr) {
                spinning::pause();
            }
        }
        mine.next.load()->waits.store(false, std::memory_order_release);
    }
};

#endif
