// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_THREADS_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_THREADS_HPP

// Threads, locks, futexes and time: see model/unmodified.hpp. In a body, a lock is an atomic object
// of the checker at the address of the lock, and a thread that waits for the lock pauses.

#include <bide/model/detail/unmodified_calls.hpp>
#include <bide/model/impl/heap.hpp>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <functional>
#include <link.h>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

extern "C" void* __memcpy_chk(void*, const void*, std::size_t, std::size_t);

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// What the threads of an execution own beyond what the checker knows.
class unmodified_threads {
    struct call {
        void (*function)(void*);
        void* argument;
    };

public:
    static unmodified_threads& all() {
        static unmodified_threads one;
        return one;
    }

    // How often the running thread holds the lock. Negative: as a reader.
    int& held(const void* lock) {
        const heap::leave guard;
        return held_[{lock, ops::this_thread()}];
    }
    // Returns a thread that holds a lock in this memory; -1 if there is none.
    int holder_of(const void* from, std::size_t size) const noexcept {
        const auto* const end = static_cast<const std::byte*>(from) + size;
        for (auto i = held_.lower_bound({from, 0});
             i != held_.end() && std::less<>()(i->first.first, static_cast<const void*>(end));
             ++i) {
            if (i->second != 0) {
                return i->first.second;
            }
        }
        return -1;
    }
    void* result_of(int thread) const { return results_[static_cast<std::size_t>(thread)]; }
    void set_result(void* result) { results_[here()] = result; }
    void at_end_of_thread(void (*function)(void*), void* argument) {
        const heap::leave guard;
        thread_ends_[here()].push_back({function, argument});
    }
    void at_end_of_body(void (*function)(void*), void* argument) {
        const heap::leave guard;
        body_ends_.push_back({function, argument});
    }
    void* value_of(::pthread_key_t key) {
        const heap::leave guard;
        const auto& mine = values_[here()];
        const auto at = mine.find(key);
        return at == mine.end() ? nullptr : at->second;
    }
    void set_value(::pthread_key_t key, const void* value) {
        const heap::leave guard;
        values_[here()][key] = const_cast<void*>(value);
    }
    ::pthread_key_t make_key(void (*destroy)(void*)) {
        const heap::leave guard;
        const auto key = static_cast<::pthread_key_t>(first_key + destroys_.size());
        destroys_[key] = destroy;
        return key;
    }
    // The number of threads that meet at a barrier.
    unsigned& threads_of(const ::pthread_barrier_t* barrier) {
        const heap::leave guard;
        return barriers_[barrier];
    }

    // ---- What the checker calls

    static void begin(int thread) noexcept {
        unmodified_threads& us = all();
        const auto t = static_cast<std::size_t>(thread);
        if (thread == 0) {
            us.ranges_.clear();
            ::dl_iterate_phdr(&find_own, &us);
            ops::set_thread_local(us.ranges_.data(), us.ranges_.size());
        }
        us.thread_ends_[t].clear();
        us.values_[t].clear();
        us.results_[t] = nullptr;
        us.locals_[t] = us.image_;
    }
    static void end() {
        unmodified_threads& us = all();
        const std::size_t t = us.here();
        us.run(us.thread_ends_[t]);
        for (int round = 0; round < PTHREAD_DESTRUCTOR_ITERATIONS; ++round) {
            us.destroy_values(t);
        }
        if (t == 0) {
            us.run(us.body_ends_);
        }
    }
    // Exchanges the thread-local variables of the program. The checker's own ones are among them.
    static void exchange(int thread, bool enters) noexcept {
        unmodified_threads& us = all();
        auto& theirs = us.locals_[static_cast<std::size_t>(thread)];
        const std::size_t size = us.local_size_;
        std::byte* const out = enters ? us.outside_.data() : theirs.data();
        const std::byte* const in = enters ? theirs.data() : us.outside_.data();
        __memcpy_chk(out, us.local_, size, size);
        __memcpy_chk(us.local_, in, size, size);
    }
    // A body must not free or destroy a lock that is held.
    static void frees(const void* from, std::size_t size, const void* code) noexcept {
        const int holder = all().holder_of(from, size);
        if (holder >= 0) {
            char text[] = "a lock is freed or destroyed, and T0 has locked it";
            *std::strchr(text, '0') = static_cast<char>('0' + holder);
            ops::misuse(text, ops::place_of(code));
        }
    }
    static void forget() noexcept {
        unmodified_threads& us = all();
        us.held_.clear();
        us.barriers_.clear();
        us.body_ends_.clear();
        us.destroys_.erase(us.destroys_.lower_bound(first_key), us.destroys_.end());
    }
    void note_key(::pthread_key_t key, void (*destroy)(void*)) {
        const heap::leave guard;
        destroys_[key] = destroy;
    }

private:
    static constexpr ::pthread_key_t first_key = 1'000'000; // of the keys that a body makes

