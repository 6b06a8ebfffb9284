// priority_channel and sliding_channel: all kinds of senders and receivers, which give up in every
// way. At the end each item was received once, was displaced and came back once, or is in the
// channel. Items of one sender and one priority come in order.

#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/stress.hpp"

#include <bide/channel/priority_channel.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/task/task.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using std::chrono::microseconds;

constexpr int senders = 3;
constexpr int receivers = 3;
constexpr int levels = 3;

// A number that only one thread at a time has.
class item {
public:
    item(int from, int n, int level) noexcept : from_(from), n_(n), level_(level) {}
    item(item&& other) noexcept
        : from_(std::exchange(other.from_, -1)), n_(other.n_), level_(other.level_) {}
    item& operator=(item&&) = delete;

    std::size_t from() const noexcept { return static_cast<std::size_t>(from_); }
    int n() const noexcept { return n_; }
    std::size_t level() const noexcept { return static_cast<std::size_t>(level_); }
    bool is_moved_from() const noexcept { return from_ < 0; }

    struct less {
        bool operator()(const item& a, const item& b) const noexcept { return a.level_ < b.level_; }
    };

private:
    int from_;
    int n_;
    int level_;
};

template <class Platform> using priority = bide::basic_priority_channel<item, item::less, Platform>;
template <class Platform> using sliding = bide::basic_sliding_channel<item, Platform>;

// How often each item of a round came out, in whatever way.
class ledger {
public:
    explicit ledger(int per_sender)
        : per_sender_(per_sender), seen_(static_cast<std::size_t>(senders * per_sender)) {}

    void enter(const item& got) noexcept {
        if (got.is_moved_from()) {
            ++wrong_;
        } else {
            ++seen_[got.from() * static_cast<std::size_t>(per_sender_) +
                    static_cast<std::size_t>(got.n())];
        }
    }
    // Returns true if exactly the first sent[i] items of each sender came out, once each.
    bool is_complete(const std::array<int, senders>& sent) const noexcept {
        bool right = wrong_ == 0;
        for (int s = 0; s < senders; ++s) {
            for (int n = 0; n < per_sender_; ++n) {
                right = right && seen_[static_cast<std::size_t>(s * per_sender_ + n)] ==
                                     (n < sent[static_cast<std::size_t>(s)] ? 1 : 0);
            }
        }
        return right;
    }

private:
    const int per_sender_;
    std::atomic<int> wrong_{0};
    std::vector<std::atomic<int>> seen_;
};

// What one receiver got.
struct book {
    explicit book(ledger& l) : all(l) {
        for (auto& of : last) {
            of.fill(-1);
        }
    }
    void enter(const item& got) noexcept {
        all.enter(got);
        int& before = last[got.from()][got.level()];
        in_order = in_order && got.n() > before;
        before = got.n();
        ++count;
    }

    ledger& all;
    std::array<std::array<int, levels>, senders> last{};
    bool in_order = true;
    int count = 0;
};

template <class Channel>
bide::task<void> recv_in_task(Channel& ch, book& mine, test::jitter& chance, bool& over) {
    if (chance.below(2) == 0) {
        const std::optional<item> got = co_await ch.async_recv();
        if (got) {
            mine.enter(*got);
        }
        over = !got;
    } else {
        auto op = ch.async_recv().with_timeout(chance.rest(16));
        const auto got = co_await std::move(op);
        if (got && *got) {
            mine.enter(**got);
        }
        over = got && !*got;
    }
}

// One that is stopped while it waits, or after it got its item.
template <class Channel> bool recv_until_stopped(Channel& ch, book& mine, test::jitter& chance) {
    std::stop_source source = test::new_stop();
    const std::uint32_t seed = chance.below(1u << 30);
    std::thread stopping([&source, seed] {
        test::jitter pause(seed);
        pause.dawdle(15);
        source.request_stop();
    });
    const auto got = ch.recv(source.get_token());
    stopping.join();
    if (got) {
        mine.enter(*got);
    }
    return !got && got.error() == bide::errc::closed;
}

// True: it is closed and drained.
template <class Channel> bool receive(Channel& ch, book& mine, test::jitter& chance) {
    bool over = false;
    const auto note = [&](const auto& got) {
        if (got) {
            mine.enter(*got);
        } else {
            over = got.error() == bide::errc::closed;
        }
    };
    switch (chance.below(8)) {
    case 0: note(ch.try_recv()); break;
    case 1: note(ch.try_recv_for(microseconds(chance.below(60)))); break;
    case 2: {
        std::vector<item> some;
        some.reserve(8);
        over = ch.recv_n(some, 1 + chance.below(8)) == 0;
        for (const item& got : some) {
            mine.enter(got);
        }
        break;
    }
    case 3:
    case 4: bide::sync_wait(recv_in_task(ch, mine, chance, over)); break;
    case 5: over = recv_until_stopped(ch, mine, chance); break;
    default: {
        const std::optional<item> got = ch.recv();
        over = !got;
        if (got) {
            mine.enter(*got);
        }
        break;
    }
    }
    return over;
}

