#ifndef BIDE_TESTS_SUPPORT_SELECTING_HPP
#define BIDE_TESTS_SUPPORT_SELECTING_HPP

// Selects: their waiters, its six forms, and a case of each kind.

#include "support/coroutines.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/semaphore.hpp>

#include <support/standard.hpp>

namespace test {

// A coroutine that waits, from the beginning on. Where it goes on on a thread of the service, that
// is asked (service_thread()) before this is destroyed.
template <class Op> class waiting {
public:
    using value = typename Op::value_type;

    explicit waiting(Op op) : frame_(wait(std::move(op), *this)) { frame_.start(); }
    waiting(const waiting&) = delete;
    waiting& operator=(const waiting&) = delete;

    bool is_over() const noexcept { return over_.load(); }
    value& got() { return *got_; }
    std::thread::id on() const { return on_; }
    void destroy() { frame_.destroy(); }

private:
    static held wait(Op op, waiting& self) {
        auto got = co_await std::move(op);
        self.on_ = this_thread();
        self.got_.emplace(std::move(got));
        self.over_ = true;
    }

    std::optional<value> got_;
    std::thread::id on_;
    std::atomic<bool> over_{false};
    held frame_;
};

// The six forms as one: what was chosen at once, or nothing. GENERATE(range(...)) runs a test by each.
enum form : int { blocking, trying, awaiting, blocking_biased, trying_biased, awaiting_biased };
inline constexpr int first_biased = blocking_biased;
inline constexpr int all_forms = 6;

template <class... Cases> using chosen = std::optional<bide::selected<Cases...>>;
template <class Op> std::optional<typename Op::value_type> chosen_at_once(Op op) {
    waiting w(std::move(op));
    return w.is_over() ? std::optional(std::move(w.got())) : std::nullopt;
}
template <class... Cases> chosen<Cases...> select_fairly(int how, Cases... c) {
    switch (how) {
    case blocking: return bide::select(std::move(c)...);
    case trying: return bide::try_select(std::move(c)...);
    default: return chosen_at_once(bide::async_select(std::move(c)...));
    }
}
template <class... Cases> chosen<Cases...> select_biased(int how, Cases... c) {
    switch (how) {
    case blocking_biased: return bide::select_biased(std::move(c)...);
    case trying_biased: return bide::try_select_biased(std::move(c)...);
    default: return chosen_at_once(bide::async_select_biased(std::move(c)...));
    }
}
template <class... Cases> chosen<Cases...> select_by(int how, Cases... c) {
    return how < first_biased ? select_fairly(how, std::move(c)...)
                              : select_biased(how, std::move(c)...);
}

// A case of each kind, none of which can happen until it is made to.
struct each_kind {
    static constexpr std::size_t recv = 0, send = 1, acquire = 2, event = 3, latch = 4, timeout = 5,
                                 stop = 6, deadline = 7, kinds = 8;

    bide::channel<int> in{1};
    bide::channel<int> out{1};
    int value = 7;
    bide::semaphore permits{1}; // two are wanted
    bide::event set;
    bide::latch open{1};
    std::chrono::nanoseconds rest = std::chrono::hours(1);
    std::stop_source stopping = new_stop();
    std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now() + rest;

    each_kind() { static_cast<void>(out.try_send(1)); }

    static constexpr bool is_time(std::size_t kind) { return kind == timeout || kind == deadline; }

    // `f` gets the cases.
    template <class F> auto apply(F f) {
        return f(bide::on_recv(in), bide::on_send(out, value), bide::on_acquire(permits, 2),
                 bide::on_event(set), bide::on_event(open), bide::on_timeout(rest),
                 bide::on_stop(stopping.get_token()), bide::on_deadline(when));
    }
    auto run(int how) {
        return apply([how](auto... c) { return select_by(how, std::move(c)...); });
    }
    auto async() {
        return apply([](auto... c) { return bide::async_select(std::move(c)...); });
    }

    void make_happen(std::size_t kind) {
        switch (kind) {
        case recv: static_cast<void>(in.try_send(42)); break;
        case send: static_cast<void>(out.try_recv()); break;
        case acquire: permits.release(); break;
        case event: set.set(); break;
        case latch: open.count_down(); break;
        case timeout: rest = std::chrono::seconds(0); break;
        case deadline: when = std::chrono::steady_clock::now(); break;
        default: stopping.request_stop(); break;
        }
    }

    // A time that is to come while it waits.
    void make_come(std::size_t kind, std::chrono::nanoseconds soon) {
        if (kind == timeout) {
            rest = soon;
        } else if (kind == deadline) {
            when = std::chrono::steady_clock::now() + soon;
        }
    }

    // What came of it is right, and nothing came of the others; then it is as before.
    template <class Selected> bool is_right(std::size_t kind, Selected& got) {
        bool right = got.index() == kind && in.empty() && out.size() == 1;
        right = right && value == 7;
        switch (got.index()) {
        case recv: right = right && got.template get<recv>() == 42; break;
        case send:
            right = right && got.template get<send>() && out.try_recv().value() == 7;
            static_cast<void>(out.try_send(1));
            break;
        case acquire: {
            auto& permit = got.template get<acquire>();
            right = right && permit && permit->count() == 2 && permits.available() == 0;
            permit->forget();
            permits.release();
            break;
        }
        case event: right = right && set.is_set(); break;
        default: break;
        }
        set.reset();
        return right && permits.available() == 1 && permits.waiters() == 0;
    }
};

// Whether only the ready cases were chosen, those within a fifth of their equal shares. Of 5,000
// rounds and up to five ready cases, a fifth is more than seven standard deviations.
inline bool is_uniform(const std::vector<int>& hits, unsigned ready) {
    const int rounds = std::accumulate(hits.begin(), hits.end(), 0);
    const int share = rounds / std::popcount(ready);
    bool uniform = true;
    for (std::size_t i = 0; i < hits.size(); ++i) {
        uniform = uniform &&
                  ((ready >> i & 1) != 0 ? std::abs(hits[i] - share) <= share / 5 : hits[i] == 0);
    }
    return uniform;
}

// No waiter receives, or sends, on a channel without capacity.
template <class Channel> bool is_left_alone(Channel& rendezvous) {
    return !rendezvous.try_recv() && !rendezvous.try_send(0);
}

} // namespace test

#endif
