// Code that was not written for the checker: std::atomic, std::thread, std::mutex and their like, plain memory.
// The bodies here are compiled as bide_add_model(... UNMODIFIED) compiles them. No type of the checker is in them.

#include <model/check.hpp>
#include <support/test.hpp>

#include <array>
#include <barrier>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <latch>
#include <mutex>
#include <pthread.h>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <thread>

#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#include <boost/lockfree/spsc_queue.hpp>
#define HAS_BOOST 1
#else
#define HAS_BOOST 0
#endif

using model::failure;

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

// Explores all executions. There must be this many, and none fails.
void passes(const char* name, std::uint64_t executions, const model::body& run,
            const model::options& how = {}) {
    model::find(name, failure::none, how, run);
    const model::verdict v = model::explore(how, run);
    CHECK(v.what == failure::none);
    CHECK(v.executions == executions);
}

// Returns the report of the failure.
std::string fails(const char* name, failure with, const model::body& run,
                  const model::options& how = {}) {
    const model::verdict v = model::find(name, with, how, run);
    return v.message + '\n' + v.report;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// ---- Atomics and plain memory

struct flagged {
    int data = 0;
    std::atomic<int> flag{0};
};

// A thread writes data, and says so with this order.
void pass_message(std::memory_order order) {
    const auto box = std::make_unique<flagged>();
    std::thread writer([&] {
        box->data = 1;
        box->flag.store(1, order);
    });
    if (box->flag.load(acquire) == 1) {
        MODEL_REQUIRE(box->data == 1);
    }
    writer.join();
}

template <std::memory_order Store, std::memory_order Load> void miss_each_other() {
    struct pair {
        std::atomic<int> x{0};
        std::atomic<int> y{0};
        int seen = 0;
    };
    const auto both = std::make_unique<pair>();
    std::thread other([&] {
        both->x.store(1, Store);
        both->seen = both->y.load(Load);
    });
    both->y.store(1, Store);
    const int seen = both->x.load(Load);
    other.join();
    MODEL_REQUIRE(seen == 1 || both->seen == 1);
}

int global_data = 0;
std::atomic<int> global_flag{0};

struct alignas(16) pointer_and_count {
    const void* pointer;
    unsigned long count;
};

#if defined(__clang__)
#pragma clang diagnostic ignored "-Watomic-alignment"
#endif

} // namespace

TEST_CASE("unmodified: the orders of std::atomic, and races of plain memory") {
    passes("released", 2, [] { pass_message(release); });
    const std::string report = fails("relaxed", failure::race, [] { pass_message(relaxed); });
    CHECK(contains(report, "unmodified_model.cpp"));
    CHECK(contains(report, "is no release"));
    passes("store buffering, seq_cst", 3,
           miss_each_other<std::memory_order_seq_cst, std::memory_order_seq_cst>);
    fails("store buffering, release and acquire", failure::assertion,
          miss_each_other<release, acquire>);
    fails("a plain count", failure::race, [] {
        const auto count = std::make_unique<int>(0);
        std::thread other([&] { ++*count; });
        ++*count;
        other.join();
    });
    fails("an atomic that a thread accesses as plain memory", failure::race, [] {
        const auto count = std::make_unique<std::atomic<int>>(0);
        std::thread other([&] { count->fetch_add(1); });
        *reinterpret_cast<int*>(count.get()) = 2;
        other.join();
    });
    fails("accesses of two sizes", failure::refused, [] {
        const auto word = std::make_unique<std::atomic<unsigned>>(0u);
        word->store(1);
        reinterpret_cast<std::atomic<unsigned char>*>(word.get())->store(1);
    });
}

