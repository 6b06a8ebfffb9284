// A channel compared with a model of it, over random sequences of steps.

#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>

using namespace test::channel_waits;

// A channel beside a model of it: its items, and two queues of waiters. One thread, so
// every waiter is a coroutine, with an executor of its own that keeps what is posted.
namespace {

class mailbox {
public:
    void post(bide::waker w) noexcept { posted_ = w; }
    bool is_posted() const noexcept { return static_cast<bool>(posted_); }
    void run() noexcept { std::exchange(posted_, {}).wake(); }

private:
    bide::waker posted_;
};

class walk {
    using item = test::counted_once;
    using what = bide::wait_status;

    // A waiter; below, what the model expects of it.
    struct one_wait {
        one_wait(bool sender, int n) : sends(sender), value(n), stop(test::new_stop()) {}
        const bool sends;
        mailbox post;
        ending<sent<item>> went;
        ending<bide::result<std::optional<item>>> came;
        int value; // sent, or expected
        what state = what::waiting;
        std::stop_source stop;
        std::optional<test::held> frame;

        bool is_done() const { return sends ? went.done.load() : came.done.load(); }
        bool is_as_expected() const {
            if (sends) {
                const auto& got = *went.out;
                return state == what::granted ? got.has_value()
                                              : !got && got.error().code == bide::errc_of(state) &&
                                                    got.error().value.number() == value;
            }
            const auto& got = *came.out;
            switch (state) {
            case what::granted: return got && *got && (*got)->number() == value;
            case what::closed: return got && !*got;
            default: return !got && got.error() == bide::errc_of(state);
            }
        }
    };

public:
    walk(std::size_t capacity, std::uint32_t seed) : ch_(capacity), chance_(seed) {}

    bool step() {
        bool good = true;
        switch (chance_.below(16)) {
        case 0:
        case 1:
        case 2: good = come(true); break;
        case 3:
        case 4:
        case 5: good = come(false); break;
        case 6: good = attempt_send(); break;
        case 7: good = attempt_recv(); break;
        case 8: good = batch_send(); break;
        case 9: good = batch_recv(); break;
        case 10: good = leave(false); break;
        case 11: good = leave(true); break;
        case 12: close_seldom(); break;
        default: good = go_on(); break;
        }
        for (const auto& g : waiters_) {
            good = good && g->post.is_posted() == (g->state != what::waiting);
        }
        return good && ch_.size() == inside_.size();
    }

    ~walk() { waiters_.clear(); } // the waiters leave before the channel is destroyed

    test::tally in;

private:
    // The model. False: it would have to wait.
    bool model_send(int value) {
        if (!receivers_.empty()) {
            give(value);
        } else if (inside_.size() < ch_.capacity()) {
            inside_.push_back(value);
        } else {
            return false;
        }
        return true;
    }
    void give(int value) {
        receivers_.front()->value = value;
        receivers_.front()->state = what::granted;
        receivers_.pop_front();
    }
    bool model_recv(int& value) {
        if (ch_.capacity() == 0 && !senders_.empty()) {
            value = senders_.front()->value;
        } else if (!inside_.empty()) {
            value = inside_.front();
            inside_.pop_front();
            if (!senders_.empty()) {
                inside_.push_back(senders_.front()->value);
            }
        } else {
            return false;
        }
        if (!senders_.empty()) {
            senders_.front()->state = what::granted;
            senders_.pop_front();
        }
        return true;
    }

    bool come(bool sends) {
        if (waiters_.size() > 10) {
            return true;
        }
        waiters_.push_back(std::make_unique<one_wait>(sends, sends ? next_++ : 0));
        one_wait& g = *waiters_.back();
        const std::stop_token token = g.stop.get_token();
        bool waits = false;
        if (sends) {
            waits = !closed_ && !model_send(g.value);
            g.frame.emplace(
                hold(ch_.async_send(item(in, g.value)).with_stop(token).resume_on(g.post), g.went));
        } else {
            waits = !model_recv(g.value);
            if (waits && closed_) {
                g.state = what::closed;
                waits = false;
            } else if (!waits) {
                g.state = what::granted;
            }
            g.frame.emplace(hold(ch_.async_recv().with_stop(token).resume_on(g.post), g.came));
        }
        g.frame->start();
        if (waits) {
            (sends ? senders_ : receivers_).push_back(&g);
            return !g.is_done();
        }
        if (sends) {
            g.state = closed_ ? what::closed : what::granted;
        }
        const bool good = g.is_done() && g.is_as_expected();
        waiters_.pop_back();
        return good;
    }