    std::size_t here() const noexcept { return static_cast<std::size_t>(ops::this_thread()); }

    void run(std::vector<call>& calls) {
        while (!calls.empty()) {
            const call last = calls.back();
            calls.pop_back();
            last.function(last.argument);
        }
    }
    void destroy_values(std::size_t thread) {
        {
            const heap::leave guard;
            for (auto& [key, value] : values_[thread]) {
                const auto destroy = destroys_.find(key);
                if (value != nullptr && destroy != destroys_.end() && destroy->second != nullptr) {
                    due_.push_back({destroy->second, std::exchange(value, nullptr)});
                }
            }
        }
        run(due_);
    }

    // Finds the thread-local variables of a file. The first file is the program.
    static int find_own(::dl_phdr_info* file, std::size_t, void* context) noexcept {
        auto& us = *static_cast<unmodified_threads*>(context);
        const bool is_program = us.ranges_.empty();
        for (int i = 0; i < file->dlpi_phnum; ++i) {
            const auto& part = file->dlpi_phdr[i];
            if (part.p_type != PT_TLS || file->dlpi_tls_data == nullptr) {
                continue;
            }
            us.ranges_.push_back(
                {reinterpret_cast<std::uintptr_t>(file->dlpi_tls_data), part.p_memsz});
            if (is_program) {
                us.find_image(file->dlpi_addr + part.p_vaddr, part.p_filesz, part.p_memsz);
            }
        }
        return 0;
    }
    void find_image(std::uintptr_t from, std::size_t filled, std::size_t size) {
        local_ = reinterpret_cast<std::byte*>(ranges_.front().from);
        if (local_size_ != size) {
            const auto* const image = reinterpret_cast<const std::byte*>(from);
            image_.assign(image, image + filled);
            image_.resize(size);
            outside_ = image_;
            local_size_ = size;
        }
    }

    std::map<std::pair<const void*, int>, int> held_;
    std::map<const void*, unsigned> barriers_;
    std::vector<call> body_ends_;
    std::vector<call> due_;
    std::array<std::vector<call>, ops::max_threads> thread_ends_;
    std::array<std::map<::pthread_key_t, void*>, ops::max_threads> values_;
    std::map<::pthread_key_t, void (*)(void*)> destroys_;
    std::array<void*, ops::max_threads> results_{};
    // The thread-local variables of the program, their first values, those of the threads of the
    // body, and those of the checker's thread.
    std::vector<ops::memory_range> ranges_;
    std::byte* local_ = nullptr;
    std::size_t local_size_ = 0;
    std::vector<std::byte> image_;
    std::array<std::vector<std::byte>, ops::max_threads> locals_;
    std::vector<std::byte> outside_;
};

namespace {

constexpr ops::callbacks of_unmodified = {&unmodified_threads::begin, &unmodified_threads::end,
                                          &unmodified_threads::exchange,
                                          &unmodified_threads::forget, &unmodified_threads::frees};

[[maybe_unused]] const bool is_unmodified = [] {
    ops::unmodified = &of_unmodified;
    // Parts of the standard library leave atomics out while the program has one thread.
    __libc_single_threaded = 0;
    return true;
}();

} // namespace

// ---- Locks

// A lock of the system, whose state is an atomic object of the checker.
class real_lock {
public:
    static constexpr ops::bits is_written = ops::bits{1} << 32;

    template <class Lock>
    real_lock(const Lock* lock, const char* kind, ops::site where) noexcept
        : at_(lock), kind_(kind), where_(where), size_(sizeof *lock) {
        where_.is_given = 1;
        object_ = ops::object_at(const_cast<Lock*>(lock), size_, false, where_);
        ops::name(object_, kind);
    }

