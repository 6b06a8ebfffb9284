// What bide costs on 1 to 128 processors: on a simulated machine (bide/model/machine.hpp), so the
// time of the real machine does not matter. A round is one run with another seed.
//
//   locks/P=n       one lock, sections of 100 ns
//   readers/P=n     all lock one lock to read, and do nothing under it; each thread's time
//   semaphore/P=n   half as many permits as threads, kept for 100 ns
//   barrier/P=n     a phase
//   channel/.../P=n half of the threads send, the others receive; a message

#include "simulated/workloads.hpp"
#include "support/bench.hpp"

#include <model/locks.hpp>

#include <cstdio>
#include <cstdlib>

namespace bench { namespace {

using simulated::platform;

bide::model::machine_numbers machine_of(unsigned processors) {
    if (processors <= 2) {
        bide::model::machine_numbers small = bide::model::two_core_virtual();
        small.cores = processors;
        return small;
    }
    return processors <= 32 ? bide::model::one_socket_server(processors)
                            : bide::model::two_socket_server(processors / 2);
}

class curves {
public:
    curves(const std::string& name, unsigned processors, std::string note)
        : processors_(processors),
          table_(name + "/P=" + std::to_string(processors), std::move(note)) {}

    // measure(team, threads, operations of each thread) returns nanoseconds an operation.
    template <class Measure> void add(const std::string& row, Measure measure) {
        table_.add(
            row, [processors = processors_, row, measure, seed = std::uint64_t{0}]() mutable {
                simulated::team all(machine_of(processors), ++seed);
                const auto each = static_cast<unsigned>(scaled(10'000) / processors + 20);
                const double ns = measure(all, processors, each);
                const bide::model::machine& m = all.of();
                if (std::getenv("BIDE_BENCH_LINES") != nullptr) {
                    for (const auto& l : m.hottest(5)) {
                        std::fprintf(stderr,
                                     "%s: %s, %u processors, %llu accesses, %llu moves, %.0f us\n",
                                     row.c_str(), l.name.c_str(), l.processors,
                                     static_cast<unsigned long long>(l.accesses),
                                     static_cast<unsigned long long>(l.moves), l.waited_ns / 1e3);
                    }
                }
                return measured{ns, {{"used", m.used_ns() / m.elapsed_ns() / processors}}};
            });
    }

private:
    unsigned processors_;
    table table_;
};

constexpr double section = 100;

void add_locks(unsigned processors) {
    curves c("locks", processors, "one lock, sections of 100 ns");
    const auto add = [&]<class Lock>(std::type_identity<Lock>, const char* row) {
        c.add(row, [](auto& t, unsigned n, unsigned each) {
            return simulated::lock_unlock<Lock>(t, n, each, section);
        });
    };
    add(std::type_identity<mcs_lock>(), "MCS, spinning");
    add(std::type_identity<ticket_lock>(), "ticket, spinning");
    add(std::type_identity<tas_lock>(), "test-and-set, spinning");
    add(std::type_identity<bide::basic_mutex<platform>>(), "bide::mutex");
    add(std::type_identity<bide::basic_adaptive_mutex<platform>>(), "bide::adaptive_mutex");
}

void add_readers(unsigned processors) {
    curves c("readers", processors, "each thread's time for a lock and an unlock");
    const auto add = [&]<class Lock>(std::type_identity<Lock>, const char* row) {
        c.add(row, simulated::readers<Lock>);
    };
    add(std::type_identity<bide::basic_shared_mutex<platform>>(), "bide::shared_mutex");
    add(std::type_identity<bide::basic_biased_shared_mutex<platform>>(),
        "bide::biased_shared_mutex");
}

void add_waits(unsigned processors) {
    curves semaphore("semaphore", processors, "half as many permits as threads, kept for 100 ns");
    semaphore.add("bide::semaphore", [](auto& t, unsigned n, unsigned each) {
        return simulated::permits(t, n, each, static_cast<int>((n + 1) / 2));
    });
    curves barrier("barrier", processors, "a phase");
    barrier.add("bide::barrier",
                [](auto& t, unsigned n, unsigned each) { return simulated::phases(t, n, each); });
}

void add_channels(unsigned processors) {
    if (processors < 2) {
        return;
    }
    for (const std::size_t capacity : {0u, 128u}) {
        curves c("channel/" + std::to_string(capacity), processors, "half of the threads send");
        c.add("bide::channel", [capacity](auto& t, unsigned n, unsigned each) {
            bide::basic_channel<unsigned, platform> messages(capacity);
            return simulated::messages(t, messages, n / 2, n / 2, each);
        });
    }
    curves c("channel/unbounded", processors, "half of the threads send");
    c.add("bide::unbounded_channel", [](auto& t, unsigned n, unsigned each) {
        bide::basic_unbounded_channel<unsigned, platform> messages;
        return simulated::messages(t, messages, n / 2, n / 2, each);
    });
}

}} // namespace bench

int main(int argc, char** argv) {
    return bench::run(argc, argv, [] {
        for (const unsigned processors : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u}) {
            bench::add_locks(processors);
            bench::add_readers(processors);
            bench::add_waits(processors);
            bench::add_channels(processors);
        }
    });
}
