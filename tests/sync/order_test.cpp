// Random steps on one thread, each compared with a model of a number and a list of waiters: which
// waiters are granted, in which order, and what is left. Nothing depends on time or other threads.

#include "support/stress.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

using namespace bide;

namespace {

// The number and the list.
class oracle {
public:
    explicit oracle(std::ptrdiff_t permits) : free(permits) {}

    struct place {
        int name;
        std::ptrdiff_t amount;
        std::ptrdiff_t missing;
    };

    std::ptrdiff_t free;
    bool closed = false;
    std::deque<place> queue;
    std::vector<int> through; // the waiters whose wait is over, in order

    bool try_acquire(std::ptrdiff_t n) {
        const bool can = !closed && (n == 0 || (queue.empty() && free >= n));
        free -= can ? n : 0;
        return can;
    }

    // True: complete at once.
    bool acquire(int name, std::ptrdiff_t n) {
        if (closed || try_acquire(n)) {
            return true;
        }
        queue.push_back({name, n, n});
        serve();
        return false;
    }

    void release(std::ptrdiff_t n) {
        free += n;
        serve();
    }

    void cancel(int name) {
        const auto at = std::find_if(queue.begin(), queue.end(),
                                     [name](const place& p) { return p.name == name; });
        free += at->amount - at->missing;
        queue.erase(at);
        serve();
    }

    void close() {
        closed = true;
        for (const place& p : queue) {
            free += p.amount - p.missing;
            through.push_back(p.name);
        }
        queue.clear();
    }

    std::ptrdiff_t forget(std::ptrdiff_t n) {
        const std::ptrdiff_t some = std::min(n, free);
        free -= some;
        return some;
    }

private:
    void serve() {
        while (!queue.empty() && free > 0) {
            const std::ptrdiff_t part = std::min(free, queue.front().missing);
            free -= part;
            queue.front().missing -= part;
            if (queue.front().missing != 0) {
                return;
            }
            through.push_back(queue.front().name);
            queue.pop_front();
        }
    }
};

// Waits, notes its turn, and keeps what it got.
test::held keep(semaphore& s, std::ptrdiff_t n, test::journal& turns, int name) {
    auto got = co_await s.async_acquire(n).as_result();
    if (got) {
        got->forget();
    }
    turns.add(name);
}
test::held keep_on(test::manual_executor& e, semaphore& s, std::ptrdiff_t n, test::journal& turns,
                   int name) {
    auto got = co_await s.async_acquire(n).resume_on(e).as_result();
    if (got) {
        got->forget();
    }
    turns.add(name);
}

enum class kind { waker, coroutine, posted };

struct somebody {
    int name;
    kind is;
    std::ptrdiff_t amount;
    std::unique_ptr<test::foreign<semaphore>> by_waker;
    std::unique_ptr<test::held> by_coroutine;
};

// One semaphore and what is thought of it. Names are 3 * serial + kind.
class game {
public:
    game(test::jitter& chance, std::ptrdiff_t permits)
        : chance_(chance), expected_(permits), real_(permits) {}

    ~game() {
        later_.drop_all();
        for (somebody& w : waiting_) {
            leave(w);
        }
    }

    // False: it is not as expected.
    bool step() {
        const std::ptrdiff_t n = upto(6);
        switch (chance_.below(10)) {
        case 0: good_ = real_.try_acquire(n) == expected_.try_acquire(n); break;
        case 1:
        case 2: come(kind::waker, n); break;
        case 3: come(kind::coroutine, n); break;
        case 4: come(kind::posted, n); break;
        case 5: give_up(); break;
        case 6: good_ = real_.forget_permits(n / 2) == expected_.forget(n / 2); break;
        case 7:
            if (chance_.below(64) == 0) {
                good_ = real_.close() != expected_.closed;
                expected_.close();
            }
            break;
        default: real_.release(n); expected_.release(n);
        }
        return same();
    }

private:
    std::ptrdiff_t upto(std::uint32_t n) {
        return static_cast<std::ptrdiff_t>(chance_.below(n + 1));
    }

    void come(kind is, std::ptrdiff_t n) {
        if (waiting_.size() > 12) {
            return;
        }
        const int name = 3 * serial_++ + static_cast<int>(is);
        somebody& w = waiting_.emplace_back(somebody{name, is, n, nullptr, nullptr});
        bool at_once = false;
        if (is == kind::waker) {
            w.by_waker.reset(new test::foreign<semaphore>(real_, n, turns_, name));
            at_once = w.by_waker->start();
        } else {
            w.by_coroutine.reset(new test::held(is == kind::posted
                                                    ? keep_on(later_, real_, n, turns_, name)
                                                    : keep(real_, n, turns_, name)));
            w.by_coroutine->start();
            at_once = w.by_coroutine->done();
        }
        good_ = good_ && expected_.acquire(name, n) == at_once;
        if (at_once) {
            expected_.through.push_back(name);
        }
    }

    // A waiter gives up.
    void give_up() {
        if (expected_.queue.empty()) {
            return;
        }
        const std::size_t at = chance_.below(static_cast<std::uint32_t>(expected_.queue.size()));
        const int name = expected_.queue[at].name;
        const auto w = find(name);
        leave(*w);
        waiting_.erase(w);
        expected_.cancel(name);
    }

    std::list<somebody>::iterator find(int name) {
        return std::find_if(waiting_.begin(), waiting_.end(),
                            [name](const somebody& w) { return w.name == name; });
    }

