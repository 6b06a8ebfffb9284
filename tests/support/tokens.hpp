#ifndef BIDE_TESTS_SUPPORT_TOKENS_HPP
#define BIDE_TESTS_SUPPORT_TOKENS_HPP

// The smallest primitive that can be made of core: a number of tokens and a queue of waiters that want
// one, behind one lock. What tests of core wait for, with a hook where races are decided.

#include <bide/core/async_op.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/waiter.hpp>

#include <support/standard.hpp>

namespace test {

template <class Platform> class basic_tokens {
    using node = bide::basic_waiter<Platform>;
    using lock = bide::lock_bits<Platform, std::uint32_t>;

public:
    // One token; gives it back.
    class token {
    public:
        explicit token(basic_tokens& of) noexcept : of_(&of) {}
        token(token&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
        token& operator=(token&&) = delete;
        ~token() {
            if (of_ != nullptr) {
                of_->give();
            }
        }
        void keep() noexcept { of_ = nullptr; }

    private:
        basic_tokens* of_;
    };

    explicit basic_tokens(int n) noexcept : free_(n) {}

    bool try_take() noexcept {
        lock::acquire(word_);
        const bool taken = free_ > 0;
        free_ -= taken ? 1 : 0;
        lock::release(word_);
        return taken;
    }

    void give(int n = 1) noexcept {
        bide::basic_wake_list<Platform> granted;
        lock::acquire(word_);
        free_ += n;
        while (free_ > 0 && !queue_.empty()) {
            granted.push(queue_.pop());
            --waiting_;
            --free_;
        }
        lock::release(word_);
        granted.publish(bide::wait_status::granted);
    }

    void close() noexcept {
        bide::basic_wake_list<Platform> failed;
        lock::acquire(word_);
        closed_ = true;
        queue_.pop_all(failed);
        waiting_ = 0;
        lock::release(word_);
        failed.publish(bide::wait_status::closed);
    }

    // A token or why not, for a thread.
    bide::wait_status take_until(bide::deadline end) noexcept {
        return waits::until(*this, 1, end);
    }
    bide::wait_status take(const typename Platform::stop_token& stop) noexcept {
        return waits::until(*this, 1, stop);
    }

    bide::basic_async_op<token, Platform> async_take() noexcept { return {taking{*this}}; }

    int available() const noexcept { return under_lock(free_); }
    std::size_t waiters() const noexcept { return under_lock(waiting_); }

    // Runs once, in the next wait, when that has not been queued yet.
    void before_enqueue(bide::waker hook) noexcept { hook_ = hook; }

    // For thread_wait.
    bide::wait_status enqueue(node& w) noexcept {
        std::exchange(hook_, {}).wake();
        bide::wait_status what = bide::wait_status::waiting;
        lock::acquire(word_);
        if (closed_) {
            what = bide::wait_status::closed;
        } else if (free_ > 0) {
            --free_;
            what = bide::wait_status::granted;
        } else {
            queue_.push(w);
            what = w.forbidden();
            if (what != bide::wait_status::waiting) {
                queue_.remove(w);
            } else {
                ++waiting_;
            }
        }
        if (what != bide::wait_status::waiting) {
            w.settle(what);
        }
        lock::release(word_);
        return what;
    }
    bool cancel(node& w, bide::wait_status why) noexcept {
        lock::acquire(word_);
        const bool queued = w.is_queued();
        if (queued) {
            queue_.remove(w);
            --waiting_;
        } else {
            w.forbid(why);
        }
        lock::release(word_);
        return queued;
    }

private:
    using waits = bide::thread_wait<basic_tokens, Platform>;

    struct taking { // the operation of async_take()
        basic_tokens& from;

        bide::wait_status try_now() const noexcept {
            return from.try_take() ? bide::wait_status::granted : bide::wait_status::waiting;
        }
        bide::wait_status enqueue(node& w) const noexcept { return from.enqueue(w); }
        bool cancel(node& w, bide::wait_status why) const noexcept { return from.cancel(w, why); }
        bide::result<token> collect(bide::wait_status what) const noexcept {
            if (what != bide::wait_status::granted) {
                return bide::unexpected{bide::errc_of(what)};
            }
            return token(from);
        }
    };

    template <class T> T under_lock(const T& member) const noexcept {
        lock::acquire(word_);
        const T copy = member;
        lock::release(word_);
        return copy;
    }

    mutable typename Platform::template atomic<std::uint32_t> word_{0};
    bide::waker hook_;

    // Under the lock:
    int free_;
    std::size_t waiting_ = 0;
    bool closed_ = false;
    bide::basic_waiter_queue<Platform> queue_;
};

using tokens = basic_tokens<bide::native_platform>;

} // namespace test

#endif