TEST_CASE("unmodified: atomics of 1, 2, 4, 8 and 16 bytes") {
    const auto adds = [](auto zero) {
        return [zero] {
            const auto count = std::make_unique<std::atomic<decltype(zero)>>(zero);
            std::thread other([&] { count->fetch_add(255); });
            count->fetch_sub(1);
            other.join();
            using number = decltype(zero);
            MODEL_REQUIRE(count->load() == static_cast<number>(254));
        };
    };
    passes("1 byte", 2, adds(std::uint8_t{0}));
    passes("2 bytes", 2, adds(std::uint16_t{0}));
    passes("4 bytes", 2, adds(std::uint32_t{0}));
    passes("8 bytes", 2, adds(std::uint64_t{0}));
    model::check("16 bytes", [] {
        const auto word = std::make_unique<std::atomic<pointer_and_count>>();
        const auto add = [&] {
            pointer_and_count now = word->load();
            while (!word->compare_exchange_weak(now, {now.pointer, now.count + 1})) {
            }
        };
        std::thread other(add);
        add();
        other.join();
        MODEL_REQUIRE(word->load().count == 2);
    });
}

TEST_CASE("unmodified: memory from before the body has its old contents in each execution") {
    int local = 5; // of the thread that explores
    passes("globals", 2, [&] {
        MODEL_REQUIRE(global_data == 0 && global_flag.load() == 0 && local == 5);
        local = 6;
        std::thread writer([] {
            global_data = 1;
            global_flag.store(1, release);
        });
        if (global_flag.load(acquire) == 1) {
            MODEL_REQUIRE(global_data == 1);
        }
        writer.join();
    });
    CHECK(global_data == 0);
    CHECK(local == 5);
}

TEST_CASE("unmodified: memory that was freed is not accessed") {
    struct node {
        int value;
        std::atomic<node*> next;
    };
    const std::string plain = fails("a plain read", failure::lifetime, [] {
        std::atomic<node*> head{new node{1, nullptr}};
        std::thread other([&] {
            if (const node* const seen = head.load()) {
                MODEL_REQUIRE(seen->value == 1);
            }
        });
        delete head.exchange(nullptr);
        other.join();
    });
    CHECK(contains(plain, "freed"));
    CHECK(contains(plain, "unmodified_model.cpp"));
    fails("an atomic read", failure::lifetime, [] {
        std::atomic<node*> head{new node{1, nullptr}};
        std::thread other([&] {
            if (const node* const seen = head.load()) {
                static_cast<void>(seen->next.load());
            }
        });
        delete head.exchange(nullptr);
        other.join();
    });
    fails("malloc() without free()", failure::leak, [] {
        auto* volatile block = std::malloc(3);
        static_cast<void>(block);
    });
    passes("malloc() and realloc()", 1, [] {
        auto* block = static_cast<char*>(std::calloc(8, 1));
        std::memcpy(block, "bide", 5);
        std::thread other([&] { block = static_cast<char*>(std::realloc(block, 800)); });
        other.join();
        MODEL_REQUIRE(std::strcmp(block, "bide") == 0);
        std::free(block);
    });
}

// ---- What orders threads

