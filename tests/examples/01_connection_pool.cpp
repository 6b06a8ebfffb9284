// # 1. A connection pool
//
// Threads and coroutines of a service share a few connections to its database. A pool makes a connection
// when one is needed, up to a limit, and lends it again. When all are lent, threads block and coroutines
// suspend, in one queue: first come, first served.

#include <bide/bide.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// The connection of this chapter counts how many were opened, and has no socket. It is only moved, as a real
// one would be. `is_alive()` is the check that the pool makes before it lends a connection again.

std::atomic<int> opened{0};

class connection {
public:
    connection() : name_(std::make_unique<int>(++opened)) {}

    std::size_t query(const std::string& text) { return text.size(); }
    void lose() { is_alive_ = false; } // as when the server restarts
    bool is_alive() const { return is_alive_; }

private:
    std::unique_ptr<int> name_;
    bool is_alive_ = true;
};

using connection_pool = bide::object_pool<connection>;

// A thread calls `acquire()`. What it gets is a lease: it acts as a pointer to the connection, and its
// destructor returns the connection to the pool, also when an exception leaves the scope. So no path
// through the function can forget it.

std::size_t from_a_thread(connection_pool& pool) {
    auto lease = pool.acquire(); // blocks while all are lent
    return lease->query("select 1");
}

// A coroutine awaits `async_acquire()`. Its thread does something else meanwhile. A lease may stay over
// another `co_await`: the coroutine has the connection until the lease is destroyed, on whatever thread
// that happens.

bide::task<std::size_t> from_a_task(connection_pool& pool) {
    auto lease = co_await pool.async_acquire();
    co_await bide::this_task::yield(); // a real query waits for its answer here
    co_return lease->query("select 2");
}

// A request that must answer soon limits its wait. The result then has the lease or an error:
// `errc::timeout`, or `errc::closed` if the service is about to end. A request that gave up has left the
// queue, and the requests behind it move up.

bide::task<bool> within(connection_pool& pool, std::chrono::milliseconds limit) {
    auto lease = co_await pool.async_acquire().with_timeout(limit);
    if (!lease)
        co_return false; // answers "busy, try later"
    co_return (*lease)->query("select 3") != 0;
}

// Four threads and a hundred tasks share the pool.

bool share(connection_pool& pool) {
    std::atomic<std::size_t> bytes{0};
    {
        bide::scheduler workers;
        bide::task_group tasks(workers);
        for (int i = 0; i < 100; ++i)
            tasks.spawn([&]() -> bide::task<> { bytes += co_await from_a_task(pool); });
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                for (int n = 0; n < 25; ++n)
                    bytes += from_a_thread(pool);
            });
        tasks.join();
    } // joins the threads
    std::printf("200 queries, %d connections\n", opened.load());
    return bytes == 200 * 8 && opened <= 3;
}

// Then the server restarts, and every connection is lost while it is lent. A connection that fails the check
// is destroyed, and the caller makes another one in its place. `discard()` does the same at once, for a
// holder that knows that its connection is broken.

bool survive_a_restart(connection_pool& pool) {
    std::vector<connection_pool::lease> all;
    for (int i = 0; i < 3; ++i)
        all.push_back(pool.acquire());
    const bool gave_up = !bide::sync_wait(within(pool, 5ms)); // all are lent
    for (auto& lease : all)
        lease->lose();
    all.clear(); // returns them
    const int before = opened;
    const bool answered = bide::sync_wait(within(pool, 10s));
    std::printf("%d connection replaced\n", opened - before);
    return gave_up && answered && opened == before + 1;
}

// The pool takes its limit, a function that makes a connection, and the check. The caller that acquires
// runs both functions, outside of any lock: a slow connect delays only its own caller.
//
// When the pool is destroyed, every lease must have come back; otherwise the program is terminated with a
// message. `close()` comes before that: callers that wait return with `errc::closed`, and so do later ones.

int main() {
    connection_pool pool(
        {.limit = 3, .keep = 1, .idle_time = 1min}, [] { return connection(); },
        [](const connection& c) { return c.is_alive(); });
    const bool is_right = share(pool) && survive_a_restart(pool);
    pool.close();
    return is_right && !bide::sync_wait(within(pool, 10s)) ? 0 : 1;
}

// **Limits.** The pool has no thread, so idle connections that have expired are closed when a connection is
// returned, or by `trim()`. It checks a connection when it lends it; a connection may still break while it
// is lent. If opening throws, the caller gets the exception and the next caller in the queue its turn. If a
// coroutine opens the connection, use `async_acquire_object(pool, open)`.
