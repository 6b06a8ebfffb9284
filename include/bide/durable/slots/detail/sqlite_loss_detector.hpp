#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_LOSS_DETECTOR_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_LOSS_DETECTOR_HPP

// What a slot knows of its row besides the database, from the file beside that: what was
// acknowledged last.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/sqlite_version_file.hpp>
#include <bide/durable/slots/detail/sqlite_statement.hpp>

#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

class sqlite_loss_detector {
public:
    // One that enabled nothing serves where what is acknowledged may be forgotten.
    sqlite_loss_detector(std::string_view table, std::string_view key, bool enabled) noexcept
        : enabled_(enabled), file_(table, key) {}

    // To begin an operation with: the database is this one, opened for so many times.
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

    // To begin one with that is in a transaction of the caller's.
    // Throws: std::bad_alloc.
    void open_for_caller(const char* database) {
        if (enabled_ && !file_.is_open()) {
            file_.open(database);
        }
    }

    // Before the row is read: then no row that has not fallen back is of an earlier version.
    void load_known() noexcept {
        seen_ = 0;
        known_ = file_.get();
    }
    // Before the row is changed if it has this version: then what was recalled when it was read, or
    // acknowledged, is still the latest.
    void load_known(slot_version version) noexcept {
        if (version == 0 || version != seen_) {
            load_known();
        }
    }
    slot_version known() const noexcept { return known_.version; }

    // Compares what was read with what was known. False: the row is damaged, and says so.
    // Throws: std::bad_alloc.
    bool check(sqlite_row& row) {
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
        seen_ = there.version;
        return true;
    }

    // After a load_known() in the same operation, and after the commit.
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
    slot_version seen_ = 0; // of the row, since it was recalled; 0: none
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
