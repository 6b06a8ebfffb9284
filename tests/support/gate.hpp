#ifndef BIDE_TESTS_SUPPORT_GATE_HPP
#define BIDE_TESTS_SUPPORT_GATE_HPP

// Threads that start together and end in time. A wait that does not end is a failure with a message,
// and not a hang: where the time is up, the process says where it waits, and exits. Each test case has
// a deadline anyway (main.cpp); these are shorter ones.

#include "support/seed.hpp"
#include <support/standard.hpp>

namespace test {

// For what takes milliseconds where it works; generous, because sanitizers and emulators are slow.
inline constexpr std::chrono::seconds patience{40};

// The line that the caller stands in.
struct where {
    explicit where(const char* in = __builtin_FILE(), int at = __builtin_LINE()) noexcept
        : file(in), line(at) {}
    const char* file;
    int line;
};

[[noreturn]] inline void give_up(where at, const char* what) noexcept {
    std::fprintf(stderr, "%s:%d: FAILED: %s\nBIDE_TEST_SEED=%u repeats what chance chose\n",
                 at.file, at.line, what, static_cast<unsigned>(run_seed()));
    std::fflush(nullptr);
    std::_Exit(1);
}

// Asks until it is true; false: not within `limit`.
template <class Done>
bool eventually(Done done, std::chrono::steady_clock::duration limit = patience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

// Asks for a time that this machine can keep: is_kept(time), with longer and longer times, until it
// answers true. A busy machine sleeps through any short one; what a test shows within a time it shows
// in one that was not slept through.
template <class Kept> bool in_some_time(std::chrono::milliseconds first, Kept is_kept) {
    for (auto time = first; time < patience; time *= 3) {
        if (is_kept(time)) {
            return true;
        }
    }
    return false;
}

// A function of a number, of any type: so that a team is no template. Each copy has a copy of it.
class numbered_call {
public:
    template <class F>
    explicit numbered_call(F f)
        : it_(new F(std::move(f))), copy_(&copy<F>), call_(&call<F>), drop_(&drop<F>) {}
    numbered_call(const numbered_call& other)
        : it_(other.copy_(other.it_)), copy_(other.copy_), call_(other.call_), drop_(other.drop_) {}
    numbered_call& operator=(const numbered_call&) = delete;
    ~numbered_call() { drop_(it_); }

    void operator()(int i) { call_(it_, i); }

private:
    template <class F> static void* copy(const void* of) {
        return new F(*static_cast<const F*>(of));
    }
    template <class F> static void call(void* it, int i) { (*static_cast<F*>(it))(i); }
    template <class F> static void drop(void* it) { delete static_cast<F*>(it); }

    void* it_;
    void* (*copy_)(const void*);
    void (*call_)(void*, int);
    void (*drop_)(void*);
};

// n threads that run f(0) ... f(n - 1), none before all are there. They do not assert: they record
// into slots of their own, which the main thread looks at after join().
class team {
public:
    template <class F>
    team(int n, F f, std::chrono::steady_clock::duration limit = patience, where at = where())
        : size_(n), limit_(limit), at_(at) {
        begin(numbered_call(std::move(f)));
    }
    team(const team&) = delete;
    team& operator=(const team&) = delete;
    ~team() { join(); }

    void join() {
        {
            std::unique_lock lock(mutex_);
            if (!changed_.wait_for(lock, limit_, [this] { return ended_ == size_; })) {
                std::fprintf(stderr, "%d of %d threads have ended\n", ended_, size_);
                give_up(at_, "its threads have not ended in time");
            }
        }
        for (std::thread& t : threads_) {
            t.join();
        }
        threads_.clear();
    }

private:
    void begin(const numbered_call& f) {
        threads_.reserve(static_cast<std::size_t>(size_));
        for (int i = 0; i < size_; ++i) {
            threads_.emplace_back([this, i, mine = numbered_call(f)]() mutable {
                start();
                mine(i);
                const std::lock_guard lock(mutex_);
                ++ended_;
                changed_.notify_one();
            });
        }
    }

    // A look in a loop and no lock, so that all leave within nanoseconds.
    void start() noexcept {
        arrived_.fetch_add(1);
        for (int looked = 0; arrived_.load() != size_; ++looked) {
            if (looked > 1'000) {
                std::this_thread::yield();
            }
        }
    }

    const int size_;
    const std::chrono::steady_clock::duration limit_;
    const where at_;
    std::atomic<int> arrived_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    int ended_ = 0;
    std::vector<std::thread> threads_;
};

// Runs f(0) ... f(n - 1) on n threads that start together, to their ends.
template <class F>
void run_threads(int n, F f, std::chrono::steady_clock::duration limit = patience,
                 where at = where()) {
    team(n, std::move(f), limit, at).join();
}

// Where n threads meet again and again: none leaves before all have come. What each did before is
// seen by all after.
class rendezvous {
public:
    explicit rendezvous(int n) noexcept : size_(n) {}

    void meet() noexcept {
        const unsigned round = round_.load();
        if (here_.fetch_add(1) + 1 == size_) {
            here_.store(0);
            round_.store(round + 1);
            round_.notify_all();
            return;
        }
        for (int looked = 0; round_.load() == round; ++looked) {
            if (looked > 1'000) {
                round_.wait(round); // among busy processes sooner over than a yield
            }
        }
    }

private:
    const int size_;
    std::atomic<int> here_{0};
    std::atomic<unsigned> round_{0};
};

} // namespace test

#endif
