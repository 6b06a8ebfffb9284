// Many processes want one lock all the time, for 20 us each; two at a time fail the row.
//
// writes: what was stored for each acquisition. It takes three: a place in the queue, the grant,
// the release. fairness: acquisitions of the slowest contender over those of the fastest; not of
// fewer than ten turns for each, where one more or less decides.
// overtaken: acquisitions before which a process got the lock that began to queue when these were
// in the queue already. (Not for several permits: a process that finds room for all before it and for itself
// need not wait until those have taken theirs.)

#include "durable/job.hpp"
#include "durable/workloads.hpp"
#include "support/histogram.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t most_contestants = 32;
constexpr std::int64_t held_ns = 20'000;
constexpr std::uint64_t enough_turns = 20;
constexpr std::uint64_t few_turns = 10;

struct contest {
    struct alignas(128) contestant {
        slot_meter meter;
        std::atomic<std::uint64_t> acquired{0};
        histogram waits; // its own
    };
    // One acquisition.
    struct passage {
        std::int64_t fence;
        std::int64_t began;  // to store for the first time
        std::int64_t queued; // that store had returned
    };

    std::array<contestant, most_contestants> of{};
    std::atomic<bool> stop{false};
    std::atomic<std::int64_t> inside{0};
    std::atomic<bool> too_many_inside{false};
    std::atomic<std::size_t> passed{0};
    std::array<passage, 1 << 17> passages{};
};

struct tally {
    std::vector<std::uint64_t> acquired;
    double stores = 0;
    double loads = 0;
    double conflicts = 0;
    std::int64_t at = now_ns();
};

tally count(const contest& c, std::size_t size) {
    tally all;
    for (std::size_t i = 0; i < size; ++i) {
        const contest::contestant& one = c.of[i];
        all.acquired.push_back(one.acquired);
        all.stores += static_cast<double>(one.meter.stores);
        all.loads += static_cast<double>(one.meter.loads);
        all.conflicts += static_cast<double>(one.meter.conflicts);
    }
    return all;
}

void contend(contest& c, contest::contestant& me, contender& lock, std::int64_t permits) {
    while (!c.stop) {
        me.meter.begin_acquisition();
        const std::int64_t began = now_ns();
        const std::int64_t fence = lock.acquire();
        const std::int64_t acquired = now_ns();
        me.waits.add(static_cast<std::uint64_t>(acquired - began));
        if (++c.inside > permits) {
            c.too_many_inside = true;
        }
        const std::size_t n = c.passed++;
        if (n < c.passages.size()) {
            c.passages[n] = {fence, me.meter.first_began, me.meter.first_returned};
        }
        ++me.acquired;
        while (now_ns() - acquired < held_ns) {
        }
        --c.inside;
        lock.release();
    }
}

double overtaken(contest& c) {
    const std::size_t size = std::min<std::size_t>(c.passed, c.passages.size());
    const auto end = c.passages.begin() + static_cast<std::ptrdiff_t>(size);
    const auto by_fence = [](const auto& a, const auto& b) { return a.fence < b.fence; };
    std::sort(c.passages.begin(), end, by_fence);
    double count = 0;
    std::int64_t latest_began = 0; // of the acquisitions before
    for (auto p = c.passages.begin(); p != end; ++p) {
        count += p->queued < latest_began ? 1 : 0;
        latest_began = std::max(latest_began, p->began);
    }
    return count;
}

std::uint64_t sum(const std::vector<std::uint64_t>& of) {
    return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
}

sample compete(const lock_kind& kind, std::size_t size, std::int64_t permits,
               std::chrono::nanoseconds duration) {
    const std::string place = begin_place(kind);
    const shared_with_children<contest> c;
    lock_terms terms;
    terms.permits = permits;
    crew all(kind.shared_by, size, [&](std::size_t i, const crew::gate& gate) {
        contest::contestant& me = c->of[i];
        const std::unique_ptr<contender> lock = kind.join(place, me.meter, terms);
        gate.wait();
        contend(*c, me, *lock, permits);
    });
    all.start();
    const auto has_begun = [&] {
        return std::all_of(c->of.begin(), c->of.begin() + static_cast<std::ptrdiff_t>(size),
                           [](const auto& one) { return one.acquired != 0; });
    };
    all.await(has_begun, std::chrono::seconds(60));
    const tally before = count(*c, size);
    rest(duration);
    if (permits == 1) { // as long again at most, for the fairness
        const std::uint64_t enough = sum(before.acquired) + enough_turns * size;
        const std::int64_t end = now_ns() + duration.count();
        while (c->passed < enough && now_ns() < end) {
            rest(std::chrono::milliseconds(2));
        }
    }
    const tally after = count(*c, size);
    c->stop = true;
    all.finish();
    const tally in_all = count(*c, size);
    if (c->too_many_inside) {
        throw std::runtime_error(kind.name + ": too many held the lock at a time");
    }

    const std::vector<std::uint64_t> shares = gained(before.acquired, after.acquired);
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    histogram waits;
    for (std::size_t i = 0; i < size; ++i) {
        waits.merge(c->of[i].waits);
    }
    const double seconds = static_cast<double>(after.at - before.at) / 1e9;
    const auto acquired = static_cast<double>(sum(in_all.acquired));
    const std::uint64_t turns = sum(shares);
    const bool is_telling = turns >= few_turns * size;
    const bool ours = kind.is_ours;
    return {static_cast<double>(turns) / seconds,
            ours ? in_all.stores / acquired : not_measured,
            ours ? in_all.conflicts / in_all.stores : not_measured,
            ours ? in_all.loads / acquired : not_measured,
            is_telling ? static_cast<double>(*least) / static_cast<double>(*most) : not_measured,
            ours && permits == 1 ? overtaken(*c) : not_measured,
            static_cast<double>(waits.percentile(0.5)) / 1e3,
            static_cast<double>(waits.percentile(0.99)) / 1e3};
}

std::vector<column> contest_columns() {
    return {{"acquisitions", "/s", 0},  {"writes", "/acquisition", 2},
            {"conflicts", "/write", 3}, {"loads", "/acquisition", 1},
            {"fairness", "", 2},        {"overtaken", "", 0},
            {"wait p50", "us", 0},      {"p99", "us", 0}};
}

} // namespace

void add_contended(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(700, 120).duration;
    table mutex{
        "contended/16", "16 processes (memory: threads) want one lock", contest_columns(), {}};
    table semaphore{"semaphore/32",
                    "32 processes (memory: threads) want one of 4 permits",
                    contest_columns(),
                    {}};
    for (const lock_kind& kind : other_locks()) {
        add_row(mutex, kind.name, [&kind, duration] { return compete(kind, 16, 1, duration); });
    }
    for (const lock_kind& kind : our_locks()) {
        if (is_for_many(h, kind) || kind.name == "PostgreSQL") {
            add_row(mutex, kind.name, [&kind, duration] { return compete(kind, 16, 1, duration); });
        }
        if (is_for_many(h, kind) && !kind.is_variant) {
            add_row(semaphore, kind.name,
                    [&kind, duration] { return compete(kind, 32, 4, duration); });
        }
    }
    h.add(std::move(mutex));
    h.add(std::move(semaphore));
}

} // namespace bench
