// What one thread pays that meets no other one: locks, semaphores, notifications without a sleeper, calls of what
// is initialised. And what each primitive takes up.

#include "support/bench.hpp"
#include "sync/peers.hpp"

#include <bide/core/parker.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bench {
namespace {

template <class Lock> void lock_once(Lock& lock) {
    lock.locked([] {});
}
template <class Lock> void share_once(Lock& lock) {
    lock.shared([] {});
}
template <class Semaphore, unsigned N = 1> void acquire_once(Semaphore& semaphore) {
    if constexpr (N == 1) {
        semaphore.acquire();
        semaphore.release();
    } else {
        semaphore.acquire(N);
        semaphore.release(N);
    }
}

template <class Lock> void add_lock(table& t, const char* name) {
    t.add_calls<Lock>(name, lock_once<Lock>);
}
template <class Semaphore, unsigned N = 1> void add_semaphore(table& t, const char* name) {
    t.add_calls<Semaphore>(name, acquire_once<Semaphore, N>, N);
}

void add_locks() {
    table t("uncontended/lock", "lock and unlock, one thread");
    for_each_lock(
        [&]<class Lock>(std::type_identity<Lock>, const char* name) { add_lock<Lock>(t, name); });
    add_lock<two_known_cas>(t, "floor: two known-value CAS");

    table reading("uncontended/shared", "lock_shared and unlock_shared, one thread");
    table writing("uncontended/shared-exclusive", "lock and unlock of a shared mutex, one thread");
    for_each_shared_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
        reading.add_calls<Lock>(name, share_once<Lock>);
        add_lock<Lock>(writing, name);
    });
}

void add_semaphores() {
    table t("uncontended/semaphore", "acquire and release, one thread");
    add_semaphore<std_semaphore>(t, "std::counting_semaphore");
    add_lock<lock_of<std::mutex>>(t, "std::mutex");
    add_semaphore<posix_semaphore>(t, "sem_t");
    add_semaphore<condition_semaphore>(t, "std::mutex + condition_variable");
    add_semaphore<condition_semaphore, 3>(t, "std::mutex + condition_variable, n = 3");
    add_semaphore<bide::semaphore>(t, "bide::semaphore");
    add_semaphore<bide::semaphore, 3>(t, "bide::semaphore, n = 3");
}

// ---- What co_await adds. The loop is in one coroutine: neither its frame nor its start is measured.

bide::task<> lock_each(benchmark::State& state, bide::mutex& mutex) {
    for (auto _ : state) {
        const auto lock = co_await mutex.async_lock();
    }
}
bide::task<> acquire_each(benchmark::State& state, bide::semaphore& semaphore) {
    for (auto _ : state) {
        const auto permit = co_await semaphore.async_acquire();
    }
}

void add_coroutines() {
    table t("uncontended/coroutine", "lock and unlock, one thread; async: in a coroutine");
    add_lock<lock_of<std::mutex>>(t, "std::mutex");
    add_lock<lock_of<bide::mutex>>(t, "bide::mutex");
    t.add_loop("bide::mutex, async_lock", [](benchmark::State& state) {
        isolated<bide::mutex> mutex;
        bide::sync_wait(lock_each(state, mutex.subject));
    });
    t.add_loop("bide::semaphore, async_acquire", [](benchmark::State& state) {
        isolated<bide::semaphore> semaphore(1u);
        bide::sync_wait(acquire_each(state, semaphore.subject));
    });
}

// ---- A wake without a sleeper: what every producer pays

template <class Mutex, class Condition> class condition_flag {
public:
    void notify() {
        {
            const std::lock_guard lock(mutex_);
            flag_ = true;
        }
        changed_.notify_one();
    }

private:
    Mutex mutex_;
    Condition changed_;
    bool flag_ = false;
};

// Its permit is stored again and again.
class notify_one {
public:
    void notify() { notify_.notify_one(); }

private:
    bide::notify notify_;
};

class atomic_flag {
public:
    void notify() {
        value_.store(++next_, std::memory_order_release);
        value_.notify_one();
    }

private:
    std::atomic<std::uint32_t> value_{0};
    std::uint32_t next_ = 0;
};

