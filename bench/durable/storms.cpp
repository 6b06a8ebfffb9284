// Processes count up a number in a bare slot, as fast as they can; a process that meets a conflict rests for a
// random time, longer the more often, as the locks do, and so does a process that is told that the store was
// busy for too long, which is counted. The number is exact in the end, or the row fails.

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <bide/durable/slot.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace bench {
namespace {

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
            bide::cas_result tried = slot_.compare_exchange(known_->version, value);
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
        auto loaded = slot_.load();
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

sample rage(store& on, std::size_t size, std::chrono::nanoseconds duration) {
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
    const std::vector<std::uint64_t> shares = gained(before.counted, after.counted);
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    const double stores = after.stores - before.stores;
    return {stores / (static_cast<double>(after.at - before.at) / 1e9),
            (after.conflicts - before.conflicts) / stores,
            static_cast<double>(*least) / static_cast<double>(*most), errors};
}

} // namespace

void add_storms(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(400, 80).duration;
    const std::size_t quick_most = 16;
    for (const std::size_t size : {std::size_t{2}, std::size_t{16}, most_in_storm}) {
        if (h.opts().quick && size > quick_most) {
            continue;
        }
        table t{"storm/" + std::to_string(size),
                std::to_string(size) + " processes (memory: threads) count in a bare slot",
                {{"stored", "/s", 0},
                 {"conflicts", "/store", 2},
                 {"fairness", "", 2},
                 {"errors", "", 0}},
                {}};
        for (store* const each : stores()) {
            if (!each->is_variant() && is_for_many(h, each->name())) {
                add_row(t, each->name(),
                        [each, size, duration] { return rage(*each, size, duration); });
            }
        }
        h.add(std::move(t));
    }
}

} // namespace bench