    // Tries to change the state.
    bool change(ops::bits& from, ops::bits to) noexcept {
        clear_stack();
        const bool done = ops::compare_exchange(object_, from, to, std::memory_order_acquire,
                                                std::memory_order_relaxed, false, where_);
        ops::accessed(at_, size_, object_, true, where_);
        return done;
    }
    // Waits until the state changes. Returns false if the time-out ends the wait.
    bool wait(std::int64_t until = no_end) noexcept {
        if (until != no_end && ops::times_out(until, where_)) {
            return false;
        }
        ops::wait_for_lock(object_, kind_, where_);
        return true;
    }
    bool try_lock() noexcept {
        ops::bits state = 0;
        return change(state, is_written);
    }
    bool lock(std::int64_t until = no_end) noexcept {
        while (!try_lock()) {
            if (!wait(until)) {
                return false;
            }
        }
        return true;
    }
    void unlock() noexcept {
        ops::store(object_, 0, std::memory_order_release, where_);
        ops::accessed(at_, size_, object_, true, where_);
    }
    // Adds a reader. Counts it in the number of times that the thread holds the lock.
    bool share(bool tries, std::int64_t until = no_end) noexcept {
        for (ops::bits state = 0; !change(state, state + 1);) {
            if (state >= is_written) {
                if (tries || !wait(until)) {
                    return false;
                }
                state = 0;
            }
        }
        --unmodified_threads::all().held(at_);
        return true;
    }
    // Adds a writer, and counts it.
    bool own(bool tries, std::int64_t until = no_end) noexcept {
        const bool done = tries ? try_lock() : lock(until);
        if (done) {
            unmodified_threads::all().held(at_) = 1;
        }
        return done;
    }
    void unshare() noexcept {
        ops::modify(
            object_, [](ops::bits was, ops::bits by) { return was - by; }, 1,
            std::memory_order_release, where_);
        ops::accessed(at_, size_, object_, true, where_);
    }
    [[noreturn]] void misuse(const char* what) noexcept { ops::misuse(what, where_); }

private:
    // Without padding: see clear_stack().
    const void* const at_;
    const char* const kind_;
    ops::site where_;
    const unsigned size_;
    int object_ = ops::outside;
};

inline int lock_mutex(::pthread_mutex_t* mutex, bool tries, std::int64_t until, ops::site where) {
    int& held = unmodified_threads::all().held(mutex);
    const int kind = mutex->__data.__kind & 3;
    if (held != 0 && kind == PTHREAD_MUTEX_RECURSIVE_NP) {
        ++held;
        return 0;
    }
    if (held != 0 && kind == PTHREAD_MUTEX_ERRORCHECK_NP) {
        return tries ? EBUSY : EDEADLK;
    }
    real_lock lock(mutex, "mutex", where);
    if (tries ? !lock.try_lock() : !lock.lock(until)) {
        return tries ? EBUSY : ETIMEDOUT;
    }
    held = 1;
    return 0;
}

inline int unlock_mutex(::pthread_mutex_t* mutex, ops::site where) {
    int& held = unmodified_threads::all().held(mutex);
    real_lock lock(mutex, "mutex", where);
    if (held == 0) {
        lock.misuse("a thread unlocks a mutex that it has not locked");
    }
    if (--held == 0) {
        lock.unlock();
    }
    return 0;
}

inline int wait_for_condition(::pthread_cond_t* condition, ::pthread_mutex_t* mutex,
                              std::int64_t until, ops::site where) {
    struct unlocking {
        ::pthread_mutex_t* mutex;
        ops::site where;
        int held;
    } of{mutex, where, unmodified_threads::all().held(mutex)};
    where.is_given = 1;
    const bool in_time = ops::sleep_on(
        condition, until,
        [](void* argument) {
            const auto& now = *static_cast<unlocking*>(argument);
            int& held = unmodified_threads::all().held(now.mutex);
            held = held != 0 ? 1 : 0;
            unlock_mutex(now.mutex, now.where);
        },
        &of, where);
    lock_mutex(mutex, false, no_end, of.where);
    unmodified_threads::all().held(mutex) = of.held;
    return in_time ? 0 : ETIMEDOUT;
}

inline int wake_condition(::pthread_cond_t* condition, int count, ops::site where) {
    where.is_given = 1;
    ops::futex_wake(condition, count, where);
    return 0;
}

