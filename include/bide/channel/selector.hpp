// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_SELECTOR_HPP
#define BIDE_CHANNEL_SELECTOR_HPP

/// \file
/// A select with cases that are known at run time.
#include <bide/channel/select.hpp>

#include <memory>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

/// A select with cases that are known at run time. It can be used repeatedly. Each case has a
/// handler. After a case is chosen, the select ends the waits of the other cases. Then it calls the
/// handler of the chosen case with the result of that case:
///
/// \code
/// bide::selector any;
/// for (auto& inbox : inboxes)
///     any.add(bide::on_recv(inbox), [&](std::optional<message> m) { ... });
/// while (running) any.select();
/// \endcode
///
/// A handler may add and remove cases, even its own. It must not select; terminates otherwise. A
/// time-out counts from the start of each select. A case whose deadline has passed, or whose stop
/// was requested, is ready in every later select. If a case that sends is chosen, the value to send
/// is moved from. The caller stores a new value before the next select.
///
/// Thread safety: one thread or one coroutine uses it at a time. No other call is allowed while it
/// waits; terminates otherwise.
template <class Platform> class basic_selector {
public:
    /// Constructs a selector without cases.
    basic_selector() = default;
    basic_selector& operator=(basic_selector&&) = delete;

    /// Adds a case. Its handler is called as handler(result) or, if that is impossible, handler().
    /// Returns: the index of the case, which stays the same until the case is removed.
    /// Throws: std::bad_alloc, and what moving the handler throws; nothing was added then.
    template <class Case, class Handler> std::size_t add(Case c, Handler handler) {
        require_not(state::waiting, "changed while it waits");
        std::size_t index = 0;
        while (index < slots_.size() && slots_[index] != nullptr) {
            ++index;
        }
        const bool needs_timers = c.needs_timers();
        removed_.reserve(slots_.size() + 1 + removed_.size()); // so that remove() allocates nothing
        order_.reserve(slots_.size() + 1);                     // so that a select allocates nothing
        auto added = std::make_unique<slot_of<Case, Handler>>(std::move(c), std::move(handler));
        added->index = index;
        if (index == slots_.size()) {
            slots_.push_back(std::move(added));
        } else {
            slots_[index] = std::move(added);
        }
        needs_timers_ = needs_timers_ || needs_timers;
        ++size_;
        return index;
    }

    /// Removes a case.
    /// Returns: false if there is no such case.
    bool remove(std::size_t index) noexcept {
        require_not(state::waiting, "changed while it waits");
        if (index >= slots_.size() || slots_[index] == nullptr) {
            return false;
        }
        --size_;
        if (state_ == state::handling) {
            removed_.push_back(std::move(slots_[index]));
        } else {
            const std::unique_ptr<slot> gone(std::move(slots_[index]));
        }
        return true;
    }

    /// Returns the number of cases.
    std::size_t size() const noexcept { return size_; }

    /// Waits until one of the cases happens, and calls its handler.
    /// Blocks: until a case happens; for ever if there is no case.
    /// Returns: the index of the case.
    /// Throws: what the handler throws; the result of the case is lost then.
    std::size_t select() { return *run(true); }

    /// Tries the cases, and calls the handler of the chosen one. Never blocks.
    /// Returns: the index of the case; nothing if, at one instant of the call, none could happen.
    /// Throws: as select().
    std::optional<std::size_t> try_select() { return run(false); }

    /// The value of async_select().
    struct chosen {
        std::size_t index; ///< The index of the case that happened.
    };
    /// Waits as select() does, for a coroutine. The coroutine calls the handler when it resumes.
    /// Throws: as select(); std::system_error if the service thread of bide cannot be started for a
    /// time-out, a deadline or a stop.
    auto async_select() -> basic_async_op<chosen, Platform> {
        if (needs_timers_) {
            detail::prepare_timers<Platform>();
        }
        return {selecting{*this}};
    }

private:
    using core = detail::basic_select_core<Platform>;
    using entry = detail::select_entry<Platform>;
    using node = basic_waiter<Platform>;

    struct slot : entry {
        slot() noexcept = default;
        slot& operator=(slot&&) = delete;
        virtual ~slot() = default;
        virtual void fill() noexcept = 0;
        virtual void handle() = 0;
        virtual void give_back() noexcept = 0;
        std::size_t index = 0;
    };
    template <class Case, class Handler> struct slot_of;

    bool try_all() noexcept {
        require_not(state::waiting, "used while it waits");
        require_not(state::handling, "used by a handler");
        state_ = state::waiting;
        order_.clear();
        for (const auto& s : slots_) {
            if (s != nullptr) {
                s->node.reset(1);
                s->queued = false;
                s->fill();
                order_.push_back(s.get());
            }
        }
        core_.emplace();
        return core_->try_all(entries(), false);
    }
    std::optional<std::size_t> run(bool may_wait) {
        if (!try_all()) {
            core_->wait(entries(), may_wait);
        }
        return finish();
    }
    // Takes the remaining nodes out of their queues, and calls the handler of the case that has
    // happened. If no case has happened, returns nothing.
    std::optional<std::size_t> finish() {
        auto* const happened = static_cast<slot*>(core_->finish(entries()));
        state_ = state::idle;
        if (happened == nullptr) {
            return std::nullopt;
        }
        struct handling {
            explicit handling(basic_selector& whose) noexcept : of(whose) {
                of.state_ = state::handling;
            }
            handling& operator=(handling&&) = delete;
            ~handling() {
                of.state_ = state::idle;
                while (!of.removed_.empty()) {
                    const std::unique_ptr<slot> gone(std::move(of.removed_.back()));
                    of.removed_.pop_back();
                }
            }
            basic_selector& of;
        };
        const handling until_it_returns(*this);
        const std::size_t index = happened->index; // the handler may remove the case
        happened->handle();
        return index;
    }

    // The operation of async_select() (core/wait_ops.hpp).
    struct selecting {
        basic_selector& of;
        static constexpr bool stands_alone = true;
        static constexpr const char* waited_for = "a select";

        wait_status try_now() const noexcept {
            return of.try_all() ? wait_status::granted : wait_status::waiting;
        }
        // If the select is complete, collect() finds out which case has happened.
        wait_status enqueue(node& w) const noexcept {
            return of.core_->begin(of.entries(), w, true) ? wait_status::granted
                                                          : wait_status::waiting;
        }
        bool cancel(node&, wait_status why) const noexcept { return of.core_->cancel(why); }
        result<chosen> collect(wait_status what) const {
            if (const auto index = of.finish()) {
                return chosen{*index};
            }
            return unexpected{errc_of(what)};
        }
        void give_back(wait_status) const noexcept {
            auto* const happened = static_cast<slot*>(of.core_->finish(of.entries()));
            of.state_ = state::idle;
            if (happened != nullptr) {
                happened->give_back();
            }
        }
    };

    enum class state : unsigned char { idle, waiting, handling };

    void require_not(state what, const char* why) const noexcept {
        if (state_ == what) {
            detail::fatal("selector", this, why);
        }
    }

    typename core::entries entries() noexcept { return {order_.data(), order_.size()}; }

    std::vector<std::unique_ptr<slot>> slots_;   // nullptr: removed
    std::vector<std::unique_ptr<slot>> removed_; // by the running handler, perhaps its own case
    std::size_t size_ = 0;
    state state_ = state::idle;
    bool needs_timers_ = false; // a case, perhaps a removed one, needs timers
    std::vector<entry*> order_; // the slots, in the order in which the current select tries them
    std::optional<core> core_;  // of the current select
};

/// A selector for users.
using selector = basic_selector<>;

template <class Platform>
template <class Case, class Handler>
struct basic_selector<Platform>::slot_of final : slot {
    static_assert(std::is_same_v<typename Case::platform, Platform>);

    slot_of(Case&& one, Handler&& its_handler)
        : what(std::move(one)), handler(std::move(its_handler)) {}

    void fill() noexcept override { what.fill(*this); }
    void handle() override {
        if constexpr (std::is_invocable_v<Handler&, typename Case::result_type>) {
            handler(what.collect(*this));
        } else {
            static_cast<void>(what.collect(*this));
            handler();
        }
    }
    void give_back() noexcept override { what.give_back(*this); }

    Case what;
    Handler handler;
};

}} // namespace bide::BIDE_ABI

#endif