TEST_CASE("unmodified: mutexes") {
    const auto counted = [](auto make) {
        return [make] {
            auto lock = make();
            const auto count = std::make_unique<int>(0);
            const auto add = [&] {
                const std::lock_guard held(*lock);
                ++*count;
            };
            std::thread first(add);
            std::thread second(add);
            first.join();
            second.join();
            MODEL_REQUIRE(*count == 2);
        };
    };
    passes("std::mutex", 2, counted([] { return std::make_unique<std::mutex>(); }));
    passes("std::recursive_mutex", 2,
           counted([] { return std::make_unique<std::recursive_mutex>(); }));
    passes("std::shared_mutex", 2, counted([] { return std::make_unique<std::shared_mutex>(); }));
    passes("a mutex is locked again by its owner", 1, [] {
        std::recursive_mutex lock;
        const std::lock_guard one(lock);
        const std::lock_guard two(lock);
    });
    fails("a count without the lock", failure::race, [] {
        struct guarded {
            std::mutex lock;
            int count = 0;
        };
        const auto all = std::make_unique<guarded>();
        std::thread other([&] {
            const std::lock_guard held(all->lock);
            ++all->count;
        });
        ++all->count;
        other.join();
    });
    const std::string text = fails("two locks in two orders", failure::deadlock, [] {
        const auto locks = std::make_unique<std::array<std::mutex, 2>>();
        std::thread other([&] {
            const std::lock_guard one((*locks)[0]);
            const std::lock_guard two((*locks)[1]);
        });
        {
            const std::lock_guard one((*locks)[1]);
            const std::lock_guard two((*locks)[0]);
        }
        other.join();
    });
    CHECK(contains(text, "T0 waits for ever for a mutex, which T1 has locked"));
    fails("a mutex that its owner locks again", failure::deadlock, [] {
        std::mutex lock;
        lock.lock();
        lock.lock();
    });
    fails("a thread unlocks what another one has locked", failure::assertion, [] {
        std::mutex lock;
        lock.lock();
        std::thread([&] { lock.unlock(); }).join();
    });
    const auto two_readers = [] {
        std::shared_mutex lock;
        std::atomic<int> readers{0};
        const auto read = [&] {
            const std::shared_lock held(lock);
            readers = 1;
        };
        std::thread other(read);
        read();
        other.join();
    };
    CHECK(model::explore({}, two_readers).what == failure::none);
    passes("a lock with a time-out", 3,
           [] {
               std::timed_mutex lock;
               std::thread other([&] { const std::lock_guard held(lock); });
               if (lock.try_lock_for(std::chrono::seconds(1))) {
                   lock.unlock();
               }
               other.join();
           },
           {.timeouts = 1});
}

TEST_CASE("unmodified: condition variables") {
    struct queue {
        std::mutex lock;
        std::condition_variable filled;
        std::deque<int> values;
        std::atomic<bool> is_filled{false};
    };
    passes("a queue", 2, [] {
        const auto all = std::make_unique<queue>();
        std::thread taker([&] {
            std::unique_lock held(all->lock);
            all->filled.wait(held, [&] { return !all->values.empty(); });
            MODEL_REQUIRE(all->values.front() == 7);
            all->values.pop_front();
        });
        {
            const std::lock_guard held(all->lock);
            all->values.push_back(7);
        }
        all->filled.notify_one();
        taker.join();
    });
    fails("what is awaited changes without the lock", failure::lost_wakeup, [] {
        const auto all = std::make_unique<queue>();
        std::thread taker([&] {
            std::unique_lock held(all->lock);
            all->filled.wait(held, [&] { return all->is_filled.load(); });
        });
        all->is_filled = true;
        all->filled.notify_one();
        taker.join();
    });
    fails("deleted by the thread that waited, before the notify", failure::race, [] {
        auto* const all = new queue;
        std::thread filler([all] {
            {
                const std::lock_guard held(all->lock);
                all->values.push_back(7);
            }
            all->filled.notify_one();
        });
        {
            std::unique_lock held(all->lock);
            all->filled.wait(held, [&] { return !all->values.empty(); });
        }
        delete all;
        filler.join();
    });
    const auto waits_once = [](int timeouts) {
        std::mutex lock;
        std::condition_variable never_notified;
        std::unique_lock held(lock);
        const bool in_time =
            never_notified.wait_for(held, std::chrono::seconds(1)) == std::cv_status::no_timeout;
        MODEL_REQUIRE(!in_time && timeouts == 1);
    };
    passes("a time-out", 1, [&] { waits_once(1); }, {.timeouts = 1});
    fails("no time-out", failure::lost_wakeup, [&] { waits_once(0); });
}