// A variable of the system that says whether something was done.
class real_flag {
public:
    real_flag(void* at, unsigned size, ops::site where) noexcept
        : at_(at), where_(where), size_(size), object_(ops::object_at(at, size, true, where)) {
        where_.is_given = 1;
    }
    ops::bits read() noexcept {
        clear_stack();
        const ops::bits value = ops::load(object_, std::memory_order_acquire, where_);
        ops::accessed(at_, size_, object_, false, where_);
        return value;
    }
    void set(ops::bits value) noexcept {
        ops::store(object_, value, std::memory_order_release, where_);
        ops::accessed(at_, size_, object_, true, where_);
    }
    // Changes 0 to 1. If the value is not 0, returns it.
    ops::bits begin() noexcept {
        ops::bits value = 0;
        clear_stack();
        const bool done = ops::compare_exchange(object_, value, 1, std::memory_order_acquire,
                                                std::memory_order_acquire, false, where_);
        ops::accessed(at_, size_, object_, done, where_);
        return done ? 0 : value;
    }
    void wait(const char* kind) noexcept { ops::wait_for_lock(object_, kind, where_); }

private:
    // Without padding: see clear_stack().
    void* const at_;
    ops::site where_;
    const unsigned size_;
    const int object_;
};

inline void call_once(::pthread_once_t* once, void (*function)(), ops::site where) {
    constexpr ops::bits done = 2; // as glibc has it
    real_flag flag(once, sizeof *once, where);
#if defined(__GLIBCXX__) && defined(_GLIBCXX_HAVE_TLS)
    // std::call_once() passes its function in these variables, which all fibers share.
    void* const callable = std::__once_callable;
    void (*const call)() = std::__once_call;
#endif
    for (;;) {
        const ops::bits state = flag.begin();
        if (state == done) {
            return;
        }
        if (state == 0) {
            break;
        }
        flag.wait("once_flag");
    }
#if defined(__GLIBCXX__) && defined(_GLIBCXX_HAVE_TLS)
    std::__once_callable = callable;
    std::__once_call = call;
#endif
    struct ending {
        real_flag& of;
        ops::bits state = 0;
        ~ending() { of.set(state); }
    } end{flag};
    function();
    end.state = done;
}

inline int meet(::pthread_barrier_t* barrier, ops::site where) {
    const unsigned threads = unmodified_threads::all().threads_of(barrier);
    where.is_given = 1;
    const int arrived = ops::object_at(barrier, sizeof(int), false, where);
    const int round =
        ops::object_at(reinterpret_cast<char*>(barrier) + 8, sizeof(int), false, where);
    const ops::bits before = ops::modify(
        arrived, [](ops::bits was, ops::bits by) { return was + by; }, 1, std::memory_order_acq_rel,
        where);
    const ops::bits mine = before / threads;
    if (before % threads == threads - 1) {
        ops::store(round, mine + 1, std::memory_order_release, where);
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    while (ops::load(round, std::memory_order_acquire, where) <= mine) {
        ops::wait_for_lock(round, "barrier", where);
    }
    return 0;
}

inline int thread_of(::pthread_t thread) noexcept { return static_cast<int>(thread) - 1; }

}}} // namespace bide::BIDE_ABI::model::detail

// ---- The functions of the system

// `system` is the function that this one replaces, which returns a `Result`.
#define BIDE_MODEL_SYSTEM(Result, name, version)                                                   \
    static constinit bide::model::detail::system_function<Result> system(#name, version)
#define BIDE_MODEL_BODY bide::model::detail::ops::in_body()

extern "C" {

// The names in <bits/...> of glibc have no declarations that are the same in all versions.
int pthread_mutex_clocklock(pthread_mutex_t*, clockid_t, const timespec*) noexcept;
int pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
int pthread_rwlock_clockrdlock(pthread_rwlock_t*, clockid_t, const timespec*) noexcept;
int pthread_rwlock_clockwrlock(pthread_rwlock_t*, clockid_t, const timespec*) noexcept;
// Compilers have declarations of their own of these.
int bide_model_guard_acquire(std::int64_t*) __asm__("__cxa_guard_acquire");
void bide_model_guard_release(std::int64_t*) noexcept __asm__("__cxa_guard_release");
void bide_model_guard_abort(std::int64_t*) noexcept __asm__("__cxa_guard_abort");
int __cxa_atexit(void (*)(void*), void*, void*) noexcept;
int __cxa_thread_atexit(void (*)(void*), void*, void*) noexcept;

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_mutex_lock, nullptr);
    return BIDE_MODEL_BODY ? lock_mutex(mutex, false, no_end, BIDE_MODEL_HERE) : system(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_mutex_trylock, nullptr);
    return BIDE_MODEL_BODY ? lock_mutex(mutex, true, no_end, BIDE_MODEL_HERE) : system(mutex);
}
int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_mutex_timedlock, nullptr);
    return BIDE_MODEL_BODY ? lock_mutex(mutex, false, nanoseconds(*end), BIDE_MODEL_HERE)
                           : system(mutex, end);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_mutex_clocklock, nullptr);
    return BIDE_MODEL_BODY ? lock_mutex(mutex, false, nanoseconds(*end), BIDE_MODEL_HERE)
                           : system(mutex, clock, end);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_mutex_unlock, nullptr);
    return BIDE_MODEL_BODY ? unlock_mutex(mutex, BIDE_MODEL_HERE) : system(mutex);
}

