// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_STORE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_STORE_HPP

// The operations of a file slot, on any Io. slots/file.hpp describes the protocol.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/failure.hpp>
#include <bide/durable/slots/detail/file/lock_file.hpp>
#include <bide/durable/slots/detail/file/page_file.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Io> class file_store {
public:
    file_store(std::string path, const file_settings& settings, Io io = Io())
        : io_(io), set_(settings), is_named_(is_file_name(path)), lock_(path + ".lock", set_, io),
          directory_(path.substr(0, path.rfind('/') + 1) + "."), file_(std::move(path), io),
          owner_(io_.process()) {}

    result<slot_snapshot, std::error_code> load_snapshot() {
        if (can_read_unlocked()) {
            return snapshot();
        }
        const lock_scope held(*this, false);
        if (const std::error_code error = held.error ? held.error : read(false)) {
            return unexpected{note(error)};
        }
        return snapshot();
    }

    cas_result compare_exchange(slot_version version, std::string_view value) {
        const lock_scope held(*this, true);
        if (const std::error_code error = held.error ? held.error : read(true)) {
            return failed(error);
        }
        if (file_.found().version() != version) {
            return {cas_status::conflict, 0, snapshot(), {}};
        }
        return store(value);
    }

    // Requires: update(snapshot) returns an optional<string> and does not use this slot.
    template <class Update> cas_result update_locked(const Update& update) {
        const lock_scope held(*this, true);
        if (const std::error_code error = held.error ? held.error : read(true)) {
            return failed(error);
        }
        const std::optional<std::string> value = update(snapshot());
        return value ? store(*value)
                     : cas_result{cas_status::stored, file_.found().version(), {}, {}};
    }

    // Replaces a file that load_snapshot() reports as corrupt: what neither this format nor a later
    // one can read.
    cas_result replace_damaged(std::string_view value) {
        const lock_scope held(*this, true);
        const std::error_code error = held.error ? held.error : read(true);
        if (!error) {
            return {cas_status::conflict, 0, snapshot(), {}};
        }
        if (error != durable_errc::corrupt_record) {
            return failed(error);
        }
        if (value.size() > set_.max_value) {
            return failed(durable_errc::too_large);
        }
        slot_version last = file_.claimed_by_any();
        if (const slot_version mark = lock_.synced_version(); mark < file_versions::most_believed) {
            last = std::max(last, mark);
        }
        return replace(value, file_versions::next(last, true, 0, seen_, io_.clock_ns()), true);
    }

    // Makes the lock file, which a watch needs.
    std::error_code create_lock_file() noexcept { return note(lock_scope(*this, false).error); }
    const lock_file<Io>& lock() const noexcept { return lock_; }

    // About the last operation that failed.
    file_failure failure{};

