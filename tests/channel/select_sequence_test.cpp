// Selects compared with a model of three channels, a semaphore and an event, over random sequences
// of steps. One thread, so every waiter is a coroutine, with an executor of its own that keeps what
// is posted.

#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/jitter.hpp"
#include "support/selecting.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>

namespace {

using namespace bide;
using item = test::counted_once; // its number is -1 once it was sent

struct room {
    explicit room(std::size_t capacity) : real(capacity) {}
    channel<item> real;
    // The model of it
    std::deque<int> inside;
    bool closed = false;
};

// The cases, in their order. A time-out stands first and comes last.
struct a {
    enum place : std::size_t {
        timeout,
        recv,
        stop,
        send,
        acquire,
        event,
        other_recv,
        deadline,
        other_send,
        cases
    };
};
constexpr unsigned bit(std::size_t place) { return 1u << place; }

struct ending {
    std::size_t place;
    bool good = true; // neither closed nor without an item
    std::optional<item> got{};
};
ending to_ending(std::size_t place, std::optional<item>& got) {
    return {place, got.has_value(), std::move(got)};
}
ending to_ending(std::size_t place, result<permit>& got) {
    if (got) {
        got->forget();
    }
    return {place, got || got.error() != errc::closed};
}
template <class E> ending to_ending(std::size_t place, result<void, E>& got) {
    return {place, got.has_value()};
}
ending to_ending(std::size_t place, std::monostate) { return {place}; }
template <class... Cases> ending to_ending(selected<Cases...>& got) {
    ending e{got.index()};
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((got.index() == I ? void(e = to_ending(I, got.template get<I>())) : void()), ...);
    }(std::index_sequence_for<Cases...>());
    return e;
}

// A select, or one of its cases as an operation of its own.
class waiter {
public:
    static constexpr std::size_t select = a::cases;

    waiter(std::size_t kind, test::tally& in, int n)
        : plain(kind), number(n), value{item(in, n), item(in, n)} {}

    const std::size_t plain;
    const int number; // what it sends
    item value[2];
    room* from[2] = {};
    room* to[2] = {};
    std::ptrdiff_t permits = 0; // 0: none are wanted
    bool waits_for_event = false;
    unsigned passed = 0; // of the time-out, the stop and the deadline
    // As the model expects it: the places that it may have (0: it waits), and what it gets there.
    unsigned may = 0;
    bool good = true;
    int gets = 0;

    waker posted;
    std::optional<ending> came;

    void post(waker w) noexcept { posted = w; }

    // Its cases on one side of a channel.
    unsigned receives(const room& r) const {
        return (from[0] == &r ? bit(a::recv) : 0) | (from[1] == &r ? bit(a::other_recv) : 0);
    }
    unsigned sends(const room& r) const {
        return (to[0] == &r ? bit(a::send) : 0) | (to[1] == &r ? bit(a::other_send) : 0);
    }

    bool is_as_expected() const {
        const std::size_t at = came->place;
        bool right = (may >> at & 1) != 0 && came->good == good;
        if (at == a::recv || at == a::other_recv) {
            right = right && (good ? came->got->number() == gets : !came->got);
        }
        for (std::size_t i = 0; i < 2 && plain == select; ++i) {
            const bool went = good && at == (i == 0 ? a::send : a::other_send);
            right = right && value[i].number() == (went ? -1 : number);
        }
        return right;
    }

    // By one of the six forms.
    void run(int how, semaphore& s, event& e) {
        with_cases(s, e, [&](auto... c) {
            if (auto got = test::select_by(how, std::move(c)...)) {
                came = to_ending(*got);
            }
        });
    }
    void begin(bool biased, semaphore& s, event& e) {
        switch (plain) {
        case a::recv: hold(from[0]->real.async_recv()); break;
        case a::send: hold(to[0]->real.async_send(std::move(value[0]))); break;
        case a::acquire: hold(s.async_acquire(permits).with_stop(std::stop_token())); break;
        default:
            with_cases(s, e, [&](auto... c) {
                hold(biased ? async_select_biased(std::move(c)...) : async_select(std::move(c)...));
            });
        }
    }
    void destroy() { frame_->destroy(); }

private:
    template <class F> void with_cases(semaphore& s, event& e, F f) {
        const auto of = [](room* r) { return r != nullptr ? &r->real : nullptr; };
        const auto has_passed = [this](std::size_t at) { return (passed >> at & 1) != 0; };
        std::stop_source stop = test::new_stop();
        if (has_passed(a::stop)) {
            stop.request_stop();
        }
        f(on_timeout(has_passed(a::timeout) ? 0ns : std::chrono::nanoseconds::max()),
          on_recv(of(from[0])), on_stop(stop.get_token()), on_send(of(to[0]), value[0]),
          on_acquire(permits != 0 ? &s : nullptr, permits),
          on_event(waits_for_event ? &e : nullptr), on_recv(of(from[1])),
          on_deadline(has_passed(a::deadline) ? steady_clock::time_point::min()
                                              : steady_clock::time_point::max()),
          on_send(of(to[1]), value[1]));
    }

