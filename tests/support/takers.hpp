#ifndef BIDE_TESTS_SUPPORT_TAKERS_HPP
#define BIDE_TESTS_SUPPORT_TAKERS_HPP

// Coroutines of each kind that take a token, and write down what came of it.

#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <support/coroutines.hpp>
#include <support/service.hpp>
#include <support/standard.hpp>
#include <support/tokens.hpp>

namespace test {

struct outcome {
    bool granted = false;
    bide::errc why{};
    std::thread::id on;            // where it went on
    bool on_resumer = false;       // which is one of the service's threads
    std::atomic<bool> done{false}; // the last that is written

    template <class R> void note(const R& result) noexcept {
        granted = result.has_value();
        why = granted ? bide::errc{} : result.error();
        on = std::this_thread::get_id();
        on_resumer = is_resumer();
        done = true;
    }
    bool is(bide::errc expected) const noexcept { return done && !granted && why == expected; }
    bool is_granted() const noexcept { return done && granted; }
};

// `where` is what the coroutine's promise names: a manual_executor& or so, or none.
struct none {
    none() noexcept {}
};

template <class Coroutine, class Where, class Tokens>
Coroutine take_as(Where, Tokens& from, outcome& out) {
    const auto token = co_await from.async_take().as_result();
    out.note(token);
}
template <class Coroutine, class Where, class Tokens>
Coroutine take_as(Where, Tokens& from, outcome& out, std::stop_token stop) {
    const auto token = co_await from.async_take().with_stop(stop);
    out.note(token);
}
template <class Coroutine, class Where, class Tokens>
Coroutine take_as(Where, Tokens& from, outcome& out, bide::deadline until) {
    const auto token = co_await from.async_take().with_deadline(until);
    out.note(token);
}
template <class Coroutine, class Where, class Tokens>
Coroutine take_as(Where, Tokens& from, outcome& out, std::stop_token stop, bide::deadline until) {
    const auto token = co_await from.async_take().with_stop(stop).with_deadline(until);
    out.note(token);
}

// take(from, outcome, limits...): no executor.
template <class Tokens, class... Limits> held take(Tokens& from, outcome& out, Limits... limits) {
    return take_as<held, none>(none(), from, out, limits...);
}
// take_on(executor, from, outcome, limits...)
template <class S, class Tokens, class... Limits>
held_on<S> take_on(S& where, Tokens& from, outcome& out, Limits... limits) {
    return take_as<held_on<S>, S&>(where, from, out, limits...);
}
template <class S, class Tokens, class... Limits>
held_on_pointer<S> take_on(S* where, Tokens& from, outcome& out, Limits... limits) {
    return take_as<held_on_pointer<S>, S*>(where, from, out, limits...);
}

} // namespace test

#endif