    bool attempt_send() {
        const bool goes = !closed_ && model_send(next_);
        const auto got = ch_.try_send(item(in, next_));
        const errc why = closed_ ? errc::closed : errc::full;
        const bool good =
            goes ? got.has_value()
                 : !got && got.error().code == why && got.error().value.number() == next_;
        ++next_;
        return good;
    }
    bool attempt_recv() {
        int value = 0;
        const bool comes = model_recv(value);
        const auto got = ch_.try_recv();
        return comes ? got && got->number() == value
                     : is(got, closed_ ? errc::closed : errc::empty);
    }
    bool batch_send() {
        std::vector<item> items;
        for (std::uint32_t n = chance_.below(6); n > 0; --n) {
            items.emplace_back(in, next_++);
        }
        std::size_t go = 0;
        while (!closed_ && go < items.size() && model_send(items[go].number())) {
            ++go;
        }
        return ch_.try_send_n(items) == go &&
               (go == items.size() ||
                items[go].number() == next_ - static_cast<int>(items.size() - go));
    }
    bool batch_recv() {
        const std::size_t most = chance_.below(6);
        ints expected;
        for (int value = 0; expected.size() < most && model_recv(value);) {
            expected.push_back(value);
        }
        std::vector<item> items;
        bool good = ch_.try_recv_n(items, most) == expected.size();
        for (std::size_t i = 0; i < expected.size() && good; ++i) {
            good = items[i].number() == expected[i];
        }
        return good;
    }

    // A waiter leaves by its destruction, or by a stop, which is too late after the grant.
    bool leave(bool stops) {
        if (waiters_.empty()) {
            return true;
        }
        const auto at =
            waiters_.begin() +
            static_cast<std::ptrdiff_t>(chance_.below(static_cast<std::uint32_t>(waiters_.size())));
        one_wait& g = **at;
        if (g.state == what::waiting) {
            auto& line = g.sends ? senders_ : receivers_;
            line.erase(std::find(line.begin(), line.end(), &g));
        } else if (!stops && !g.sends && g.state == what::granted && !closed_) {
            model_send(g.value); // what it had goes to the next, or back
        }
        if (stops) {
            g.state = g.state == what::waiting ? what::stopped : g.state;
            g.stop.request_stop();
        } else {
            waiters_.erase(at);
        }
        return true;
    }

    bool go_on() {
        for (auto at = waiters_.begin(); at != waiters_.end(); ++at) {
            if ((*at)->state != what::waiting) {
                (*at)->post.run();
                const bool good = (*at)->is_done() && (*at)->is_as_expected();
                waiters_.erase(at);
                return good;
            }
        }
        return true;
    }

    void close_seldom() {
        if (chance_.below(50) != 0) {
            return;
        }
        for (auto* line : {&senders_, &receivers_}) {
            for (one_wait* g : *line) {
                g->state = what::closed;
            }
            line->clear();
        }
        closed_ = true;
        ch_.close();
    }

    bide::basic_channel<item, test::native, std::uint16_t> ch_;
    test::jitter chance_;
    int next_ = 0;
    bool closed_ = false;
    std::deque<int> inside_;
    std::deque<one_wait*> senders_;
    std::deque<one_wait*> receivers_;
    std::vector<std::unique_ptr<one_wait>> waiters_;
};

} // namespace

TEST_CASE(
    "channel: a random sequence of steps gives what a model with two queues of waiters gives") {
    for (std::uint32_t round = 0; round < 60; ++round) {
        constexpr std::size_t capacities[] = {0, 1, 2, 3, 5, 64};
        CAPTURE(round);
        auto w = std::make_unique<walk>(capacities[round % 6], test::run_seed() + round);
        for (int i = 0; i < 1'000; ++i) {
            CAPTURE(i);
            REQUIRE(w->step());
        }
    }
}
