#ifndef BIDE_TASK_JOIN_HANDLE_HPP
#define BIDE_TASK_JOIN_HANDLE_HPP

#include <bide/channel/detail/item_wait.hpp>   // what an async_op of any T may carry along,
#include <bide/channel/detail/signal_wait.hpp> // so that each is the same in every program
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <system_error>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// A spawned task in the hand of who may ask for its outcome. Its destructor detaches: it never
// blocks and never cancels. An exception of a task that nobody asked for goes to on_unhandled,
// whether the task ended before its handle did or after it.
template <class T> class [[nodiscard]] join_handle {
    using cell = detail::outcome_cell<T>;

public:
    join_handle(join_handle&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
    join_handle& operator=(join_handle&& other) noexcept {
        join_handle moved(std::move(other));
        std::swap(cell_, moved.cell_);
        return *this;
    }
    join_handle(const join_handle&) = delete;
    ~join_handle() {
        if (cell_ != nullptr) {
            cell_->forgo();
        }
    }

    // The outcome. A task that ran to its end gives its value even if it was cancelled meanwhile;
    // one that was cancelled before its first run never starts.
    // Blocks: until the task has ended.
    // Throws: what the task threw; stopped_error if it never ran, or ended by a stopped wait;
    // std::system_error (resource_deadlock_would_occur) if it is the calling task itself.
    T join() && {
        const join_handle mine(std::move(*this));
        mine.check();
        mine.cell_->ended_gate().wait();
        return mine.cell_->take();
    }

    // The same for a coroutine. The handle passes into the operation, which must be awaited, or the
    // task's outcome is never destroyed; if its wait ends early, by a time-out say, the task is
    // detached.
    async_op<T> async_join() && {
        static_assert(!std::is_reference_v<T>, "async_join() of a task of a reference: use join()");
        check();
        static constexpr auto ops = wait_ops<as_result_t<T>, native_platform>(
                                        &try_now, &enqueue, &cancel_wait, &collect, &give_back)
                                        .standing_alone();
        cell* const c = std::exchange(cell_, nullptr);
        return {ops, wait_target{&c->ended_gate(), c, 1}};
    }

    // Asks the task to end: its current wait, or else its next one, answers errc::stopped or throws
    // stopped_error, unless it is shielded; so does every later one that would have to wait, and of
    // those that complete at once each one at which the task gives way (one in 128). It is up to the
    // task what it makes of that. False: it has ended.
    bool cancel() noexcept { return held().cancel(); }

    // It has ended.
    bool done() const noexcept { return held().is_complete(); }

    // Nobody will ask for the outcome.
    void detach() && noexcept { const join_handle dropped(std::move(*this)); }

private:
    friend class scheduler;
    using gate = detail::task_header::gate;
    using node = basic_waiter<native_platform>;

    explicit join_handle(cell& c) noexcept : cell_(&c) {}

    cell& held() const noexcept {
        if (cell_ == nullptr) {
            detail::fatal("join_handle used that was moved from or joined");
        }
        return *cell_;
    }

    void check() const {
        if (worker_local<native_platform>::get().running == &held()) {
            BIDE_THROW(
                std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                                  "a task joins itself"));
        }
    }

    static gate& gate_of(const wait_target& t) noexcept { return *static_cast<gate*>(t.queue); }

    static wait_status try_now(const wait_target& t) noexcept {
        return gate_of(t).is_open() ? wait_status::granted : wait_status::waiting;
    }
    static bool enqueue(const wait_target& t, node& w) noexcept {
        return gate_of(t).enqueue(w) != wait_status::waiting;
    }
    static bool cancel_wait(const wait_target& t, node& w, wait_status why) noexcept {
        return gate_of(t).cancel(w, why);
    }
    static as_result_t<T> collect(const wait_target& t, wait_status what) {
        const join_handle mine(*static_cast<cell*>(t.owner));
        if (what == wait_status::granted && mine.cell_->take_if_stopped()) {
            what = wait_status::stopped;
        }
        if (what == wait_status::granted) {
            if constexpr (std::is_void_v<T>) {
                mine.cell_->take();
                return {};
            } else {
                return mine.cell_->take();
            }
        }
        if constexpr (requires { as_result_t<T>(unexpected{errc_of(what)}); }) {
            return unexpected{errc_of(what)};
        } else {
            detail::throw_error(errc_of(what));
        }
    }
    static void give_back(const wait_target& t, wait_status) noexcept {
        const join_handle dropped(*static_cast<cell*>(t.owner));
    }

    cell* cell_;
};

} // namespace bide::inline BIDE_ABI

#endif
