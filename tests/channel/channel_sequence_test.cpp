// Each kind of channel compared with a model of it, over random sequences of steps.

#include "support/channel_waits.hpp"
#include "support/counted.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/priority_channel.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>

using namespace test::channel_waits;

namespace {

using item = test::counted_once;
using items = std::deque<int>; // the first one comes out next

// The kinds: where an item goes, and where one goes that comes back and for which there is room.
struct bounded {
    using type = bide::basic_channel<item, test::native, std::uint16_t>;
    static constexpr bool sends_wait = true;
    static constexpr std::size_t least = 0; // capacity
    static void put(items& inside, int n, std::size_t) { inside.push_back(n); }
    static void put_back(items& inside, int n) { inside.push_back(n); }
};
struct unbounded {
    struct type : bide::unbounded_channel<item> {
        explicit type(std::size_t) {}
    };
    static constexpr bool sends_wait = false;
    static constexpr std::size_t least = 0;
    static void put(items& inside, int n, std::size_t) { inside.push_back(n); }
    static void put_back(items& inside, int n) { inside.push_front(n); }
};
struct priority {
    static int level(int n) { return n % 3; }
    struct by_level {
        bool operator()(const item& a, const item& b) const noexcept {
            return level(a.number()) < level(b.number());
        }
    };
    using type = bide::priority_channel<item, by_level>;
    static constexpr bool sends_wait = true;
    static constexpr std::size_t least = 1;
    static void put(items& inside, int n, std::size_t) {
        const auto less = [n](int other) { return level(other) < level(n); };
        inside.insert(std::find_if(inside.begin(), inside.end(), less), n);
    }
    static void put_back(items& inside, int n) { // before its equals
        const auto not_greater = [n](int other) { return level(other) <= level(n); };
        inside.insert(std::find_if(inside.begin(), inside.end(), not_greater), n);
    }
};
struct sliding {
    using type = bide::sliding_channel<item>;
    static constexpr bool sends_wait = false;
    static constexpr std::size_t least = 1;
    static void put(items& inside, int n, std::size_t capacity) {
        if (inside.size() == capacity) {
            inside.pop_front();
        }
        inside.push_back(n);
    }
    static void put_back(items& inside, int n) { inside.push_front(n); }
};

class mailbox {
public:
    void post(bide::waker w) noexcept { posted_ = w; }
    bool is_posted() const noexcept { return static_cast<bool>(posted_); }
    void run() noexcept { std::exchange(posted_, {}).wake(); }

private:
    bide::waker posted_;
};

bool are(const std::vector<item>& some, const ints& expected) {
    return std::equal(some.begin(), some.end(), expected.begin(), expected.end(),
                      [](const item& one, int n) { return one.number() == n; });
}

// A channel beside a model of it: its items, and two queues of waiters. One thread, so
// every waiter is a coroutine, with an executor of its own that keeps what is posted.
template <class Kind> class walk {
    using what = bide::wait_status;

    // A waiter; below, what the model expects of it.
    struct one_wait {
        one_wait(bool sender, std::size_t n) : sends(sender), most(n), stop(test::new_stop()) {}
        const bool sends;
        const std::size_t most; // the receiver puts as many into its vector; 0: it receives one
        mailbox post;
        ending<sent<item>> went;
        ending<bide::result<std::optional<item>>> came;
        ending<bide::result<std::size_t>> came_n;
        std::vector<item> some;
        what state = what::waiting;
        ints values; // sent, or expected
        std::stop_source stop;
        std::optional<test::held> frame;

        bool is_done() const { return went.done || came.done || came_n.done; }
        bool is_as_expected() const {
            if (sends) {
                const auto& got = *went.out;
                return state == what::granted ? got.has_value()
                                              : !got && got.error().code == bide::errc_of(state) &&
                                                    got.error().value.number() == values.front();
            }
            if (most != 0) {
                const auto& got = *came_n.out;
                return are(some, values) && (state == what::granted || state == what::closed
                                                 ? got && *got == some.size()
                                                 : !got && got.error() == bide::errc_of(state));
            }
            const auto& got = *came.out;
            switch (state) {
            case what::granted: return got && *got && (*got)->number() == values.front();
            case what::closed: return got && !*got;
            default: return !got && got.error() == bide::errc_of(state);
            }
        }
    };

public:
    // If it is to be deep, more items come than go, until there are many.
    walk(std::size_t capacity, bool deep, std::uint32_t seed, test::tally& count)
        : tally_(count), ch_(capacity), deep_(deep), chance_(seed) {}

    bool step() {
        bool good = true;
        switch (chance_.below(16)) {
        case 0:
        case 1:
        case 2: good = come(true); break;
        case 3:
        case 4: good = come(deep_ && inside_.size() < 100); break;
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
        return good && ch_.size() == inside_.size() && ch_.empty() == inside_.empty() &&
               ch_.is_full() == (Kind::sends_wait && !has_space());
    }

    ~walk() { waiters_.clear(); } // the waiters leave before the channel is destroyed

private:
    // The model

    bool has_space() const { return inside_.size() < ch_.capacity(); }
    bool give(int value) {
        if (receivers_.empty()) {
            return false;
        }
        receivers_.front()->values = {value};
        receivers_.front()->state = what::granted;
        receivers_.pop_front();
        return true;
    }
    // False: it would have to wait.
    bool model_send(int value) {
        if (give(value)) {
            return true;
        }
        if (Kind::sends_wait && !has_space()) {
            return false;
        }
        Kind::put(inside_, value, ch_.capacity());
        return true;
    }
    // False: there is no room.
    bool model_pass_on(int value) {
        if (closed_) {
            return false;
        }
        if (give(value)) {
            return true;
        }
        if (has_space()) {
            Kind::put_back(inside_, value);
            return true;
        }
        return false;
    }
    // Appends up to `most` items.
    void model_recv(ints& to, std::size_t most) {
        while (to.size() < most && !(inside_.empty() && senders_.empty())) {
            if (!inside_.empty()) {
                to.push_back(inside_.front());
                inside_.pop_front();
                if (!senders_.empty()) {
                    Kind::put(inside_, senders_.front()->values.front(), ch_.capacity());
                }
            } else { // without a capacity
                to.push_back(senders_.front()->values.front());
            }
            if (!senders_.empty()) {
                senders_.front()->state = what::granted;
                senders_.pop_front();
            }
        }
    }

    bool come(bool sends) {
        if (waiters_.size() > 10) {
            return true;
        }
        waiters_.push_back(std::make_unique<one_wait>(sends, chance_.below(4)));
        one_wait& g = *waiters_.back();
        const std::stop_token token = g.stop.get_token();
        bool waits = false;
        if (sends) {
            g.values = {next_++};
            waits = !closed_ && !model_send(g.values.front());
            g.state = closed_ ? what::closed : waits ? what::waiting : what::granted;
            auto op = ch_.async_send(item(tally_, g.values.front()));
            g.frame.emplace(hold(std::move(op).with_stop(token).resume_on(g.post), g.went));
        } else {
            model_recv(g.values, std::max<std::size_t>(g.most, 1));
            waits = g.values.empty() && !closed_;
            g.state = waits ? what::waiting : g.values.empty() ? what::closed : what::granted;
            if (g.most == 0) {
                g.frame.emplace(hold(ch_.async_recv().with_stop(token).resume_on(g.post), g.came));
            } else {
                auto op = ch_.async_recv_n(g.some, g.most);
                g.frame.emplace(hold(std::move(op).with_stop(token).resume_on(g.post), g.came_n));
            }
        }
        g.frame->start();
        if (waits) {
            (sends ? senders_ : receivers_).push_back(&g);
            return !g.is_done();
        }
        const bool good = g.is_done() && g.is_as_expected();
        waiters_.pop_back();
        return good;
    }

    bool attempt_send() {
        const bool goes = !closed_ && model_send(next_);
        const auto got = ch_.try_send(item(tally_, next_));
        const errc why = closed_ ? errc::closed : errc::full;
        const bool good =
            goes ? got.has_value()
                 : !got && got.error().code == why && got.error().value.number() == next_;
        ++next_;
        return good;
    }
    bool attempt_recv() {
        ints expected;
        model_recv(expected, 1);
        const auto got = ch_.try_recv();
        return expected.empty() ? is(got, closed_ ? errc::closed : errc::empty)
                                : got && got->number() == expected.front();
    }
    bool batch_send() {
        std::vector<item> some;
        for (std::uint32_t n = chance_.below(6); n > 0; --n) {
            some.emplace_back(tally_, next_++);
        }
        std::size_t go = 0;
        while (!closed_ && go < some.size() && model_send(some[go].number())) {
            ++go;
        }
        return ch_.try_send_n(some) == go &&
               (go == some.size() ||
                some[go].number() == next_ - static_cast<int>(some.size() - go));
    }
    // Asks for some, or for more than any memory has room for.
    bool batch_recv() {
        const std::size_t some = chance_.below(6);
        const std::size_t most = some == 5 ? std::numeric_limits<std::size_t>::max() : some;
        ints expected;
        model_recv(expected, most);
        const bool may_wait = chance_.below(2) == 0 && (closed_ || some == 0 || !expected.empty());
        std::vector<item> got;
        return (may_wait ? ch_.recv_n(got, most) : ch_.try_recv_n(got, most)) == expected.size() &&
               are(got, expected);
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
        ints stay; // what cannot go back stays in the vector
        if (g.state == what::waiting) {
            auto& line = g.sends ? senders_ : receivers_;
            line.erase(std::find(line.begin(), line.end(), &g));
        } else if (!stops && !g.sends && g.state == what::granted &&
                   !model_pass_on(g.values.front()) && g.most != 0) {
            stay = g.values;
        }
        if (stops) {
            g.state = g.state == what::waiting ? what::stopped : g.state;
            g.stop.request_stop();
            return true;
        }
        g.frame->destroy();
        const bool good = are(g.some, stay) && !g.is_done();
        waiters_.erase(at);
        return good;
    }

    bool go_on() {
        for (auto at = waiters_.begin(); at != waiters_.end(); ++at) {
            if ((*at)->state != what::waiting) {
                if (!(*at)->sends && (*at)->state == what::granted) {
                    model_recv((*at)->values, (*at)->most); // beside the first
                }
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

    test::tally& tally_;
    typename Kind::type ch_;
    const bool deep_;
    test::jitter chance_;
    int next_ = 0;
    bool closed_ = false;
    items inside_;
    std::deque<one_wait*> senders_;
    std::deque<one_wait*> receivers_;
    std::vector<std::unique_ptr<one_wait>> waiters_;
};

} // namespace

TEMPLATE_TEST_CASE(
    "channel: a random sequence of steps gives what a model with two queues of waiters gives",
    "[promise.channel-capacity][promise.priority-order][promise.item-of-destroyed-coroutine]",
    bounded, unbounded, priority, sliding) {
    for (std::uint32_t round = 0; round < 60; ++round) {
        constexpr std::size_t capacities[] = {0, 1, 2, 3, 5, 64};
        CAPTURE(round);
        const std::size_t capacity = std::max(capacities[round % 6], TestType::least);
        test::tally in;
        auto w = std::make_unique<walk<TestType>>(capacity, round / 6 % 2 == 0,
                                                  test::run_seed() + round, in);
        for (int i = 0; i < 1'000; ++i) {
            CAPTURE(i);
            REQUIRE(w->step());
        }
        w.reset(); // with the items inside
        REQUIRE(in.alive() == 0);
        REQUIRE(in.copied == 0);
    }
}
