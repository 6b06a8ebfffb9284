#ifndef BIDE_BENCH_SYNC_PEERS_HPP
#define BIDE_BENCH_SYNC_PEERS_HPP

// Every lock and semaphore under one shape:
//   lock         locked(f)            f() under the lock
//   shared lock  locked(f), shared(f)
//   semaphore    acquire(), release() one permit
// so that a workload is written once and each variant is compiled into it.

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

#if defined(BIDE_BENCH_HAS_ABSL)
#include <absl/synchronization/mutex.h>
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
#include <boost/fiber/mutex.hpp>
#endif
#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/mutex.h>
#include <oneapi/tbb/queuing_mutex.h>
#include <oneapi/tbb/rw_mutex.h>
#include <oneapi/tbb/spin_mutex.h>
#endif

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <type_traits>

#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench {

// ---- locks

// Anything with lock() and unlock(), and perhaps lock_shared() and unlock_shared().
template <class Mutex> class lock_of {
public:
    template <class Section> void locked(Section section) {
        mutex_.lock();
        section();
        mutex_.unlock();
    }

    template <class Section> void shared(Section section) {
        mutex_.lock_shared();
        section();
        mutex_.unlock_shared();
    }

private:
    Mutex mutex_;
};

// The least that a lock can do on x86: two compare-and-swaps, each of a value known beforehand. Not
// a lock for more than one thread.
class two_known_cas {
public:
    template <class Section> void locked(Section section) {
        step(0, 1, std::memory_order_acquire);
        section();
        step(1, 0, std::memory_order_release);
    }

private:
    void step(std::uint64_t from, std::uint64_t to, std::memory_order order) {
        while (!word_.compare_exchange_strong(from, to, order, std::memory_order_relaxed)) {
        }
    }

    std::atomic<std::uint64_t> word_{0};
};

#if defined(BIDE_BENCH_HAS_ABSL)
class absl_mutex {
public:
    template <class Section> void locked(Section section) {
        mutex_.Lock();
        section();
        mutex_.Unlock();
    }

    template <class Section> void shared(Section section) {
        mutex_.ReaderLock();
        section();
        mutex_.ReaderUnlock();
    }

private:
    absl::Mutex mutex_;
};
#endif

#if defined(BIDE_BENCH_HAS_TBB)
class tbb_queuing_mutex {
public:
    template <class Section> void locked(Section section) {
        const tbb::queuing_mutex::scoped_lock lock(mutex_);
        section();
    }

private:
    tbb::queuing_mutex mutex_;
};
#endif

// Calls visit(std::type_identity<Lock>(), name) for each lock whose waiters end up asleep, std
// first.
template <class Visit> void for_each_sleeping_lock(Visit visit) {
    visit(std::type_identity<lock_of<std::mutex>>(), "std::mutex");
    visit(std::type_identity<lock_of<bide::mutex>>(), "bide::mutex");
    visit(std::type_identity<lock_of<bide::adaptive_mutex>>(), "bide::adaptive_mutex");
#if defined(BIDE_BENCH_HAS_ABSL)
    visit(std::type_identity<absl_mutex>(), "absl::Mutex");
#endif
#if defined(BIDE_BENCH_HAS_TBB)
    visit(std::type_identity<lock_of<tbb::mutex>>(), "tbb::mutex");
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    visit(std::type_identity<lock_of<boost::fibers::mutex>>(), "boost::fibers::mutex");
#endif
}

// The same for all of them: also those whose waiters spin or yield for ever.
template <class Visit> void for_each_lock(Visit visit) {
    for_each_sleeping_lock(visit);
#if defined(BIDE_BENCH_HAS_TBB)
    visit(std::type_identity<lock_of<tbb::spin_mutex>>(), "tbb::spin_mutex");
    visit(std::type_identity<tbb_queuing_mutex>(), "tbb::queuing_mutex");
#endif
}

// ---- shared locks

template <class Visit> void for_each_shared_lock(Visit visit) {
    visit(std::type_identity<lock_of<std::shared_mutex>>(), "std::shared_mutex");
    visit(std::type_identity<lock_of<bide::shared_mutex>>(), "bide::shared_mutex");
    visit(std::type_identity<lock_of<bide::biased_shared_mutex>>(), "bide::biased_shared_mutex");
#if defined(BIDE_BENCH_HAS_ABSL)
    visit(std::type_identity<absl_mutex>(), "absl::Mutex");
#endif
#if defined(BIDE_BENCH_HAS_TBB)
    visit(std::type_identity<lock_of<tbb::rw_mutex>>(), "tbb::rw_mutex");
#endif
}