class event {
public:
    void notify() { count_.notify_one(); }

private:
    bide::event_count count_;
};

// Its permits pile up: no thread takes them.
template <class Semaphore> class pile {
public:
    void notify() { semaphore_.release(); }

private:
    Semaphore semaphore_{0};
};

void add_notify() {
    table t("notify/no-sleeper", "one call");
    const auto add = [&]<class Notifier>(std::type_identity<Notifier>, const char* name) {
        t.add_calls<Notifier>(name, [](Notifier& notifier) { notifier.notify(); });
    };
    add(std::type_identity<condition_flag<std::mutex, std::condition_variable>>(),
        "std::mutex + condition_variable");
    add(std::type_identity<atomic_flag>(), "std::atomic, notify_one");
    add(std::type_identity<pile<std_semaphore>>(), "std::counting_semaphore, release");
    add(std::type_identity<pile<posix_semaphore>>(), "sem_t, post");
    add(std::type_identity<event>(), "bide::event_count");
    add(std::type_identity<condition_flag<bide::mutex, bide::condition_variable>>(),
        "bide::mutex + condition_variable");
    add(std::type_identity<notify_one>(), "bide::notify");
    add(std::type_identity<pile<bide::semaphore>>(), "bide::semaphore, release");
}

// ---- A call when the work is done already

// Not known to the compiler, which would keep it in a register.
template <class T> void look_at(T& value) { asm volatile("" : : "g"(&value) : "memory"); }

int& local_static(int n) {
    static int value = n;
    return value;
}

// A flag, and what is initialised.
template <class Flag> struct guarded {
    Flag flag;
    int value = 0;
};

void add_once() {
    table t("once/after", "a call when the work is done");
    using std_guarded = guarded<std::once_flag>;
    t.add_calls<std_guarded>("std::call_once", [](std_guarded& g) {
        std::call_once(g.flag, [&] { g.value = 1; });
        look_at(g.value);
    });
    t.add_calls<int>("static variable", [](int&) { look_at(local_static(1)); }, 0);
    using bide_guarded = guarded<bide::once_flag>;
    t.add_calls<bide_guarded>("bide::once_flag", [](bide_guarded& g) {
        g.flag.call([&] { g.value = 1; });
        look_at(g.value);
    });
    t.add_calls<bide::once_cell<int>>("bide::once_cell", [](bide::once_cell<int>& cell) {
        look_at(cell.get_or_init([] { return 1; }));
    });
}

// ---- Two locks at once

template <class Mutex> struct two_of {
    isolated<Mutex> a;
    isolated<Mutex> b;
};

void add_two() {
    table t("all/uncontended", "lock and unlock of two mutexes, one thread");
    const auto add = [&]<class Mutex>(std::type_identity<Mutex>, const std::string& name) {
        using both = two_of<Mutex>;
        t.add_calls<both>(name + ", std::scoped_lock", [](both& of) {
            const std::scoped_lock held(of.a.subject, of.b.subject);
        });
        t.add_calls<both>(name + ", bide::scoped_lock", [](both& of) {
            const bide::scoped_lock held(of.a.subject, of.b.subject);
        });
    };
    add(std::type_identity<std::mutex>(), "std::mutex");
    add(std::type_identity<bide::mutex>(), "bide::mutex");
    add(std::type_identity<bide::adaptive_mutex>(), "bide::adaptive_mutex");
}

// ---- Locks by key

// What programs without a keyed mutex do.
class map_of_mutexes {
public:
    template <class Section> void locked(int key, Section section) {
        std::shared_ptr<std::mutex> mine;
        {
            const std::lock_guard held(all_);
            auto& found = mutexes_[key];
            if (!found) {
                found = std::make_shared<std::mutex>();
            }
            mine = found;
        }
        {
            const std::lock_guard held(*mine);
            section();
        }
        const std::lock_guard held(all_);
        if (mine.use_count() == 2) {
            mutexes_.erase(key);
        }
    }

private:
    std::mutex all_;
    std::unordered_map<int, std::shared_ptr<std::mutex>> mutexes_;
};

