#ifndef BIDE_TESTS_SUPPORT_SHORTAGE_HPP
#define BIDE_TESTS_SUPPORT_SHORTAGE_HPP

// Operations during which memory runs out, at each of their allocations in turn. The start of a thread
// counts as an allocation in the programs that tests/CMakeLists.txt finds by their text.

#include "support/alloc.hpp"
#include "support/service.hpp"
#include "support/test.hpp"

#if defined(BIDE_TESTS_WRAP_THREADS)
#include <pthread.h>

namespace test {

inline std::atomic<bool> threads_are_refused{false};
inline std::atomic<int> refused_threads{0};

// While one lives, the system starts no thread.
struct no_threads {
    no_threads() noexcept {
        refused_threads = 0;
        threads_are_refused = true;
    }
    no_threads(const no_threads&) = delete;
    no_threads& operator=(const no_threads&) = delete;
    ~no_threads() { threads_are_refused = false; }
};

} // namespace test

// What the program calls for pthread_create(); what that is.
extern "C" int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
extern "C" [[gnu::used]] inline int __wrap_pthread_create(pthread_t* made,
                                                          const pthread_attr_t* wanted,
                                                          void* (*body)(void*), void* argument) {
    if (test::threads_are_refused) {
        ++test::refused_threads;
        return EAGAIN;
    }
    return test::fails_as_allocation() ? EAGAIN
                                       : __real_pthread_create(made, wanted, body, argument);
}
#endif

namespace test {

// One run of a scenario, in which the n-th allocation fails.
class trial {
public:
    trial(std::size_t n, shortage how, bool of_all_threads) noexcept
        : n_(n), how_(how), of_all_threads_(of_all_threads) {}
    trial(const trial&) = delete;
    trial& operator=(const trial&) = delete;

    // Runs the operation, once in a scenario. False: it threw, for want of memory or of a thread.
    template <class F> bool attempt(F&& operation) {
        const failing_allocations now(n_, how_, of_all_threads_);
        bool succeeds = true;
        try {
            operation();
        } catch (const std::bad_alloc&) {
            succeeds = false;
        } catch (const std::system_error& e) {
            expect(e.code() == std::errc::resource_unavailable_try_again ||
                   e.code() == std::errc::not_enough_memory);
            succeeds = false;
        }
        has_failed_ = now.has_failed();
        expect(succeeds || has_failed_);
        return succeeds;
    }

    // For the thread that runs the scenario; allocates nothing.
    void expect(bool holds, where at = where()) noexcept {
        if (!holds && !broken_) {
            broken_ = at;
        }
    }

    bool has_failed() const noexcept { return has_failed_; }
    const std::optional<where>& broken() const noexcept { return broken_; }

private:
    const std::size_t n_;
    const shortage how_;
    const bool of_all_threads_;
    bool has_failed_ = false;
    std::optional<where> broken_;
};

// Sets something up, attempts an operation on it, and expects of what is there afterwards.
struct scenario {
    const char* name;
    void (*run)(trial&);
    bool of_all_threads = false;
};

// What is allocated while the service of timers starts no thread: a new one frees the record of its
// start when it first runs, which on a busy machine is after the wait that started it.
inline std::size_t settled_allocations() {
    service_thread();
    return live_allocations();
}

// Runs it with the n-th allocation failing, for each n until an attempt allocates no more often.
inline void for_each_allocation_failure(const scenario& s) {
    constexpr std::size_t never = static_cast<std::size_t>(-1) / 2;
    trial first(never, shortage::single, s.of_all_threads); // makes what stays for ever
    s.run(first);
    for (const shortage how : {shortage::single, shortage::lasting}) {
        for (std::size_t n = 0;; ++n) {
            const std::size_t before = settled_allocations();
            trial one(n, how, s.of_all_threads);
            s.run(one);
            const std::size_t after = settled_allocations();
            INFO(s.name << ", allocation " << n
                        << (how == shortage::single ? "" : " and all after"));
            if (one.broken()) {
                FAIL_CHECK("expectation in line " << one.broken()->line);
            }
            CHECK(after == before);
            REQUIRE(n < 1'000);
            if (!one.has_failed()) {
                break;
            }
        }
    }
}

// All of them, in a program that counts allocations.
template <std::size_t N> void for_each_allocation_failure(const scenario (&of)[N]) {
    for (std::size_t i = 0; counts_allocations() && i < N; ++i) {
        for_each_allocation_failure(of[i]);
    }
}

} // namespace test

#endif
