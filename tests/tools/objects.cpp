// Objects in known states, for a debugger, which stops at stop_here(): gdb_test.sh. Each thread and each task
// is in its queue before the next one begins, so that all states are known.

#include "../support/standard.hpp"

#include <bide/bide.hpp>
#include <bide/core/callback_wait.hpp>
#include <bide/sched/executor_runner.hpp>
#include <bide/sched/report.hpp>
#include <bide/sync/biased_shared_mutex.hpp>

// ---- Without waiters

bide::semaphore free_permits(3);
bide::semaphore closed_permits(1);
bide::mutex free_mutex;
bide::shared_mutex free_shared;
bide::shared_mutex read_shared;
bide::shared_mutex written_shared;
bide::adaptive_mutex free_adaptive;
bide::adaptive_mutex held_adaptive;
bide::biased_shared_mutex read_biased;
bide::once_cell<int> made_cell;
bide::event set_event(true);
bide::latch counting(3);
bide::channel<int> two_of_eight(8);
bide::channel<std::string> closed_channel(1);
bide::unbounded_channel<int> three_items;
bide::priority_channel<int> by_priority(4);
bide::sliding_channel<int> sliding(2);

// ---- With waiters

bide::semaphore five_kinds(0);
bide::semaphore crowded(0);
bide::semaphore pair_of_permits(1);
bide::mutex held_mutex;
bide::shared_mutex contended_shared;
bide::adaptive_mutex contended_adaptive;
bide::event awaited_event;
bide::channel<int> empty_channel(2);
bide::channel<int> meeting(0);
bide::unbounded_channel<int> nothing_sent;
bide::semaphore one_case(0);
bide::semaphore other_case(0);
bide::semaphore on_loop(0);
bide::mutex guard;
bide::condition_variable changed;
bool has_changed = false;
bide::notify told;
bide::once_flag begun_flag;
bide::keyed_mutex<int> two_keys;
bide::object_pool<int> lent_objects({.limit = 2}, [] { return 1; });

// ---- Tasks, and what runs them

bide::run_loop* loop = nullptr;
bide::executor_runner* runner = nullptr;
bide::sender<int>* one_sender = nullptr;
bide::receiver<int>* one_receiver = nullptr;
bide::scheduler* two_workers = nullptr;
std::unique_ptr<bide::scheduler> owned;
bide::task<int>* unstarted = nullptr;
bide::task<int>* moved_from = nullptr;
bide::join_handle<int>* ask_handle = nullptr;
bide::join_handle<void>* ended = nullptr;
bide::join_handle<void>* nobody = nullptr;

// ---- No objects

alignas(128) unsigned char garbage[1024];
auto* no_semaphore = reinterpret_cast<bide::semaphore*>(garbage);
auto* no_mutex = reinterpret_cast<bide::mutex*>(garbage);
auto* no_shared = reinterpret_cast<bide::shared_mutex*>(garbage);
auto* no_adaptive = reinterpret_cast<bide::adaptive_mutex*>(garbage);
auto* no_event = reinterpret_cast<bide::event*>(garbage);
auto* no_channel = reinterpret_cast<bide::channel<int>*>(garbage);
auto* no_unbounded = reinterpret_cast<bide::unbounded_channel<int>*>(garbage);
auto* no_priority = reinterpret_cast<bide::priority_channel<int>*>(garbage);
auto* no_sender = reinterpret_cast<bide::sender<int>*>(garbage);
auto* no_task = reinterpret_cast<bide::task<int>*>(garbage);
auto* no_handle = reinterpret_cast<bide::join_handle<int>*>(garbage);
auto* no_scheduler = reinterpret_cast<bide::scheduler*>(garbage);
auto* no_loop = reinterpret_cast<bide::run_loop*>(garbage);
bide::mutex* nowhere = nullptr;

// A mutex whose word says that it has a waiter, and whose queue says that it has none.
alignas(bide::mutex) unsigned char torn_memory[sizeof(bide::mutex)];
auto* torn = reinterpret_cast<bide::mutex*>(torn_memory);

// A mutex whose queue has a node that leads to itself, and back to no node.
alignas(128) void* lone_node[32];
alignas(bide::mutex) void* knotted_memory[sizeof(bide::mutex) / sizeof(void*)];
auto* knotted = reinterpret_cast<bide::mutex*>(knotted_memory);

[[gnu::noinline]] void stop_here() {
    asm volatile("" ::: "memory"); // so that it is called
}