// In a body, the beginning and the end of a lock are plain writes of its memory.
#define BIDE_MODEL_WRITTEN(object)                                                                 \
    bide::model::detail::ops::watch(object, sizeof *object, true, __builtin_return_address(0))
#define BIDE_MODEL_UNHELD(object)                                                                  \
    bide::model::detail::unmodified_threads::frees(object, sizeof *object,                         \
                                                   __builtin_return_address(0))
#define BIDE_MODEL_MADE(name, T, A)                                                                \
    int name##_init(T* object, const A* attributes) noexcept {                                     \
        BIDE_MODEL_SYSTEM(int, name##_init, nullptr);                                              \
        BIDE_MODEL_WRITTEN(object);                                                                \
        return system(object, attributes);                                                         \
    }                                                                                              \
    int name##_destroy(T* object) noexcept {                                                       \
        BIDE_MODEL_SYSTEM(int, name##_destroy, nullptr);                                           \
        BIDE_MODEL_WRITTEN(object);                                                                \
        if (!BIDE_MODEL_BODY) {                                                                    \
            return system(object);                                                                 \
        }                                                                                          \
        BIDE_MODEL_UNHELD(object);                                                                 \
        return 0;                                                                                  \
    }
// A wait and a wake are plain reads of it.
#define BIDE_MODEL_READ(object)                                                                    \
    bide::model::detail::ops::watch(object, sizeof *object, false, __builtin_return_address(0))
