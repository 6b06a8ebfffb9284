#ifndef BIDE_TESTS_EXAMPLES_LOCK_CALLS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_CALLS_HPP

// Calls to the store that end in time. Each call runs on a thread of its own; a call that hangs
// stays there. So objects that a call uses live until the process ends, and main() does not wait
// for threads.

#include "lock_options.hpp"
#include "lock_signals.hpp"
#include "lock_slots.hpp"

#include <bide/durable/durable_semaphore.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace lock_parts {

// The time limit of a call without one of its own, and the time by which a call may exceed its own
// limit. The library's own limits are shorter.
inline constexpr std::chrono::milliseconds call_limit{15'000};
inline constexpr std::chrono::milliseconds give_up_after{80};

// The store's text of an error, or the system's.
inline std::string reason_of(const bide::durable_semaphore& lock, const std::error_code& error) {
    const std::string said = error.category() == bide::durable_category() ? "" : lock.explain();
    return said.empty() ? error.message() : shown(said);
}

// The same with the lock, and with the slot if the store said nothing.
inline std::string words_of(const options& o, const bide::durable_semaphore& lock,
                            const std::error_code& error) {
    const std::string reason = reason_of(lock, error);
    return o.name + ": " + reason +
           (reason == error.message() ? " (" + shown(o.slot) + ")" : std::string());
}

// Runs `call` on a thread of its own. Meanwhile calls on_signal(signal) for each signal. Calls
// until() again after each event. Returns none if the time until() passed first. Throws what the
// call throws.
template <class Call, class Until, class OnSignal>
auto in_time(inbox& events, Call call, Until until, OnSignal on_signal)
    -> std::optional<std::invoke_result_t<Call>> {
    std::packaged_task<std::invoke_result_t<Call>()> work(std::move(call));
    auto answer = work.get_future();
    std::thread([work = std::move(work), &events]() mutable {
        work();
        events.wake();
    }).detach();
    for (;;) {
        if (answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
            return answer.get();
        const std::optional<steady::time_point> end = until();
        const auto e = events.next(end);
        if (e && e->signal != 0 && e->signal != SIGCHLD)
            on_signal(e->signal);
        if (!e && answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
            return std::nullopt;
    }
}

// For an administrator's action: a signal ends bide-lock.
template <class Call> auto answer_of(const options& o, inbox& events, Call call) {
    const auto end = steady::now() + call_limit;
    auto answer = in_time(
        events, std::move(call), [end] { return std::optional(end); },
        [](int signal) { die_of(signal); });
    if (!answer)
        throw failure{EX_UNAVAILABLE, o.name + ": no answer in time (" + shown(o.slot) + ")"};
    return std::move(*answer);
}

} // namespace lock_parts

#endif
