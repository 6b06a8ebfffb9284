#include <bide/durable/slot.hpp>

namespace relaxed_slot { // may forget what it acknowledged
struct cache_slot : bide::slot {
    static constexpr bide::slot_guarantees guarantees{false, true, bide::lock_clock::observed};

    bide::result<bide::slot_snapshot, std::error_code> load() override {
        return bide::slot_snapshot();
    }
    bide::cas_result compare_exchange(bide::slot_version, std::string_view) override { return {}; }
};

int use() {
    bide::slot_ref slot(bide::allow_relaxed, cache_slot());
    //! bide::slot_ref slot(cache_slot{}); // two may hold a lock in it
    return slot->load() ? 0 : 1;
}
} // namespace relaxed_slot
