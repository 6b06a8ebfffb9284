// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_REGISTRY_HPP
#define BIDE_TASK_DETAIL_TASK_REGISTRY_HPP

// A list of the tasks that have waited. The shutdown of the scheduler cancels them, and a dump
// shows them. A task that never waits is never listed. Each worker has one list, with a lock. A
// task is in the list of the worker on which it first waited, until the task ends.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_task_header;

template <class Platform> class basic_task_registry {
    using header = basic_task_header<Platform>;

public:
    constexpr basic_task_registry() noexcept = default;
    basic_task_registry(const basic_task_registry&) = delete;
    basic_task_registry& operator=(const basic_task_registry&) = delete;

    // Adds a task. Returns false if close() was called before: for_each() may have passed already,
    // so the caller must cancel the task.
    bool add(header& t) noexcept {
        lock::acquire(lock_);
        push(t);
        const bool open = !closed_;
        lock::release(lock_);
        return open;
    }

    void remove(header& t) noexcept {
        lock::acquire(lock_);
        unlink(t);
        lock::release(lock_);
    }

    // Makes each later add() return false.
    void close() noexcept {
        lock::acquire(lock_);
        closed_ = true;
        lock::release(lock_);
    }

    // Calls visit(header&) for each task that is listed during the whole call. The visited task has
    // a reference, and the lock is free.
    // Requires: one caller at a time.
    template <class Visit> void for_each(Visit&& visit) {
        lock::acquire(lock_);
        for (std::size_t left = size_; left != 0 && first_ != nullptr; --left) {
            header& t = *first_;
            unlink(t);
            push(t); // to the end, so that the next iteration visits another task
            t.add_reference();
            lock::release(lock_);
            visit(t);
            t.drop_reference();
            lock::acquire(lock_);
        }
        lock::release(lock_);
    }

    // Appends all listed tasks to `out`, each with a reference.
    // Throws: std::bad_alloc.
    template <class Vector> void snapshot(Vector& out) {
        std::size_t expected = 0;
        for (;;) {
            out.reserve(out.size() + expected);
            lock::acquire(lock_);
            const std::size_t there = size_;
            if (there <= expected) {
                for (header* t = first_; t != nullptr; t = t->registry_next) {
                    t->add_reference();
                    out.push_back(t);
                }
            }
            lock::release(lock_);
            if (there <= expected) {
                return;
            }
            expected = there + there / 8;
        }
    }

private:
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    void push(header& t) noexcept {
        header* const last = last_;
        t.registry_next = nullptr;
        t.registry_prev = last;
        if (last == nullptr) {
            first_ = &t;
        } else {
            last->registry_next = &t;
        }
        last_ = &t;
        size_ = size_ + 1;
    }

    void unlink(header& t) noexcept {
        header* const next = t.registry_next;
        header* const prev = t.registry_prev;
        if (prev == nullptr) {
            first_ = next;
        } else {
            prev->registry_next = next;
        }
        if (next == nullptr) {
            last_ = prev;
        } else {
            next->registry_prev = prev;
        }
        size_ = size_ - 1;
    }

    typename Platform::template atomic<word> lock_{0};
    var<header*> first_{nullptr};
    var<header*> last_{nullptr};
    var<std::size_t> size_{0};
    var<bool> closed_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