    template <class Op> void hold(Op op) {
        frame_.emplace(wait(std::move(op).resume_on(*this), *this));
        frame_->start();
    }
    template <class Op> static test::held wait(Op op, waiter& self) {
        auto got = co_await std::move(op);
        if constexpr (requires { to_ending(got); }) {
            self.came = to_ending(got);
        } else {
            self.came = to_ending(self.plain, got);
        }
    }

    std::optional<test::held> frame_;
};

class walk {
public:
    walk(std::uint32_t seed, test::tally& count) : tally_(count), chance_(seed) {}

    bool step() {
        switch (chance_.below(16)) {
        case 0:
        case 1:
        case 2:
        case 3: come(waiter::select); break;
        case 4: come(a::recv); break;
        case 5: come(a::send); break;
        case 6: come(a::acquire); break;
        case 7: attempt_send(*any_room()); break;
        case 8: attempt_recv(*any_room()); break;
        case 9: release(1 + below(2)); break;
        case 10: change_event(); break;
        case 11: leave(); break;
        case 12: close_seldom(); break;
        default: go_on(); break;
        }
        for (const auto& w : waiters_) {
            good_ = good_ && !w->came && static_cast<bool>(w->posted) == (w->may != 0);
        }
        for (const room& r : rooms_) {
            good_ = good_ && r.real.size() == r.inside.size();
        }
        return good_ && permits_.available() == (line_.empty() ? free_ : 0);
    }

private:
    // The model

    static void end(waiter& w, unsigned may, bool good = true) {
        w.may = may;
        w.good = good;
    }
    // The first that waits in such a queue, or nullptr.
    waiter* first(const room& r, bool sends) {
        for (const auto& w : waiters_) {
            if (w->may == 0 && (sends ? w->sends(r) : w->receives(r)) != 0) {
                return w.get();
            }
        }
        return nullptr;
    }
    bool model_send(room& r, int n) {
        if (r.closed) {
            return false;
        }
        if (waiter* const w = first(r, false)) {
            w->gets = n;
            end(*w, w->receives(r));
            return true;
        }
        const bool has_space = r.inside.size() < r.real.capacity();
        if (has_space) {
            r.inside.push_back(n);
        }
        return has_space;
    }
    std::optional<int> model_recv(room& r) {
        waiter* const w = first(r, true);
        if (w != nullptr) {
            r.inside.push_back(w->number);
            end(*w, w->sends(r));
        }
        if (r.inside.empty()) {
            return std::nullopt;
        }
        const int n = r.inside.front();
        r.inside.pop_front();
        return n;
    }
    // Those that have ended, and have not gone on, still stand in the line, but they get nothing.
    void serve() {
        while (!line_.empty() && (line_.front()->may != 0 || line_.front()->permits <= free_)) {
            waiter& w = *line_.front();
            line_.pop_front();
            if (w.may == 0) {
                free_ -= w.permits;
                end(w, bit(a::acquire));
            }
        }
    }
    void leave_line(waiter& w) {
        if (std::erase(line_, &w) != 0) {
            serve();
        }
    }

    // The cases that can happen at once. If none can, the time-out is asked.
    unsigned ready(const waiter& w) {
        unsigned bits = w.passed & ~bit(a::timeout);
        for (room& r : rooms_) {
            bits |= r.closed || !r.inside.empty() || first(r, true) ? w.receives(r) : 0;
            bits |=
                r.closed || r.inside.size() < r.real.capacity() || first(r, false) ? w.sends(r) : 0;
        }
        if (w.permits != 0 && (permits_closed_ || (line_.empty() && free_ >= w.permits))) {
            bits |= bit(a::acquire);
        }
        if (w.waits_for_event && is_set_) {
            bits |= bit(a::event);
        }
        return bits != 0 ? bits : w.passed;
    }
    void happen(waiter& w, std::size_t place) {
        end(w, bit(place));
        switch (place) {
        case a::recv:
        case a::other_recv: {
            const auto got = model_recv(*w.from[place == a::recv ? 0 : 1]);
            w.good = got.has_value();
            w.gets = got.value_or(0);
            break;
        }
        case a::send:
        case a::other_send: w.good = model_send(*w.to[place == a::send ? 0 : 1], w.number); break;
        case a::acquire:
            w.good = !permits_closed_;
            free_ -= w.good ? w.permits : 0;
            break;
        default: break;
        }
    }

    // The steps

    std::ptrdiff_t below(std::uint32_t n) { return static_cast<std::ptrdiff_t>(chance_.below(n)); }
    room* any_room() { return &rooms_[chance_.below(3)]; }
    bool one_in(std::uint32_t n) { return chance_.below(n) == 0; }

