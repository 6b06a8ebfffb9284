// Code that was not written for the checker: std::atomic, std::thread, std::mutex and their like, plain memory.
// The bodies here are compiled as bide_add_model(... UNMODIFIED) compiles them. No type of the checker is in them.

#include <bide/model/linearizable.hpp>
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
#include <list>
#include <map>
#include <mutex>
#include <pthread.h>
#include <semaphore>
#include <shared_mutex>
#include <stop_token>
#include <thread>

#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#include <boost/lockfree/stack.hpp>
#include <boost/version.hpp>
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

// ---- Addresses that are used again

namespace {

// A stack whose nodes are deleted. `Leaves` says when a pop() leaves: before the compare-exchange,
// which is a mistake, or after it.
enum class leaves { before, after };
template <leaves When> class pointer_stack {
    struct node {
        int value;
        node* next;
    };

public:
    ~pointer_stack() {
        while (pop() != 0) {
        }
    }
    void push(int value) {
        node* const made = new node{value, head_.load()};
        while (!head_.compare_exchange_strong(made->next, made)) {
        }
    }
    int pop() {
        for (;;) {
            readers_.fetch_add(1);
            node* old = head_.load();
            node* const next = old == nullptr ? nullptr : old->next;
            if constexpr (When == leaves::before) {
                readers_.fetch_sub(1);
            }
            const bool done = old == nullptr || head_.compare_exchange_strong(old, next);
            if constexpr (When == leaves::after) {
                readers_.fetch_sub(1);
            }
            if (done) {
                while (readers_.load() != 0) {
                }
                const int value = old == nullptr ? 0 : old->value;
                delete old;
                return value;
            }
        }
    }

private:
    std::atomic<node*> head_{nullptr};
    std::atomic<int> readers_{0};
};

template <leaves When> void pop_while_others_pop_and_push() {
    const auto stack = std::make_unique<pointer_stack<When>>();
    stack->push(1);
    stack->push(2);
    std::thread first([&] { stack->pop(); });
    std::thread second([&] {
        stack->pop();
        stack->pop();
        stack->push(3);
    });
    first.join();
    second.join();
}

// Two threads allocate and free twice. Records which of the addresses are the same.
void allocate_and_free() {
    const auto all = std::make_unique<std::array<void*, 4>>();
    const auto run = [&](std::size_t from) {
        for (std::size_t i = from; i != from + 2; ++i) {
            int* const made = new int(1);
            (*all)[i] = made;
            delete made;
        }
    };
    std::thread other(run, 2);
    run(0);
    other.join();
    std::string same;
    for (const void* const one : *all) {
        same += std::to_string(std::find(all->begin(), all->end(), one) - all->begin());
    }
    model::record(same);
}

} // namespace

TEST_CASE("unmodified: new may return an address that another thread has freed") {
    const auto compares = [] {
        const auto now = std::make_unique<std::atomic<int*>>(new int(1));
        const int* const seen = now->load();
        std::thread deletes([&] { delete now->exchange(nullptr); });
        std::thread makes([&] {
            int* none = nullptr;
            int* const made = new int(2);
            if (!now->compare_exchange_strong(none, made)) {
                delete made;
            }
        });
        deletes.join();
        makes.join();
        const int* const last = now->load();
        const bool is_same = last == seen;
        delete last;
        MODEL_REQUIRE(!is_same);
    };
    passes("a new address", 2, compares);
    const std::string report =
        fails("an address that was freed", failure::assertion, compares, {.reused_addresses = 1});
    CHECK(contains(report, "allocates the freed block"));
    model::options once;
    once.reused_addresses = 1;
    model::find("a stack, ABA", failure::lifetime, once,
                pop_while_others_pop_and_push<leaves::before>);
    model::find("a stack, right", failure::none, once,
                pop_while_others_pop_and_push<leaves::after>);
}