// ---- semaphores

class std_semaphore {
public:
    explicit std_semaphore(std::ptrdiff_t permits) : semaphore_(permits) {}
    void acquire() { semaphore_.acquire(); }
    void release() { semaphore_.release(); }

private:
    std::counting_semaphore<> semaphore_;
};

class posix_semaphore {
public:
    explicit posix_semaphore(unsigned permits) { ::sem_init(&semaphore_, 0, permits); }
    posix_semaphore(const posix_semaphore&) = delete;
    posix_semaphore& operator=(const posix_semaphore&) = delete;
    ~posix_semaphore() { ::sem_destroy(&semaphore_); }

    void acquire() {
        while (::sem_wait(&semaphore_) != 0) { // a signal came
        }
    }
    void release() { ::sem_post(&semaphore_); }

private:
    ::sem_t semaphore_;
};

// What programs without a semaphore do.
template <class Mutex, class Condition> class condition_semaphore_of {
public:
    explicit condition_semaphore_of(std::ptrdiff_t permits) : permits_(permits) {}

    void acquire(std::ptrdiff_t n = 1) {
        std::unique_lock lock(mutex_);
        enough_.wait(lock, [this, n] { return permits_ >= n; });
        permits_ -= n;
    }

    void release(std::ptrdiff_t n = 1) {
        {
            const std::lock_guard lock(mutex_);
            permits_ += n;
        }
        n == 1 ? enough_.notify_one() : enough_.notify_all();
    }

private:
    Mutex mutex_;
    Condition enough_;
    std::ptrdiff_t permits_;
};
using condition_semaphore = condition_semaphore_of<std::mutex, std::condition_variable>;
template <class P>
using bide_condition_semaphore =
    condition_semaphore_of<bide::basic_mutex<P>, bide::basic_condition_variable<P>>;

// One permit, and a second release in a row is lost.
template <class P> class notify_semaphore {
public:
    explicit notify_semaphore(unsigned permits) {
        if (permits != 0) {
            release();
        }
    }
    void acquire() { notify_.wait(); }
    void release() { notify_.notify_one(); }

private:
    bide::basic_notify<P> notify_;
};

// The floor for handing a permit to a sleeping thread: no spinning, and one futex call on each side
// every time. For one waiter and one permit.
class raw_futex {
public:
    explicit raw_futex(std::uint32_t permits) : word_(permits) {}

    void acquire() {
        while (word_.exchange(0, std::memory_order_acquire) == 0) {
            call(FUTEX_WAIT_PRIVATE, 0);
        }
    }

    void release() {
        word_.store(1, std::memory_order_release);
        call(FUTEX_WAKE_PRIVATE, 1);
    }

private:
    void call(int operation, std::uint32_t value) {
        ::syscall(SYS_futex, &word_, operation, value, nullptr, nullptr, 0);
    }

    std::atomic<std::uint32_t> word_;
};

// A platform on which bide never spins, since it believes that there is one processor.
struct parking_platform : bide::native_platform {
    static bool single_cpu() noexcept { return true; }
};

// Calls visit(std::type_identity<Semaphore>(), name) for each semaphore, and for what is none, and hands a
// permit over like one.
template <class Visit> void for_each_handoff(Visit visit) {
    using adaptive = condition_semaphore_of<bide::adaptive_mutex, bide::condition_variable>;
    visit(std::type_identity<std_semaphore>(), "std::counting_semaphore");
    visit(std::type_identity<posix_semaphore>(), "sem_t");
    visit(std::type_identity<condition_semaphore>(), "std::mutex + condition_variable");
    visit(std::type_identity<raw_futex>(), "raw futex, always waking");
    visit(std::type_identity<bide::semaphore>(), "bide::semaphore");
    visit(std::type_identity<bide::basic_semaphore<parking_platform>>(),
          "bide::semaphore, never spinning");
    visit(std::type_identity<bide_condition_semaphore<bide::native_platform>>(),
          "bide::mutex + condition_variable");
    visit(std::type_identity<bide_condition_semaphore<parking_platform>>(),
          "bide::mutex + condition_variable, never spinning");
    visit(std::type_identity<adaptive>(), "bide::adaptive_mutex + condition_variable");
    visit(std::type_identity<notify_semaphore<bide::native_platform>>(), "bide::notify");
    visit(std::type_identity<notify_semaphore<parking_platform>>(), "bide::notify, never spinning");
}

} // namespace bench

#endif
