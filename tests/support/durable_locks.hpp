#ifndef BIDE_TESTS_SUPPORT_DURABLE_LOCKS_HPP
#define BIDE_TESTS_SUPPORT_DURABLE_LOCKS_HPP

// What tests of durable locks share: a store that hangs or fails when a test wants it to, requests, contenders
// that give up, and looks at a record and at threads.

#include <bide/durable/options.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>

#include <support/standard.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>

#include <pthread.h>

namespace test {

enum class place { nowhere, load, compare_exchange, update_locked, anywhere };

// The shared state of the slots of one store.
class valve {
public:
    void hang_in(place where) {
        const std::lock_guard lock(lock_);
        hangs_ = where;
    }
    void let_go() {
        {
            const std::lock_guard lock(lock_);
            hangs_ = place::nowhere;
        }
        changed_.notify_all();
    }
    void pass(place where) {
        std::unique_lock lock(lock_);
        char name[16] = "";
        ::pthread_getname_np(::pthread_self(), name, sizeof name);
        callers_.insert(name);
        const auto goes_on = [&] { return hangs_ != where && hangs_ != place::anywhere; };
        if (!goes_on()) {
            ++stuck_;
            changed_.wait(lock, goes_on);
            --stuck_;
        }
    }
    void stored() {
        const std::lock_guard lock(lock_);
        ++stored_;
    }
    int stuck() const { return read(stuck_); }
    int writes() const { return read(stored_); }
    place hangs() const { return read(hangs_); }
    std::set<std::string> callers() const { return read(callers_); }

    std::atomic<bool> fails{false};

private:
    template <class T> T read(const T& what) const {
        const std::lock_guard lock(lock_);
        return what;
    }
    mutable std::mutex lock_;
    std::condition_variable changed_;
    place hangs_ = place::nowhere;
    int stuck_ = 0;
    int stored_ = 0;
    std::set<std::string> callers_;
};

// A bide::memory_slot whose operations pass a valve first, as the store of several machines.
class valved_slot : public bide::slot {
public:
    static constexpr bide::slot_guarantees guarantees{true, true, bide::lock_clock::boottime};
    valved_slot(bide::memory_slot of, std::shared_ptr<valve> v)
        : of_(std::move(of)), valve_(std::move(v)) {}

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        valve_->pass(place::load);
        if (valve_->fails) {
            return bide::unexpected{std::make_error_code(std::errc::io_error)};
        }
        return of_.load();
    }
    bide::cas_result compare_exchange(bide::slot_version v, std::string_view value) override {
        valve_->pass(place::compare_exchange);
        if (valve_->fails) {
            return {bide::cas_status::failed, 0, {}, std::make_error_code(std::errc::io_error)};
        }
        const bide::cas_result tried = of_.compare_exchange(v, value);
        if (tried.status == bide::cas_status::stored) {
            valve_->stored();
        }
        return tried;
    }

protected:
    bide::memory_slot of_;
    std::shared_ptr<valve> valve_;
};

inline bide::acquire_request within(std::chrono::nanoseconds timeout) {
    bide::acquire_request r;
    r.timeout = timeout;
    return r;
}
inline bide::acquire_request until_stop(const std::stop_source& stop) {
    bide::acquire_request r;
    r.stop = stop.get_token();
    return r;
}

// The result of acquire(), which succeeds.
template <class Lock> auto acquired(Lock& lock, bide::acquire_request request = {}) {
    auto got = lock.acquire(std::move(request));
    REQUIRE(got.has_value());
    return got;
}

// How many wait for the lock, and how many hold it.
template <class Lock> std::size_t waiting(Lock& lock) {
    const auto seen = lock.inspect();
    return seen && *seen ? (*seen)->live.waiters.size() : 0;
}
template <class Lock> std::size_t holding(Lock& lock) {
    const auto seen = lock.inspect();
    return seen && *seen ? (*seen)->live.holders.size() : 0;
}
template <class Lock> bool comes_to_wait(Lock& lock, std::size_t contenders = 1) {
    return eventually([&] { return waiting(lock) == contenders; });
}

enum class giving_up { by_stop, by_stop_in_coroutine, by_cancellation };
constexpr giving_up ways_to_give_up[] = {giving_up::by_stop, giving_up::by_stop_in_coroutine,
                                         giving_up::by_cancellation};

// A contender begins to acquire the lock, and gives up when ready() has returned. Returns its error.
template <class Lock, class Ready>
std::error_code error_of_giving_up(giving_up how, Lock& lock, Ready ready) {
    std::stop_source stop;
    if (how == giving_up::by_stop) {
        std::error_code why;
        std::thread waiter([&] { why = lock.acquire(until_stop(stop)).error(); });
        ready();
        stop.request_stop();
        waiter.join();
        return why;
    }
    bide::scheduler workers(test::workers(1));
    auto task = how == giving_up::by_cancellation
                    ? workers.spawn(lock.async_acquire())
                    : workers.spawn(lock.async_acquire(until_stop(stop)));
    ready();
    if (how == giving_up::by_cancellation) {
        task.cancel();
    } else {
        stop.request_stop();
    }
    return std::move(task).join().error();
}

// How often the first holder has renewed its lease; -1: there is no holder.
template <class Lock> std::int64_t renewals(Lock& lock) {
    const auto seen = lock.inspect();
    return seen && *seen && !(*seen)->live.holders.empty() ? (*seen)->live.holders[0].renewals : -1;
}

// The threads of this process whose names begin so.
inline int threads_called(std::string_view name) {
    int count = 0;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(one.path() / "comm");
        std::string comm;
        std::getline(file, comm);
        count += comm.substr(0, name.size()) == name ? 1 : 0;
    }
    return count;
}

// While this object lives, no thread can be started.
class no_new_threads {
public:
    no_new_threads() {
        ::pthread_getattr_default_np(&usual_);
        ::pthread_attr_t huge;
        ::pthread_getattr_default_np(&huge);
        ::pthread_attr_setstacksize(&huge, std::size_t{1} << 52);
        ::pthread_setattr_default_np(&huge);
    }
    no_new_threads(const no_new_threads&) = delete;
    no_new_threads& operator=(const no_new_threads&) = delete;
    ~no_new_threads() { ::pthread_setattr_default_np(&usual_); }

private:
    ::pthread_attr_t usual_;
};

} // namespace test

#endif