BIDE_MODEL_MADE(pthread_mutex, pthread_mutex_t, pthread_mutexattr_t)
BIDE_MODEL_MADE(pthread_rwlock, pthread_rwlock_t, pthread_rwlockattr_t)
#undef BIDE_MODEL_MADE
int pthread_cond_init(pthread_cond_t* condition, const pthread_condattr_t* attributes) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_cond_init, "GLIBC_2.3.2");
    BIDE_MODEL_WRITTEN(condition);
    return system(condition, attributes);
}
int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_cond_destroy, "GLIBC_2.3.2");
    BIDE_MODEL_WRITTEN(condition);
    return BIDE_MODEL_BODY ? 0 : system(condition);
}
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_cond_wait, "GLIBC_2.3.2");
    BIDE_MODEL_READ(condition);
    return BIDE_MODEL_BODY ? wait_for_condition(condition, mutex, no_end, BIDE_MODEL_HERE)
                           : system(condition, mutex);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_cond_timedwait, "GLIBC_2.3.2");
    BIDE_MODEL_READ(condition);
    return BIDE_MODEL_BODY
               ? wait_for_condition(condition, mutex, nanoseconds(*end), BIDE_MODEL_HERE)
               : system(condition, mutex, end);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* end) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_cond_clockwait, nullptr);
    BIDE_MODEL_READ(condition);
    return BIDE_MODEL_BODY
               ? wait_for_condition(condition, mutex, nanoseconds(*end), BIDE_MODEL_HERE)
               : system(condition, mutex, clock, end);
}
int pthread_cond_signal(pthread_cond_t* condition) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_cond_signal, "GLIBC_2.3.2");
    BIDE_MODEL_READ(condition);
    return BIDE_MODEL_BODY ? wake_condition(condition, 1, BIDE_MODEL_HERE) : system(condition);
}
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_cond_broadcast, "GLIBC_2.3.2");
    BIDE_MODEL_READ(condition);
    return BIDE_MODEL_BODY
               ? wake_condition(condition, std::numeric_limits<int>::max(), BIDE_MODEL_HERE)
               : system(condition);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_rdlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    real_lock(lock, "shared_mutex", BIDE_MODEL_HERE).share(false);
    return 0;
}
int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_tryrdlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    return real_lock(lock, "shared_mutex", BIDE_MODEL_HERE).share(true) ? 0 : EBUSY;
}
int pthread_rwlock_timedrdlock(pthread_rwlock_t* lock, const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_timedrdlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock, end);
    }
    real_lock mine(lock, "shared_mutex", BIDE_MODEL_HERE);
    return mine.share(false, nanoseconds(*end)) ? 0 : ETIMEDOUT;
}
int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock,
                               const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_clockrdlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock, clock, end);
    }
    real_lock mine(lock, "shared_mutex", BIDE_MODEL_HERE);
    return mine.share(false, nanoseconds(*end)) ? 0 : ETIMEDOUT;
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_wrlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    real_lock(lock, "shared_mutex", BIDE_MODEL_HERE).own(false);
    return 0;
}
int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_trywrlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    return real_lock(lock, "shared_mutex", BIDE_MODEL_HERE).own(true) ? 0 : EBUSY;
}
int pthread_rwlock_timedwrlock(pthread_rwlock_t* lock, const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_timedwrlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock, end);
    }
    real_lock mine(lock, "shared_mutex", BIDE_MODEL_HERE);
    return mine.own(false, nanoseconds(*end)) ? 0 : ETIMEDOUT;
}
int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock,
                               const timespec* end) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_clockwrlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock, clock, end);
    }
    real_lock mine(lock, "shared_mutex", BIDE_MODEL_HERE);
    return mine.own(false, nanoseconds(*end)) ? 0 : ETIMEDOUT;
}
int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_rwlock_unlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    real_lock mine(lock, "shared_mutex", BIDE_MODEL_HERE);
    int& held = unmodified_threads::all().held(lock);
    if (held == 0) {
        mine.misuse("a thread unlocks a shared_mutex that it has not locked");
    }
    if (held > 0) {
        held = 0;
        mine.unlock();
    } else {
        ++held;
        mine.unshare();
    }
    return 0;
}

int pthread_spin_init(pthread_spinlock_t* lock, int shared) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_spin_init, nullptr);
    bide::model::detail::ops::watch(const_cast<int*>(lock), sizeof *lock, true,
                                    __builtin_return_address(0));
    return system(lock, shared);
}
int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_spin_lock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    real_lock(const_cast<int*>(lock), "spinlock", BIDE_MODEL_HERE).own(false);
    return 0;
}
int pthread_spin_trylock(pthread_spinlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_spin_trylock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    return real_lock(const_cast<int*>(lock), "spinlock", BIDE_MODEL_HERE).own(true) ? 0 : EBUSY;
}
int pthread_spin_unlock(pthread_spinlock_t* lock) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_spin_unlock, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    real_lock mine(const_cast<int*>(lock), "spinlock", BIDE_MODEL_HERE);
    if (std::exchange(unmodified_threads::all().held(const_cast<int*>(lock)), 0) == 0) {
        mine.misuse("a thread unlocks a spinlock that it has not locked");
    }
    mine.unlock();
    return 0;
}
int pthread_spin_destroy(pthread_spinlock_t* lock) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_spin_destroy, nullptr);
    auto* const object = const_cast<int*>(lock);
    BIDE_MODEL_WRITTEN(object);
    if (!BIDE_MODEL_BODY) {
        return system(lock);
    }
    BIDE_MODEL_UNHELD(object);
    return 0;
}

int pthread_barrier_init(pthread_barrier_t* barrier, const pthread_barrierattr_t* attributes,
                         unsigned count) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_barrier_init, nullptr);
    BIDE_MODEL_WRITTEN(barrier);
    if (BIDE_MODEL_BODY) {
        bide::model::detail::unmodified_threads::all().threads_of(barrier) = count;
    }
    return system(barrier, attributes, count);
}
int pthread_barrier_destroy(pthread_barrier_t* barrier) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_barrier_destroy, nullptr);
    BIDE_MODEL_WRITTEN(barrier);
    return BIDE_MODEL_BODY ? 0 : system(barrier);
}
int pthread_barrier_wait(pthread_barrier_t* barrier) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_barrier_wait, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(barrier);
    }
    if (unmodified_threads::all().threads_of(barrier) == 0) {
        ops::refuse("a pthread_barrier_t that the body has not initialised", BIDE_MODEL_HERE);
    }
    return meet(barrier, BIDE_MODEL_HERE);
}
#undef BIDE_MODEL_WRITTEN
#undef BIDE_MODEL_UNHELD

