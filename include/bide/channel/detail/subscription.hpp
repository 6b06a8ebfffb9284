// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SUBSCRIPTION_HPP
#define BIDE_CHANNEL_DETAIL_SUBSCRIPTION_HPP

// A reader of a versioned_value that keeps the versioned_value alive, and the publisher's side.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// State is a basic_versioned_value, allocated with new, with a name for its readers.
template <class State> class subscription {
public:
    // Subscribes to every version after the present one.
    explicit subscription(State& to) noexcept : state_(&to), reader_(0) {
        to.lock();
        reader_.seen = to.latest();
        to.add_reader();
        to.unlock();
    }

    // A copy has seen the same versions.
    subscription(const subscription& other) noexcept
        : state_(other.state_), reader_(other.reader_.seen) {
        if (state_ != nullptr) {
            state_->lock();
            state_->add_reader();
            state_->unlock();
        }
    }
    // Requires: `other` does not wait; terminates otherwise.
    subscription(subscription&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), reader_(other.reader_.seen) {
        if (other.reader_.waits != 0) {
            fatal(State::reader_name, &other, "moved from while it waits");
        }
    }
    // Requires: *this does not wait; terminates otherwise.
    subscription& operator=(subscription other) noexcept {
        std::swap(state_, other.state_);
        std::swap(reader_.seen, other.reader_.seen);
        std::swap(reader_.waits, other.reader_.waits);
        return *this;
    }
    // Requires: it does not wait; terminates otherwise.
    ~subscription() {
        if (state_ != nullptr) {
            state_->lock();
            state_->drop_reader(reader_, State::reader_name);
            state_->unlock();
            if (state_->drop_reference()) {
                delete state_;
            }
        }
    }

    State& state() const noexcept { return *state_; }
    typename State::reader& reader() noexcept { return reader_; }
    const typename State::reader& reader() const noexcept { return reader_; }

private:
    State* state_;
    typename State::reader reader_;
};

// The publisher's side: its destructor closes and drops the reference.
template <class State> class publication {
public:
    explicit publication(State* of) noexcept : state_(of) {}
    publication(const publication&) = delete;
    publication& operator=(const publication&) = delete;
    ~publication() {
        typename State::wake_list told;
        state_->lock();
        state_->end(told);
        state_->unlock();
        told.publish(wait_status::closed);
        if (state_->drop_reference()) {
            delete state_;
        }
    }

    State& state() const noexcept { return *state_; }

    bool is_closed() const noexcept {
        state_->lock();
        const bool closed = state_->is_closed();
        state_->unlock();
        return closed;
    }
    std::size_t readers() const noexcept {
        state_->lock();
        const std::size_t n = state_->readers();
        state_->unlock();
        return n;
    }

private:
    State* const state_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
