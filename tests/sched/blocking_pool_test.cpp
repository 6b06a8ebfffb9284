#include <bide/sched/blocking_pool.hpp>
#include <support/sched.hpp>

#if defined(__linux__)
#include <pthread.h>
#include <signal.h>
#endif

using namespace bide;
using os_thread = bide::detail::os_thread;

namespace {

// A runnable that records on which thread it ran and that it started. If it is shut, it waits until
// it is opened.
struct job : runnable {
    std::atomic<bool> shut{false};
    std::atomic<int> started{0};
    std::atomic<int> ended{0};
    std::atomic<int>* turns = nullptr;
    int turn = -1;
    std::thread::id on;

    explicit job(bool is_shut = false) noexcept : shut(is_shut) {
        run = waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<job*>(self);
                mine.on = std::this_thread::get_id();
                if (mine.turns != nullptr) {
                    mine.turn = mine.turns->fetch_add(1);
                }
                ++mine.started;
                while (mine.shut) {
                    std::this_thread::yield();
                }
                ++mine.ended;
            },
            this);
    }
    bool has_started() {
        return test::eventually([this] { return started == 1; });
    }
    bool has_ended() {
        return test::eventually([this] { return ended == 1; });
    }
};

template <class Pool> bool accepts(Pool& pool, runnable& j) {
    std::error_code why = std::make_error_code(std::errc::io_error);
    return pool.post(j, why) && !why;
}

template <class Pool = blocking_pool>
typename Pool::options up_to(unsigned threads, std::chrono::milliseconds keep_alive = 1h) {
    return {.max_threads = threads, .keep_alive = keep_alive, .name = "a"};
}

// Jobs that the pool has accepted. They are shut until they are opened.
class crew {
public:
    template <class Pool> crew(Pool& pool, std::size_t n, bool shut = true) {
        for (std::size_t i = 0; i < n; ++i) {
            add(pool, shut);
        }
    }
    template <class Pool> void add(Pool& pool, bool shut = true) {
        REQUIRE(accepts(pool, all_.emplace_back(shut)));
    }
    job& operator[](std::size_t i) { return all_[i]; }
    auto begin() { return all_.begin(); }
    auto end() { return all_.end(); }
    void open() {
        for (job& j : all_) {
            j.shut = false;
        }
    }
    bool have_ended() const {
        return std::all_of(all_.begin(), all_.end(), [](const job& j) { return j.ended == 1; });
    }

private:
    std::deque<job> all_;
};

template <class Pool> std::error_code refusal(Pool& pool, job& j) {
    std::error_code why;
    return pool.post(j, why) ? std::error_code() : why;
}

// Polls until so many threads are idle and none is busy.
template <class Pool> bool rests(const Pool& pool, unsigned n) {
    return test::eventually([&] { return pool.idle() == n && pool.threads() == n; });
}

// A platform with delays: after a lock was released, and after a sleep that timed out.
struct belated : test::jittery {
    template <class T> class atomic : public test::jittery::atomic<T> {
        using base = test::jittery::atomic<T>;

    public:
        using base::base;
        T fetch_and(T value, std::memory_order o) noexcept {
            const T before = base::fetch_and(value, o);
            chance().dawdle(17);
            return before;
        }
    };

    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        const bool in_time = test::jittery::futex_wait(word, expected, until);
        if (!in_time) {
            chance().dawdle(19);
        }
        return in_time;
    }
};

using belated_pool = basic_blocking_pool<belated>;

#if defined(__linux__)
struct noted_thread : os_thread {
    inline static std::atomic<int> joined{0};
    bool try_join() noexcept {
        const bool ended = os_thread::try_join();
        joined += ended ? 1 : 0;
        return ended;
    }
};
#endif

// At most `left` of these threads are started.
struct scarce_thread : os_thread {
    inline static std::atomic<int> left{0};
    std::error_code start(function body, void* argument, std::size_t = 0) noexcept {
        if (left.fetch_sub(1) <= 0) {
            ++left;
            return std::make_error_code(std::errc::too_many_files_open);
        }
        return os_thread::start(body, argument);
    }
};

// A thread-local object of a pool's thread with a slow destructor.
struct belongings {
    inline static std::atomic<int> alive{0};
    inline static std::atomic<std::uint32_t> made{0};
    test::jitter chance{test::run_seed() + ++made};
    belongings() noexcept { ++alive; }
    ~belongings() {
        chance.dawdle(20);
        --alive;
    }
};

struct furnishing : runnable {
    furnishing() noexcept {
        run = waker([](void*) noexcept { static thread_local belongings mine; }, nullptr);
    }
};

} // namespace

