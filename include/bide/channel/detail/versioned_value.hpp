// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP
#define BIDE_CHANNEL_DETAIL_VERSIONED_VALUE_HPP

// The common part of a broadcast and a watch: numbered versions, and readers that wait for the next
// version. Each reader counts the versions that it has seen. If a reader has seen all versions, it
// waits. The derived class defines what a version is and how many versions are kept.
//
// If a wait is granted, the reader only learns that there is a new version. It reads the version
// when it resumes, and only then counts the version as seen. So no version is lost if a granted
// wait is destroyed.

#include <bide/channel/detail/shared_state.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class basic_versioned_value : public basic_shared_state<Platform> {
    using base = basic_shared_state<Platform>;

public:
    static constexpr const char* waited_for = "watch or broadcast";

    using typename base::node;
    using typename base::wake_list;

    // Requires: a reader is not moved while it waits.
    struct reader {
        explicit reader(std::uint64_t so_far) noexcept : seen(so_far) {}

        std::uint64_t seen;                                       // only its owner uses it
        typename Platform::template var<std::ptrdiff_t> waits{0}; // queued waits; under the lock
    };

    basic_versioned_value() noexcept : base(1) {}

    // ---- Requires: the lock

    std::uint64_t latest() const noexcept { return latest_; }
    std::size_t readers() const noexcept { return readers_; }
    bool is_closed() const noexcept { return closed_; }

    void add_reader() noexcept {
        readers_ = readers_ + 1;
        base::add_reference();
    }

    // Requires: `r` does not wait; terminates otherwise. The caller then calls drop_reference().
    void drop_reader(const reader& r, const char* name) noexcept {
        if (const std::ptrdiff_t waiting = r.waits; waiting != 0) {
            detail::fatal_destroyed(name, &r, static_cast<unsigned long long>(waiting));
        }
        readers_ = readers_ - 1;
    }

    // Returns granted if there is a new version for `r`, closed if there will never be one, and
    // waiting if there may be one later.
    wait_status look(const reader& r) const noexcept {
        return r.seen < latest_ ? wait_status::granted
               : closed_        ? wait_status::closed
                                : wait_status::waiting;
    }

    // Adds a version, and moves the waiters to `out`. After unlock(), the caller calls
    // out.publish(wait_status::granted).
    void post(wake_list& out) noexcept {
        latest_ = latest_ + 1;
        dequeue_all(out);
    }

    // Marks this object as closed, and moves the waiters to `out`. After unlock(), the caller calls
    // out.publish(wait_status::closed). Returns true if this call closed the object.
    bool end(wake_list& out) noexcept {
        const bool first = !closed_;
        closed_ = true;
        dequeue_all(out);
        return first;
    }

    // ---- Without the lock

    bool close() noexcept {
        wake_list woken;
        base::lock();
        const bool first = end(woken);
        base::unlock();
        woken.publish(wait_status::closed);
        return first;
    }

    // Waits until look() returns a status other than waiting, and returns that status. `limit` is a
    // deadline or a stop token, which may end the wait earlier.
    template <class Limit> wait_status wait(reader& r, const Limit& limit) noexcept {
        reader_wait mine{*this, r};
        return base::wait_in(mine, limit);
    }

    // The steps of a wait for a version (core/wait_ops.hpp). A derived class adds collect().
    struct reader_wait {
        basic_versioned_value& of;
        reader& its;

        const auto& primitive() const noexcept { return of; }
        wait_status try_now() const noexcept {
            return of.locked([this]() noexcept { return of.look(its); });
        }
        wait_status enqueue(node& w) const noexcept { return of.enqueue(w, its); }
        bool cancel(node& w, wait_status why) const noexcept { return of.cancel(w, why); }
        void give_back(wait_status) const noexcept {} // a grant takes nothing
    };

