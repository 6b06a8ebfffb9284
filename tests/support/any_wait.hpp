#ifndef BIDE_TESTS_SUPPORT_ANY_WAIT_HPP
#define BIDE_TESTS_SUPPORT_ANY_WAIT_HPP

// Things to wait for, behind one interface: each is closed until it is opened, and waits last until then.
// Whatever is opened lets its first waiter through, which lets the next one through when it leaves (a lock, a
// permit, a turn), or lets all waiters through and stays open (an event, readers). A test case of what every
// wait promises is compiled once, and runs for each kind.

#include "support/coroutines.hpp"
#include "support/waiting.hpp"

#include <bide/channel/select.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/callback_wait.hpp>
#include <bide/core/result.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/keyed_mutex.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/notify.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <support/standard.hpp>

namespace test {

// How a wait has ended.
enum class wait_end { nothing_yet, through, stopped, timeout };

template <class T> wait_end wait_end_of(const bide::result<T>& got) {
    return got                                  ? wait_end::through
           : got.error() == bide::errc::stopped ? wait_end::stopped
                                                : wait_end::timeout;
}

inline bool has_ended(const std::atomic<wait_end>& end) {
    return eventually([&end] { return end != wait_end::nothing_yet; });
}

// The wait of an event loop, which notes its turn.
class any_foreign {
public:
    any_foreign() noexcept = default;
    any_foreign(const any_foreign&) = delete;
    any_foreign& operator=(const any_foreign&) = delete;
    virtual ~any_foreign() = default;

    virtual bool start() = 0;  // true: it is complete
    virtual bool cancel() = 0; // true: it was still queued
    virtual void leave() = 0;
};

class any_wait {
public:
    using nanoseconds = std::chrono::nanoseconds;
    using steady_time = std::chrono::steady_clock::time_point;
    using system_time = std::chrono::system_clock::time_point;

    any_wait() noexcept = default;
    any_wait(const any_wait&) = delete;
    any_wait& operator=(const any_wait&) = delete;
    virtual ~any_wait() = default;

    virtual void open() = 0;
    virtual bool is_open() = 0;

    // The waits of a thread. It leaves by leave() if it came through.
    virtual void wait() = 0;
    virtual bool wait_for(nanoseconds rest) = 0;
    virtual bool wait_until(steady_time when) = 0;
    virtual bool wait_until(system_time when) = 0;
    virtual wait_end wait(std::stop_token stop) = 0;
    virtual void leave() = 0;
    // Waits with time-outs of zero and less and with deadlines that have passed, and leaves. Returns how many
    // came through.
    virtual int attempts_in_no_time() = 0;
    static constexpr int all_attempts = 8;
    // Waits with a time-out that never comes, by one of four ways to say so.
    virtual bool wait_for_ever(int way) = 0;

    // Coroutines that leave at once when they came through.
    virtual detached note_turn(journal& turns, int name) = 0;
    // Those whose turn was noted leave it afterwards, on any thread. Returns true if they have.
    virtual bool all_have_left() = 0;
    virtual detached note_stopped(std::stop_token stop, std::atomic<wait_end>& end) = 0;
    virtual detached note_late(nanoseconds rest, std::atomic<wait_end>& end) = 0;
    virtual held pass(wait_end& end) = 0;
    virtual held pass_on(manual_executor& on, std::stop_token stop, wait_end& end) = 0;
    virtual held pass_on_until(manual_executor& on, steady_time when, wait_end& end) = 0;
    // Coroutines that destroy, when they came through, what they waited for or another coroutine.
    virtual detached pass_and_destroy(std::unique_ptr<any_wait>& mine) = 0;
    virtual held pass_and_destroy(held& victim) = 0;