bide::task<int> inner(bide::semaphore& from) {
    const bide::permit one = co_await from.async_acquire();
    co_return 1;
}
bide::task<int> ask(bide::semaphore& from) { co_return co_await inner(from) + 1; }
bide::task<> lock(bide::mutex& m) { const auto held = co_await m.async_lock(); }
bide::task<> read(bide::shared_mutex& m) { const auto held = co_await m.async_lock_shared(); }
bide::task<> await_event(bide::event& e) { co_await e.async_wait(); }
bide::task<> receive(bide::channel<int>& from) { static_cast<void>(co_await from.async_recv()); }
bide::task<> receive_any(bide::unbounded_channel<int>& from) {
    static_cast<void>(co_await from.async_recv());
}
bide::task<> send(bide::channel<int>& to) { static_cast<void>(co_await to.async_send(1)); }
bide::task<> both(bide::semaphore& from) { co_await bide::when_all(inner(from), inner(from)); }
bide::task<> await_change() {
    auto held = co_await guard.async_lock();
    const auto is_true = [of = &has_changed] { return *of; };
    co_await changed.async_wait(held, is_true);
}
bide::task<> await_notify() { co_await told.async_wait(); }
bide::task<> begin_once() { const auto turn = co_await begun_flag.async_begin(); }
bide::task<> lock_key() { const auto held = co_await two_keys.async_lock(1); }
bide::task<> borrow() { const auto mine = co_await lent_objects.async_acquire(); }
bide::task<> nothing() { co_return; }

namespace {

// Each primitive of these begins with a word that has this bit while there are waiters.
constexpr std::uint64_t queued = 4;
constexpr std::uint64_t one_waiter = 16; // of those that count permits

template <class T> std::uint64_t word_of(T& primitive) {
    static_assert(sizeof(T) >= sizeof(std::uint64_t));
    return std::atomic_ref(reinterpret_cast<std::uint64_t&>(primitive)).load();
}
template <class T> void await_queued(T& primitive, std::uint64_t counted = 0) {
    for (;;) {
        const std::uint64_t seen = word_of(primitive);
        if ((seen & 3) == 0 && (seen & queued) != 0 && seen / one_waiter >= counted) {
            return;
        }
        std::this_thread::yield();
    }
}

// Counts the workers that sleep.
int asleep(const bide::scheduler& of) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const memory = ::open_memstream(&text, &size);
    dump(of, memory);
    std::fclose(memory);
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    int found = 0;
    for (const char* at = text; (at = std::strstr(at, " asleep ")) != nullptr; ++at) {
        ++found;
    }
    return found;
}

} // namespace

const bide::task_tag database("database");

