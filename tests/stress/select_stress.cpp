// Selects beside selects and beside every other kind of waiter: each item comes once, no permit is
// lost, and no waiter is left asleep.

#include <support/sched.hpp>

#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/semaphore.hpp>

namespace {

using namespace bide;

constexpr std::uint32_t senders = 3;
constexpr std::size_t channels = 3;

struct item {
    std::uint32_t from;
    std::uint32_t number;
};
template <class Platform> using items = basic_channel<item, Platform>;
template <class Platform> using set_of = std::array<items<Platform>*, channels>;

std::uint64_t hash(std::uint32_t number) {
    return (std::uint64_t{number} + 1) * 0x9e3779b97f4a7c15u ^ number;
}

// What one thread has sent, or received: which and how many.
struct ledger {
    std::uint64_t count[senders] = {};
    std::uint64_t sum[senders] = {};
    std::uint32_t next[channels][senders] = {};
    bool in_order = true;

    void add(item what) noexcept {
        ++count[what.from];
        sum[what.from] += hash(what.number);
    }
    void add_from(std::size_t channel, item what) noexcept {
        add(what);
        std::uint32_t& expected = next[channel][what.from];
        in_order = in_order && what.number >= expected;
        expected = what.number + 1;
    }
    void add(const ledger& other) noexcept {
        for (std::size_t i = 0; i < senders; ++i) {
            count[i] += other.count[i];
            sum[i] += other.sum[i];
        }
        in_order = in_order && other.in_order;
    }
    std::uint64_t all() const noexcept { return count[0] + count[1] + count[2]; }
};

bool equal(const ledger& a, const ledger& b) {
    return std::equal(std::begin(a.count), std::end(a.count), std::begin(b.count)) &&
           std::equal(std::begin(a.sum), std::end(a.sum), std::begin(b.sum));
}

struct received {
    std::size_t from;
    std::optional<item> what;

