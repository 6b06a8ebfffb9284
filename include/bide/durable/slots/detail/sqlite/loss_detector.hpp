// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_LOSS_DETECTOR_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_LOSS_DETECTOR_HPP

// Detects that a database lost an acknowledged version of a slot's row. Compares the row with the
// last acknowledged version, which the file beside the database holds.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>
#include <bide/durable/slots/detail/sqlite/version_file.hpp>

#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

class sqlite_loss_detector {
public:
    // A detector that is not enabled finds nothing; for slots that may lose acknowledged versions.
    sqlite_loss_detector(std::string_view table, std::string_view key, bool enabled) noexcept
        : enabled_(enabled), file_(table, key) {}

    // Begins an operation on the slot's own connection. `generation` counts how often that
    // connection was opened.
    // Throws: std::bad_alloc.
    void open(const std::string& database, unsigned generation) {
        if (generation_ != generation) {
            generation_ = generation;
            seen_ = 0;
            known_ = {};
            file_.close();
            if (enabled_) {
                file_.open(database);
            }
        }
    }

    // Begins an operation in a transaction of the caller.
    // Throws: std::bad_alloc.
    void open_for_caller(const char* database) {
        if (enabled_ && !file_.is_open()) {
            file_.open(database);
        }
    }

    // Call it before the row is read. Then a row with an earlier version has fallen back.
    void load_known() noexcept {
        seen_ = 0;
        known_ = file_.get();
    }
    // Loads the known version, unless it is from the last read or change of this row, and so is
    // still the latest. Call it before the row with this version is changed.
    void load_known(slot_version version) noexcept {
        if (version == 0 || version != seen_) {
            load_known();
        }
    }
    slot_version known() const noexcept { return known_.version; }

    // Compares the row with the known version. Returns false if the row is damaged; row.defect then
    // has the reason.
    // Throws: std::bad_alloc.
    bool check(sqlite_row& row) {
        slot_snapshot& there = row.there;
        if (known_.version > there.version) {
            there.lost_acknowledged = true;
            there.fell_back = there.version != 0; // a missing row may have been deleted
        } else if (known_.version != 0 && known_.version == there.version &&
                   known_.sum != sqlite_sum(there.value)) {
            row.defect = "the value is not the one that was stored as version " +
                         std::to_string(there.version);
            return false;
        }
        seen_ = there.version;
        return true;
    }

    // Call it after the commit, and after load_known() in the same operation.
    void acknowledge(slot_version version, std::string_view value) noexcept {
        if (file_.is_open()) {
            known_ = {version, sqlite_sum(value)};
            seen_ = version;
            file_.set(known_);
        }
    }

private:
    bool enabled_;
    unsigned generation_ = 0;
    sqlite_version_file file_;
    sqlite_known_version known_{};
    slot_version seen_ = 0; // the row's version since load_known(); 0: none
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