int pthread_once(pthread_once_t* once, void (*function)()) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_once, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(once, function);
    }
    call_once(once, function, BIDE_MODEL_HERE);
    return 0;
}

// A local variable that is static: the first byte of its guard says that it is initialised, as
// compiled code expects. The second byte is a lock.
int bide_model_guard_acquire(std::int64_t* guard) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, __cxa_guard_acquire, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(guard);
    }
    real_flag done(guard, 1, BIDE_MODEL_HERE);
    real_flag held(reinterpret_cast<char*>(guard) + 1, 1, BIDE_MODEL_HERE);
    for (;;) {
        if (done.read() != 0) {
            return 0;
        }
        if (held.begin() == 0) {
            break;
        }
        held.wait("static variable");
    }
    if (done.read() != 0) {
        held.set(0);
        return 0;
    }
    return 1;
}
void bide_model_guard_release(std::int64_t* guard) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(void, __cxa_guard_release, nullptr);
    if (!BIDE_MODEL_BODY) {
        system(guard);
        return;
    }
    real_flag(guard, 1, BIDE_MODEL_HERE).set(1);
    real_flag(reinterpret_cast<char*>(guard) + 1, 1, BIDE_MODEL_HERE).set(0);
}
void bide_model_guard_abort(std::int64_t* guard) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(void, __cxa_guard_abort, nullptr);
    if (!BIDE_MODEL_BODY) {
        system(guard);
        return;
    }
    real_flag(reinterpret_cast<char*>(guard) + 1, 1, BIDE_MODEL_HERE).set(0);
}
int __cxa_atexit(void (*function)(void*), void* argument, void* library) noexcept {
    BIDE_MODEL_SYSTEM(int, __cxa_atexit, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(function, argument, library);
    }
    bide::model::detail::unmodified_threads::all().at_end_of_body(function, argument);
    return 0;
}
int __cxa_thread_atexit(void (*function)(void*), void* argument, void* library) noexcept {
    BIDE_MODEL_SYSTEM(int, __cxa_thread_atexit, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(function, argument, library);
    }
    bide::model::detail::unmodified_threads::all().at_end_of_thread(function, argument);
    return 0;
}

// ---- Threads

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_create, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(thread, attributes, function, argument);
    }
    const int made = ops::start_thread(
        [](void* (*run)(void*), void* of) { unmodified_threads::all().set_result(run(of)); },
        function, argument);
    *thread = static_cast<pthread_t>(made) + 1;
    int detached = PTHREAD_CREATE_JOINABLE;
    if (attributes != nullptr && ::pthread_attr_getdetachstate(attributes, &detached) == 0 &&
        detached == PTHREAD_CREATE_DETACHED) {
        ops::detach_thread(made);
    }
    return 0;
}
int pthread_join(pthread_t thread, void** result) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_join, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(thread, result);
    }
    ops::join_thread(thread_of(thread));
    if (result != nullptr) {
        *result = unmodified_threads::all().result_of(thread_of(thread));
    }
    return 0;
}
int pthread_detach(pthread_t thread) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_detach, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(thread);
    }
    ops::detach_thread(thread_of(thread));
    return 0;
}
pthread_t pthread_self() noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(pthread_t, pthread_self, nullptr);
    return BIDE_MODEL_BODY ? static_cast<pthread_t>(ops::this_thread()) + 1 : system();
}
int pthread_setname_np(pthread_t thread, const char* name) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_setname_np, nullptr);
    return BIDE_MODEL_BODY ? 0 : system(thread, name);
}
int pthread_setaffinity_np(pthread_t thread, std::size_t size, const cpu_set_t* set) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_setaffinity_np, nullptr);
    return BIDE_MODEL_BODY ? 0 : system(thread, size, set);
}
int sched_yield() noexcept {
    BIDE_MODEL_SYSTEM(int, sched_yield, nullptr);
    return BIDE_MODEL_BODY ? 0 : system();
}
int pthread_key_create(pthread_key_t* key, void (*destroy)(void*)) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, pthread_key_create, nullptr);
    if (BIDE_MODEL_BODY) {
        *key = unmodified_threads::all().make_key(destroy);
        return 0;
    }
    const int error = system(key, destroy);
    if (error == 0) {
        unmodified_threads::all().note_key(*key, destroy);
    }
    return error;
}
int pthread_key_delete(pthread_key_t key) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_key_delete, nullptr);
    return BIDE_MODEL_BODY ? 0 : system(key);
}
void* pthread_getspecific(pthread_key_t key) noexcept {
    BIDE_MODEL_SYSTEM(void*, pthread_getspecific, nullptr);
    return BIDE_MODEL_BODY ? bide::model::detail::unmodified_threads::all().value_of(key)
                           : system(key);
}
int pthread_setspecific(pthread_key_t key, const void* value) noexcept {
    BIDE_MODEL_SYSTEM(int, pthread_setspecific, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(key, value);
    }
    bide::model::detail::unmodified_threads::all().set_value(key, value);
    return 0;
}

