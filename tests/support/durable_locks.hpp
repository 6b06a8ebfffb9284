#ifndef BIDE_TESTS_SUPPORT_DURABLE_LOCKS_HPP
#define BIDE_TESTS_SUPPORT_DURABLE_LOCKS_HPP

// What tests of durable locks share: a store that hangs or fails when a test wants it to, and looks at a
// record and at threads.

#include <bide/durable/slot.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/standard.hpp>

#include <pthread.h>

namespace test {

enum class place { nowhere, load, compare_exchange, update_locked, anywhere };

// The shared state of the slots of one store.
class valve {
public:
    void hang_in(place where) {
        const std::lock_guard held(lock_);
        hangs_ = where;
    }
    void let_go() {
        {
            const std::lock_guard held(lock_);
            hangs_ = place::nowhere;
        }
        changed_.notify_all();
    }
    void pass(place where) {
        std::unique_lock held(lock_);
        char name[16] = "";
        ::pthread_getname_np(::pthread_self(), name, sizeof name);
        callers_.insert(name);
        const auto goes_on = [&] { return hangs_ != where && hangs_ != place::anywhere; };
        if (!goes_on()) {
            ++stuck_;
            changed_.wait(held, goes_on);
            --stuck_;
        }
    }
    void stored() {
        const std::lock_guard held(lock_);
        ++stored_;
    }
    int stuck() const { return read(stuck_); }
    int writes() const { return read(stored_); }
    place hangs() const { return read(hangs_); }
    std::set<std::string> callers() const { return read(callers_); }

    std::atomic<bool> fails{false};

private:
    template <class T> T read(const T& what) const {
        const std::lock_guard held(lock_);
        return what;
    }
    mutable std::mutex lock_;
    std::condition_variable changed_;
    place hangs_ = place::nowhere;
    int stuck_ = 0;
    int stored_ = 0;
    std::set<std::string> callers_;
};

// A bide::memory_slot whose operations pass a valve first.
class valved_slot {
public:
    static constexpr bide::slot_guarantees guarantees = bide::memory_slot::guarantees;
    valved_slot(bide::memory_slot of, std::shared_ptr<valve> v)
        : of_(std::move(of)), valve_(std::move(v)) {}

    bide::result<bide::slot_snapshot, std::error_code> load() {
        valve_->pass(place::load);
        if (valve_->fails) {
            return bide::unexpected{std::make_error_code(std::errc::io_error)};
        }
        return of_.load();
    }
    bide::cas_result compare_exchange(bide::slot_version v, std::string_view value) {
        valve_->pass(place::compare_exchange);
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

} // namespace test

#endif
