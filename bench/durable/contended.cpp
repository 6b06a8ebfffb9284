// Many processes want one lock all the time, for 20 us each; two at a time fail the row.
//
// writes: what was stored for each acquisition. It takes three: a place in the queue, the grant,
// the release. fairness: acquisitions of the slowest contender over those of the fastest; not of
// fewer than ten turns for each, where one more or less decides.
// overtaken: acquisitions before which a process got the lock that began to queue when these were
// in the queue already. (Not for several permits: a process that finds room for all before it and for itself
// need not wait until those have taken theirs.)

#include "durable/job.hpp"

#include <bide/durable/slot.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace bench {
namespace {

// The least that one has gained over the most.
double fairness(const std::vector<std::uint64_t>& before, const std::vector<std::uint64_t>& after) {
    std::vector<std::uint64_t> shares(after.size());
    std::transform(after.begin(), after.end(), before.begin(), shares.begin(), std::minus<>());
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    return static_cast<double>(*least) / static_cast<double>(*most);
}

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

measured compete(const lock_kind& kind, std::size_t size, std::int64_t permits,
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

    histogram waits;
    for (std::size_t i = 0; i < size; ++i) {
        waits.merge(c->of[i].waits);
    }
    const double seconds = static_cast<double>(after.at - before.at) / 1e9;
    const auto acquired = static_cast<double>(sum(in_all.acquired));
    const std::uint64_t turns = sum(after.acquired) - sum(before.acquired);
    const bool is_telling = turns >= few_turns * size;
    measured found{1e9 * seconds / static_cast<double>(turns),
                   {{"per s", static_cast<double>(turns) / seconds},
                    {"wait p50", waits.percentile(0.5) / 1e3},
                    {"wait p99", waits.percentile(0.99) / 1e3}}};
    if (is_telling) {
        found.counters["fairness"] = fairness(before.acquired, after.acquired);
    }
    if (kind.is_ours) {
        found.counters["writes"] = in_all.stores / acquired;
        found.counters["conflicts"] = in_all.conflicts / in_all.stores;
        found.counters["loads"] = in_all.loads / acquired;
    }
    if (kind.is_ours && permits == 1) {
        found.counters["overtaken"] = overtaken(*c);
    }
    return found;
}

// ---- Storms
//
// Processes count up a number in a bare slot, as fast as they can; a process that meets a conflict rests for a
// random time, longer the more often, as the locks do, and so does a process that is told that the store was
// busy for too long, which is counted. The number is exact in the end, or the row fails.

constexpr std::size_t most_in_storm = 64;

struct storm {
    struct alignas(128) counter {
        slot_meter meter;
        std::atomic<std::uint64_t> counted{0};
        std::atomic<std::uint64_t> errors{0};
    };
    std::array<counter, most_in_storm> of{};
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> left{0};
    std::atomic<std::uint64_t> number{0}; // in the end
};

class counting {
public:
    counting(bide::slot_ref slot, std::size_t seed, std::atomic<std::uint64_t>& errors)
        : slot_(std::move(slot)), errors_(&errors), random_(static_cast<unsigned>(seed + 1)) {}

    // One more.
    void up() {
        for (unsigned attempt = 0;; ++attempt) {
            if (!known_ && !look()) {
                back_off(attempt);
                continue;
            }
            std::string value = std::to_string(number_in(*known_) + 1);
            value.resize(300, ' ');
            bide::cas_result tried = slot_->compare_exchange(known_->version, value);
            if (tried.status == bide::cas_status::stored) {
                known_.reset();
                return;
            }
            if (tried.status == bide::cas_status::indeterminate) {
                throw std::system_error(tried.error, "compare_exchange");
            }
            if (tried.status == bide::cas_status::failed) {
                note(tried.error, "compare_exchange");
            }
            known_ = std::move(tried.current);
            if (!known_) {
                back_off(attempt);
            }
        }
    }

    std::uint64_t number() {
        known_.reset();
        while (!look()) {
        }
        return number_in(*known_);
    }

private:
    static constexpr std::uint64_t too_many_errors = 5;