TEST_CASE("blocking_pool: work runs once, on a thread of the pool") {
    blocking_pool pool(up_to(2));
    CHECK(pool.threads() == 0);
    job a;
    REQUIRE(accepts(pool, a));
    REQUIRE(a.has_ended());
    REQUIRE(rests(pool, 1));
    job b;
    const std::size_t before = test::allocations_here();
    REQUIRE(accepts(pool, b));
    CHECK(test::allocations_here() == before);
    REQUIRE(b.has_ended());
    CHECK(a.on == b.on);
    CHECK(a.on != std::this_thread::get_id());
    pool.finish();
    CHECK(a.ended + b.ended == 2);
}

#if defined(__linux__)
TEST_CASE("blocking_pool: its threads have names and leave the program's signals alone") {
    struct probe : runnable {
        std::string name;
        bool blocked = false;
        std::atomic<bool> done{false};
        probe() {
            run = waker(
                [](void* self) noexcept {
                    auto& mine = *static_cast<probe*>(self);
                    char text[32] = {};
                    ::pthread_getname_np(::pthread_self(), text, sizeof text);
                    mine.name = text;
                    sigset_t now;
                    ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
                    mine.blocked = ::sigismember(&now, SIGUSR1) == 1;
                    mine.done = true;
                },
                this);
        }
    };
    for (const char* const name : {"worker", "a name of many words"}) {
        blocking_pool pool({.max_threads = 2, .keep_alive = 1h, .name = name});
        std::error_code why;
        job first(true); // thread 0
        REQUIRE(accepts(pool, first));
        probe second;
        REQUIRE(pool.post(second, why));
        REQUIRE(test::eventually([&] { return second.done.load(); }));
        first.shut = false;
        REQUIRE(first.has_ended());
        CHECK(second.name == std::string(name).substr(0, 12) + "-b1");
        CHECK(second.blocked);
        sigset_t now;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
        CHECK(::sigismember(&now, SIGUSR1) == 0);
    }
}
#endif

TEST_CASE("blocking_pool: grows only while no thread is idle, and the thread "
          "that became idle last works first") {
    blocking_pool pool(up_to(8));
    crew jobs(pool, 3);
    CHECK(pool.threads() == 3);
    for (job& j : jobs) {
        REQUIRE(j.has_started());
    }
    for (const unsigned i : {1u, 0u, 2u}) { // the order in which they become idle
        const unsigned before = pool.idle();
        jobs[i].shut = false;
        REQUIRE(test::eventually([&] { return pool.idle() == before + 1; }));
    }
    job again[3] = {job(true), job(true), job(true)};
    for (job& j : again) {
        REQUIRE(accepts(pool, j));
        REQUIRE(j.has_started());
    }
    CHECK(again[0].on == jobs[2].on);
    CHECK(again[1].on == jobs[0].on);
    CHECK(again[2].on == jobs[1].on);
    CHECK(pool.threads() == 3);
    CHECK(pool.idle() == 0);
    for (job& j : again) {
        j.shut = false;
    }
    CHECK(rests(pool, 3));
}

TEST_CASE("blocking_pool: with all threads busy, work is queued, the oldest first") {
    blocking_pool pool(up_to(1));
    std::atomic<int> turns{0};
    job first(true);
    REQUIRE(accepts(pool, first));
    std::deque<job> rest(10);
    for (job& j : rest) {
        j.turns = &turns;
        REQUIRE(accepts(pool, j));
    }
    CHECK(pool.threads() == 1);
    CHECK(pool.queued() == 10);
    first.shut = false;
    REQUIRE(rests(pool, 1));
    CHECK(pool.queued() == 0);
    int in_order = 0;
    for (job& j : rest) {
        CHECK(j.ended == 1);
        CHECK(j.turn == in_order++);
        CHECK(j.on == first.on);
    }
}

TEST_CASE("blocking_pool: a raised limit allows one thread more, also for queued work") {
    blocking_pool pool(up_to(1));
    job first(true);
    job second(true);
    job third(true);
    REQUIRE(accepts(pool, first));
    REQUIRE(accepts(pool, second));
    CHECK(pool.queued() == 1);
    pool.raise_limit();
    CHECK(second.has_started());
    CHECK(pool.queued() == 0);
    CHECK_FALSE(pool.try_run(third));
    pool.raise_limit();
    CHECK(pool.try_run(third));
    pool.lower_limit();
    pool.lower_limit();
    CHECK(pool.threads() == 3);
    second.shut = false;
    third.shut = false;
    CHECK(test::eventually([&] { return pool.threads() == 1; })); // threads above the limit leave
    first.shut = false;
    REQUIRE(rests(pool, 1));
    pool.finish();
    pool.raise_limit(); // no thread can be started
    CHECK_FALSE(pool.try_run(third));
}

