#ifndef BIDE_TESTS_SUPPORT_EVENT_WAITS_HPP
#define BIDE_TESTS_SUPPORT_EVENT_WAITS_HPP

// Coroutines that wait for an event or a latch, and the outcomes of their waits.

#include <bide/core/result.hpp>
#include <support/coroutines.hpp>
#include <support/standard.hpp>
#include <support/waiting.hpp>

namespace test::event_waits {

// The outcome of a wait.
enum class what { nothing_yet, through, stopped, timeout };

inline what of(const bide::result<void>& got) {
    return got ? what::through : got.error() == bide::errc::stopped ? what::stopped : what::timeout;
}

inline bool is(const bide::result<void>& got, bide::errc error) {
    return !got && got.error() == error;
}

template <class Event> detached note_turn(Event& e, journal& turns, int name) {
    co_await e.async_wait();
    turns.add(name);
}
template <class Event> detached note_stopped(Event& e, std::stop_token t, std::atomic<what>& end) {
    const auto got = co_await e.async_wait().with_stop(t);
    end = of(got);
}
template <class Event>
detached note_late(Event& e, std::chrono::nanoseconds rest, std::atomic<what>& end) {
    const auto got = co_await e.async_wait().with_timeout(rest);
    end = of(got);
}
template <class Event> held pass(Event& e, bool& through) {
    co_await e.async_wait();
    through = true;
}
template <class Event> held pass_on(manual_executor& on, Event& e, bool& through) {
    co_await e.async_wait().resume_on(on);
    through = true;
}
} // namespace test::event_waits

#endif