    void leave(somebody& w) {
        if (w.by_waker != nullptr && !w.by_waker->is_complete()) {
            good_ = good_ && w.by_waker->cancel();
        }
        w.by_coroutine.reset();
    }

    static std::vector<int> only(const std::vector<int>& names, kind which) {
        std::vector<int> some;
        for (const int name : names) {
            if (name % 3 == static_cast<int>(which)) {
                some.push_back(name);
            }
        }
        return some;
    }

    // Of one kind, all are told in the order of the grants; coroutines after the wakers.
    bool same() {
        if (chance_.below(4) == 0) {
            destroy_granted();
        }
        later_.run_all();
        const std::vector<int> seen = turns_.entries();
        turns_.clear();
        for (const kind which : {kind::waker, kind::coroutine, kind::posted}) {
            good_ = good_ && only(seen, which) == only(expected_.through, which);
        }
        for (const int name : seen) {
            std::erase_if(waiting_, [name](const somebody& w) { return w.name == name; });
        }
        expected_.through.clear();
        return good_ && real_.available() == expected_.free &&
               real_.waiters() == expected_.queue.size() && real_.is_closed() == expected_.closed &&
               (expected_.queue.empty() || real_.available() == 0);
    }

    // Waiters that were granted, and that their executor has not run yet, never run.
    void destroy_granted() {
        std::vector<int>& through =
            expected_.through; // grows with the waiters that this lets through
        for (std::size_t i = 0; i < through.size();) {
            const auto w = find(through[i]);
            if (w == waiting_.end() || w->is != kind::posted || w->by_coroutine->done()) {
                ++i;
                continue;
            }
            later_.drop_all();
            const std::ptrdiff_t back = expected_.closed ? 0 : w->amount;
            waiting_.erase(w);
            through.erase(through.begin() + static_cast<std::ptrdiff_t>(i));
            expected_.release(back);
        }
    }

    test::jitter& chance_;
    oracle expected_;
    test::journal turns_;
    test::manual_executor later_;
    semaphore real_;
    std::list<somebody> waiting_;
    int serial_ = 0;
    bool good_ = true;
};

// Stays inside until it is destroyed.
template <class Mutex>
test::held inside(Mutex& m, [[maybe_unused]] bool reads, test::journal& turns, int name) {
    if constexpr (requires { m.async_lock_shared(); }) {
        if (reads) {
            const auto lock = co_await m.async_lock_shared();
            turns.add(name);
            co_await std::suspend_always();
        }
    }
    const auto lock = co_await m.async_lock();
    turns.add(name);
    co_await std::suspend_always();
}

// A mutex is a semaphore of one permit, a shared one of so many that a writer takes all.
template <class Mutex> bool is_as_expected(test::jitter& chance, std::ptrdiff_t all) {
    struct waiting_task {
        int name;
        std::ptrdiff_t amount;
        test::held frame;
    };
    Mutex m;
    oracle expected(all);
    test::journal turns;
    std::vector<std::unique_ptr<waiting_task>> waiting_tasks;
    std::vector<int> let_in;
    for (int name = 0; name < 300; ++name) {
        if (waiting_tasks.size() < 10 && chance.below(2) == 0) {
            const bool reads = chance.below(3) != 0;
            const std::ptrdiff_t amount = reads ? 1 : all;
            waiting_tasks.push_back(std::unique_ptr<waiting_task>(
                new waiting_task{name, amount, inside(m, reads, turns, name)}));
            waiting_tasks.back()->frame.start();
            if (expected.acquire(name, amount)) {
                expected.through.push_back(name);
            }
        } else if (!waiting_tasks.empty()) { // an owner or a waiter
            const std::size_t at = chance.below(static_cast<std::uint32_t>(waiting_tasks.size()));
            const std::unique_ptr<waiting_task> goes = std::move(waiting_tasks[at]);
            waiting_tasks.erase(waiting_tasks.begin() + static_cast<std::ptrdiff_t>(at));
            const auto waits = [&](const oracle::place& p) { return p.name == goes->name; };
            const bool queued = std::any_of(expected.queue.begin(), expected.queue.end(), waits);
            goes->frame.destroy();
            queued ? expected.cancel(goes->name) : expected.release(goes->amount);
        }
        let_in.insert(let_in.end(), expected.through.begin(), expected.through.end());
        expected.through.clear();
        if (turns.entries() != let_in) {
            return false;
        }
        const bool is_free = expected.queue.empty() && expected.free == all;
        if (m.try_lock() != is_free) {
            return false;
        }
        if (is_free) {
            m.unlock();
        }
    }
    return true;
}

} // namespace

TEST_CASE("semaphore: random steps do what a number and a list would do",
          "[promise.no-overtaking][promise.giving-up-passes-on]") {
    const test::stress_time time;
    test::jitter chance(test::run_seed());
    std::uint64_t games = 0;
    do {
        game g(chance, static_cast<std::ptrdiff_t>(chance.below(4)));
        for (int step = 0; step < 300; ++step) {
            if (!g.step()) {
                FAIL("game " << games << ", step " << step);
            }
        }
        ++games;
    } while (time.is_left());
}

TEST_CASE("mutex, shared_mutex: random steps do what a number and a list would do") {
    const test::stress_time time;
    test::jitter chance(test::run_seed());
    do {
        REQUIRE(is_as_expected<mutex>(chance, 1));
        REQUIRE(is_as_expected<shared_mutex>(chance, 1'000));
    } while (time.is_left());
}