TEST_CASE("unmodified: graphs and schedules reuse the same addresses") {
    model::options how{.reused_addresses = 2, .count_duplicates = true};
    const std::string graphs = model::outcomes(how, allocate_and_free);
    const model::verdict all = model::explore(how, allocate_and_free);
    CHECK(all.what == failure::none);
    CHECK(all.duplicates == 0);
    how.how = model::options::method::enumerate;
    CHECK(graphs == model::outcomes(how, allocate_and_free));
    CHECK(contains(graphs, "0000"));
    CHECK(contains(graphs, "0123"));
}

// ---- Which accesses are seen, with each compiler

TEST_CASE("unmodified: what functions and copies read and write") {
    struct numbers {
        std::array<long, 8> all{};
    };
    struct shared {
        std::array<char, 64> text{};
        numbers one;
        numbers two;
        long number = 0;
    };
    using access = void (*)(shared&);
    // A thread writes some of the members; another one makes the access, without order.
    const auto clashes = [](access one) {
        const auto body = [one] {
            const auto all = std::make_unique<shared>();
            all->text = {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
            std::thread writer([&] {
                all->text[1] = 'y';
                all->one.all[0] = 1;
                all->number = 1;
            });
            one(*all);
            writer.join();
        };
        return model::explore({}, body).what;
    };
    const std::vector<access> seen = {
        [](shared& s) { MODEL_REQUIRE(s.number >= 0); },
        [](shared& s) { MODEL_REQUIRE(std::memcmp(s.text.data(), "a", 2) != 0); },
        [](shared& s) { MODEL_REQUIRE(std::memchr(s.text.data(), 'z', 60) == nullptr); },
        [](shared& s) { MODEL_REQUIRE(std::strlen(s.text.data()) < 64); },
        [](shared& s) { MODEL_REQUIRE(std::strcmp(s.text.data(), "xx") != 0); },
        [](shared& s) { MODEL_REQUIRE(std::strncmp(s.text.data(), "xxx", 3) != 1); },
        [](shared& s) { MODEL_REQUIRE(std::strchr(s.text.data(), 'z') == nullptr); },
        [](shared& s) {
            std::array<char, 64> to;
            std::strcpy(to.data(), s.text.data());
            MODEL_REQUIRE(to[0] == 'x');
        },
        [](shared& s) {
            long to = 0;
            std::memcpy(&to, &s.number, sizeof to);
            MODEL_REQUIRE(to >= 0);
        },
        [](shared& s) {
            numbers to;
            std::memcpy(&to, &s.one, sizeof to);
            MODEL_REQUIRE(to.all[0] + to.all[7] <= 1);
        },
        [](shared& s) {
            const numbers to = s.one;
            MODEL_REQUIRE(to.all[0] + to.all[7] <= 1);
        },
        [](shared& s) { s.two = s.one; },
        [](shared& s) { s.one = {}; },
        [](shared& s) { std::memset(&s.number, 0, sizeof s.number); },
        [](shared& s) { std::memset(&s.one, 0, sizeof s.one); },
    };
    for (std::size_t i = 0; i != seen.size(); ++i) {
        INFO(i);
        CHECK(clashes(seen[i]) == failure::race);
    }
    // These are the limits.
    const access is_not_seen = [](shared& s) { MODEL_REQUIRE(::strnlen(s.text.data(), 8) == 8); };
    CHECK(clashes(is_not_seen) == failure::none);
    // A variable on the stack of the function that starts the thread.
    fails("a local variable", failure::race, [] {
        int local = 0;
        std::thread other([&] { local = 1; });
        local = 2;
        other.join();
    });
}

// ---- Containers, of which libstdc++.so has a part

TEST_CASE("unmodified: the nodes of containers, and the characters of strings") {
    // A thread inserts while another one reads; with a lock, or without it.
    const auto shares = [](bool locks, auto make, auto insert, auto read) {
        return [=] {
            auto all = make();
            std::mutex lock;
            const auto run = [&](auto use) {
                if (locks) {
                    const std::lock_guard held(lock);
                    use(*all);
                } else {
                    use(*all);
                }
            };
            std::thread other([&] { run(insert); });
            run(read);
            other.join();
        };
    };
    using map = std::map<int, int>;
    const auto filled_map = [] {
        return std::make_unique<map>(map{{1, 1}, {2, 2}, {4, 4}, {5, 5}});
    };
    const auto insert = [](map& all) { all.emplace(3, 3); };
    const auto erase = [](map& all) { all.erase(all.find(2)); };
    const auto count = [](map& all) {
        int sum = 0;
        for (auto i = all.rbegin(); i != all.rend(); ++i) {
            sum += i->second;
        }
        MODEL_REQUIRE(sum == 12 || sum == 15 || sum == 10);
    };
    passes("std::map, with a lock", 2, shares(true, filled_map, insert, count));
    passes("std::map, erase with a lock", 2, shares(true, filled_map, erase, count));
    // Only the nodes that libstdc++.so links are shared by these.
    const auto next_of_2 = [](map& all) { MODEL_REQUIRE(std::next(all.find(2))->first > 2); };
    fails("std::map, without one", failure::race, shares(false, filled_map, insert, next_of_2));
    fails("std::map, erase without one", failure::race,
          shares(false, filled_map, erase, next_of_2));
    using list = std::list<int>;
    const auto filled_list = [] { return std::make_unique<list>(list{1, 2, 3}); };
    const auto push = [](list& all) { all.push_back(4); };
    const auto last = [](list& all) { MODEL_REQUIRE(all.back() >= 3); };
    passes("std::list, with a lock", 2, shares(true, filled_list, push, last));
    fails("std::list, without one", failure::race, shares(false, filled_list, push, last));
    passes("std::list: its functions", 1, [] {
        list one{1, 2, 3};
        list two{4, 5};
        one.splice(one.begin(), two, std::next(two.begin()));
        one.reverse();
        one.swap(two);
        one.remove(4);
        two.sort();
        MODEL_REQUIRE(one.empty() && two == list({1, 2, 3, 5}));
    });
    passes("a map from before the body", 1, [all = map{{1, 1}}]() mutable {
        all.emplace(2, 2);
        all.emplace(3, 3);
        MODEL_REQUIRE(all.size() == 3 && std::prev(all.end())->second == 3);
        all.erase(2);
        all.erase(3);
    });
    const auto text = [] { return std::make_unique<std::string>(40, 'x'); };
    const auto append = [](std::string& all) { all.append("yy"); };
    const auto find = [](std::string& all) { MODEL_REQUIRE(all.find('z') == all.npos); };
    passes("std::string, with a lock", 2, shares(true, text, append, find));
    fails("std::string, without one", failure::race, shares(false, text, append, append));
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
    const auto by_another_thread = [](auto lock, auto unlock) {
        return [=] {
            const auto one = lock();
            std::thread([&] { unlock(*one); }).join();
        };
    };
    const auto locked = [](auto lock) {
        lock->lock();
        return lock;
    };
    fails("a thread unlocks a mutex of another one", failure::assertion,
          by_another_thread([&] { return locked(std::make_unique<std::mutex>()); },
                            [](std::mutex& lock) { lock.unlock(); }));
    fails("a thread unlocks a shared_mutex of another one", failure::assertion,
          by_another_thread([&] { return locked(std::make_unique<std::shared_mutex>()); },
                            [](std::shared_mutex& lock) { lock.unlock(); }));
    const auto one_reads = [] {
        auto lock = std::make_unique<std::shared_mutex>();
        lock->lock_shared();
        return lock;
    };
    fails("a reader unlocks for another one", failure::assertion,
          by_another_thread(one_reads, [](std::shared_mutex& lock) { lock.unlock_shared(); }));
    fails("a thread unlocks a spinlock of another one", failure::assertion, [] {
        ::pthread_spinlock_t lock;
        ::pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
        ::pthread_spin_lock(&lock);
        std::thread([&] { ::pthread_spin_unlock(&lock); }).join();
    });
    CHECK(contains(fails("a mutex is freed while it is locked", failure::assertion,
                         [&] { locked(std::make_unique<std::mutex>()).reset(); }),
                   "T0 has locked it"));
    fails("a shared_mutex is freed while it is read", failure::assertion,
          [&] { one_reads().reset(); });
    fails("a mutex is destroyed while it is locked", failure::assertion, [] {
        ::pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        ::pthread_mutex_lock(&lock);
        ::pthread_mutex_destroy(&lock);
    });
    passes("readers unlock for themselves", 1, [] {
        std::shared_mutex lock;
        lock.lock_shared();
        std::thread([&] { const std::shared_lock held(lock); }).join();
        lock.unlock_shared();
        const std::lock_guard held(lock);
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
    // The flag is seen at the beginning or after each of the three sleeps, or it is not seen.
    passes("a loop that gives up at a time", 5, [] {
        const auto flag = std::make_unique<std::atomic<int>>(0);
        std::thread other([&] { flag->store(1); });
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
        while (flag->load() == 0 && std::chrono::steady_clock::now() < end) {
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

// ---- The five programs of five_bugs.hpp, with the types of the standard library

namespace five_unmodified {

using order = std::memory_order;
using word = std::atomic<std::uint32_t>;

template <order Unlock> void spinlock() {
    struct shared {
        word locked{0};
        int count = 0;
    };
    const auto s = std::make_unique<shared>();
    const auto add = [&] {
        std::uint32_t free = 0;
        while (!s->locked.compare_exchange_strong(free, 1, acquire, relaxed)) {
            free = 0;
        }
        s->count = s->count + 1;
        s->locked.store(0, Unlock);
    };
    std::thread other(add);
    add();
    other.join();
}

template <order Publish> void ring() {
    struct shared {
        int slots[2]{};
        word head{0};
        word tail{0};
    };
    const auto s = std::make_unique<shared>();
    std::thread sender([&] {
        for (std::uint32_t sent = 0; sent < 2; ++sent) {
            s->slots[sent % 2] = 7;
            s->tail.store(sent + 1, Publish);
        }
    });
    for (std::uint32_t taken = 0; taken < 2; ++taken) {
        while (s->tail.load(acquire) == taken) {
        }
        MODEL_REQUIRE(s->slots[taken % 2] == 7);
        s->head.store(taken + 1, release);
    }
    sender.join();
}

template <order Announce, order Look> void dekker() {
    struct shared {
        word mine{0};
        word yours{0};
        bool other_enters = false;
    };
    const auto s = std::make_unique<shared>();
    std::thread other([&] {
        s->yours.store(1, Announce);
        s->other_enters = s->mine.load(Look) == 0;
    });
    s->mine.store(1);
    const bool enters = s->yours.load() == 0;
    other.join();
    MODEL_REQUIRE(!(enters && s->other_enters));
}

template <bool EpochFirst> void event_count() {
    struct shared {
        word ready{0};
        word epoch{0};
    };
    const auto s = std::make_unique<shared>();
    std::thread notifier([&] {
        s->ready.store(1);
        s->epoch.fetch_add(1);
        s->epoch.notify_one();
    });
    std::uint32_t seen = EpochFirst ? s->epoch.load() : 0;
    while (s->ready.load() == 0) {
        seen = EpochFirst ? seen : s->epoch.load();
        s->epoch.wait(seen);
        seen = s->epoch.load();
    }
    notifier.join();
}

template <order Release> void last_reference() {
    struct object {
        word references{2};
        int value = 0;
    };
    auto* const shared = new object;
    const auto drop = [shared](int value) {
        if (value != 0) {
            shared->value = value;
        }
        if (shared->references.fetch_sub(1, Release) == 1) {
            delete shared;
        }
    };
    std::thread other([&] { drop(42); });
    drop(0);
    other.join();
}

} // namespace five_unmodified

TEST_CASE(
    "unmodified: the five mistakes of the comparison are found, and not in the repaired programs") {
    using namespace five_unmodified;
    constexpr order seq_cst = std::memory_order_seq_cst;
    CHECK(contains(fails("a lock unlocks relaxed", failure::race, spinlock<relaxed>), "count"));
    CHECK(contains(fails("a ring publishes relaxed", failure::race, ring<relaxed>), "slots"));
    fails("Dekker with seq_cst on one side", failure::assertion, dekker<release, acquire>);
    fails("an event count reads its epoch late", failure::lost_wakeup, event_count<false>);
    fails("a count is released relaxed", failure::lifetime, last_reference<relaxed>);
    model::check("a lock", spinlock<release>);
    model::check("a ring", ring<release>);
    model::check("Dekker", dekker<seq_cst, seq_cst>);
    model::check("an event count", event_count<true>);
    model::check("a count", last_reference<std::memory_order_acq_rel>);
}

// ---- Specifications

namespace {

// A queue behind a lock. If its look for an item is outside of the lock, two threads may take the same one.
template <bool LooksInside> struct locked_queue {
    void push(int value) {
        const std::lock_guard guard(lock);
        all.push_back(value);
        count.store(static_cast<int>(all.size()), release);
    }
    std::optional<int> try_pop() {
        if (!LooksInside && count.load(acquire) == 0) {
            return std::nullopt;
        }
        const std::lock_guard guard(lock);
        if (all.empty()) {
            return LooksInside ? std::nullopt : std::optional<int>(0);
        }
        const int value = all.front();
        all.pop_front();
        count.store(static_cast<int>(all.size()), release);
        return value;
    }

    std::mutex lock;
    std::deque<int> all;
    std::atomic<int> count{0};
};

template <bool LooksInside> void push_and_pop() {
    const auto queue = std::make_unique<locked_queue<LooksInside>>();
    model::linearizable checked(*queue, model::spec::queue<int>(), "queue");
    const auto try_pop = [&] { checked.call("try_pop", [](auto& q) { return q.try_pop(); }); };
    std::thread one(try_pop);
    std::thread two([&] { checked.call("push", [](auto& q, int value) { q.push(value); }, 1); });
    try_pop();
    one.join();
    two.join();
}

} // namespace

TEST_CASE("unmodified: a queue has the results of a sequential one") {
    model::check("a queue behind a lock", push_and_pop<true>);
    const std::string report =
        fails("a look outside of the lock", failure::not_linearizable, push_and_pop<false>);
    CHECK(contains(report, "try_pop() -> 0 -"));
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

namespace {

template <class Container> void pop_twice() {
    const auto values = std::make_unique<Container>(2);
    values->push(1);
    const auto pop = [&] {
        int value = 0;
        values->pop(value);
    };
    std::thread other(pop);
    pop();
    other.join();
}

} // namespace

TEST_CASE("unmodified: what boost's lock-free containers get wrong") {
    const std::string stack = [] {
        const model::verdict v = model::explore({}, pop_twice<boost::lockfree::stack<int>>);
        return BOOST_VERSION == 107400 && v.what != failure::race ? "none" : v.report;
    }();
    const std::string queue = [] {
        const model::verdict v = model::explore({}, pop_twice<boost::lockfree::queue<int>>);
        return BOOST_VERSION == 107400 && v.what != failure::race ? "none" : v.report;
    }();
    std::printf("boost %d\n%s\n%s\n", BOOST_VERSION, stack.c_str(), queue.c_str());
    CHECK(stack != "none");
    CHECK(queue != "none");
}

#endif