TEST_CASE("blocking_pool: the greatest limit is none, also if it is raised") {
    blocking_pool pool(up_to(~0u));
    pool.raise_limit();
    job a;
    CHECK(accepts(pool, a));
    pool.lower_limit();
    pool.finish();
}

TEST_CASE("blocking_pool: try_run() takes a runnable only if a thread can run it at once") {
    blocking_pool pool(up_to(2));
    job a(true);
    job b(true);
    job c;
    job d;
    CHECK(pool.try_run(a));
    CHECK(pool.try_run(b));
    CHECK_FALSE(pool.try_run(c));
    CHECK(pool.queued() == 0);
    a.shut = false;
    REQUIRE(test::eventually([&] { return pool.idle() == 1; }));
    CHECK(pool.try_run(c));
    CHECK(c.has_ended());
    b.shut = false;
    pool.finish();
    CHECK_FALSE(pool.try_run(d));
    CHECK(d.started == 0);
}

TEST_CASE("blocking_pool: threads leave when their time is over, and new ones are started") {
    for (const auto keep_alive : {3ms, 0ms}) {
        blocking_pool pool(up_to(8, keep_alive));
        for (int round = 0; round < 3; ++round) {
            crew jobs(pool, 3);
            CHECK(pool.threads() >= 3);
            jobs.open();
            REQUIRE(rests(pool, 0));
            CHECK(jobs.have_ended());
        }
    }
}

TEST_CASE("blocking_pool: finish() runs what is queued, and refuses more") {
    blocking_pool pool(up_to(2));
    crew first(pool, 2);
    crew rest(pool, 20, false);
    std::deque<job> posted_late;
    unsigned still_there[2];
    std::error_code late;
    test::run_threads(3, [&](int me) {
        if (me == 2) {
            test::eventually([&] {
                late = refusal(pool, posted_late.emplace_back());
                return static_cast<bool>(late);
            });
            first.open();
        } else {
            pool.finish();
            still_there[me] = pool.threads();
        }
    });
    CHECK(still_there[0] + still_there[1] == 0);
    CHECK(late == errc::closed);
    CHECK(posted_late.back().started == 0);
    posted_late.pop_back(); // those before it were accepted
    CHECK(rest.have_ended());
    CHECK(std::all_of(posted_late.begin(), posted_late.end(),
                      [](const job& j) { return j.ended == 1; }));
    pool.finish();
    job refused;
    CHECK(refusal(pool, refused) == errc::closed);
    CHECK_FALSE(pool.try_run(refused));
    CHECK(refused.started == 0);
}

TEST_CASE(
    "blocking_pool: when finish() returns, all threads have ended, also those that left before") {
    for (int round = 0; round < 60; ++round) {
        blocking_pool pool(up_to(4, round % 2 == 0 ? 1h : 0ms));
        furnishing jobs[4];
        std::error_code why;
        int taken = 0;
        for (furnishing& j : jobs) {
            taken += pool.post(j, why) ? 1 : 0;
        }
        int left[2] = {};
        if (round % 4 < 2) {
            pool.finish();
            left[0] = belongings::alive;
        } else {
            test::run_threads(2, [&](int me) {
                pool.finish();
                left[me] = belongings::alive;
            });
        }
        CHECK(taken == 4);
        CHECK(left[0] + left[1] == 0);
    }
}

TEST_CASE("blocking_pool: without threads everything is refused") {
    blocking_pool pool(up_to(0));
    job j;
    CHECK(refusal(pool, j) == std::errc::resource_unavailable_try_again);
    CHECK_FALSE(pool.try_run(j));
    CHECK(pool.queued() == 0);
    pool.finish();
    CHECK(j.started == 0);
}

TEST_CASE(
    "blocking_pool: without memory, work is refused if there is no thread, and queued otherwise") {
    if (!test::counts_allocations()) {
        return;
    }
    blocking_pool pool(up_to(3));
    job a(true);
    job b;
    job c;
    std::error_code refused;
    bool tried;
    {
        const test::out_of_memory none;
        refused = refusal(pool, b);
        tried = pool.try_run(b);
    }
    CHECK(refused == std::errc::not_enough_memory);
    CHECK_FALSE(tried);
    CHECK(pool.threads() == 0);
    REQUIRE(accepts(pool, a));
    {
        const test::out_of_memory none;
        refused = refusal(pool, c);
        tried = pool.tend();
    }
    CHECK_FALSE(refused);
    CHECK(tried);
    CHECK(pool.queued() == 1);
    CHECK_FALSE(pool.tend());
    CHECK(c.has_ended());
    a.shut = false;
    pool.finish(); // before its jobs are destroyed
    CHECK(b.started == 0);
}

