// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_CALLER_TRANSACTION_HPP
#define BIDE_DURABLE_DETAIL_CALLER_TRANSACTION_HPP

// A slot inside a transaction of the caller, of any type of slot.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class caller_transaction {
public:
    virtual result<slot_snapshot, std::error_code> load() = 0;
    virtual cas_result compare_exchange(slot_version version, std::string_view value) = 0;
    virtual presence is_present(std::int64_t mark) = 0;
    virtual std::string explain() = 0;

protected:
    ~caller_transaction() = default;
};

template <class S> class transaction_on_slot final : public caller_transaction {
public:
    transaction_on_slot(S& slot, typename S::transaction& in) noexcept : slot_(slot), in_(in) {}

    result<slot_snapshot, std::error_code> load() override { return slot_.load_in(in_); }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        return slot_.compare_exchange_in(in_, version, value);
    }
    presence is_present(std::int64_t mark) override { return slot_.is_present(mark); }
    std::string explain() override { return slot_.explain(); }

private:
    S& slot_;
    typename S::transaction& in_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
