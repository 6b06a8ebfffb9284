#ifndef BIDE_BENCH_DURABLE_METER_HPP
#define BIDE_BENCH_DURABLE_METER_HPP

// Counts what a contender does to its slot, in memory that others may read meanwhile.

#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <time.h>

namespace bench {

// On a clock that all processes share.
inline std::int64_t now_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct slot_meter {
    std::atomic<std::uint64_t> loads{0};
    std::atomic<std::uint64_t> stores{0};
    std::atomic<std::uint64_t> conflicts{0};

    // Of the first store since begin_acquisition(): by then it is in the queue, or has the lock.
    std::atomic<std::int64_t> first_began{0};
    std::atomic<std::int64_t> first_returned{0};

    void begin_acquisition() noexcept {
        first_began = 0;
        first_returned = 0;
    }
    void note_store(std::int64_t began) noexcept {
        ++stores;
        if (first_returned == 0) {
            first_began = began;
            first_returned = now_ns();
        }
    }
};

// A slot that offers what S does, and counts.
template <class S> class metered_slot : public bide::slot {
public:
    static constexpr bide::slot_guarantees guarantees = S::guarantees;

    metered_slot(S of, slot_meter& by) : of_(std::move(of)), by_(&by) {}

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        ++by_->loads;
        return of_.load();
    }

    bide::cas_result compare_exchange(bide::slot_version version, std::string_view value) override {
        const std::int64_t began = now_ns();
        bide::cas_result tried = of_.compare_exchange(version, value);
        if (tried.status == bide::cas_status::stored) {
            by_->note_store(began);
        } else if (tried.status == bide::cas_status::conflict) {
            ++by_->conflicts;
        }
        return tried;
    }

    bide::cas_result update_locked(const bide::slot_update& update) override {
        const std::int64_t began = now_ns();
        bool writes = false;
        bide::cas_result tried = of_.update_locked([&](const bide::slot_snapshot& from) {
            std::optional<std::string> value = update(from);
            writes = value.has_value();
            return value;
        });
        if (tried.status == bide::cas_status::stored) {
            writes ? by_->note_store(began) : void(++by_->loads);
        }
        return tried;
    }

    bide::result<std::shared_ptr<bide::slot_presence>, std::error_code> be_present() override {
        return of_.be_present();
    }
    bide::presence is_present(std::int64_t mark) const override { return of_.is_present(mark); }

private:
    S of_;
    slot_meter* by_;
};

} // namespace bench

#endif