// ---- Time

int clock_gettime(clockid_t clock, timespec* now) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, clock_gettime, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(clock, now);
    }
    const std::int64_t time = ops::now();
    *now = {.tv_sec = time / 1'000'000'000, .tv_nsec = time % 1'000'000'000};
    return 0;
}
int gettimeofday(timeval* now, void* zone) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, gettimeofday, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(now, zone);
    }
    const std::int64_t time = ops::now() / 1'000;
    *now = {.tv_sec = time / 1'000'000, .tv_usec = time % 1'000'000};
    return 0;
}
time_t time(time_t* now) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(time_t, time, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(now);
    }
    const time_t seconds = ops::now() / 1'000'000'000;
    if (now != nullptr) {
        *now = seconds;
    }
    return seconds;
}
int nanosleep(const timespec* rest, timespec* left) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, nanosleep, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(rest, left);
    }
    ops::advance(nanoseconds(*rest));
    return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* rest, timespec* left) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, clock_nanosleep, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(clock, flags, rest, left);
    }
    const bool is_absolute = (flags & TIMER_ABSTIME) != 0;
    ops::advance(nanoseconds(*rest) - (is_absolute ? ops::now() : 0));
    return 0;
}
int usleep(useconds_t rest) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(int, usleep, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(rest);
    }
    ops::advance(std::int64_t{rest} * 1'000);
    return 0;
}
unsigned sleep(unsigned rest) {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(unsigned, sleep, nullptr);
    if (!BIDE_MODEL_BODY) {
        return system(rest);
    }
    ops::advance(std::int64_t{rest} * 1'000'000'000);
    return 0;
}

// ---- System calls

long syscall(long number, ...) noexcept {
    using namespace bide::model::detail;
    BIDE_MODEL_SYSTEM(long, syscall, nullptr);
    std::va_list all;
    va_start(all, number);
    std::array<long, 6> a{};
    for (long& one : a) {
        one = va_arg(all, long);
    }
    va_end(all);
    if (!BIDE_MODEL_BODY) {
        return system(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    ops::site where = BIDE_MODEL_HERE;
    where.is_given = 1;
    if (number == SYS_gettid) {
        return ops::this_thread() + 1;
    }
    if (number != SYS_futex) {
        ops::refuse("a call of syscall() other than futex and gettid", where);
    }
    auto* const word = reinterpret_cast<std::uint32_t*>(a[0]);
    const long operation = a[1] & FUTEX_CMD_MASK;
    if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET) {
        ops::futex_wake(word, static_cast<int>(a[2]), where);
        return 0;
    }
    if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET) {
        ops::refuse("a futex operation other than wait and wake", where);
    }
    const auto* const rest = reinterpret_cast<const timespec*>(a[3]);
    const std::int64_t end = rest == nullptr           ? no_end
                             : operation == FUTEX_WAIT ? end_of(nanoseconds(*rest))
                                                       : nanoseconds(*rest);
    const int object = ops::futex_word_at(word, where);
    if (!ops::futex_wait(object, word, static_cast<std::uint32_t>(a[2]), sizeof *word, end,
                         where)) {
        errno = ETIMEDOUT;
        return -1;
    }
    return 0;
}

} // extern "C"

#undef BIDE_MODEL_BODY

#endif
