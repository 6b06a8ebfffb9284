// What bide costs on 1 to 128 processors: on simulated machines (bide/model/machine.hpp), so that other
// programs do not disturb it. curves.hpp says how a table is called.
//
//   locks      one lock, sections of 100 ns
//   readers    all lock one lock to read, and do nothing under it; each thread's time
//   semaphore  half as many permits as threads, kept for 100 ns
//   barrier    a phase, in which each thread computes for 100 ns
//   event      from set() until the last of P - 1 sleeping threads runs
//   latch      P - 1 threads count down at once; until the thread that waits runs
//   channel    half of the threads send, the others receive; a message. So P=2 is one to one.
//   select     the same, and each receiver selects from four channels
//
// scheduling.cpp has the tables of the scheduler.

#include "simulated/curves.hpp"
#include "simulated/peers.hpp"

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/barrier.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <model/locks.hpp>

#include <array>
#include <optional>

namespace simulated {
void add_scheduling(); // scheduling.cpp
namespace {

template <class Lock> void add_lock(curves& to, const char* row) {
    to.add(row,
           [](team& t, unsigned n, unsigned each) { return lock_unlock<Lock>(t, n, each, 100); });
}

void add_locks(const shape& of) {
    curves locks("locks", of, "one lock, sections of 100 ns");
    add_lock<bide::basic_mutex<platform>>(locks, "bide::mutex");
    add_lock<bide::basic_adaptive_mutex<platform>>(locks, "bide::adaptive_mutex");
    add_lock<futex_mutex>(locks, "futex mutex");
    add_lock<mcs_lock>(locks, "MCS, spinning");
    add_lock<ticket_lock>(locks, "ticket, spinning");
    add_lock<tas_lock>(locks, "test-and-set, spinning");

    curves shared("readers", of, "each thread's time for a lock and an unlock");
    shared.add("bide::shared_mutex", readers<bide::basic_shared_mutex<platform>>);
    shared.add("bide::biased_shared_mutex", readers<bide::basic_biased_shared_mutex<platform>>);
    shared.add("one counter", readers<one_counter_lock>);

    curves semaphore("semaphore", of, "half as many permits as threads, kept for 100 ns");
    semaphore.add("bide::semaphore", permits<bide::basic_semaphore<platform>>);
    semaphore.add("futex semaphore", permits<futex_semaphore>);
}

void add_waits(const shape& of) {
    curves barrier("barrier", of, "a phase, each thread computes for 100 ns");
    barrier.add("bide::barrier", phases<bide::barrier<bide::detail::no_completion, platform>>);
    barrier.add("one counter, a broadcast", phases<central_barrier<false>>);
    barrier.add("one counter, spinning", phases<central_barrier<true>>);
    if (of.processors < 2) {
        return;
    }
    curves event("event", of, "until the last of the sleeping threads runs");
    event.add("bide::event", broadcast<bide::basic_event<platform>>);
    event.add("a broadcast", broadcast<futex_gate>);

    curves latch("latch", of, "all others count down at once, until one has waited");
    latch.add("bide::latch", countdown<bide::basic_latch<platform>>);
    latch.add("one counter, a broadcast", countdown<futex_gate>);
}

// Four channels, which are closed together. A receiver waits for all of them.
class four_channels {
public:
    void send(unsigned item) { static_cast<void>(channels_[item % 4].send(item)); }
    std::optional<unsigned> recv() {
        using bide::on_recv;
        auto& c = channels_;
        auto found = bide::select(on_recv(c[0]), on_recv(c[1]), on_recv(c[2]), on_recv(c[3]));
        auto item = found.index() == 0   ? found.get<0>()
                    : found.index() == 1 ? found.get<1>()
                    : found.index() == 2 ? found.get<2>()
                                         : found.get<3>();
        for (auto each = c.begin(); !item && each != c.end(); ++each) {
            item = each->recv(); // one of the channels is closed: so all are
        }
        return item;
    }
    void close() {
        for (auto& each : channels_) {
            each.close();
        }
    }

private:
    using channel = bide::basic_channel<unsigned, platform>;
    std::array<channel, 4> channels_{channel(32), channel(32), channel(32), channel(32)};
};

template <class C, class... Argument>
void add_channel(curves& to, const char* row, Argument... argument) {
    to.add(row, [=](team& t, unsigned n, unsigned each) {
        C messages_of(argument...);
        return messages(t, messages_of, n, each);
    });
}

void add_channels(const shape& of) {
    if (of.processors < 2) {
        return;
    }
    const char* const note = "half of the threads send";
    curves none("channel/0", of, note);
    add_channel<bide::basic_channel<unsigned, platform>>(none, "bide::channel", 0u);
    add_channel<three_semaphores>(none, "three futex semaphores");

    curves bounded("channel/128", of, note);
    add_channel<bide::basic_channel<unsigned, platform>>(bounded, "bide::channel", 128u);
    add_channel<locked_queue>(bounded, "one locked queue", 128u);
    add_channel<spinning_ring>(bounded, "a ring, spinning", 128u);

    const unsigned any = 20'000;
    curves unbounded("channel/unbounded", of, note);
    add_channel<bide::basic_unbounded_channel<unsigned, platform>>(unbounded,
                                                                   "bide::unbounded_channel");
    add_channel<locked_queue>(unbounded, "one locked queue", any);

    curves select("select", of, "half of the threads send, to four channels");
    add_channel<four_channels>(select, "bide::select");
    add_channel<locked_queue>(select, "one locked queue, a broadcast", 128u, all_sleepers);
}

void add() {
    const machine_numbers server = bide::model::one_socket_server(32);
    char text[200];
    std::snprintf(
        text, sizeof text,
        "simulated: a line moves in %.0f ns, %.0f between sockets; locked +%.1f; futex call "
        "%.0f, wake +%.0f, woken thread runs +%.0f ns",
        server.within, server.between, server.locked, server.call, server.wake, server.wake_delay);
    benchmark::AddCustomContext("machine", text);
    const auto with = [](const char* name, unsigned processors, const machine_numbers& numbers) {
        if (is_left_out(processors)) {
            return;
        }
        const shape of{name, processors, numbers};
        add_locks(of);
        add_waits(of);
        add_channels(of);
    };
    for (unsigned p = 1; p <= 64; p *= 2) {
        with("one-socket", p, bide::model::one_socket_server(p));
    }
    with("two-sockets", 1, bide::model::one_socket_server(1));
    for (unsigned p = 2; p <= 128; p *= 2) {
        with("two-sockets", p, bide::model::two_socket_server(p / 2));
    }
    with("virtual", 2, bide::model::two_core_virtual());
    add_scheduling();
}

} // namespace
} // namespace simulated

int main(int argc, char** argv) { return bench::run(argc, argv, simulated::add); }