TEST_CASE("unmodified: threads, futures, stop tokens, and what is done once") {
    passes("std::async", 1, [] {
        auto future = std::async(std::launch::async, [] { return 4; });
        MODEL_REQUIRE(future.get() == 4);
    });
    passes("a promise", 6, [] {
        std::promise<int> promise;
        auto future = promise.get_future();
        std::thread other([&] { promise.set_value(3); });
        MODEL_REQUIRE(future.get() == 3);
        other.join();
    });
    passes("std::jthread", 2, [] {
        const auto data = std::make_unique<int>(0);
        std::jthread other([&](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
            }
            MODEL_REQUIRE(*data == 1);
        });
        *data = 1;
        other.request_stop();
    });
    passes("std::call_once", 2, [] {
        std::once_flag once;
        const auto count = std::make_unique<int>(0);
        const auto call = [&] {
            std::call_once(once, [&] { ++*count; });
            MODEL_REQUIRE(*count == 1);
        };
        std::thread other(call);
        call();
        other.join();
    });
    const auto lazy = []() -> const std::vector<int>& {
        static const std::vector<int> all{1, 2};
        return all;
    };
    passes("a local variable that is static", 6, [&] {
        std::thread other([&] { MODEL_REQUIRE(lazy()[0] == 1); });
        MODEL_REQUIRE(lazy()[1] == 2);
        other.join();
    });
    passes("a shared_ptr", 2, [] {
        auto first = std::make_shared<int>(1);
        std::thread other([second = first] { MODEL_REQUIRE(*second == 1); });
        first.reset();
        other.join();
    });
    CHECK(model::explore({}, [] { std::thread([] {}).detach(); }).what == failure::none);
    CHECK(contains(fails("a thread that is not joined", failure::terminated,
                         [] { const std::thread other([] {}); }),
                   "std::terminate"));
}

namespace {

struct counted {
    static inline int destroyed = 0;
    int value = 5;
    ~counted() { ++destroyed; }
};
thread_local counted of_thread;

void* next_of(void* number) { return static_cast<char*>(number) + 1; }

} // namespace

TEST_CASE("unmodified: what belongs to a thread, and pthreads") {
    passes("thread_local", 1, [] {
        of_thread.value = 6;
        std::thread other([] {
            MODEL_REQUIRE(of_thread.value == 5);
            of_thread.value = 7;
        });
        other.join();
        MODEL_REQUIRE(of_thread.value == 6);
        MODEL_REQUIRE(counted::destroyed == 1);
    });
    CHECK(of_thread.value == 5);
    passes("keys", 1, [] {
        static ::pthread_key_t key;
        MODEL_REQUIRE(::pthread_key_create(&key, [](void* p) { std::free(p); }) == 0);
        std::thread other([] { ::pthread_setspecific(key, std::malloc(3)); });
        other.join();
        MODEL_REQUIRE(::pthread_getspecific(key) == nullptr);
    });
    passes("the result of a thread", 1, [] {
        char two[2] = {};
        ::pthread_t thread{};
        void* end = nullptr;
        MODEL_REQUIRE(::pthread_create(&thread, nullptr, &next_of, &two[0]) == 0);
        MODEL_REQUIRE(::pthread_join(thread, &end) == 0 && end == &two[1]);
    });
    const auto meets = [] {
        ::pthread_barrier_t barrier;
        ::pthread_spinlock_t lock;
        ::pthread_barrier_init(&barrier, nullptr, 2);
        ::pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
        const auto count = std::make_unique<int>(0);
        std::thread other([&] {
            ::pthread_spin_lock(&lock);
            ++*count;
            ::pthread_spin_unlock(&lock);
            ::pthread_barrier_wait(&barrier);
        });
        ::pthread_barrier_wait(&barrier);
        MODEL_REQUIRE(*count == 1);
        other.join();
        ::pthread_barrier_destroy(&barrier);
    };
    CHECK(model::explore({}, meets).what == failure::none);
}

