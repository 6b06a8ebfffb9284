// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_CANCEL_HANDLE_HPP
#define BIDE_TASK_CANCEL_HANDLE_HPP

/// \file
/// Handles that cancel: a cancel_handle identifies a spawned task and cancels it, without the right
/// to its outcome; a scoped_join_handle cancels its task when it is destroyed.

#include <bide/task/join_handle.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct cancel_access;

} // namespace detail

/// Refers to a spawned task, or to none. spawn_with_handle() of a task_group and of a join_set
/// returns it. A copy refers to the same task. The memory of the task, without its coroutine, is
/// kept until the last handle is destroyed; so is its outcome, if its join_handle was detached. A
/// handle may outlive the group and the scheduler of its task.
///
/// \code
/// bide::task_group group(workers);
/// bide::cancel_handle slow = group.spawn_with_handle(search(archive));
/// group.spawn(search(cache));
/// ...
/// slow.cancel(); // this child alone
/// \endcode
///
/// Thread safety: several threads may call the const functions of a handle at once.
class cancel_handle {
    using task_type = detail::basic_task_header<native_platform>;

public:
    /// Constructs a handle of no task.
    cancel_handle() noexcept = default;
    /// Constructs a handle of the task of `of`. It stays valid when `of` is joined or destroyed.
    /// Requires: `of` has a task; terminates otherwise.
    template <class T>
    explicit cancel_handle(const join_handle<T>& of) noexcept : cancel_handle(of.held()) {}

    /// Refers to the task of `other`, too.
    cancel_handle(const cancel_handle& other) noexcept : task_(other.task_) {
        if (task_ != nullptr) {
            task_->add_reference();
        }
    }
    /// Takes the task over. `other` refers to no task afterwards.
    cancel_handle(cancel_handle&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
    /// Refers to the task of `other`.
    cancel_handle& operator=(cancel_handle other) noexcept {
        std::swap(task_, other.task_);
        return *this;
    }
    /// Does not cancel the task.
    ~cancel_handle() {
        if (task_ != nullptr) {
            task_->drop_reference();
        }
    }

    /// Requests that the task ends, as join_handle::cancel() does.
    /// Returns: false if the task has ended, or if there is none.
    /// Requires: `why` is not cancel_reason::none. Of a child of a group, not
    /// cancel_reason::shutdown either, which is a failure of the group.
    bool cancel(cancel_reason why = cancel_reason::requested) const noexcept {
        return task_ != nullptr && task_->cancel(why);
    }

    /// Returns true if the task has ended, or if there is none.
    bool done() const noexcept { return task_ == nullptr || task_->is_complete(); }

    /// Returns the id of the task: a key for a container. No other task has this id while a handle
    /// of the task exists. Returns nullptr if there is no task.
    const void* id() const noexcept { return task_; }

    /// Returns true if both refer to the same task.
    friend bool operator==(const cancel_handle& a, const cancel_handle& b) noexcept {
        return a.task_ == b.task_;
    }

private:
    friend detail::cancel_access;

    explicit cancel_handle(task_type& of) noexcept : task_(&of) { of.add_reference(); }

    task_type* task_ = nullptr;
};

namespace detail {

// Makes the handle of a task. Requires: the caller keeps the task alive, for example because it has
// not posted the task yet.
struct cancel_access {
    static cancel_handle handle_of(basic_task_header<native_platform>& of) noexcept {
        return cancel_handle(of);
    }
};

} // namespace detail

/// Is a join_handle that cancels its task when it is destroyed. An assignment to the handle and an
/// early end of async_join() cancel the task, too. After detach(), the task continues. join(),
/// cancel() and done() are those of join_handle.
///
/// \code
/// bide::scoped_join_handle heartbeat = workers.spawn(beat(connection));
/// co_await serve(connection);
/// // the heartbeat is cancelled here, also after an exception
/// \endcode
///
/// Thread safety: as join_handle.
/// Destroys: cancels the task and detaches it. Does not wait for its end: if the task uses objects
/// of the scope, use a task_group, which waits.
template <class T> class [[nodiscard]] scoped_join_handle : public join_handle<T> {
    using base = join_handle<T>;

public:
    /// Takes over the task of a join_handle.
    scoped_join_handle(base&& of) noexcept : base(std::move(of)) {}
    /// Takes the task over. The other handle is empty afterwards.
    scoped_join_handle(scoped_join_handle&&) noexcept = default;
    /// Takes the task over. Cancels and detaches the previous task of this handle.
    scoped_join_handle& operator=(scoped_join_handle&& other) noexcept {
        const scoped_join_handle before(std::move(*this));
        base::operator=(std::move(other));
        return *this;
    }
    /// Cancels and detaches the task, if there is one.
    ~scoped_join_handle() {
        if (base::cell_ != nullptr) {
            base::cancel();
        }
    }

    /// Waits as join_handle::async_join() does. If the wait ends early, by a time-out or a stop,
    /// or if the awaiting coroutine is destroyed, the task is cancelled and detached.
    /// Cancellation: the wait ends, and the task is cancelled.
    auto async_join() && -> decltype(std::declval<base>().async_join()) {
        base::refuse_itself(base::held());
        return {joining{{*base::cell_.release()}}};
    }
    /// Does not compile: the call consumes the handle, which must be an rvalue.
    template <class Refused = void> void async_join() & {
        static_cast<base&>(*this).template async_join<Refused>();
    }
    /// Waits as async_join() does.
    typename base::awaiter operator co_await() && {
        return typename base::awaiter(std::move(*this).async_join());
    }
    /// Does not compile: the wait consumes the handle, which must be an rvalue.
    template <class Refused = void> void operator co_await() const& {
        static_cast<const base&>(*this).template operator co_await <Refused>();
    }

private:
    // The operation of async_join() (core/wait_ops.hpp).
    struct joining : base::joining {
        auto collect(wait_status what) const {
            cancel_unless(what);
            return base::joining::collect(what);
        }
        void give_back(wait_status what) const noexcept {
            cancel_unless(what);
            base::joining::give_back(what);
        }
        void cancel_unless(wait_status what) const noexcept {
            if (what != wait_status::granted) {
                this->of.cancel();
            }
        }
    };
};

/// Deduces the type of the value.
template <class T> scoped_join_handle(join_handle<T>&&) -> scoped_join_handle<T>;

}} // namespace bide::BIDE_ABI

#endif