private:
    // Holds the lock of the lock file.
    class lock_scope {
    public:
        lock_scope(file_store& of, bool exclusive) noexcept : error(of.enter(exclusive)), of_(of) {}
        lock_scope(const lock_scope&) = delete;
        lock_scope& operator=(const lock_scope&) = delete;
        ~lock_scope() {
            if (!error) {
                of_.file_.release();
                of_.lock_.leave();
                of_.is_held_ = false;
            }
        }

        const std::error_code error;

    private:
        file_store& of_;
    };

    std::error_code enter(bool exclusive) noexcept {
        part_ = file_part::data;
        if (!is_named_) {
            return durable_errc::invalid_argument;
        }
        forget_stale_files();
        part_ = file_part::lock;
        if (is_held_) {
            return std::make_error_code(std::errc::resource_deadlock_would_occur);
        }
        const std::error_code error = lock_.enter(exclusive);
        is_held_ = !error;
        return error;
    }

    // Forgets files that other code has replaced and, after fork(), the files of the parent: a lock
    // belongs to the open file description, which a fork shares. So a child opens its own.
    void forget_stale_files() noexcept {
        file_.release_if_not_ours();
        lock_.release_if_not_ours();
        if (const long now = io_.process(); std::exchange(owner_, now) != now) {
            file_.close();
            lock_.abandon();
            is_held_ = false;
        }
    }

    bool can_read_unlocked();

    // The functions below require the lock.

    std::error_code read(bool to_write);
    std::error_code confirm_synced() noexcept;

    // Finds out whether an acknowledged value was lost. The synced version was on the disk: if both
    // pages are older, a page is bad or the file is an older copy. If a page is bad and there is no
    // synced version, the bad page may have been acknowledged. A version that no clock will reach
    // is none.
    void find_loss(slot_version mark) noexcept {
        const bool has_mark = mark != 0 && mark < file_versions::most_believed;
        if (has_mark ? mark > file_.found().version()
                     : set_.is_synced && file_.found().fell_back()) {
            lost_after_ = file_.found().version();
            seen_ = std::max(seen_, has_mark ? mark : 0);
        }
    }
    bool lost_acknowledged() const noexcept {
        return !file_.found().is_absent && lost_after_ == file_.found().version();
    }
    bool fell_back() const noexcept { return file_.found().fell_back() || lost_acknowledged(); }

    slot_snapshot snapshot() const {
        slot_snapshot there;
        if (!file_.found().is_absent) {
            there.version = file_.found().version();
            there.value = file_.value();
            there.fell_back = fell_back();
            there.lost_acknowledged = lost_acknowledged();
        }
        return there;
    }

    cas_result store(std::string_view value);
    cas_result overwrite(std::string_view value, slot_version next);
    cas_result replace(std::string_view value, slot_version next, bool is_damaged = false);

    cas_result stored(slot_version version) noexcept {
        // A slot that does not sync writes version 0, which means "none" to a slot that syncs. The
        // write still wakes watches.
        lock_.set_synced_version(set_.is_synced ? version : 0);
        synced_ = version;
        return {cas_status::stored, version, {}, {}};
    }

    // Drops the file's cached data. Call it after a disk error: the cache may differ from the disk,
    // and the kernel may report the error only once for each open file.
    void drop_cache() noexcept {
        file_.drop_cache();
        file_.close();
        synced_ = 0;
    }

    file_descriptor<Io> open_directory() noexcept {
        part_ = file_part::directory;
        return file_descriptor<Io>(io_, io_.open_file(directory_.c_str(), O_RDONLY | O_DIRECTORY));
    }

    // Records the error and the current part.
    std::error_code note(std::error_code error) noexcept {
        if (error) {
            failure = {error, part_};
        }
        return error;
    }
    cas_result failed(std::error_code error, bool is_unsure = false) {
        return {is_unsure ? cas_status::indeterminate : cas_status::failed, 0, {}, note(error)};
    }

    [[no_unique_address]] Io io_;
    file_settings set_;
    bool is_named_; // the path can name a file
    lock_file<Io> lock_;
    std::string directory_;
    page_file<Io> file_;
    long owner_; // the process that opened the files
    bool is_held_ = false;
    slot_version synced_ = 0;     // a version that is known to be on the disk
    slot_version seen_ = 0;       // the latest version that this object has seen
    slot_version lost_after_ = 0; // a later version was acknowledged and lost; 0: none is known
    file_part part_ = file_part::lock;
};

// ---- reading

// Reads without the lock, so that readers do not block writers. Returns true if a read under the
// lock would give the same result: both pages are good, so no write of a page was under way; and
// the newer version is known to be synced, so no sync was. Returns false if the file is absent or
// older than before: its directory may be gone, or a value lost; the lock file tells which.
template <class Io> bool file_store<Io>::can_read_unlocked() {
    forget_stale_files();
    if (is_held_ || !lock_.is_open() || file_.attach(false, lock_.facts().st_dev) ||
        file_.found().is_absent || file_.examine() || file_.found().fell_back()) {
        return false;
    }
    const slot_version version = file_.found().version();
    if (version < seen_ || lost_after_ == version ||
        (set_.is_synced && synced_ != version && lock_.synced_version() != version)) {
        return false;
    }
    synced_ = version;
    seen_ = version;
    return true;
}

