// Benchmarks of the scheduler. A peer in another language is a program of its own (../peers).

#include "sched/programs.hpp"
#include "support/bench.hpp"

#include <string>

namespace bench {
namespace {

void note_versions() {
    for (const peer_program& peer : {tokio_peer, go_peer, tmc_peer, libfork_peer}) {
        if (peer.path != nullptr) {
            note_version(peer.row, peer.path);
        }
    }
    benchmark::AddCustomContext("workers", std::to_string(workers()));
}

} // namespace

void add_spawn_many(); // local, remote_idle, remote_busy1, remote_busy2
void add_chained_spawn();
void add_join_set();
void add_yield_many();
void add_ping_pong();
void add_request_reply();
void add_spawn_await();
void add_forks(); // fib, skynet by coroutines
void add_single_yield();
void add_generators(); // map and filter too
void add_round_trip();
void add_mpsc();
void add_locks();   // semaphore, shared_mutex
void add_scaling(); // ten times the tasks
void add_parked();  // a million that wait: what each takes, in time and memory
void add_timers();  // that fire
void add_wake();    // from outside, of a pool that sleeps
void add_idle();
void add_contended();  // by workers
void add_bounded();    // at most 64 tasks at a time
void add_strands();    // posts that must not overlap
void add_priorities(); // classes of tasks
void add_bursts();     // waits under overload
void add_sockets();    // a server with many connections

} // namespace bench

int main(int argc, char** argv) {
    using namespace bench;
    return run(argc, argv, [] {
        note_versions();
        for (const auto add :
             {add_spawn_many,    add_chained_spawn, add_join_set, add_yield_many,   add_ping_pong,
              add_request_reply, add_spawn_await,   add_forks,    add_single_yield, add_generators,
              add_round_trip,    add_mpsc,          add_locks,    add_scaling,      add_parked,
              add_timers,        add_wake,          add_idle,     add_contended,    add_bounded,
              add_strands,       add_priorities,    add_bursts,   add_sockets}) {
            add();
        }
    });
}