    virtual std::unique_ptr<any_foreign> foreign(journal& turns, int name) = 0;
};

// What a waiter got goes back.
template <class Closed, class R> wait_end leave_with(Closed& closed, R& got) {
    const wait_end end = wait_end_of(got);
    if (got) {
        {
            [[maybe_unused]] const auto gone = std::move(got);
        }
        closed.pass_on();
    }
    return end;
}
template <class Closed, class Op>
detached note_end(Closed& closed, Op op, std::atomic<wait_end>& end) {
    auto got = co_await std::move(op).as_result();
    end = leave_with(closed, got);
}
template <class Closed, class Op> held hold_end(Closed& closed, Op op, wait_end& end) {
    auto got = co_await std::move(op).as_result();
    end = leave_with(closed, got);
}

template <class Closed, class Wait> class foreign_of final : public any_foreign {
public:
    foreign_of(Closed& in, journal& turns, int name)
        : in_(in), turns_(turns), name_(name), wait_(bide::waker(&on_wake, this)) {}

    bool start() override { return wait_.begin(in_.async_wait()); }
    bool cancel() override { return wait_.cancel(); }
    void leave() override {
        auto got = wait_.take();
        leave_with(in_, got);
    }

private:
    static void on_wake(void* self) noexcept {
        auto& mine = *static_cast<foreign_of*>(self);
        mine.turns_.add(mine.name_);
    }

    Closed& in_;
    journal& turns_;
    const int name_;
    Wait wait_;
};

template <class Closed> class wait_of final : public any_wait {
public:
    void open() override { in_.open(); }
    bool is_open() override { return in_.is_open(); }

    void wait() override { in_.wait(); }
    bool wait_for(nanoseconds rest) override { return in_.wait_for(rest); }
    bool wait_until(steady_time when) override { return in_.wait_until(when); }
    bool wait_until(system_time when) override { return in_.wait_until(when); }
    wait_end wait(std::stop_token stop) override { return wait_end_of(in_.wait(stop)); }
    void leave() override { in_.leave(); }
    int attempts_in_no_time() override {
        using namespace std::chrono_literals;
        const auto came = [this](bool through) {
            if (through) {
                in_.leave();
            }
            return through ? 1 : 0;
        };
        int all = came(in_.wait_for(0s));
        all += came(in_.wait_for(-1ns));
        all += came(in_.wait_for(std::chrono::hours::min()));
        all += came(in_.wait_for(std::chrono::duration<double>(-1e300)));
        all += came(in_.wait_until(std::chrono::steady_clock::now()));
        all += came(in_.wait_until(steady_time::min()));
        all += came(in_.wait_until(std::chrono::system_clock::now() - 24h));
        return all + came(in_.wait_until(system_time::min()));
    }
    bool wait_for_ever(int way) override {
        switch (way) {
        case 0: return in_.wait_for(std::chrono::hours::max());
        case 1: return in_.wait_for(std::chrono::duration<double>(1e300));
        case 2: return in_.wait_until(steady_time::max());
        default: return in_.wait_until(system_time::max());
        }
    }

    detached note_turn(journal& turns, int name) override {
        Closed& in = in_; // when it resumes, another one may have destroyed this
        const auto leaving = leaving_;
        auto got = co_await in.async_wait().as_result();
        ++*leaving;
        turns.add(name);
        leave_with(in, got);
        --*leaving;
    }
    bool all_have_left() override {
        return eventually([this] { return leaving_->load() == 0; });
    }
    detached note_stopped(std::stop_token stop, std::atomic<wait_end>& end) override {
        return note_end(in_, in_.async_wait().with_stop(stop), end);
    }
    detached note_late(nanoseconds rest, std::atomic<wait_end>& end) override {
        return note_end(in_, in_.async_wait().with_timeout(rest), end);
    }
    held pass(wait_end& end) override { return hold_end(in_, in_.async_wait(), end); }
    held pass_on(manual_executor& on, std::stop_token stop, wait_end& end) override {
        return hold_end(in_, in_.async_wait().with_stop(stop).resume_on(on), end);
    }
    held pass_on_until(manual_executor& on, steady_time when, wait_end& end) override {
        return hold_end(in_, in_.async_wait().with_deadline(when).resume_on(on), end);
    }
    detached pass_and_destroy(std::unique_ptr<any_wait>& mine) override {
        auto got = co_await in_.async_wait().as_result();
        leave_with(in_, got);
        mine.reset();
    }
    held pass_and_destroy(held& victim) override {
        auto got = co_await in_.async_wait().as_result();
        victim.destroy();
        leave_with(in_, got);
    }

    std::unique_ptr<any_foreign> foreign(journal& turns, int name) override {
        return make_foreign(in_.async_wait(), turns, name);
    }

private:
    template <class T, class Platform, int Stops>
    std::unique_ptr<any_foreign> make_foreign(const bide::basic_async_op<T, Platform, Stops>&,
                                              journal& turns, int name) {
        using wait = bide::basic_callback_wait<T, Platform>;
        return std::make_unique<foreign_of<Closed, wait>>(in_, turns, name);
    }

    Closed in_;
    std::shared_ptr<std::atomic<int>> leaving_ = std::make_shared<std::atomic<int>>(0);
};

} // namespace test

