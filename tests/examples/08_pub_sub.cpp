// # 8. Publish and subscribe
//
// A `broadcast` sends each value to every subscriber. A `watch` has one value, and tells its receivers that it changed.
// The first is for events, of which each one counts; the second for a state, of which the latest version counts. In
// neither does the publisher wait for a slow reader. This chapter publishes prices in a broadcast, and whether the
// market is open in a watch.

#include <bide/bide.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

// What a subscriber has seen. `missed` is what it did not see.

struct seen {
    std::vector<int> prices;
    std::uint64_t missed = 0;
};

// A subscriber is a loop until the broadcast is closed. A broadcast of capacity 4 keeps the last four values. If a
// subscriber is further behind, its next receive is an error with the code `lagged`, and the number of values that it
// missed; the one after that returns the oldest value that is left. So a slow subscriber costs the others nothing, and
// it knows what it lost. Other codes end the loop: `closed`, or `stopped` and `timeout` where the wait has such a limit.

bide::task<seen> subscribe(bide::broadcast_subscriber<int> from) {
    seen all;
    for (;;) {
        const auto got = co_await from.async_recv();
        if (got) {
            all.prices.push_back(*got);
        } else if (got.error().code == bide::errc::lagged) {
            all.missed += got.error().missed;
        } else {
            co_return all;
        }
    }
}

// A subscriber may acknowledge what it has read. This one sends each price on to a channel, and the publisher below
// waits for it: that is how a publisher goes at the speed of one reader that must not miss anything.

bide::task<seen> subscribe_and_tell(bide::broadcast_subscriber<int> from,
                                    bide::channel<int>& read) {
    seen all;
    while (const auto got = co_await from.async_recv()) {
        all.prices.push_back(*got);
        const auto sent = co_await read.async_send(*got);
        if (!sent) {
            break;
        }
    }
    co_return all;
}

// A receiver of a watch sees some of the versions, and always the last one. `get()` reads the value at any time;
// `async_changed()` waits for a version that this receiver has not seen, and is an error when the watch is closed and
// the last version was seen.

bide::task<int> follow(bide::watch_receiver<int> market) {
    int last = market.see();
    while (co_await market.async_changed()) {
        last = market.get();
    }
    co_return last;
}

// A subscription begins with `subscribe()`, not with the first receive. So subscribe before the task is spawned: what is
// sent from then on is not missed because the task has not run yet.
//
// A late subscriber gets what is sent after it came, and nothing is replayed to it. Where a newcomer needs the state
// before its first event, subscribe first, then read the state from a watch: an event may be in both, and none is missed.

struct exchange {
    bide::broadcast<int> prices{4};
    bide::watch<int> market{0}; // 0: not yet open, 1: open, 2: closed
    bide::channel<int> read{1};

    // Returns true if the careful subscriber has read each price. The send itself never waits.
    bool publish(int first, int last) {
        bool ok = true;
        for (int price = first; price <= last; ++price) {
            ok = prices.send(price) != 0 && ok; // the number of subscribers
            ok = read.recv().value_or(-1) == price && ok;
        }
        return ok;
    }
};

// The end: after `close()`, each subscriber still gets the values that are kept for it, then `closed`. A send after that
// has no effect and returns 0. The slow subscriber of this program begins to read only then.

int main() {
    bide::scheduler workers;
    exchange of;
    auto careful = workers.spawn(subscribe_and_tell(of.prices.subscribe(), of.read));
    bide::broadcast_subscriber<int> slow = of.prices.subscribe();
    auto state = workers.spawn(follow(of.market.subscribe()));
    bool ok = of.market.send(1) && of.publish(1, 8);

    auto late = workers.spawn(subscribe(of.prices.subscribe()));
    ok = of.publish(9, 12) && of.market.send(2) && ok;

    of.prices.close();
    of.market.close();
    ok = of.prices.send(13) == 0 && ok;
    const seen of_slow = bide::sync_wait(workers, subscribe(std::move(slow)));
    const seen of_careful = std::move(careful).join();
    const seen of_late = std::move(late).join();
    const int last_state = std::move(state).join();
    std::printf("careful: %zu prices; late: %zu; slow: %zu, and missed %llu; market: %d\n",
                of_careful.prices.size(), of_late.prices.size(), of_slow.prices.size(),
                static_cast<unsigned long long>(of_slow.missed), last_state);

    const std::vector<int> last_four{9, 10, 11, 12};
    ok = ok && of_careful.prices.size() == 12 && of_slow.missed == 8 && of_slow.prices == last_four;
    ok = ok && of_late.prices == last_four && of_late.missed == 0 && last_state == 2;
    return ok ? 0 : 1;
}

// Limits. A send allocates; a receive and a wait do not. A value is copied to each subscriber, so publish a
// `std::shared_ptr<const T>` if T is large. A subscriber is used by one task or thread at a time and must not be moved
// while it waits; a copy of it is another subscriber at the same place. If each value is to reach exactly one of the
// readers, use a `channel`; if that reader only wants the newest one, a `sliding_channel`.
