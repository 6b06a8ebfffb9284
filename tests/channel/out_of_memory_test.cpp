// What operations on channels do where memory runs out: see support/shortage.hpp.

#define BIDE_RECYCLE_FRAMES 0 // so that each frame is an allocation

#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/shortage.hpp"

#include <bide/channel/broadcast.hpp>
#include <bide/channel/channel.hpp>
#include <bide/channel/handles.hpp>
#include <bide/channel/oneshot.hpp>
#include <bide/channel/selector.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/channel/watch.hpp>
#include <bide/task/task.hpp>

namespace {

using namespace test;
using item = test::counted_once;
using unbounded = bide::unbounded_channel<item>;
using bounded = bide::channel<item>;
using items = std::vector<item>;

// The next send into it allocates.
constexpr int segment =
    static_cast<int>(bide::detail::basic_segment_queue<item, bide::native_platform>::segment_size);
template <class Sender> void fill(Sender& to, tally& t, int n = segment) {
    for (int i = 0; i < n; ++i) {
        static_cast<void>(to.send(item(t, i)));
    }
}

// Whether 0, 1, ... n - 1 are inside, and nothing else.
template <class Receiver> bool holds(Receiver& from, int n) {
    for (int i = 0; i < n; ++i) {
        if (auto got = from.try_recv(); !got || got->number() != i) {
            return false;
        }
    }
    return from.empty();
}

// A value whose copies allocate.
std::string long_text(char of) { return std::string(100, of); }

template <class Channel> bide::task<bool> send(Channel& to, item mine) {
    auto sent = co_await to.async_send(std::move(mine));
    co_return sent.has_value();
}
template <class Channel> bide::task<bool> send_from(Channel& to, item& mine) {
    auto sent = co_await to.async_send_from(mine).as_result();
    co_return sent.has_value();
}
bide::task<std::size_t> recv_n(bounded& from, items& out, std::size_t most) {
    const std::size_t n = co_await from.async_recv_n(out, most);
    co_return n;
}
bide::task<std::size_t> select_send(unbounded& to, item& mine) {
    auto chosen = co_await bide::async_select(bide::on_send(to, mine));
    co_return chosen.index();
}
bide::task<std::size_t> select_once(bide::selector& any) {
    auto chosen = co_await any.async_select();
    co_return chosen.index;
}

// A send that fails leaves its item with its sender, and one that succeeds puts it in last.
template <class Send> void sends_or_leaves(trial& t, Send send_it) {
    tally all;
    unbounded c;
    fill(c, all);
    item mine(all, segment);
    const bool done = t.attempt([&] { send_it(c, mine); });
    t.expect(mine.number() == (done ? -1 : segment));
    t.expect(c.size() == static_cast<std::size_t>(segment + done));
    t.expect(done || c.send(std::move(mine)).has_value());
    t.expect(holds(c, segment + 1));
}

// A receive that fails leaves in the channel what is not in the vector.
template <class Receive> void receives_or_leaves(trial& t, Receive receive_into) {
    tally all;
    bounded c(8);
    fill(c, all, 8);
    items out;
    std::size_t n = 0;
    const bool done = t.attempt([&] { n = receive_into(c, out); });
    t.expect(!done || n == 8);
    t.expect(out.size() + c.size() == 8 && all.alive() == 8);
    c.try_recv_n(out, 8);
    for (int i = 0; i < 8; ++i) {
        t.expect(out[static_cast<std::size_t>(i)].number() == i);
    }
}

const scenario channels[] = {
    {"channel: construction",
     [](trial& t) {
         std::optional<bounded> made;
         const bool done = t.attempt([&] { made.emplace(4u); });
         t.expect(made.has_value() == done);
     }},
    {"make_channel",
     [](trial& t) {
         tally all;
         std::optional<std::pair<bide::sender<item>, bide::receiver<item>>> made;
         if (t.attempt([&] { made.emplace(bide::make_channel<item>(4)); })) {
             fill(made->first, all, 4);
             t.expect(holds(made->second, 4));
         }
         made.reset();
         t.expect(all.alive() == 0);
     }},
    {"make_unbounded_channel",
     [](trial& t) { t.attempt([&] { auto made = bide::make_unbounded_channel<item>(); }); }},
    {"channel: sends and receives",
     [](trial& t) {
         tally all;
         bounded c(2);
         const bool done = t.attempt([&] {
             static_cast<void>(c.send(item(all, 0)));
             static_cast<void>(c.try_send(item(all, 1)));
             static_cast<void>(c.try_send_for(item(all, 2), std::chrono::nanoseconds(1)));
             static_cast<void>(c.try_recv());
             static_cast<void>(c.recv());
         });
         t.expect(done && c.empty() && all.alive() == 0);
     }},
    {"channel: recv_n into a vector",
     [](trial& t) {
         receives_or_leaves(t, [](bounded& c, items& out) { return c.recv_n(out, 8); });
     }},
    {"channel: async_recv_n into a vector",
     [](trial& t) {
         receives_or_leaves(
             t, [](bounded& c, items& out) { return bide::sync_wait(recv_n(c, out, 8)); });
     }},
    {"channel: a coroutine's send",
     [](trial& t) {
         tally all;
         bounded c(1);
         const bool done = t.attempt([&] { bide::sync_wait(send(c, item(all, 0))); });
         t.expect(holds(c, done ? 1 : 0) && all.alive() == 0);
     }},
};

const scenario unbounded_channels[] = {
    {"unbounded_channel: send",
     [](trial& t) {
         sends_or_leaves(
             t, [](unbounded& c, item& mine) { static_cast<void>(c.send(std::move(mine))); });
     }},
    {"unbounded_channel: send of a copy",
     [](trial& t) {
         tally all;
         bide::unbounded_channel<counted> c;
         const counted mine(all, 0);
         const bool done = t.attempt([&] { static_cast<void>(c.send(mine)); });
         t.expect(c.size() == (done ? 1u : 0u) && all.alive() == 1 + done);
     }},
    {"unbounded_channel: try_send",
     [](trial& t) {
         sends_or_leaves(
             t, [](unbounded& c, item& mine) { static_cast<void>(c.try_send(std::move(mine))); });
     }},
    {"unbounded_channel: send to a receiver that waits",
     [](trial& t) {
         tally all;
         unbounded c;
         std::optional<item> got;
         std::jthread receiver([&] { got = c.recv(); });
         item mine(all, 0);
         const bool done = t.attempt([&] { static_cast<void>(c.send(std::move(mine))); });
         t.expect(done || c.send(std::move(mine)).has_value());
         receiver.join();
         t.expect(got && got->number() == 0 && c.empty());
     }},
    {"unbounded_channel: try_send_n",
     [](trial& t) {
         tally all;
         unbounded c;
         fill(c, all, segment - 1);
         items more;
         for (int i = 0; i < 2 * segment; ++i) {
             more.emplace_back(all, segment - 1 + i);
         }
         std::size_t n = 0;
         const bool done = t.attempt([&] { n = c.try_send_n(more); });
         t.expect(done && n >= 1 && c.size() == static_cast<std::size_t>(segment) - 1 + n);
         t.expect(n == more.size() || more[n].number() == segment - 1 + static_cast<int>(n));
         t.expect(c.try_send_n(std::span(more).subspan(n)) == more.size() - n);
         t.expect(holds(c, 3 * segment - 1));
     }},
    {"unbounded_channel: a coroutine's async_send",
     [](trial& t) {
         tally all;
         unbounded c;
         fill(c, all);
         const bool done = t.attempt([&] { bide::sync_wait(send(c, item(all, segment))); });
         t.expect(holds(c, segment + done) && all.alive() == 0);
     }},
    {"unbounded_channel: a coroutine's async_send_from",
     [](trial& t) {
         sends_or_leaves(t, [](unbounded& c, item& mine) { bide::sync_wait(send_from(c, mine)); });
     }},
    {"unbounded_channel: on_send of a select",
     [](trial& t) {
         bounded never(1);
         sends_or_leaves(t, [&](unbounded& c, item& mine) {
             static_cast<void>(bide::select(bide::on_recv(never), bide::on_send(c, mine)));
         });
         tally all;
         fill(never, all, 1); // no receiver is left
         t.expect(holds(never, 1));
     }},
    {"unbounded_channel: on_send of a coroutine's select",
     [](trial& t) {
         sends_or_leaves(t,
                         [](unbounded& c, item& mine) { bide::sync_wait(select_send(c, mine)); });
     }},
};

const scenario others[] = {
    {"oneshot",
     [](trial& t) {
         tally all;
         const bool done = t.attempt([&] {
             auto [to, from] = bide::oneshot<item>();
             static_cast<void>(std::move(to).send(item(all, 1)));
             static_cast<void>(std::move(from).recv());
         });
         t.expect(all.alive() == 0 && (all.made.load() != 0) == done);
     }},
    {"broadcast: construction",
     [](trial& t) { t.attempt([] { const bide::broadcast<std::string> made(4); }); }},
    {"broadcast: send",
     [](trial& t) {
         bide::broadcast<std::string> b(2);
         auto from = b.subscribe();
         b.send("old");
         std::string mine = long_text('a');
         const bool done = t.attempt([&] { b.send(std::move(mine)); });
         t.expect(done || mine == long_text('a')); // the sender still has it
         t.expect(from.try_recv().value() == "old");
         auto next = from.try_recv();
         t.expect(done ? next.value() == long_text('a') : next.error().code == bide::errc::empty);
     }},
    {"broadcast: a receive copies",
     [](trial& t) {
         bide::broadcast<std::string> b(2);
         auto from = b.subscribe();
         b.send(long_text('a'));
         const bool done = t.attempt([&] { static_cast<void>(from.recv()); });
         auto again = from.try_recv();
         t.expect(done ? !again : again.value() == long_text('a'));
     }},
    {"watch: construction",
     [](trial& t) { t.attempt([] { const bide::watch<std::string> made(long_text('a')); }); }},
    {"watch: send",
     [](trial& t) {
         bide::watch<std::string> w("old");
         auto from = w.subscribe();
         std::string mine = long_text('a');
         const bool done = t.attempt([&] { w.send(std::move(mine)); });
         t.expect(done || mine == long_text('a'));
         t.expect(from.has_changed() == done);
         t.expect(w.get() == (done ? long_text('a') : "old"));
     }},
    {"watch: modify",
     [](trial& t) {
         bide::watch<std::string> w(long_text('o'));
         auto from = w.subscribe();
         const bool done = t.attempt([&] { w.modify([](std::string& v) { v += "more"; }); });
         t.expect(from.has_changed() == done);
         t.expect(w.get() == long_text('o') + (done ? "more" : ""));
         t.expect(w.send("free")); // its turn was given up
     }},
    {"watch: see",
     [](trial& t) {
         bide::watch<std::string> w;
         auto from = w.subscribe();
         w.send(long_text('a'));
         const bool done = t.attempt([&] { from.see(); });
         t.expect(from.has_changed() == !done);
     }},
    {"select",
     [](trial& t) {
         tally all;
         bounded c(1);
         bounded never(1);
         fill(c, all, 1);
         t.expect(t.attempt(
             [&] { static_cast<void>(bide::select(bide::on_recv(never), bide::on_recv(c))); }));
         t.expect(c.empty());
     }},
    {"selector: add",
     [](trial& t) {
         tally all;
         bounded c(1);
         bounded d(1);
         int from_c = 0;
         int from_d = 0;
         bide::selector any;
         any.add(bide::on_recv(c), [&](std::optional<item>) { ++from_c; });
         const bool done =
             t.attempt([&] { any.add(bide::on_recv(d), [&](std::optional<item>) { ++from_d; }); });
         t.expect(any.size() == 1u + done);
         fill(d, all, 1);
         if (done) {
             t.expect(any.select() == 1);
         }
         fill(c, all, 1);
         t.expect(any.select() == 0);
         t.expect(from_c == 1 && from_d == done);
         t.expect(any.add(bide::on_recv(d), [](std::optional<item>) {}) == 1u + done);
     }},
    {"selector: add in place of a removed case, by a handler",
     [](trial& t) {
         tally all;
         bounded c(1);
         bide::selector any;
         any.add(bide::on_recv(c), [](std::optional<item>) {});
         any.add(bide::on_recv(c), [&](std::optional<item>) {
             any.remove(1);
             any.add(bide::on_recv(c), [](std::optional<item>) {});
         });
         any.remove(0);
         fill(c, all, 1);
         const bool done = t.attempt([&] { any.select(); });
         t.expect(any.size() == (done ? 1u : 0u));
         any.add(bide::on_recv(c), [](std::optional<item>) {});
         fill(c, all, 1);
         any.select();
         t.expect(c.empty());
     }},
    {"selector: select",
     [](trial& t) {
         tally all;
         bounded c(2);
         bide::selector any;
         any.add(bide::on_recv(c), [](std::optional<item>) {});
         fill(c, all, 2);
         t.expect(t.attempt([&] { any.select(); }));
         t.expect(c.size() == 1);
     }},
    {"selector: a coroutine's select",
     [](trial& t) {
         tally all;
         bounded c(1);
         bide::selector any;
         any.add(bide::on_recv(c), [](std::optional<item>) {});
         fill(c, all, 1);
         const bool done = t.attempt([&] { bide::sync_wait(select_once(any)); });
         t.expect(c.empty() == done);
         any.try_select();
     }},
};

void use_moved_from_handle() {
    auto both = bide::make_channel<long>(1);
    const auto kept = std::move(both.first);
    const test::out_of_memory now;
    both.first.is_closed();
}

} // namespace

TEST_CASE("channel: where an allocation fails, an operation throws and has changed nothing",
          "[promise.out-of-memory]") {
    for_each_allocation_failure(channels);
}

TEST_CASE("unbounded_channel: where an allocation fails, a send throws and its item stays",
          "[promise.out-of-memory]") {
    for_each_allocation_failure(unbounded_channels);
}

TEST_CASE("select, oneshot, broadcast, watch: where an allocation fails, nothing has changed") {
    for_each_allocation_failure(others);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("handles: a moved-from handle terminates if there is no memory for its closed channel") {
    if (test::counts_allocations()) {
        const std::string said = test::dies(&use_moved_from_handle);
        CHECK(said == "bide: no memory for the closed channel of moved-from channel handles\n");
    }
}
#endif