int main() {
    std::memset(garbage, 0xa5, sizeof garbage);
    torn_memory[0] = queued + one_waiter;
    lone_node[0] = lone_node;
    knotted_memory[0] = reinterpret_cast<void*>(queued + one_waiter);
    knotted_memory[1] = lone_node;

    closed_permits.close();
    read_biased.lock_shared();
    made_cell.get_or_init([] { return 1; });
    read_shared.lock_shared();
    read_shared.lock_upgradable();
    written_shared.lock();
    held_adaptive.lock();
    counting.count_down();
    for (int i = 0; i < 3; ++i) {
        static_cast<void>(three_items.try_send(i));
        static_cast<void>(by_priority.try_send(i));
        static_cast<void>(sliding.try_send(i));
    }
    for (int i = 0; i < 10; ++i) { // past the end of the ring
        static_cast<void>(two_of_eight.try_send(i));
        static_cast<void>(two_of_eight.try_recv());
    }
    static_cast<void>(two_of_eight.try_send(1));
    static_cast<void>(two_of_eight.try_send(2));
    static_cast<void>(closed_channel.try_send("last"));
    closed_channel.close();

    // Threads, each in a queue before the next one begins; tasks of the loop in between.
    bide::run_loop own_loop;
    loop = &own_loop;
    std::vector<std::jthread> threads;
    const auto spawn = [&own_loop](bide::task<> t) {
        own_loop.spawn(std::move(t)).detach();
        own_loop.poll(); // until it waits
    };

    threads.emplace_back([] { five_kinds.acquire(); });
    await_queued(five_kinds, 1);
    auto handle = own_loop.spawn(ask(five_kinds).named("ask").tagged(database));
    ask_handle = &handle;
    own_loop.poll();
    spawn([]() -> bide::task<> { co_await inner(five_kinds); }());
    bide::callback_wait<bide::permit> callback(bide::waker{});
    callback.begin(five_kinds.async_acquire());
    bide::semaphore::waiter foreign(1, bide::waker{[](void*) noexcept {}, nullptr});
    five_kinds.acquire_wait(foreign);

    for (int i = 0; i < 10; ++i) {
        spawn([]() -> bide::task<> { co_await inner(crowded); }());
    }
    threads.emplace_back([] { pair_of_permits.acquire(2); });
    await_queued(pair_of_permits, 1);

    held_mutex.lock();
    threads.emplace_back([] { const std::scoped_lock held(held_mutex); });
    await_queued(held_mutex, 1);
    spawn(lock(held_mutex).named("lock"));

    contended_shared.lock_shared();
    contended_shared.lock_shared();
    threads.emplace_back([] { const std::scoped_lock held(contended_shared); });
    await_queued(contended_shared, 1);
    spawn(read(contended_shared).named("read"));

    contended_adaptive.lock();
    threads.emplace_back([] { const std::scoped_lock held(contended_adaptive); });
    await_queued(contended_adaptive);

    threads.emplace_back([] { awaited_event.wait(); });
    await_queued(awaited_event);
    spawn(await_event(awaited_event));

    spawn(receive(empty_channel));
    spawn(send(meeting).named("send"));
    spawn(send(meeting));
    spawn(receive_any(nothing_sent).named("receive"));
    threads.emplace_back([] {
        static_cast<void>(bide::select(bide::on_acquire(one_case), bide::on_acquire(other_case)));
    });
    await_queued(one_case, 1);
    await_queued(other_case, 1);
    spawn(both(on_loop).named("both"));

    auto turn = begun_flag.begin();
    auto one_key = two_keys.lock(1);
    auto other_key = two_keys.lock(2);
    auto borrowed = lent_objects.acquire();
    auto also_borrowed = lent_objects.acquire();
    spawn(await_change().named("change"));
    spawn(await_notify().named("notify"));
    spawn(begin_once().named("once"));
    spawn(lock_key().named("key"));
    spawn(borrow().named("borrow"));
    std::optional<bide::notify::listener> listens(told);

    // Tasks.
    bide::task<int> lazy = std::move(ask(five_kinds)).named("lazy");
    bide::task<int> gone = ask(five_kinds);
    bide::task<int> taken = std::move(gone);
    unstarted = &lazy;
    moved_from = &gone;
    auto over = own_loop.spawn(nothing().named("nothing"));
    auto none = own_loop.spawn(nothing());
    std::move(none).detach();
    own_loop.poll();
    ended = &over;
    nobody = &none;

    bide::executor_runner on_executor(own_loop);
    runner = &on_executor;
    on_executor.spawn(ask(on_loop).named("visitor")).detach();
    own_loop.poll();

    auto [tx, rx] = bide::make_channel<int>(2);
    auto copy = tx;
    static_cast<void>(tx.try_send(1));
    one_sender = &tx;
    one_receiver = &rx;

    owned = std::make_unique<bide::scheduler>(bide::scheduler_options{
        .num_workers = 2,
        .max_timed_sleep = std::chrono::microseconds(0) // a worker that sleeps goes on sleeping
    });
    two_workers = owned.get();
    bide::semaphore on_workers(0);
    two_workers->spawn(ask(on_workers), {.tag = database}).detach();
    two_workers->spawn(ask(on_workers), {.tag = database}).detach();
    while (on_workers.waiters() != 2 || asleep(*two_workers) != 2) {
        std::this_thread::yield();
    }

    stop_here();

    // The end: whatever waits goes on.
    on_workers.release(2);
    owned.reset();
    on_loop.release(3);
    has_changed = true;
    changed.notify_all();
    told.notify_all();
    listens.reset();
    turn = {};
    one_key.unlock();
    borrowed.reset();
    other_case.release();
    nothing_sent.close();
    meeting.close();
    empty_channel.close();
    awaited_event.set();
    contended_adaptive.unlock();
    contended_shared.unlock_shared();
    contended_shared.unlock_shared();
    held_mutex.unlock();
    pair_of_permits.release();
    crowded.release(10);
    five_kinds.release(5);
    own_loop.run();
    threads.clear();
    const bool granted = std::move(handle).join() == 2 && foreign.is_complete() &&
                         callback.is_complete() && callback.take().has_value();
    held_adaptive.unlock();
    read_biased.unlock_shared();
    written_shared.unlock();
    read_shared.unlock_upgradable();
    read_shared.unlock_shared();
    return granted ? 0 : 1;
}