    template <class Selected> static received of(Selected& got) {
        switch (got.index()) {
        case 0: return {0, got.template get<0>()};
        case 1: return {1, got.template get<1>()};
        default: return {2, got.template get<2>()};
        }
    }
};

template <class Platform> task<received> receiving(const set_of<Platform>& in) {
    auto any = async_select(on_recv(in[0]), on_recv(in[1]), on_recv(in[2]));
    auto got = co_await std::move(any);
    co_return received::of(got);
}

// As short a time as it takes to be decided otherwise, or a stop.
template <class Platform>
task<std::optional<received>> receiving(const set_of<Platform>& in, std::chrono::nanoseconds rest,
                                        std::stop_token stop) {
    auto any = async_select(on_recv(in[0]), on_recv(in[1]), on_recv(in[2]))
                   .with_timeout(rest)
                   .with_stop(stop);
    auto got = co_await std::move(any);
    co_return got ? std::optional(received::of(*got)) : std::nullopt;
}

template <class Platform>
task<bool> sending(const set_of<Platform>& out, item& what, std::chrono::nanoseconds rest,
                   std::stop_token stop) {
    auto any = async_select(on_send(out[0], what), on_send(out[1], what), on_send(out[2], what))
                   .with_timeout(rest)
                   .with_stop(stop);
    auto got = co_await std::move(any);
    co_return got.has_value();
}

// Receives from one of those that are open, in one of the ways there are.
template <class Platform>
received receive(const set_of<Platform>& in, test::jitter& chance, test::stoppable& stop) {
    switch (chance.below(6)) {
    case 0: return sync_wait(receiving<Platform>(in));
    case 1:
        for (;;) {
            if (const auto got =
                    sync_wait(receiving<Platform>(in, chance.rest(16), stop.token()))) {
                return *got;
            }
        }
    case 2: {
        auto got = select_biased(on_recv(in[0]), on_recv(in[1]), on_recv(in[2]));
        return received::of(got);
    }
    case 3:
        for (int n = 0; n < 100; ++n) {
            if (auto got = try_select(on_recv(in[0]), on_recv(in[1]), on_recv(in[2]))) {
                return received::of(*got);
            }
            chance();
        }
        [[fallthrough]];
    case 4: {
        const std::size_t one = chance.below(channels);
        if (in[one] != nullptr) {
            if (auto got = in[one]->try_recv_for(chance.rest(14))) {
                return {one, *got};
            }
        }
        [[fallthrough]];
    }
    default: {
        auto got = select(on_recv(in[0]), on_recv(in[1]), on_recv(in[2]));
        return received::of(got);
    }
    }
}

template <class Platform>
void send(const set_of<Platform>& out, item what, test::jitter& chance, test::stoppable& stop) {
    switch (chance.below(5)) {
    case 0:
        while (!sync_wait(sending<Platform>(out, what, chance.rest(16), stop.token()))) {
        }
        break;
    case 1:
        static_cast<void>(
            select_biased(on_send(out[2], what), on_send(out[1], what), on_send(out[0], what)));
        break;
    case 2:
        while (!try_select(on_send(out[0], what), on_send(out[1], what), on_send(out[2], what))) {
            chance();
        }
        break;
    case 3:
        if (auto* const one = out[chance.below(channels)]) {
            static_cast<void>(one->send(what));
            break;
        }
        [[fallthrough]];
    default:
        static_cast<void>(
            select(on_send(out[0], what), on_send(out[1], what), on_send(out[2], what)));
        break;
    }
}

template <class Platform> void storm(std::size_t first, std::size_t second, std::size_t third) {
    constexpr int receivers = 3;
    items<Platform> a(first);
    items<Platform> b(second);
    items<Platform> c(third);
    const test::stress_time time;
    ledger in[senders];
    ledger out[receivers];
    std::array<test::stoppable, 8> stops;
    std::atomic<std::uint32_t> left{senders};
    std::atomic<int> taking{receivers};
    test::players(senders + receivers + 1, [&](int i, test::jitter& chance) {
        const auto me = static_cast<std::size_t>(i);
        if (me < senders) {
            const set_of<Platform> all{&a, &b, &c};
            item next{static_cast<std::uint32_t>(i), 0};
            for (; time.is_left(); ++next.number) {
                set_of<Platform> some = all;
                if (chance.below(4) == 0) {
                    some[chance.below(channels)] = nullptr; // a disabled case
                }
                send<Platform>(some, next, chance, stops[me]);
                in[me].add(next);
            }
            if (--left == 0) {
                for (auto* const ch : all) {
                    ch->close();
                }
            }
        } else if (me < senders + receivers) {
            set_of<Platform> open{&a, &b, &c};
            while (open != set_of<Platform>{}) {
                const received got = receive<Platform>(open, chance, stops[me]);
                if (got.what) {
                    out[me - senders].add_from(got.from, *got.what);
                } else {
                    open[got.from] = nullptr;
                }
            }
            --taking;
        } else {
            while (taking != 0) {
                chance.dawdle(16);
                stops[chance.below(senders + receivers)].stop();
            }
        }
    });
    ledger sent;
    ledger got;
    for (const ledger& l : in) {
        sent.add(l);
    }
    for (const ledger& l : out) {
        got.add(l);
    }
    INFO(sent.all() << " sent, " << got.all() << " received");
    CHECK(sent.all() > 0);
    CHECK(equal(sent, got));
    CHECK(got.in_order);
    CHECK(a.empty());
    CHECK(b.empty());
    CHECK(c.empty());
}

template <class Platform>
task<std::size_t> permit_or_item(basic_semaphore<Platform>& s, std::ptrdiff_t n,
                                 basic_channel<int, Platform>& ch, std::chrono::nanoseconds rest,
                                 std::stop_token stop, std::atomic<std::ptrdiff_t>& held,
                                 bool& too_many) {
    auto any = async_select(on_acquire(s, n), on_recv(ch)).with_timeout(rest).with_stop(stop);
    auto got = co_await std::move(any);
    if (!got) {
        co_return 2;
    }
    if (got->index() == 0) {
        too_many = too_many || held.fetch_add(n) + n > 5;
        held.fetch_sub(n);
    }
    co_return got->index();
}

} // namespace

