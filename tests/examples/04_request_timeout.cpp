// # 4. A request with a time-out and cleanup
//
// A request has a limit for everything that it does, and whatever it has begun is undone when the time is over.
// It works in a transaction and asks a database two things at once. The database may hang. Then the client gets
// an answer in time, the transaction is rolled back, and the database is told to forget the queries.

#include <bide/bide.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <tuple>
#include <utility>

using namespace std::chrono_literals;

// The database of this chapter is a few counters, and an event that is set while it answers.

struct database {
    bide::semaphore sessions{2};
    bide::event answers;
    bide::event was_asked;
    std::atomic<int> begun{0}, committed{0}, rolled_back{0}; // transactions
    std::atomic<int> asked{0}, forgotten{0};                 // queries
};

// **Cleanup that needs no wait** belongs in a destructor, as in any C++ program. The end of a task by a time-out
// is an exception in its innermost wait, `stopped_error`. It unwinds the coroutine, and all destructors run:
// the transaction is rolled back, then its session returns to the semaphore.

class transaction {
public:
    transaction(database& in, bide::permit session) : session_(std::move(session)), in_(in) {
        ++in_.begun;
    }
    ~transaction() { ++(is_committed_ ? in_.committed : in_.rolled_back); }
    transaction(const transaction&) = delete;
    transaction& operator=(const transaction&) = delete;
    void commit() { is_committed_ = true; }

private:
    bide::permit session_;
    database& in_;
    bool is_committed_ = false;
};

// **Cleanup that waits** cannot be in a destructor, and a cancelled task cannot wait: each of its waits would be
// stopped at once. So the wait for the answer returns a result instead of an exception, by `as_result()`. If
// it was stopped, a shield keeps the cancellation away while the task tells the database. At the end
// `value()` throws what the wait would have thrown, and the cancellation goes on.

bide::task<> forget(database& db, int) {
    co_await bide::this_task::sleep_for(1ms); // one more round trip
    ++db.forgotten;
}

bide::task<int> query(database& db, int key) {
    ++db.asked;
    db.was_asked.set();
    auto answered = co_await db.answers.async_wait().as_result();
    if (!answered) { // errc::stopped
        const bide::this_task::shield from_cancellation;
        co_await forget(db, key);
    }
    answered.value();
    co_return 100 * key;
}

// The body of the request knows nothing of limits. `when_all()` cancels and awaits its children with their
// parent, so neither query can outlive the transaction.

bide::task<int> add_up(database& db) {
    transaction mine(db, co_await db.sessions.async_acquire());
    const auto both = co_await bide::when_all(query(db, 1), query(db, 2));
    mine.commit();
    co_return std::get<0>(both) + std::get<1>(both);
}

// **One step** that may fail without harm has a limit of its own, on the operation. It ends that wait alone, and
// the task continues.

bide::task<std::string> greeting(database& db) {
    auto answered = co_await db.answers.async_wait().with_timeout(1ms);
    co_return answered ? "hello again" : "hello"; // errc::timeout
}

// **The whole request** has its limit around the body. `with_timeout()` cancels the body and returns when that
// has ended, its cleanup included. So the limit is the time at which the cancellation comes, not the time of
// the answer, and a shield should protect short things only. If the value came in spite of the cancellation, it
// is returned. An exception of the body's own passes through.

bide::task<std::string> handle(database& db, std::chrono::milliseconds limit) {
    const std::string hello = co_await greeting(db);
    const auto sum = co_await bide::with_timeout(add_up(db), limit);
    co_return sum ? "200 " + hello + ", " + std::to_string(*sum) : "504 " + hello;
}

// The request ends in three ways. First the database hangs, and the time is over. Then the client hangs up, while
// the limit is far: `cancel()` of the task's handle takes the same way through the body, and `join()` throws
// `stopped_error`, as there is no answer. Last, the database answers. The program counts what was begun and what
// was undone. It does not know how far the first request has come when its time is over, and need not.

bool is_undone(const database& db) {
    return db.committed == 0 && db.rolled_back == db.begun && db.forgotten == db.asked;
}

int main() {
    database db;
    bide::scheduler workers;
    const std::string late = bide::sync_wait(workers, handle(db, 10ms));
    std::printf("%s\n", late.c_str());
    bool is_right = late == "504 hello" && is_undone(db);

    db.was_asked.reset();
    auto request = workers.spawn(handle(db, 1h));
    db.was_asked.wait();
    request.cancel();
    try {
        std::move(request).join();
        is_right = false;
    } catch (const bide::stopped_error&) {
        is_right &= is_undone(db);
    }
    std::printf("%d begun, %d rolled back\n", db.begun.load(), db.rolled_back.load());

    db.answers.set();
    const std::string in_time = bide::sync_wait(workers, handle(db, 1h));
    std::printf("%s\n", in_time.c_str());
    is_right &= in_time == "200 hello again, 300" && db.committed == 1;
    const bool all_sessions_are_back = db.sessions.try_acquire(2);
    return is_right && all_sessions_are_back ? 0 : 1;
}

// **Limits.** Cancellation acts in waits. A loop that computes has to ask `this_task::is_cancelled()`, or to take
// the token of `this_task::get_stop_token()`, and a call that blocks its thread is not interrupted. Within the
// body, `this_task::deadline()` is the time that is left, to be sent along to the next server; nested limits can
// only shorten it.