    std::unique_ptr<waiter> make(std::size_t kind) {
        auto w = std::make_unique<waiter>(kind, tally_, next_++);
        const bool selects = kind == waiter::select;
        for (std::size_t i = 0; i < 2; ++i) {
            w->from[i] =
                (i == 0 && kind == a::recv) || (selects && one_in(3)) ? any_room() : nullptr;
            w->to[i] = (i == 0 && kind == a::send) || (selects && one_in(3)) ? any_room() : nullptr;
        }
        w->permits = kind == a::acquire || (selects && one_in(3)) ? 1 + below(4) : 0;
        w->waits_for_event = selects && one_in(3);
        for (const std::size_t at : {a::timeout, a::stop, a::deadline}) {
            w->passed |= selects && one_in(20) ? bit(at) : 0;
        }
        return w;
    }
    void come(std::size_t kind) {
        auto w = make(kind);
        const unsigned can = ready(*w);
        int how = kind == waiter::select ? static_cast<int>(chance_.below(test::all_forms))
                                         : int{test::awaiting};
        const bool biased = how >= test::first_biased;
        if (can == 0 && how % test::first_biased == test::blocking) {
            how += test::trying;
        }
        if (how % test::first_biased != test::awaiting) {
            w->run(how, permits_, set_);
        } else if (waiters_.size() < 12) {
            w->begin(biased, permits_, set_);
        } else {
            return;
        }
        good_ = good_ && w->came.has_value() == (can != 0);
        const bool queued = w->permits != 0 && (can == 0 || can == bit(a::timeout));
        if (queued) {
            line_.push_back(w.get());
        }
        if (can == 0 && how % test::first_biased == test::awaiting) {
            waiters_.push_back(std::move(w));
            return;
        }
        leave_line(*w);
        if (w->came) {
            const std::size_t at = w->came->place;
            good_ = good_ && (can >> at & 1) != 0 && (!biased || (can & (bit(at) - 1)) == 0);
            happen(*w, at);
            good_ = good_ && w->is_as_expected();
        }
    }
    void attempt_send(room& r) {
        item one(tally_, next_);
        good_ = good_ && r.real.try_send(std::move(one)).has_value() == model_send(r, next_);
        ++next_;
    }
    void attempt_recv(room& r) {
        const auto got = r.real.try_recv();
        const auto expected = model_recv(r);
        good_ = good_ && (expected ? got && got->number() == *expected : !got);
    }
    void release(std::ptrdiff_t n) {
        permits_.release(n);
        free_ += n;
        serve();
    }
    void change_event() {
        is_set_ = !is_set_;
        is_set_ ? set_.set() : set_.reset();
        for (const auto& w : waiters_) {
            if (is_set_ && w->may == 0 && w->waits_for_event) {
                end(*w, bit(a::event));
            }
        }
    }
    void close_seldom() {
        if (!one_in(20)) {
            return;
        }
        const std::size_t which = chance_.below(4);
        if (which == 3) {
            permits_.close();
            permits_closed_ = true;
            for (waiter* const w : std::exchange(line_, {})) {
                if (w->may == 0) {
                    end(*w, bit(a::acquire), false);
                }
            }
            return;
        }
        room& r = rooms_[which];
        r.real.close();
        r.closed = true;
        for (const auto& w : waiters_) {
            if (const unsigned may = w->receives(r) | w->sends(r); w->may == 0 && may != 0) {
                end(*w, may, false);
            }
        }
    }
    // What came to a coroutine that is destroyed goes to the next, or back.
    void leave() {
        if (waiters_.empty()) {
            return;
        }
        const auto at = waiters_.begin() + below(static_cast<std::uint32_t>(waiters_.size()));
        const std::unique_ptr<waiter> w = std::move(*at);
        waiters_.erase(at);
        w->destroy();
        leave_line(*w);
        for (room& r : rooms_) {
            if (w->good && (w->may & w->receives(r)) != 0) {
                model_send(r, w->gets);
            }
        }
        if (w->good && w->may == bit(a::acquire)) {
            free_ += w->permits;
            serve();
        }
    }
    void go_on() {
        for (auto at = waiters_.begin(); at != waiters_.end(); ++at) {
            if (waiter& w = **at; w.may != 0) {
                std::exchange(w.posted, {}).wake();
                good_ = good_ && w.came && w.is_as_expected();
                leave_line(w);
                waiters_.erase(at);
                return;
            }
        }
    }

    test::tally& tally_;
    test::jitter chance_;
    bool good_ = true;
    int next_ = 1;
    room rooms_[3] = {room(0), room(1), room(2)};
    semaphore permits_{0};
    event set_;
    // The model of both
    std::ptrdiff_t free_ = 0;
    bool permits_closed_ = false;
    std::deque<waiter*> line_;
    bool is_set_ = false;
    std::vector<std::unique_ptr<waiter>> waiters_; // in the order in which they came
};

} // namespace

TEST_CASE("select: a random sequence of steps gives what a model gives",
          "[promise.select-one-case][promise.select-meets-once][promise.select-fair]"
          "[promise.select-stop-and-time]") {
    for (std::uint32_t round = 0; round < 100; ++round) {
        CAPTURE(round);
        test::tally in;
        auto w = std::make_unique<walk>(test::run_seed() + round, in);
        for (int i = 0; i < 500; ++i) {
            CAPTURE(i);
            REQUIRE(w->step());
        }
        w.reset();
        REQUIRE(in.alive() == 0);
        REQUIRE(in.copied == 0);
    }
}