TEST_CASE("blocking_pool: if no more threads can be started, the existing ones do the work") {
    using pool_type = basic_blocking_pool<test::native, scarce_thread>;
    pool_type pool(up_to<pool_type>(8));
    job first(true);
    scarce_thread::left = 0;
    CHECK(refusal(pool, first) == std::errc::too_many_files_open);
    CHECK_FALSE(pool.try_run(first));
    CHECK(pool.threads() == 0);
    CHECK(pool.queued() == 0);
    scarce_thread::left = 1;
    REQUIRE(accepts(pool, first));
    crew rest(pool, 5, false);
    job tried;
    CHECK_FALSE(pool.try_run(tried));
    CHECK(pool.threads() == 1);
    CHECK(pool.queued() == 5);
    scarce_thread::left = 1;
    job late;
    CHECK(pool.try_run(late)); // on a thread of its own
    first.shut = false;
    REQUIRE(rests(pool, 2));
    CHECK(rest.have_ended());
    CHECK(late.ended == 1);
    CHECK(tried.started == 0);
    scarce_thread::left = 0;
}

TEST_CASE("blocking_pool: a thread that was refused is started by a later post or by tend()") {
    using pool_type = basic_blocking_pool<test::native, scarce_thread>;
    std::atomic<int> asked{0};
    auto wanted = up_to<pool_type>(8);
    wanted.attention =
        waker([](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &asked);
    pool_type pool(wanted);
    crew jobs(pool, 0);
    scarce_thread::left = 1;
    jobs.add(pool);
    CHECK(asked == 0);
    jobs.add(pool);
    CHECK(asked == 1);
    CHECK(pool.tend());
    scarce_thread::left = 2;
    jobs.add(pool);
    CHECK(asked == 1);
    CHECK(jobs[1].has_started());
    CHECK(jobs[2].has_started());
    jobs.add(pool);
    CHECK(asked == 2);
    scarce_thread::left = 1;
    CHECK_FALSE(pool.tend());
    CHECK(jobs[3].has_started());
    CHECK(pool.queued() == 0);
    jobs.open();
    pool.finish();
}

#if defined(__linux__)
TEST_CASE("blocking_pool: a thread that leaves asks to be joined, also if no other one comes") {
    using pool_type = basic_blocking_pool<test::native, noted_thread>;
    std::atomic<int> asked{0};
    auto wanted = up_to<pool_type>(8, 1ms);
    wanted.attention =
        waker([](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); }, &asked);
    pool_type pool(wanted);
    CHECK_FALSE(pool.reap());
    job a;
    REQUIRE(accepts(pool, a));
    CHECK(test::eventually([&] { return asked == 1; }));
    CHECK(test::eventually([&] { return !pool.reap(); }));
    CHECK(noted_thread::joined == 1);
}
#endif

#if BIDE_TESTS_CAN_DIE

namespace {

// Runs its body at once, on the calling thread.
struct no_thread {
    std::error_code start(os_thread::function body, void* argument, std::size_t = 0) noexcept {
        body(argument);
        return {};
    }
    void join() noexcept {}
    static void name_this(std::string_view, const char*, unsigned) noexcept {}
};

} // namespace

TEST_CASE("blocking_pool: finish() on one of its own threads terminates with a message") {
    CHECK(test::contains(
        test::dies([] {
            using pool_type = basic_blocking_pool<test::native, no_thread>;
            pool_type pool(up_to<pool_type>(1));
            runnable r;
            r.run =
                waker([](void* p) noexcept { static_cast<decltype(pool)*>(p)->finish(); }, &pool);
            std::error_code why;
            pool.post(r, why);
        }),
        "finish() was called on one of its own threads"));
}

#endif

TEST_CASE("blocking_pool: work that is posted when a thread's time is over runs") {
    test::jitter chance(test::run_seed());
    std::deque<job> jobs(150);
    belated_pool pool(up_to<belated_pool>(1, 1ms));
    int lost = 0;
    for (job& j : jobs) {
        REQUIRE(accepts(pool, j));
        lost += j.has_ended() ? 0 : 1;
        const std::int64_t end = native_platform::now() + 900'000 + chance.below(400'000);
        while (native_platform::now() < end) {
        }
    }
    CHECK(lost == 0);
}