template <class Channel> bide::task<void> send_in_task(Channel& ch, item it, bool& ok) {
    const auto got = co_await ch.async_send(std::move(it));
    ok = got.has_value();
}

// Returns true if it was sent; false if it was not, for any reason.
template <class Platform>
bool send(priority<Platform>& ch, item it, ledger&, test::jitter& chance) {
    switch (chance.below(6)) {
    case 0: return ch.try_send(std::move(it)).has_value();
    case 1: return ch.try_send_for(std::move(it), microseconds(chance.below(60))).has_value();
    case 2: {
        std::stop_source source = test::new_stop();
        std::thread stopping([&source] { source.request_stop(); });
        const bool ok = ch.send(source.get_token(), std::move(it)).has_value();
        stopping.join();
        return ok;
    }
    case 3: {
        bool ok = false;
        bide::sync_wait(send_in_task(ch, std::move(it), ok));
        return ok;
    }
    default: return ch.send(std::move(it)).has_value();
    }
}
template <class Platform> bool send(sliding<Platform>& ch, item it, ledger& all, test::jitter&) {
    const auto got = ch.replace(std::move(it));
    if (got && *got) {
        all.enter(**got);
    }
    return got.has_value();
}

// Rounds of one channel each. If `early`, it is closed while the senders send.
template <class Channel, class Make> void storm(Make make, int per_sender, bool early) {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    std::uint64_t received = 0;
    bool in_order = true;
    bool complete = true;
    do {
        Channel ch(make(rounds));
        ledger all(per_sender);
        std::vector<book> books(receivers, book(all));
        std::array<int, senders> sent{};
        std::atomic<int> sending{senders};
        test::stress_threads(senders + receivers + (early ? 1 : 0), [&](int i) {
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i) * 7'919u +
                                static_cast<std::uint32_t>(rounds));
            if (i < senders) {
                int& n = sent[static_cast<std::size_t>(i)];
                while (n < per_sender) {
                    const int level = static_cast<int>(chance.below(levels));
                    if (send(ch, item(i, n, level), all, chance)) {
                        ++n;
                    } else if (ch.is_closed()) {
                        break;
                    }
                    chance();
                }
                if (sending.fetch_sub(1) == 1) {
                    ch.close();
                }
            } else if (i < senders + receivers) {
                while (!receive(ch, books[static_cast<std::size_t>(i - senders)], chance)) {
                    chance();
                }
            } else {
                chance.dawdle(17);
                ch.close();
            }
        });
        for (const book& b : books) {
            in_order = in_order && b.in_order;
            received += static_cast<std::uint64_t>(b.count);
        }
        complete = complete && all.is_complete(sent) && ch.empty();
        ++rounds;
    } while (time.is_left() || received == 0); // each round may be closed before an item was sent
    INFO("seed " << test::run_seed() << ", rounds " << rounds);
    CHECK(in_order);
    CHECK(complete);
    CHECK(received > 0);
}

std::size_t small(std::uint64_t round) { return 1 + round % 4; }
std::size_t some(std::uint64_t round) { return round % 2 == 0 ? 1 : 64; }

} // namespace

TEMPLATE_TEST_CASE(
    "priority_channel: no item is lost, doubled or overtaken by an equal one in many "
    "short storms",
    "", test::native, test::jittery) {
    storm<priority<TestType>>(small, 40, false);
}
TEST_CASE("priority_channel: no item is lost, doubled or overtaken by an equal one in a long storm",
          "[promise.priority-order]") {
    storm<priority<test::native>>(some, 2'000, false);
}
TEST_CASE("priority_channel: closed in a storm, what was sent is received, and no waiter is left") {
    storm<priority<test::jittery>>(small, 200, true);
}

TEMPLATE_TEST_CASE("sliding_channel: each item is received or displaced once, in many short storms",
                   "", test::native, test::jittery) {
    storm<sliding<TestType>>(small, 40, false);
}
TEST_CASE("sliding_channel: each item is received or displaced once, in a long storm",
          "[promise.sliding-displaces]") {
    storm<sliding<test::native>>(some, 2'000, false);
}
TEST_CASE("sliding_channel: closed in a storm, each item is received or displaced once") {
    storm<sliding<test::jittery>>(small, 200, true);
}
