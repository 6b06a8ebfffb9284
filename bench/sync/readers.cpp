// One thread or two that read most of the time, nothing but a number behind the lock.

#include "support/isolated.hpp"
#include "support/team.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

template <class Lock> class library {
public:
    // One operation in `write_every` is a write; 0: none is.
    library(std::size_t threads, unsigned write_every)
        : threads_(threads), write_every_(write_every) {}

    // Mega-operations a second.
    sample measure(const setting& with) {
        std::vector<std::uint64_t> done(threads_);
        std::chrono::duration<double, std::micro> elapsed{};
        const auto referee = [&] {
            const auto began = std::chrono::steady_clock::now();
            std::this_thread::sleep_for(with.duration);
            stop_.subject.store(true, std::memory_order_relaxed);
            elapsed = std::chrono::steady_clock::now() - began;
        };
        run_team(threads_, with.cpus, [&](std::size_t i) { done[i] = visit(i); }, referee);
        const auto total = std::accumulate(done.begin(), done.end(), std::uint64_t{0});
        return {static_cast<double>(total) / elapsed.count()};
    }

private:
    std::uint64_t visit(std::size_t i) {
        // The threads write at different times: the second starts half a period later.
        std::uint64_t until_write = write_every_ > 0 ? write_every_ * (i + 1) / threads_ : ~0ull;
        std::uint64_t visits = 0;
        for (; !stop_.subject.load(std::memory_order_relaxed); ++visits) {
            if (--until_write == 0) {
                until_write = write_every_;
                lock_.subject.locked([&] { ++book_.subject; });
            } else {
                lock_.subject.shared([&] { read(book_.subject); });
            }
        }
        return visits;
    }

    // Keeps the compiler from leaving it out.
    static void read(std::uint64_t value) { asm volatile("" : : "r"(value)); }

    std::size_t threads_;
    unsigned write_every_;
    isolated<Lock> lock_;
    isolated<std::uint64_t> book_{0u}; // guarded by lock_
    isolated<std::atomic<bool>> stop_{false};
};

} // namespace

void add_readers(harness& h) {
    struct mix {
        const char* name;
        std::size_t threads;
        const char* writes;
        unsigned write_every;
    };
    const setting with = h.make_setting(200, 60);
    for (const mix m : {mix{"T=1", 1, "0", 0}, mix{"T=2", 2, "0", 0}, mix{"T=2", 2, "0.1%", 1000},
                        mix{"T=2", 2, "1%", 100}, mix{"T=2", 2, "10%", 10}}) {
        table t{std::string("readers/") + m.name + ",writes=" + m.writes,
                m.threads == 1 ? "one thread, one number behind the lock"
                               : "two threads, one number behind the lock",
                {{"throughput", "Mop/s", 2, true}},
                {}};
        for_each_shared_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
            t.add(name, [=] { return library<Lock>(m.threads, m.write_every).measure(with); });
        });
        h.add(std::move(t));
    }
}

} // namespace bench
