#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_WITNESS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_WITNESS_HPP

// What a slot knows besides its database, from the file beside it: what was acknowledged, and which
// holders are there.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/presence_file.hpp>
#include <bide/durable/slots/detail/sqlite_marks.hpp>
#include <bide/durable/slots/detail/sqlite_statement.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

class sqlite_witness {
public:
    // One that recalls nothing serves where what is acknowledged may be forgotten.
    sqlite_witness(std::string_view table, std::string_view key, bool recalls) noexcept
        : recalls_(recalls), marks_(table, key) {}

    // To begin an operation with: the database is this one, opened for so many times.
    // Throws: std::bad_alloc.
    void attend(const std::string& database, unsigned generation) {
        if (generation_ != generation) {
            generation_ = generation;
            marks_.close();
            if (recalls_) {
                marks_.open(database);
            }
#if defined(__linux__) && defined(F_OFD_SETLK)
            presences_.emplace(sqlite_marks::path_beside(database), 0600u);
#endif
        }
        known_ = {};
    }

    // To begin one with that is in a transaction of the caller's.
    // Throws: std::bad_alloc.
    void attend_as_guest(const char* database) {
        if (recalls_ && !marks_.is_open()) {
            marks_.open(database);
        }
        known_ = {};
    }

    // Before the row is read: then no row that has not fallen back is of an earlier version.
    void recall() noexcept { known_ = marks_.get(); }
    slot_version known() const noexcept { return known_.version; }

    // Compares what was read with what was known. False: the row is damaged, and says so.
    // Throws: std::bad_alloc.
    bool judge(sqlite_row& row) const {
        slot_snapshot& there = row.there;
        if (known_.version > there.version) {
            there.lost_acknowledged = true;
            there.fell_back = there.version != 0; // what is not there may have been deleted
        } else if (known_.version != 0 && known_.version == there.version &&
                   known_.sum != sqlite_sum(there.value)) {
            row.defect = "the value is not the one that was stored as version " +
                         std::to_string(there.version);
            return false;
        }
        return true;
    }

    // After a recall() in the same operation, and after the commit.
    void acknowledge(slot_version version, std::string_view value) noexcept {
        if (marks_.is_open()) {
            marks_.set({version, sqlite_sum(value)});
        }
    }

#if defined(__linux__) && defined(F_OFD_SETLK)
    // After an attend().
    // Errors: errc::operation_not_supported where the file cannot be had.
    // Throws: std::bad_alloc.
    result<std::shared_ptr<slot_presence>, std::error_code>
    be_present(const std::string& database) {
        if (!recalls_) { // it is made as those of others are
            marks_.open(database);
            marks_.close();
        }
        auto taken = presences_->be_present();
        if (!taken && (taken.error() == std::errc::permission_denied ||
                       taken.error() == std::errc::read_only_file_system ||
                       taken.error() == std::errc::operation_not_permitted)) {
            return unexpected{std::make_error_code(std::errc::operation_not_supported)};
        }
        return taken;
    }
    bool can_ask() const noexcept { return presences_.has_value(); }
    presence is_present(std::int64_t mark) noexcept { return presences_->is_present(mark); }
#endif

private:
    bool recalls_;
    unsigned generation_ = 0;
    sqlite_marks marks_;
    sqlite_mark known_{};
#if defined(__linux__) && defined(F_OFD_SETLK)
    std::optional<presence_file> presences_{};
#endif
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
