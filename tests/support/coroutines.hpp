#ifndef BIDE_TESTS_SUPPORT_COROUTINES_HPP
#define BIDE_TESTS_SUPPORT_COROUTINES_HPP

// Coroutine types and executors that know nothing of bide's tasks: a promise that awaits bide's operations
// may be of any type.

#include <bide/core/async_op.hpp>
#include <bide/core/executor.hpp>

#include <support/standard.hpp>

namespace test {

// Runs at once on its caller's thread; it is not waited for, and its frame ends with it.
struct detached {
    detached() noexcept {}
    struct promise_type {
        promise_type() noexcept {}
        detached get_return_object() noexcept { return detached(); }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };
};

// A coroutine in the hand of the test: runs when it is started, may be destroyed while suspended,
// and stays when it has ended. Destroy it on the thread that runs it, or when no thread can.
template <class Scheduling> class [[nodiscard]] basic_held {
public:
    struct promise_type : Scheduling {
        using Scheduling::Scheduling;
        basic_held get_return_object() noexcept {
            return basic_held(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };

    explicit basic_held(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
    basic_held(basic_held&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    basic_held& operator=(basic_held&&) = delete;
    ~basic_held() { destroy(); }

    void start() { frame_.resume(); }
    bool done() const noexcept { return frame_.done(); }
    void destroy() noexcept {
        if (frame_) {
            std::exchange(frame_, nullptr).destroy();
        }
    }

private:
    std::coroutine_handle<promise_type> frame_;
};

// Promises that name no executor, one by reference, one by pointer: the coroutine's first argument.
struct nowhere {
    nowhere() noexcept {}
};
template <class S> class by_reference {
public:
    template <class... Others> explicit by_reference(S& s, Others&...) noexcept : scheduler_(s) {}
    S& get_scheduler() const noexcept { return scheduler_; }

private:
    S& scheduler_;
};
template <class S> class by_pointer {
public:
    template <class... Others> explicit by_pointer(S* s, Others&...) noexcept : scheduler_(s) {}
    S* get_scheduler() const noexcept { return scheduler_; }

private:
    S* scheduler_;
};

using held = basic_held<nowhere>;
template <class S> using held_on = basic_held<by_reference<S>>;
template <class S> using held_on_pointer = basic_held<by_pointer<S>>;

// Keeps what is posted until the test runs it, or drops it.
class manual_executor {
public:
    manual_executor() { posted_.reserve(1'024); }

    void post(bide::waker w) noexcept {
        const std::lock_guard lock(mutex_);
        posted_.push_back(w);
    }

    std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return posted_.size();
    }

    // The oldest; false: there is none.
    bool run_one() {
        bide::waker next;
        {
            const std::lock_guard lock(mutex_);
            if (posted_.empty()) {
                return false;
            }
            next = posted_.front();
            posted_.erase(posted_.begin());
        }
        next.wake();
        return true;
    }

    // What is there and what that posts; says how many.
    std::size_t run_all() {
        std::size_t ran = 0;
        while (run_one()) {
            ++ran;
        }
        return ran;
    }

    void drop_all() {
        const std::lock_guard lock(mutex_);
        posted_.clear();
    }

private:
    mutable std::mutex mutex_;
    std::vector<bide::waker> posted_;
};

// Runs what is posted on a thread of its own, all of it before it is destroyed.
class thread_executor {
public:
    thread_executor() : thread_([this] { run(); }), id_(thread_.get_id()) {}
    thread_executor(const thread_executor&) = delete;
    thread_executor& operator=(const thread_executor&) = delete;
    ~thread_executor() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

    void post(bide::waker w) noexcept {
        const std::lock_guard lock(mutex_);
        posted_.push_back(w);
        changed_.notify_one();
    }

    std::thread::id id() const noexcept { return id_; }

private:
    void run() {
        std::vector<bide::waker> ready;
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return over_ || !posted_.empty(); });
            if (posted_.empty()) {
                return;
            }
            ready.swap(posted_);
            lock.unlock();
            for (const bide::waker w : ready) {
                w.wake();
            }
            ready.clear();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<bide::waker> posted_;
    bool over_ = false;
    std::thread thread_;
    std::thread::id id_;
};

} // namespace test

#endif