TEST_CASE("unmodified: time passes in sleeps, and what is not modelled is refused by its name") {
    model::check("a loop that sleeps", [] {
        std::atomic<int> flag{0};
        std::thread other([&] { flag = 1; });
        while (flag == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        other.join();
    });
    passes("the clock", 1, [] {
        const auto begin = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(std::chrono::hours(1));
        MODEL_REQUIRE(std::chrono::steady_clock::now() - begin >= std::chrono::hours(1));
    });
    CHECK(contains(
        fails("a random number", failure::refused, [] { MODEL_REQUIRE(std::rand() >= 0); }),
        "rand() is not modelled"));
    CHECK(contains(fails("the end of a thread", failure::refused,
                         [] { std::thread([] { ::pthread_exit(nullptr); }).join(); }),
                   "pthread_exit() is not modelled"));
    passes("a loop that counts on the heap", 5, [] {
        const auto flag = std::make_unique<std::atomic<int>>(0);
        const auto rounds = std::make_unique<int>(0);
        std::thread other([&] { flag->store(1); });
        while (flag->load() == 0 && *rounds < 3) {
            ++*rounds;
        }
        other.join();
    });
}

// ---- The standard library: README.md has what each of these means.

TEST_CASE("unmodified: what the standard library gets wrong") {
    const auto latch = [] {
        const auto done = std::make_unique<std::latch>(2);
        std::thread other([&] { done->count_down(); });
        done->arrive_and_wait();
        other.join();
    };
    const auto barrier = [] {
        const auto meeting = std::make_unique<std::barrier<>>(2);
        std::thread other([&] { meeting->arrive_and_wait(); });
        meeting->arrive_and_wait();
        other.join();
    };
    const auto semaphore = [] {
        const auto permits = std::make_unique<std::counting_semaphore<2>>(0);
        std::thread first([&] { permits->acquire(); });
        std::thread second([&] { permits->acquire(); });
        permits->release();
        permits->release();
        first.join();
        second.join();
    };
    const auto wait = [](std::memory_order store, std::memory_order load) {
        return [store, load] {
            const auto flag = std::make_unique<std::atomic<int>>(0);
            std::thread other([&] {
                flag->store(1, store);
                flag->notify_one();
            });
            flag->wait(0, load);
            other.join();
        };
    };
    const auto pointer = [] {
        using shared = std::shared_ptr<int>;
        const auto place = std::make_unique<std::atomic<shared>>(std::make_shared<int>(1));
        std::thread other([&] { MODEL_REQUIRE(*place->load() != 0); });
        place->store(std::make_shared<int>(2));
        other.join();
    };
#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE == 12
    fails("std::latch", failure::lost_wakeup, latch);
    fails("std::barrier", failure::lost_wakeup, barrier);
    fails("std::counting_semaphore", failure::lost_wakeup, semaphore);
    fails("std::atomic: store(release) and notify_one()", failure::lost_wakeup,
          wait(release, acquire));
    passes("std::atomic: store(seq_cst) and notify_one()", 54,
           wait(std::memory_order_seq_cst, std::memory_order_seq_cst));
    fails("std::atomic<std::shared_ptr>", failure::race, pointer);
#else // another version: the verdict is printed, and is no test
    const std::vector<model::body> all = {latch, barrier, semaphore, wait(release, acquire),
                                          pointer};
    for (const model::body& run : all) {
        const model::verdict v = model::explore({}, run);
        std::printf("%s %s\n", v.message.c_str(), v.report.c_str());
    }
#endif
}

#if HAS_BOOST

TEST_CASE("unmodified: boost::lockfree::spsc_queue") {
    passes("two values", 6, [] {
        using queue = boost::lockfree::spsc_queue<int, boost::lockfree::capacity<2>>;
        const auto values = std::make_unique<queue>();
        std::thread producer([&] {
            values->push(1);
            values->push(2);
        });
        int value = 0;
        if (values->pop(value)) {
            MODEL_REQUIRE(value == 1);
            if (values->pop(value)) {
                MODEL_REQUIRE(value == 2);
            }
        }
        producer.join();
    });
}

#endif