TEMPLATE_TEST_CASE("select: in a storm of selects, sends and receives, stops and time-outs each "
                   "item comes once, in order",
                   "", test::native, test::portable, test::jittery) {
    storm<TestType>(0, 1, 3);
}

TEST_CASE("select: the same with little room everywhere, and on one processor") {
    storm<test::native>(0, 0, 0);
    storm<test::native>(1, 1, 1);
    const test::on_one_processor pinned;
    storm<test::native>(0, 1, 64);
}

TEMPLATE_TEST_CASE(
    "select: selects that send in one direction and receive in the other meet once and "
    "never wait for each other",
    "", test::native, test::jittery) {
    using numbers = basic_channel<std::uint64_t, TestType>;
    constexpr int threads = 6;
    const test::stress_time time;
    numbers a(0);
    numbers b(0);
    std::array<std::uint64_t, threads> sent[2] = {};
    std::array<std::uint64_t, threads> got[2] = {};
    std::array<std::uint64_t, threads> matches{};
    std::array<bool, threads> self{};
    test::players(threads, [&](int t, test::jitter& chance) {
        const auto i = static_cast<std::size_t>(t);
        auto note = [&](std::size_t which, const result<void>& ok, std::uint64_t value) {
            sent[which][i] += ok ? hash(static_cast<std::uint32_t>(value)) : 0;
            matches[i] += ok ? 1 : 0;
            return ok.has_value();
        };
        auto take = [&](std::size_t which, const std::optional<std::uint64_t>& value) {
            got[which][i] += value ? hash(static_cast<std::uint32_t>(*value)) : 0;
            self[i] = self[i] || (value && *value % threads == i);
            return value.has_value();
        };
        for (std::uint64_t n = i;; n += threads) {
            if (chance.below(16) == 0 && !time.is_left()) {
                a.close();
                b.close();
            }
            std::uint64_t value = n;
            bool goes_on = true;
            // Of those with even and those with odd names any two can meet.
            switch (chance.below(2) == 0 ? 2 : i % 2) {
            case 0: {
                auto s = select(on_send(a, value), on_recv(b));
                goes_on =
                    s.index() == 0 ? note(0, s.template get<0>(), n) : take(1, s.template get<1>());
                break;
            }
            case 1: {
                auto s = select(on_recv(a), on_send(b, value));
                goes_on =
                    s.index() == 0 ? take(0, s.template get<0>()) : note(1, s.template get<1>(), n);
                break;
            }
            default: { // on one channel: not with itself
                auto s = select(on_recv(a), on_send(a, value));
                goes_on =
                    s.index() == 0 ? take(0, s.template get<0>()) : note(0, s.template get<1>(), n);
                break;
            }
            }
            if (!goes_on) {
                return;
            }
        }
    });
    std::uint64_t total[4] = {};
    bool any_self = false;
    for (std::size_t i = 0; i < threads; ++i) {
        total[0] += sent[0][i];
        total[1] += got[0][i];
        total[2] += sent[1][i];
        total[3] += got[1][i];
        any_self = any_self || self[i];
    }
    CHECK(total[0] == total[1]);
    CHECK(total[2] == total[3]);
    CHECK_FALSE(any_self);
}