private:
    wait_status enqueue(node& w, reader& r) noexcept {
        base::lock();
        wait_status what = look(r);
        if (what != wait_status::waiting) {
            what = base::complete(w, what);
        } else {
            w.carry(r);
            what = base::queue(queue_, w);
            if (what == wait_status::waiting) {
                count(w, 1);
            }
        }
        base::unlock();
        return what;
    }
    bool cancel(node& w, wait_status why) noexcept {
        base::lock();
        const bool ended = queue_.withdraw(w, why);
        if (ended) {
            count(w, -1);
        }
        base::unlock();
        return ended;
    }

    // Adds `more` to the waits of the reader that the node carries.
    static void count(const node& w, std::ptrdiff_t more) noexcept {
        auto& its = w.template carried<reader>();
        its.waits = its.waits + more;
    }
    void dequeue_all(wake_list& out) noexcept {
        while (!queue_.empty()) {
            node& w = queue_.pop();
            count(w, -1);
            if (w.claim()) { // else its select has chosen another case
                w.commit();
                out.push(w);
            }
        }
    }

    // Under the lock:
    typename Platform::template var<std::uint64_t> latest_{0};
    typename Platform::template var<std::size_t> readers_{0};
    typename Platform::template var<bool> closed_{false};
    typename base::wait_queue queue_;
};

// A reader that owns a reference to the state, so that the versions stay alive. State derives from
// basic_versioned_value and is allocated with new. State::reader_name names the reader in messages.
template <class State> class subscription {
public:
    // Subscribes to every version after the present one.
    explicit subscription(State& to) noexcept : state_(&to), reader_(0) {
        to.lock();
        reader_.seen = to.latest();
        to.add_reader();
        to.unlock();
    }

    // The copy has seen the same versions as `other`.
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
            detail::fatal(State::reader_name, &other, "moved from while it waits");
        }
    }
    // Requires: *this does not wait; terminates otherwise.
    subscription& operator=(subscription other) noexcept {
        std::swap(state_, other.state_);
        std::swap(reader_.seen, other.reader_.seen);
        std::swap(reader_.waits, other.reader_.waits);
        return *this;
    }
    // Requires: *this does not wait; terminates otherwise.
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

// The publisher's reference to the state. The destructor closes the state.
template <class State> class publication {
public:
    explicit publication(State* of) noexcept : state_(of) {}
    publication& operator=(publication&&) = delete;
    ~publication() {
        typename State::wake_list woken;
        state_->lock();
        state_->end(woken);
        state_->unlock();
        woken.publish(wait_status::closed);
        if (state_->drop_reference()) {
            delete state_;
        }
    }

    State& state() const noexcept { return *state_; }

    bool is_closed() const noexcept {
        return state_->locked([this]() noexcept { return state_->is_closed(); });
    }
    std::size_t readers() const noexcept {
        return state_->locked([this]() noexcept { return state_->readers(); });
    }

private:
    State* const state_;
};

// A counted reference to a value that does not change once it is shared. The last reference
// destroys the value. Under the lock of the state, threads only copy or swap references. The value
// itself is copied and destroyed outside of that lock. (std::shared_ptr would do the same, but it
// does not use the atomics of the platform.)
template <class T, class Platform> class basic_shared_value {
    static_assert(std::is_copy_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                  "bide: receivers copy the value: T must be copyable, and its destructor must not "
                  "throw");

public:
    basic_shared_value() noexcept = default;

    // Throws: std::bad_alloc, and what the move or copy of T throws.
    explicit basic_shared_value(T&& from) : cell_(new cell(std::move(from))) {}
    explicit basic_shared_value(const T& from) : cell_(new cell(from)) {}

    basic_shared_value(const basic_shared_value& other) noexcept : cell_(other.cell_) {
        if (cell_ != nullptr) {
            // Order: relaxed; `other` keeps the value meanwhile.
            cell_->references.fetch_add(1, std::memory_order_relaxed);
        }
    }
    basic_shared_value(basic_shared_value&& other) noexcept
        : cell_(std::exchange(other.cell_, nullptr)) {}
    basic_shared_value& operator=(basic_shared_value other) noexcept {
        swap(other);
        return *this;
    }
    ~basic_shared_value() {
        // Order: acq_rel; release [shared_value.reference]: this user's reads come before the
        // destruction. Acquire [shared_value.reference]: the last user destroys after all other
        // users.
        if (cell_ != nullptr && cell_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete cell_;
        }
    }

    void swap(basic_shared_value& other) noexcept { std::swap(cell_, other.cell_); }

    explicit operator bool() const noexcept { return cell_ != nullptr; }
    const T& operator*() const noexcept { return cell_->value; }

    // Requires: there is no other reference to the value.
    T& sole() noexcept { return cell_->value; }

private:
    struct cell {
        explicit cell(T&& from) : value(std::move(from)) {}
        explicit cell(const T& from) : value(from) {}
        T value;
        typename Platform::template atomic<std::size_t> references{1};
    };

    typename Platform::template var<cell*> cell_{nullptr};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