template <class Io> std::error_code file_store<Io>::read(bool to_write) {
    part_ = file_part::data;
    // If any filesystem is allowed, a second lock may conflict with the lock that is held already.
    const dev_t device = lock_.facts().st_dev;
    std::error_code error = to_write && !set_.any_filesystem
                                ? file_.attach_locked(device, set_.retry_time_ns)
                                : file_.attach(to_write, device);
    if (error || file_.found().is_absent || (error = file_.examine())) {
        return error;
    }
    seen_ = std::max(seen_, file_.found().version());
    return confirm_synced();
}

// Syncs if the last writer may have ended before its sync; call it before a page is used. Without
// that, a crash could undo the value that was read, and the other page may be the only good one.
template <class Io> std::error_code file_store<Io>::confirm_synced() noexcept {
    const slot_version version = file_.found().version();
    const bool is_known_synced = !set_.is_synced || synced_ == version;
    if (is_known_synced && !file_.found().fell_back()) {
        return {};
    }
    const slot_version mark = lock_.synced_version();
    find_loss(mark);
    if (is_known_synced) {
        return {};
    }
    if (mark != version) {
        if (const std::error_code error = file_.sync()) {
            drop_cache();
            return error;
        }
        const file_descriptor<Io> directory = open_directory();
        if (!directory || io_.sync_all(directory.get()) != 0) {
            return system_error_code();
        }
        part_ = file_part::data;
        if (!lost_acknowledged()) { // otherwise the next reader must find the loss too
            lock_.set_synced_version(version);
        }
    }
    synced_ = version;
    return {};
}

// ---- writing

template <class Io> cas_result file_store<Io>::store(std::string_view value) {
    if (value.size() > set_.max_value) {
        return failed(durable_errc::too_large);
    }
    const page_contents& found = file_.found();
    if (found.is_absent) {
        find_loss(lock_.synced_version()); // of the file that was deleted
    }
    const slot_version next =
        file_versions::next(found.version(), fell_back(), found.claimed(), seen_, io_.clock_ns());
    return found.is_absent || !file_.has_room_for(value) ? replace(value, next)
                                                         : overwrite(value, next);
}

// Writes one page and syncs once.
template <class Io>
cas_result file_store<Io>::overwrite(std::string_view value, slot_version next) {
    seen_ = next;
    const page_contents before = file_.found();
    if (const std::error_code error = file_.overwrite(value, next)) {
        const bool is_unchanged = !file_.examine() && file_.found().is_same(before);
        drop_cache();
        return failed(error, !is_unchanged);
    }
    if (const std::error_code error = set_.is_synced ? file_.sync() : std::error_code()) {
        drop_cache();
        return failed(error, true);
    }
    return stored(next);
}

// Writes a new file. It is complete and synced before it is renamed to the path.
template <class Io>
cas_result file_store<Io>::replace(std::string_view value, slot_version next, bool is_damaged) {
    // Allocates the lock file's space while a failure changes nothing yet.
    part_ = file_part::lock;
    if (file_.found().is_absent && !lock_.set_synced_version(lock_.synced_version())) {
        return failed(system_error_code());
    }
    const file_descriptor<Io> directory = open_directory();
    if (!directory) {
        return failed(system_error_code());
    }
    part_ = file_part::fresh;
    std::error_code error = file_.prepare(value, next, set_.page_size, set_.mode, is_damaged);
    bool is_unsure = false;
    if (!error) {
        seen_ = next;
        error = file_.replace_original(is_unsure, is_damaged);
    }
    if (!error && set_.is_synced && io_.sync_all(directory.get()) != 0) {
        part_ = file_part::directory;
        error = system_error_code();
        is_unsure = true;
    }
    if (error) {
        file_.close();
        return failed(error, is_unsure);
    }
    return stored(next);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