// ---- What is waited for: closed when it is made

namespace test::waits {

// A waiter takes nothing with it.
struct takes_nothing {
    void leave() {}
    void pass_on() {}
};
template <class Platform> struct an_event : bide::basic_event<Platform>, takes_nothing {
    void open() { this->set(); }
    bool is_open() const { return this->is_set(); }
};
template <class Platform> struct a_latch : bide::basic_latch<Platform>, takes_nothing {
    a_latch() : bide::basic_latch<Platform>(1) {}
    void open() { this->count_down(); }
    bool is_open() const { return this->try_wait(); }
};
template <class Platform> struct a_barrier : takes_nothing {
    using barrier = bide::barrier<bide::detail::no_completion, Platform>;
    barrier of{2};
    const typename barrier::arrival_token phase = of.arrive();

    void open() { static_cast<void>(of.arrive()); }
    bool is_open() const { return of.try_wait(phase); }
    void wait() { of.wait(phase); }
    template <class Rest> bool wait_for(Rest rest) { return of.wait_for(phase, rest); }
    template <class When> bool wait_until(When when) { return of.wait_until(phase, when); }
    bide::result<void> wait(std::stop_token stop) { return of.wait(stop, phase); }
    auto async_wait() { return of.async_wait(phase); }
};
// One notification, which a waiter passes on.
template <class Platform> struct a_notify : bide::basic_notify<Platform> {
    void open() { this->notify_one(); }
    bool is_open() {
        const bool notified = this->try_wait();
        if (notified) {
            this->notify_one();
        }
        return notified;
    }
    void leave() { this->notify_one(); }
    void pass_on() { this->notify_one(); }
};
template <class Platform> struct a_permit {
    bide::basic_semaphore<Platform> of{0};

    void open() { of.release(); }
    bool is_open() const { return of.available() == 1; }
    void wait() { of.acquire(); }
    template <class Rest> bool wait_for(Rest rest) { return of.try_acquire_for(rest); }
    template <class When> bool wait_until(When when) { return of.try_acquire_until(when); }
    bide::result<void> wait(std::stop_token stop) { return of.acquire(stop); }
    auto async_wait() { return of.async_acquire(); }
    void leave() { of.release(); }
    void pass_on() {}
};
template <class Mutex> struct a_lock {
    Mutex of;

    a_lock() { of.lock(); }
    void open() { of.unlock(); }
    bool is_open() {
        const bool free = of.try_lock();
        if (free) {
            of.unlock();
        }
        return free;
    }
    void wait() { of.lock(); }
    template <class Rest> bool wait_for(Rest rest) { return of.try_lock_for(rest); }
    template <class When> bool wait_until(When when) { return of.try_lock_until(when); }
    bide::result<void> wait(std::stop_token stop) { return of.lock(stop); }
    auto async_wait() { return of.async_lock(); }
    void leave() { of.unlock(); }
    void pass_on() {}
};
// Readers that a writer keeps out.
template <class Mutex> struct a_reader : a_lock<Mutex> {
    void wait() { this->of.lock_shared(); }
    template <class Rest> bool wait_for(Rest rest) { return this->of.try_lock_shared_for(rest); }
    template <class When> bool wait_until(When when) {
        return this->of.try_lock_shared_until(when);
    }
    bide::result<void> wait(std::stop_token stop) { return this->of.lock_shared(stop); }
    auto async_wait() { return this->of.async_lock_shared(); }
    void leave() { this->of.unlock_shared(); }
};
// What a waiter got is an object, which is kept here while the waiter stays.
template <class Held> struct by_object {
    Held held;

    void open() { leave(); }
    void leave() { const Held gone = std::move(held); }
    void pass_on() {}
    bool keep(Held got) {
        const bool through = static_cast<bool>(got);
        if (through) {
            held = std::move(got);
        }
        return through;
    }
    bool keep(bide::result<Held> got) { return got && keep(std::move(*got)); }
    bide::result<void> keep_or_say(bide::result<Held> got) {
        if (!got) {
            return bide::unexpected(got.error());
        }
        held = std::move(*got);
        return {};
    }
};
template <class Platform> struct the_key {
    bide::keyed_mutex<int, std::hash<int>, std::equal_to<int>, Platform> of;
};
template <class Platform>
struct a_key : the_key<Platform>, by_object<bide::basic_key_lock<int, Platform>> {
    a_key() { wait(); }
    bool is_open() { return static_cast<bool>(this->of.try_lock(1)); }
    void wait() { this->keep(this->of.lock(1)); }
    template <class Rest> bool wait_for(Rest rest) {
        return this->keep(this->of.try_lock_for(1, rest));
    }
    template <class When> bool wait_until(When when) {
        return this->keep(this->of.try_lock_until(1, when));
    }
    bide::result<void> wait(std::stop_token stop) {
        return this->keep_or_say(this->of.lock(stop, 1));
    }
    auto async_wait() { return this->of.async_lock(1); }
};
template <class Platform> struct the_object {
    static bide::object_pool_options one() {
        bide::object_pool_options options;
        options.limit = 1;
        return options;
    }
    bide::object_pool<int, Platform> of{one(), [] { return 1; }};
};
template <class Platform>
struct an_object : the_object<Platform>, by_object<bide::object_lease<int, Platform>> {
    an_object() { wait(); }
    bool is_open() { return static_cast<bool>(this->of.try_acquire()); }
    void wait() { this->keep(this->of.acquire()); }
    template <class Rest> bool wait_for(Rest rest) {
        return this->keep(this->of.try_acquire_for(rest));
    }
    template <class When> bool wait_until(When when) {
        return this->keep(this->of.try_acquire_until(when));
    }
    bide::result<void> wait(std::stop_token stop) {
        return this->keep_or_say(this->of.acquire(stop));
    }
    auto async_wait() { return this->of.async_acquire(); }
};
template <class Platform> struct the_flag {
    bide::basic_once_flag<Platform> of;
};
// The turn to initialise, which no waiter does.
template <class Platform>
struct a_turn : the_flag<Platform>, by_object<typename bide::basic_once_flag<Platform>::turn> {
    a_turn() { wait(); }
    bool is_open() { return static_cast<bool>(this->of.try_begin()); }
    void wait() { this->keep(this->of.begin()); }
    template <class Rest> bool wait_for(Rest rest) { return this->keep(this->of.begin_for(rest)); }
    template <class When> bool wait_until(When when) {
        return this->keep(this->of.begin_until(when));
    }
    bide::result<void> wait(std::stop_token stop) {
        return this->keep_or_say(this->of.begin(stop));
    }
    auto async_wait() { return this->of.async_begin(); }
};

// A coroutine selects the lock, or an event that is never set.
template <class Platform> struct a_select : a_lock<bide::basic_mutex<Platform>> {
    bide::basic_event<Platform> never;

    auto async_wait() { return bide::async_select(bide::on_lock(this->of), bide::on_event(never)); }
};

} // namespace test::waits

#endif