    bool look() {
        auto loaded = slot_->load();
        if (!loaded) {
            note(loaded.error(), "load");
            return false;
        }
        known_ = std::move(*loaded);
        return true;
    }
    void note(std::error_code error, const char* what) {
        if (++*errors_ > too_many_errors) {
            throw std::system_error(error, what);
        }
    }
    static std::uint64_t number_in(const bide::slot_snapshot& from) {
        return std::strtoull(from.value.c_str(), nullptr, 10);
    }
    void back_off(unsigned attempt) {
        const std::int64_t most = std::int64_t{200'000} << std::min(attempt, 7U);
        rest(std::chrono::nanoseconds(
            std::uniform_int_distribution<std::int64_t>(0, most)(random_)));
    }

    bide::slot_ref slot_;
    std::atomic<std::uint64_t>* errors_;
    std::optional<bide::slot_snapshot> known_;
    std::minstd_rand random_;
};

struct storm_tally {
    std::vector<std::uint64_t> counted;
    double stores = 0;
    double conflicts = 0;
    std::int64_t at = now_ns();
};

storm_tally count(const storm& s, std::size_t size) {
    storm_tally all;
    for (std::size_t i = 0; i < size; ++i) {
        all.counted.push_back(s.of[i].counted);
        all.stores += static_cast<double>(s.of[i].meter.stores);
        all.conflicts += static_cast<double>(s.of[i].meter.conflicts);
    }
    return all;
}

measured rage(store& on, std::size_t size, std::chrono::nanoseconds duration) {
    const std::string place = begin_place(on);
    const shared_with_children<storm> s;
    s->left = size;
    crew all(on.shared_by(), size, [&](std::size_t i, const crew::gate& gate) {
        storm::counter& me = s->of[i];
        counting it(on.open(place, me.meter), i, me.errors);
        static_cast<void>(it.number());
        gate.wait();
        while (!s->stop) {
            it.up();
            ++me.counted;
        }
        if (--s->left == 0) {
            s->number = it.number();
        }
    });
    all.start();
    rest(duration / 4); // they are under way
    const storm_tally before = count(*s, size);
    rest(duration);
    const storm_tally after = count(*s, size);
    s->stop = true;
    all.finish();

    std::uint64_t counted = 0;
    double errors = 0;
    for (std::size_t i = 0; i < size; ++i) {
        counted += s->of[i].counted;
        errors += static_cast<double>(s->of[i].errors);
    }
    if (s->number != counted) {
        throw std::runtime_error(std::string(on.name()) + ": counted to " +
                                 std::to_string(s->number) + " in " + std::to_string(counted) +
                                 " steps");
    }
    const double stores = after.stores - before.stores;
    const auto elapsed = static_cast<double>(after.at - before.at);
    return {elapsed / stores,
            {{"per s", 1e9 * stores / elapsed},
             {"conflicts", (after.conflicts - before.conflicts) / stores},
             {"fairness", fairness(before.counted, after.counted)},
             {"errors", errors}}};
}

} // namespace

void add_contended() {
    const std::chrono::nanoseconds duration = a_round(7);
    table mutex(
        "contended/16",
        "16 processes (memory: threads) want one lock; of UPDATE and SET NX, a process that "
        "finds it held looks again after 100 ms; the others wait in the kernel or the server");
    table semaphore("semaphore/32", "32 processes (memory: threads) want one of 4 permits");
    for (const lock_kind& kind : other_locks()) {
        if (!kind.polls || !is_short()) { // it takes seconds until all have had it
            add_row(mutex, kind.name, [&kind, duration] { return compete(kind, 16, 1, duration); });
        }
    }
    for (const lock_kind& kind : our_locks()) {
        if (is_for_many(kind) || kind.name == "PostgreSQL") {
            add_row(mutex, kind.name, [&kind, duration] { return compete(kind, 16, 1, duration); });
        }
        if (is_for_many(kind)) {
            add_row(semaphore, kind.name,
                    [&kind, duration] { return compete(kind, 32, 4, duration); });
        }
    }
}

void add_storms() {
    const std::chrono::nanoseconds duration = a_round(4);
    const std::size_t quick_most = 16;
    for (const std::size_t size : {std::size_t{2}, std::size_t{16}, most_in_storm}) {
        if (is_short() && size > quick_most) {
            continue;
        }
        table t("storm/" + std::to_string(size),
                std::to_string(size) + " processes (memory: threads) count in a bare slot");
        for (store* const each : stores()) {
            if (is_for_many(each->name())) {
                add_row(t, each->name(),
                        [each, size, duration] { return rage(*each, size, duration); });
            }
        }
    }
}

} // namespace bench
