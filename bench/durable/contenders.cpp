#include "durable/contenders.hpp"

#include "durable/stores.hpp"

#include <bide/durable/locks.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace bench {
namespace {

class durable_contender final : public contender {
public:
    durable_contender(bide::slot_ref slot, const lock_terms& terms)
        : lock_(std::move(slot), terms.permits, options(terms)) {}

    std::int64_t acquire() override {
        auto got = lock_.acquire(); // as the other locks: without a time limit, on this thread
        if (!got) {
            throw std::system_error(got.error(), "acquire");
        }
        held_.emplace(std::move(*got));
        return held_->fence();
    }

    void release() override {
        const auto released = held_->release();
        held_.reset();
        if (!released) {
            throw std::system_error(released.error(), "release");
        }
    }

private:
    static bide::durable_options options(const lock_terms& terms) {
        bide::durable_options o;
        o.lease = terms.lease;
        o.process_bound = terms.process_bound;
        return o;
    }

    bide::durable_semaphore lock_;
    std::optional<bide::durable_guard> held_;
};

lock_kind kind_over(store& on) {
    lock_kind kind;
    kind.name = on.name();
    kind.shared_by = on.shared_by();
    kind.prepare = [&on] { on.prepare(); };
    kind.join = [&on](const std::string& place, slot_meter& meter, const lock_terms& terms) {
        return std::make_unique<durable_contender>(on.open(place, meter), terms);
    };
    return kind;
}

} // namespace

const std::vector<lock_kind>& our_locks() {
    static const std::vector<lock_kind> all = [] {
        std::vector<lock_kind> kinds;
        for (store* const each : stores()) {
            kinds.push_back(kind_over(*each));
        }
        return kinds;
    }();
    return all;
}

} // namespace bench
