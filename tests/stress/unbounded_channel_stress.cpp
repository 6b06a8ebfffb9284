// All kinds of senders and receivers, which give up in every way. At the end the items are counted:
// each was received once, in its sender's order, or is in the channel.

#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/stress.hpp"

#include <bide/channel/handles.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr int senders = 3;
constexpr int receivers = 3;

test::jitter chance_of(int thread) {
    return test::jitter(test::run_seed() + static_cast<std::uint32_t>(thread) * 7'919u);
}

// What each sender sends: its number, and the how-manieth it is; made to be counted.
class item : public test::counted_once {
public:
    item(test::tally& t, int from, int n) noexcept : counted_once(t, n), from_(from) {}
    int from() const noexcept { return from_; }

private:
    int from_;
};

// What each receiver got of each sender. Some go on without a thread of their own, so all write
// into what is theirs alone: one is never in two operations.
struct book {
    std::array<int, senders> last;
    std::array<int, senders> count{};
    bool in_order = true;

    book() { last.fill(-1); }
    void enter(const item& got) noexcept {
        const auto from = static_cast<std::size_t>(got.from());
        in_order = in_order && got.number() > last[from];
        last[from] = got.number();
        ++count[from];
    }
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
        const nanoseconds rest = chance.rest(16);
        auto op = ch.async_recv().with_timeout(rest);
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
    auto got = ch.recv(source.get_token());
    stopping.join();
    if (got) {
        mine.enter(*got);
    }
    return !got && got.error() == bide::errc::closed;
}

// True: it is closed and drained.
template <class Channel> bool receive(Channel& ch, book& mine, test::jitter& chance) {
    bool over = false;
    const auto note = [&](auto got) {
        if (got) {
            mine.enter(*got);
        } else {
            over = got.error() == bide::errc::closed;
        }
    };
    switch (chance.below(16)) {
    case 0:
    case 1:
    case 2: note(ch.try_recv()); break;
    case 3:
    case 4:
    case 5: note(ch.try_recv_for(microseconds(chance.below(60)))); break;
    case 6:
    case 7: {
        std::vector<item> some;
        over = ch.recv_n(some, 1 + chance.below(8)) == 0;
        std::for_each(some.begin(), some.end(), [&](const item& got) { mine.enter(got); });
        break;
    }
    case 8:
    case 9:
    case 10: bide::sync_wait(recv_in_task(ch, mine, chance, over)); break;
    case 11: over = recv_until_stopped(ch, mine, chance); break;
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

// Says how many of those from `n` on went in.
template <class Channel>
int send(Channel& ch, test::tally& t, int from, int n, test::jitter& chance) {
    switch (chance.below(8)) {
    case 0: {
        std::vector<item> some;
        for (int i = 0; i < 5; ++i) {
            some.emplace_back(t, from, n + i);
        }
        return static_cast<int>(ch.try_send_n(some));
    }
    case 1: {
        bool ok = false;
        bide::sync_wait(send_in_task(ch, item(t, from, n), ok));
        return ok ? 1 : 0;
    }
    case 2: return ch.try_send_for(item(t, from, n), microseconds(1)) ? 1 : 0;
    case 3: return ch.try_send(item(t, from, n)) ? 1 : 0;
    default: return ch.send(item(t, from, n)) ? 1 : 0;
    }
}

// Rounds of one channel each. Where `early`, it is closed while the senders send.
template <class Platform> void storm(int per_sender, bool early) {
    const test::stress_time time;
    test::tally t;
    bool in_order = true;
    bool complete = true;
    std::uint64_t all = 0;
    do {
        auto ch = std::make_unique<bide::basic_unbounded_channel<item, Platform>>();
        std::array<book, receivers> books;
        std::array<int, senders> sent{};
        std::atomic<int> sending{senders};
        test::stress_threads(senders + receivers + (early ? 1 : 0), [&](int i) {
            test::jitter chance = chance_of(i + static_cast<int>(all));
            if (i < senders) {
                int& n = sent[static_cast<std::size_t>(i)];
                while (n < per_sender) {
                    const int more = send(*ch, t, i, n, chance);
                    if (more == 0) {
                        break;
                    }
                    n += more;
                    chance();
                }
                if (sending.fetch_sub(1) == 1) {
                    ch->close();
                }
            } else if (i < senders + receivers) {
                book& mine = books[static_cast<std::size_t>(i - senders)];
                while (!receive(*ch, mine, chance)) {
                    chance();
                }
            } else {
                chance.dawdle(19);
                ch->close();
            }
        });
        for (std::size_t s = 0; s < senders; ++s) {
            int received = 0;
            for (const book& b : books) {
                received += b.count[s];
                in_order = in_order && b.in_order;
            }
            complete = complete && received == sent[s] && (early || sent[s] >= per_sender);
            all += static_cast<std::uint64_t>(received);
        }
        complete = complete && ch->empty();
        ch.reset();
        complete = complete && t.alive() == 0;
    } while (time.is_left() || all == 0); // a close may precede all sends
    INFO("seed " << test::run_seed());
    CHECK(in_order);
    CHECK(complete);
    CHECK(t.copied == 0);
}

} // namespace

TEMPLATE_TEST_CASE("unbounded_channel: no item is lost, doubled or overtaken in many short storms",
                   "", test::native, test::jittery) {
    storm<TestType>(40, false);
}

TEST_CASE("unbounded_channel: no item is lost, doubled or overtaken in a long storm") {
    storm<test::native>(3'000, false);
}

TEST_CASE("unbounded_channel: no item is lost, doubled or overtaken on a single processor") {
    const test::on_one_processor pinned;
    storm<test::native>(200, false);
}

TEST_CASE(
    "unbounded_channel: closed in a storm, what was sent is received, and no waiter is left") {
    storm<test::jittery>(200, true);
}

namespace {

// Goes on where its thread runs it, unless that destroys it first.
template <class Channel>
test::held recv_on(test::manual_executor& mine, Channel& ch, std::vector<int>& got, bool& over) {
    const std::optional<int> it = co_await ch.async_recv().resume_on(mine);
    if (it) {
        got.push_back(*it);
    }
    over = !it;
}

} // namespace

TEST_CASE(
    "unbounded_channel: an item that came to a destroyed receiver is received by another, once") {
    const test::stress_time time;
    constexpr int n = 30;
    std::uint64_t rounds = 0;
    bool complete = true;
    do {
        bide::basic_unbounded_channel<int, test::jittery> ch;
        std::array<std::vector<int>, 2> got;
        std::atomic<std::size_t> received{0};
        test::stress_threads(3, [&](int i) {
            test::jitter chance = chance_of(i + static_cast<int>(rounds));
            if (i == 2) {
                for (int k = 0; k < n; ++k) {
                    chance();
                    static_cast<void>(ch.send(k));
                }
                while (received.load() != n) { // nothing comes back into a closed channel
                    std::this_thread::yield();
                }
                ch.close();
                return;
            }
            std::vector<int>& own = got[static_cast<std::size_t>(i)];
            for (bool over = false; !over;) {
                const std::size_t before = own.size();
                test::manual_executor mine;
                auto waiting = recv_on(mine, ch, own, over);
                waiting.start();
                // Once it is posted, no other thread is about to resume it.
                while (!waiting.done() && mine.size() == 0) {
                    std::this_thread::yield();
                }
                if (chance.below(2) == 0) {
                    mine.run_all();
                } else {
                    mine.drop_all();
                }
                received += own.size() - before;
            }
        });
        std::vector<int> all(got[0]);
        all.insert(all.end(), got[1].begin(), got[1].end());
        std::sort(all.begin(), all.end());
        for (std::size_t k = 0; k < all.size(); ++k) {
            complete = complete && all[k] == static_cast<int>(k);
        }
        complete = complete && all.size() == n && ch.empty();
        ++rounds;
    } while (time.is_left());
    INFO("seed " << test::run_seed() << ", rounds " << rounds);
    CHECK(complete);
}

// ---- Handles

namespace {

template <class Make> void handle_storm(Make make) {
    const test::stress_time time;
    test::tally t;
    std::uint64_t rounds = 0;
    int wrong = 0;
    do {
        const bool drain = rounds % 2 == 0; // or receivers leave early
        std::atomic<int> sent{0};
        std::atomic<int> received{0};
        {
            auto [tx, rx] = make(1 + rounds % 3);
            std::array<std::optional<decltype(tx)>, 2> sends{tx, std::move(tx)};
            std::array<std::optional<decltype(rx)>, 2> receives{rx, std::move(rx)};
            test::stress_threads(4, [&](int i) {
                test::jitter chance = chance_of(i + static_cast<int>(rounds));
                const auto at = static_cast<std::size_t>(i / 2);
                if (i % 2 == 0) {
                    const int n = static_cast<int>(chance.below(30));
                    for (int k = 0; k < n; ++k) {
                        auto copy = *sends[at];
                        if (!copy.send(item(t, i, k))) {
                            break;
                        }
                        sent.fetch_add(1);
                        *sends[at] = std::move(copy);
                    }
                    sends[at].reset();
                } else {
                    const int n = static_cast<int>(chance.below(20));
                    auto mine = std::move(*receives[at]);
                    receives[at].reset();
                    for (int k = 0; drain || k < n; ++k) {
                        const auto copy = mine;
                        if (!mine.recv()) {
                            break;
                        }
                        received.fetch_add(1);
                    }
                }
            });
        }
        wrong += drain ? (sent != received ? 1 : 0) : (sent < received ? 1 : 0);
        wrong += t.alive() != 0 ? 1 : 0;
        ++rounds;
    } while (time.is_left());
    INFO("seed " << test::run_seed() << ", rounds " << rounds);
    CHECK(wrong == 0);
}

} // namespace

TEST_CASE("handles: copied, used and dropped in a storm, they lose no item and no channel") {
    handle_storm([](std::size_t) { return bide::make_unbounded_channel<item, test::jittery>(); });
    handle_storm([](std::size_t n) { return bide::make_channel<item, test::jittery>(n - 1); });
}
