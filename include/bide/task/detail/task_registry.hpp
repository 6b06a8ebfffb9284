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

// The links of a task in a list, which sets them. Node derives from this. The lock of the list's
// owner guards them.
template <class Platform, class Node> struct basic_task_links {
    typename Platform::template var<Node*> next_in_list;
    typename Platform::template var<Node*> prev_in_list;
};

// A list of tasks, for an owner with a lock: a registry, or a group (sched/detail/group.hpp).
// Requires, for all functions: the caller holds the lock.
template <class Platform, class Node> class basic_task_list {
public:
    constexpr basic_task_list() noexcept = default;
    basic_task_list(const basic_task_list&) = delete;
    basic_task_list& operator=(const basic_task_list&) = delete;

    Node* first() const noexcept { return first_; }

    void push_front(Node& n) noexcept { link(nullptr, n, first_); }
    void push_back(Node& n) noexcept { link(last_, n, nullptr); }

    void remove(Node& n) noexcept {
        Node* const next = n.next_in_list;
        Node* const prev = n.prev_in_list;
        (prev == nullptr ? first_ : prev->next_in_list) = next;
        (next == nullptr ? last_ : next->prev_in_list) = prev;
    }

    // Calls visit(task) without the lock. The task has a reference meanwhile.
    template <class Lock, class Word, class Visit>
    static void visit_unlocked(Word& lock, basic_task_header<Platform>& task, Visit&& visit) {
        task.add_reference();
        Lock::release(lock);
        visit(task);
        task.drop_reference();
        Lock::acquire(lock);
    }

private:
    void link(Node* prev, Node& n, Node* next) noexcept {
        n.next_in_list = next;
        n.prev_in_list = prev;
        (prev == nullptr ? first_ : prev->next_in_list) = &n;
        (next == nullptr ? last_ : next->prev_in_list) = &n;
    }

    typename Platform::template var<Node*> first_{nullptr};
    typename Platform::template var<Node*> last_{nullptr};
};

template <class Platform> class basic_task_registry {
    using header = basic_task_header<Platform>;
    using list = basic_task_list<Platform, header>;

public:
    constexpr basic_task_registry() noexcept = default;
    basic_task_registry(const basic_task_registry&) = delete;
    basic_task_registry& operator=(const basic_task_registry&) = delete;

    // Adds a task. Returns false if close() was called before: for_each() may not visit the task
    // any more, so the caller must cancel it.
    bool add(header& t) noexcept {
        lock::acquire(lock_);
        tasks_.push_back(t);
        size_ = size_ + 1;
        const bool open = !closed_;
        lock::release_plain(lock_);
        return open;
    }

    void remove(header& t) noexcept {
        lock::acquire(lock_);
        tasks_.remove(t);
        size_ = size_ - 1;
        lock::release_plain(lock_);
    }

    // Makes each later add() return false.
    void close() noexcept {
        lock::acquire(lock_);
        closed_ = true;
        lock::release_plain(lock_);
    }

    // Calls visit(header&) for each task that is listed during the whole call. The visited task has
    // a reference, and the lock is free.
    // Requires: one caller at a time.
    template <class Visit> void for_each(Visit&& visit) {
        lock::acquire(lock_);
        for (std::size_t left = size_; left != 0 && tasks_.first() != nullptr; --left) {
            header& t = *tasks_.first();
            tasks_.remove(t);
            tasks_.push_back(t); // so that the next iteration visits another task
            list::template visit_unlocked<lock>(lock_, t, visit);
        }
        lock::release_plain(lock_);
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
                for (header* t = tasks_.first(); t != nullptr; t = t->next_in_list) {
                    t->add_reference();
                    out.push_back(t);
                }
            }
            lock::release_plain(lock_);
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

    typename Platform::template atomic<word> lock_{0};
    list tasks_;
    var<std::size_t> size_{0};
    var<bool> closed_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
