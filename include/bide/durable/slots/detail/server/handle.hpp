// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_HANDLE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_HANDLE_HPP

#include <bide/durable/slot.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A slot on a server, which another header implements.
class server_slot_handle : public slot {
public:
    result<slot_snapshot, std::error_code> load() override { return core_->load(); }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        return core_->compare_exchange(version, value);
    }
    std::string store() const override { return core_->store(); }
    std::unique_ptr<slot> for_renewals() const override { return core_->for_renewals(); }
    std::string explain() const override { return core_->explain(); }

protected:
    std::unique_ptr<slot> core_; // set by the derived class
};

}}} // namespace bide::BIDE_ABI::detail

#endif
