// Two threads take turns through two channels of one place each: how long a message takes there and
// back. Where the threads may run decides everything:
//   ping-pong/two-processors       pinned to one each
//   ping-pong/one-processor        the process may use one processor: spinning is in vain, and can
//                                  be known to be
//   ping-pong/pinned-to-the-same   the process may use all, both threads are pinned to one: spinning
//                                  is in vain, and nothing says so for certain

#include "channel/job.hpp"
#include "channel/peers.hpp"
#include "channel/workloads.hpp"
#include "support/isolated.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace bench {
namespace {

template <class Channel> double take_turns(const job& j) {
    isolated<Channel> there(j.capacity);
    isolated<Channel> back(j.capacity);
    return run_job(j, 2, [&](std::size_t player) {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < j.messages; ++i) {
            if (player == 0) {
                there.subject.send(i);
                sum += back.subject.recv();
            } else {
                back.subject.send(there.subject.recv());
            }
        }
        return sum;
    });
}

struct arrangement {
    const char* table;
    const char* note;
    cpu_list allowed;
    cpu_list pinned_to;
};

void add_arrangement(harness& h, const arrangement& a) {
    const job j{1, h.opts().quick ? 2'000u : 20'000u, a.pinned_to};
    const placement where =
        a.allowed.size() == 1 ? placement::one_processor : placement::own_process;
    table t{a.table, a.note, {{"round trip", "ns", 0, true}}, {}};
    add_crossbeam(t, "ping_pong", j, a.allowed);
    add_channels(t, j, bounds::not_needed, where,
                 []<class Channel>(std::type_identity<Channel>, const job& k) {
                     return take_turns<Channel>(k);
                 });
    h.add(std::move(t));
}

} // namespace

void add_ping_pong(harness& h) {
    const cpu_list all = h.opts().cpus;
    const cpu_list first{all.front()};
    add_arrangement(h,
                    {"ping-pong/two-processors", "threads pinned to one processor each", all, all});
    add_arrangement(h,
                    {"ping-pong/one-processor", "the process may use one processor", first, first});
    add_arrangement(h, {"ping-pong/pinned-to-the-same",
                        "both threads pinned to one of the process' processors", all, first});
}

} // namespace bench