TEMPLATE_TEST_CASE("select: permits that are waited for beside items, times and stops are neither "
                   "lost nor doubled",
                   "", test::native, test::jittery) {
    constexpr int threads = 5;
    const test::stress_time time;
    basic_semaphore<TestType> s(5);
    basic_channel<int, TestType> ch(1);
    std::atomic<std::ptrdiff_t> held{0};
    std::array<test::stoppable, 8> stops;
    std::uint64_t sent = 0;
    std::array<std::uint64_t, threads> got{};
    std::array<bool, threads> too_many{};
    test::players(threads, [&](int t, test::jitter& chance) {
        const auto i = static_cast<std::size_t>(t);
        while (time.is_left()) {
            const std::ptrdiff_t n = 1 + static_cast<std::ptrdiff_t>(chance.below(4));
            auto hold = [&] {
                too_many[i] = too_many[i] || held.fetch_add(n) + n > 5;
                chance();
                held.fetch_sub(n);
            };
            if (t == 0) {
                chance.dawdle(14);
                sent += ch.try_send(1) ? 1 : 0;
                stops[1 + chance.below(threads - 1)].stop();
                continue;
            }
            switch (chance.below(4)) {
            case 0: {
                s.acquire(n);
                hold();
                s.release(n);
                break;
            }
            case 1: {
                auto any = try_select(on_recv(ch), on_acquire(s, n));
                if (any && any->index() == 1) {
                    hold();
                } else if (any) {
                    ++got[i];
                }
                break;
            }
            case 2: {
                bool bad = false;
                got[i] += sync_wait(permit_or_item<TestType>(s, n, ch, chance.rest(16),
                                                             stops[i].token(), held, bad)) == 1
                              ? 1
                              : 0;
                too_many[i] = too_many[i] || bad;
                break;
            }
            default: {
                // Twice the same semaphore: what the one had in part goes to the other, or on.
                auto any = select(on_acquire(s, n), on_recv(ch), on_acquire(s, n));
                if (any.index() == 1) {
                    ++got[i];
                } else {
                    hold();
                }
                break;
            }
            }
        }
    });
    std::uint64_t all = ch.size();
    for (std::size_t i = 0; i < threads; ++i) {
        all += got[i];
        CHECK_FALSE(too_many[i]);
    }
    CHECK(all == sent);
    CHECK(held == 0);
    CHECK(s.available() == 5);
    CHECK(s.waiters() == 0);
}

TEST_CASE("select: an end by a close, a set, a stop or a time comes to each, and once; what was "
          "sent is received, or inside") {
    const test::stress_time time;
    std::uint32_t rounds = 0;
    bool exact = true;
    while (time.is_left()) {
        test::jitter dice(test::run_seed() + rounds);
        channel<int> ch(dice.below(3));
        semaphore s(0);
        event e;
        std::stop_source stop = test::new_stop();
        const std::chrono::nanoseconds rest =
            dice.below(3) == 0 ? dice.rest(18) : std::chrono::nanoseconds(1h);
        int ends[6] = {};
        int sent = 0;
        test::players(
            6,
            [&](int i, test::jitter& chance) {
                chance();
                if (i == 0) {
                    switch (rounds % 4) {
                    case 0: ch.close(); break;
                    case 1: s.close(); break;
                    case 2: e.set(); break;
                    default: stop.request_stop(); break;
                    }
                } else if (i == 1) {
                    int value = 1;
                    auto got = select(on_send(ch, value), on_event(e), on_acquire(s),
                                      on_stop(stop.get_token()), on_timeout(rest));
                    sent += got.index() == 0 && got.get<0>() ? 1 : 0;
                    ends[i] = 1;
                } else if (i < 4) {
                    auto got = select(on_recv(ch), on_event(e), on_acquire(s),
                                      on_stop(stop.get_token()), on_timeout(rest));
                    ends[i] = got.index() == 0 && got.get<0>() ? 2 : 1;
                } else {
                    auto waits = [](channel<int>& in, event& set, semaphore& permits,
                                    std::stop_token token,
                                    std::chrono::nanoseconds left) -> task<int> {
                        auto any = async_select(on_recv(in), on_event(set), on_acquire(permits),
                                                on_stop(token), on_timeout(left));
                        auto got = co_await std::move(any);
                        co_return got.index() == 0 && got.get<0>() ? 2 : 1;
                    };
                    ends[i] = sync_wait(waits(ch, e, s, stop.get_token(), rest));
                }
            },
            static_cast<std::uint32_t>(rounds));
        int got = static_cast<int>(ch.size());
        for (int i = 1; i < 6; ++i) {
            exact = exact && ends[i] != 0;
            got += ends[i] == 2 ? 1 : 0;
        }
        exact = exact && got == sent && s.waiters() == 0;
        ++rounds;
    }
    CHECK(rounds > 0);
    CHECK(exact);
}