class keyed {
public:
    template <class Section> void locked(int key, Section section) {
        const auto held = mutexes_.lock(key);
        section();
    }

private:
    bide::keyed_mutex<int> mutexes_;
};

void add_keyed() {
    table t("keyed/uncontended", "lock and unlock of one of 16 keys, one thread");
    const auto add = [&]<class Keyed>(std::type_identity<Keyed>, const char* name) {
        t.add_calls<Keyed>(
            name, [key = 0](Keyed& mutexes) mutable { mutexes.locked(++key % 16, [] {}); });
    };
    add(std::type_identity<map_of_mutexes>(), "map of std::mutex");
    add(std::type_identity<keyed>(), "bide::keyed_mutex");
}

// ---- Objects of a pool

class std_pool {
public:
    template <class Use> void borrowed(Use use) {
        std::unique_ptr<int> mine;
        {
            std::unique_lock held(mutex_);
            returned_.wait(held, [this] { return !idle_.empty() || made_ < 8; });
            if (!idle_.empty()) {
                mine = std::move(idle_.back());
                idle_.pop_back();
            } else {
                ++made_;
            }
        }
        if (mine == nullptr) {
            mine = std::make_unique<int>(1);
        }
        use(*mine);
        {
            const std::lock_guard held(mutex_);
            idle_.push_back(std::move(mine));
        }
        returned_.notify_one();
    }

private:
    std::mutex mutex_;
    std::condition_variable returned_;
    std::vector<std::unique_ptr<int>> idle_;
    int made_ = 0;
};

class pool {
public:
    template <class Use> void borrowed(Use use) { use(*objects_.acquire()); }

private:
    static bide::object_pool_options up_to(std::size_t limit) {
        bide::object_pool_options options;
        options.limit = limit;
        return options;
    }
    bide::object_pool<int> objects_{up_to(8), [] { return 1; }};
};

void add_objects() {
    table t("objects/uncontended", "an object of a pool is borrowed and returned, one thread");
    const auto add = [&]<class Pool>(std::type_identity<Pool>, const char* name) {
        t.add_calls<Pool>(name,
                          [](Pool& objects) { objects.borrowed([](int& object) { ++object; }); });
    };
    add(std::type_identity<std_pool>(), "std::mutex and a vector");
    add(std::type_identity<pool>(), "bide::object_pool");
}

} // namespace

void add_one_thread() {
    add_locks();
    add_semaphores();
    add_coroutines();
    add_notify();
    add_once();
    add_two();
    add_keyed();
    add_objects();
}

void add_sizes() {
    table t("sizes", "");
    const auto add = [&]<class Subject>(std::type_identity<Subject>, const char* name) {
        t.add(name, [] { return measured{0, {{"bytes", sizeof(Subject)}}}; });
    };
    add(std::type_identity<std::mutex>(), "std::mutex");
    add(std::type_identity<std::shared_mutex>(), "std::shared_mutex");
    add(std::type_identity<std::counting_semaphore<>>(), "std::counting_semaphore");
    add(std::type_identity<std::condition_variable>(), "std::condition_variable");
    add(std::type_identity<::sem_t>(), "sem_t");
    add(std::type_identity<bide::semaphore>(), "bide::semaphore");
    add(std::type_identity<bide::mutex>(), "bide::mutex");
    add(std::type_identity<bide::adaptive_mutex>(), "bide::adaptive_mutex");
    add(std::type_identity<bide::shared_mutex>(), "bide::shared_mutex");
    add(std::type_identity<bide::biased_shared_mutex>(), "bide::biased_shared_mutex");
    add(std::type_identity<bide::condition_variable>(), "bide::condition_variable");
    add(std::type_identity<bide::notify>(), "bide::notify");
    add(std::type_identity<bide::event_count>(), "bide::event_count");
    add(std::type_identity<bide::semaphore::waiter>(), "bide::semaphore::waiter");
}

} // namespace bench
