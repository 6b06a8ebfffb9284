// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ELECTION_HPP
#define BIDE_DURABLE_DETAIL_ELECTION_HPP

// A candidate of a leader_election: its campaigns and its terms.

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/task.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct stops_other {
    std::stop_source other;
    void operator()() {
        std::stop_source mine(other); // a callback of it may end the term, and destroy this
        mine.request_stop();
    }
};
using linked_stop = std::stop_callback<stops_other>;

// A term of a candidate. The loss of the lock stops the term's source.
struct held_term {
    held_term(durable_guard of, const std::stop_source& ends)
        : guard(std::move(of)), on_loss(guard.lost(), stops_other{ends}) {}

    durable_guard guard;
    linked_stop on_loss;
};

// What one process has of a candidate. User code and the store are never called under the lock.
struct candidate {
    candidate() = default;
    candidate(const candidate&) = delete;
    candidate& operator=(const candidate&) = delete;

    mutex lock;
    // Under the lock:
    bool campaigns = false;                  // a campaign is under way
    bool runs = false;                       // a run is under way
    bool resigned = false;                   // since the latest campaign of the run began
    std::stop_source ends{std::nostopstate}; // of the campaign, and of the term that it wins
    std::unique_ptr<held_term> term;         // nullptr: it does not lead, or lost it unnoticed

    bool leads() { return term != nullptr && term->guard.is_held(); } // under the lock

    // Takes the term out.
    std::unique_ptr<held_term> take() {
        const std::lock_guard held(lock);
        return std::exchange(term, nullptr);
    }
};

struct election {
    election(slot_ref slot, durable_options options)
        : engine(std::make_shared<lock_engine>(std::move(slot), 1, std::move(options))) {}

    candidate& own() {
        return candidates.get([] { return candidate(); });
    }
    // Wakes what waits for a change.
    void tell() {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        engine->signal().signal();
    }

    const std::shared_ptr<lock_engine> engine;
    per_process<candidate> candidates;
};

// A campaign, from its begin to its end.
class campaign_scope {
public:
    campaign_scope(std::shared_ptr<election> of, bool is_of_run) : of_(std::move(of)) {
        candidate& me = of_->own();
        std::unique_ptr<held_term> lost; // its destructor calls no store
        const std::lock_guard held(me.lock);
        leads_ = !is_of_run && me.leads();
        if (me.campaigns || me.runs != is_of_run) {
            error_ = std::make_error_code(std::errc::operation_in_progress);
        } else if (!leads_) {
            lost = std::exchange(me.term, nullptr);
            me.campaigns = begun_ = true;
            me.resigned = false;
            me.ends = ends_ = std::stop_source();
        }
    }
    campaign_scope(const campaign_scope&) = delete;
    campaign_scope& operator=(const campaign_scope&) = delete;
    ~campaign_scope() { end(nullptr); }

    bool begun() const noexcept { return begun_; }
    // Returns what a campaign that has not begun returns.
    result<void, std::error_code> refused() const {
        return error_ ? result<void, std::error_code>(unexpected{error_})
                      : result<void, std::error_code>();
    }
    const std::stop_source& ends() const noexcept { return ends_; }

    // Begins a term. Returns the guard if the campaign was stopped meanwhile: there is no term.
    std::optional<durable_guard> win(durable_guard guard) {
        auto term = std::make_unique<held_term>(std::move(guard), ends_);
        end(&term);
        return term != nullptr ? std::optional(std::move(term->guard)) : std::nullopt;
    }

private:
    void end(std::unique_ptr<held_term>* won) {
        if (!std::exchange(begun_, false)) {
            return;
        }
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        me.campaigns = false;
        if (won != nullptr && (!ends_.stop_requested() || !(*won)->guard.is_held())) {
            me.term = std::move(*won);
        }
    }

    const std::shared_ptr<election> of_;
    std::stop_source ends_{std::nostopstate};
    std::error_code error_{};
    bool begun_ = false;
    bool leads_ = false;
};

inline acquire_request request_of(acquire_request request, const std::stop_source& ends) {
    request.weight = 1;
    request.stop = ends.get_token();
    return request;
}
inline result<void, std::error_code> stopped_campaign() {
    return unexpected{make_error_code(errc::stopped)};
}

inline result<void, std::error_code> campaign_of(const std::shared_ptr<election>& it,
                                                 acquire_request request, bool is_of_run) {
    campaign_scope mine(it, is_of_run);
    if (!mine.begun()) {
        return mine.refused();
    }
    const linked_stop on_stop(request.stop, stops_other{mine.ends()});
    auto won = acquire_blocking(it->engine, request_of(std::move(request), mine.ends()));
    if (!won) {
        return unexpected{won.error()};
    }
    if (auto unwanted = mine.win(std::move(*won))) {
        static_cast<void>(unwanted->release());
        return stopped_campaign();
    }
    it->tell();
    return {};
}

inline task<result<void, std::error_code>>
async_campaign_of(std::shared_ptr<election> it, acquire_request request, bool is_of_run) {
    campaign_scope mine(it, is_of_run);
    if (!mine.begun()) {
        co_return mine.refused();
    }
    const linked_stop on_stop(request.stop, stops_other{mine.ends()});
    auto waiting = acquire_task(it->engine, request_of(std::move(request), mine.ends()));
    auto won = co_await std::move(waiting);
    if (!won) {
        co_return unexpected{won.error()};
    }
    if (auto unwanted = mine.win(std::move(*won))) {
        auto released = unwanted->async_release();
        static_cast<void>(co_await std::move(released));
        co_return stopped_campaign();
    }
    it->tell();
    co_return result<void, std::error_code>();
}

// Ends the campaign or the term. Returns the term that the caller has to release.
inline std::unique_ptr<held_term> end_term(election& it) {
    candidate& me = it.own();
    std::stop_source ends{std::nostopstate};
    std::unique_ptr<held_term> term;
    {
        const std::lock_guard held(me.lock);
        ends = me.ends;
        if (me.runs) {
            me.resigned = true;
        } else {
            term = std::exchange(me.term, nullptr);
        }
    }
    ends.request_stop();
    return term;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
