// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_STORE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_STORE_HPP

// The operations of a file slot, on any Io: locks, reads, writes. slots/file.hpp describes the
// protocol.
//
// A writer holds an exclusive flock(2) on the lock file, a reader a shared one. The kernel releases
// the lock of a process that ends. If a holder is stopped, other processes wait at most for their
// `retry_time`.
//
// The lock file holds eight bytes, the synced version. It is not synced: if a crash loses it, the
// only cost is one more sync. Its write also wakes watches.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/page_file.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The options of a file slot, in the units that the implementation uses.
struct file_settings {
    bool is_synced = true;
    std::uint32_t page_size = 4 * file_page::granule; // a multiple of the granule
    std::size_t max_value = std::size_t{64} << 20;
    std::int64_t retry_time_ns = 10'000'000'000;
    unsigned mode = 0600;
    bool any_filesystem = false;
};

// The file that an operation uses.
enum class file_part { lock, data, fresh, directory };

// A function that returns false has recorded the error, with the file that it concerns.
template <class Io> class file_store : public slot {
public:
    file_store(std::string path, const file_settings& settings, Io io = Io())
        : io_(io), path_(std::move(path)), set_(settings), lock_(io), data_(io),
          owner_(io_.process()) {}
    file_store(const file_store&) = delete;
    file_store& operator=(const file_store&) = delete;
    ~file_store() override { forget_stale_files(); }

    const std::string& path() const noexcept { return path_; }
    const std::string& lock_path() const noexcept { return lock_path_; }
    // About the last operation that failed.
    std::error_code error() const noexcept { return error_; }
    file_part part() const noexcept { return part_; }

    // Makes the lock file, which a watch needs.
    std::error_code make_lock_file() {
        return lock_scope(*this, false).is_held ? std::error_code() : error_;
    }

    result<slot_snapshot, std::error_code> load() override {
        if (can_read_unlocked()) {
            return snapshot();
        }
        const lock_scope held(*this, false);
        if (!held.is_held || !read(false)) {
            return unexpected{error_};
        }
        return snapshot();
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        const lock_scope held(*this, true);
        return !held.is_held || !read(true)  ? failed()
               : pages_.version() != version ? conflict()
                                             : put(value);
    }

    // Requires: the update does not use this slot.
    cas_result update_locked(const slot_update& update) override {
        const lock_scope held(*this, true);
        if (!held.is_held || !read(true)) {
            return failed();
        }
        const std::optional<std::string> value = update(snapshot());
        return value ? put(*value) : cas_result{cas_status::stored, pages_.version(), {}, {}};
    }

    // Replaces a file that load() reports as corrupt: what neither this format nor a later
    // one can read.
    cas_result replace_damaged(std::string_view value) override {
        const lock_scope held(*this, true);
        if (held.is_held && read(true)) {
            return conflict();
        }
        if (error_ != durable_errc::corrupt_record || !fits(value)) {
            return failed();
        }
        slot_version last = pages_.claimed_by_any();
        if (const slot_version mark = synced_version(); mark < file_versions::most_believed) {
            last = std::max(last, mark);
        }
        return replace(value, file_versions::next(last, true, 0, seen_, io_.clock_ns()), true);
    }

private:
    // ---- results

    bool fail(file_part part, std::error_code error = system_error_code()) noexcept {
        error_ = error;
        part_ = part;
        return false;
    }
    cas_result failed(bool is_unsure = false) const {
        return {is_unsure ? cas_status::indeterminate : cas_status::failed, 0, {}, error_};
    }
    cas_result conflict() const { return {cas_status::conflict, 0, snapshot(), {}}; }
    cas_result stored(slot_version version) noexcept {
        // A slot that does not sync writes version 0, which means "none" to a slot that syncs. The
        // write still wakes watches.
        set_synced_version(set_.is_synced ? version : 0);
        synced_ = version;
        return {cas_status::stored, version, {}, {}};
    }
    slot_snapshot snapshot() const {
        if (pages_.is_absent) {
            return {};
        }
        return {.version = pages_.version(),
                .value = std::string(pages_.value()),
                .fell_back = fell_back(),
                .lost_acknowledged = lost_acknowledged()};
    }
    bool lost_acknowledged() const noexcept {
        return !pages_.is_absent && lost_after_ == pages_.version();
    }
    bool fell_back() const noexcept { return pages_.fell_back() || lost_acknowledged(); }

    // ---- the lock

    // Holds the lock of the lock file.
    struct lock_scope {
        lock_scope(file_store& store, bool exclusive) noexcept
            : of(store), is_held(store.enter(exclusive)) {}
        lock_scope(const lock_scope&) = delete;
        lock_scope& operator=(const lock_scope&) = delete;
        ~lock_scope() {
            if (is_held) {
                of.leave();
            }
        }

        file_store& of;
        const bool is_held;
    };

    // Forgets files that other code has replaced and, after fork(), the files of the parent: a lock
    // belongs to the open file description, which a fork shares. So a child opens the files again.
    void forget_stale_files() noexcept {
        data_.forget_if_not_ours();
        lock_.forget_if_not_ours();
        if (const long now = io_.process(); std::exchange(owner_, now) != now) {
            data_.reset();
            lock_.reset();
            is_held_ = false;
        }
    }

    // Blocks: until the lock is held, at most for the retry time.
    bool enter(bool exclusive) noexcept {
        forget_stale_files();
        if (!is_file_name(path_)) {
            return fail(file_part::data, durable_errc::invalid_argument);
        }
        if (is_held_) {
            return fail(file_part::lock, system_error_code(EDEADLK));
        }
        const std::int64_t begin = io_.steady_ns();
        do {
            if ((!lock_ && !open_lock()) || !wait(file_part::lock, exclusive, begin)) {
                return false;
            }
            // If another program removed the lock file, other processes may lock a new one.
            struct stat now;
            const bool is_ours =
                io_.look_at(lock_path_.c_str(), now) == 0 && is_same_file(now, lock_.facts);
            const std::error_code error = is_ours ? check_kind(now) : std::error_code();
            if (is_ours && !error) {
                return is_held_ = true;
            }
            io_.unlock(lock_.get()); // a child of fork() may have it open, too
            lock_.reset();
            if (error) {
                return fail(file_part::lock, error);
            }
        } while (io_.steady_ns() - begin <= set_.retry_time_ns);
        return fail(file_part::lock, system_error_code(ETIMEDOUT));
    }

    // A reader can use a file that it may not write.
    bool open_lock() noexcept {
        std::error_code error = lock_.open(lock_path_.c_str(), true, O_CREAT, set_.mode);
        if (!error && !set_.any_filesystem && !io_.is_reliable(lock_.get())) {
            lock_.reset();
            error = durable_errc::unsupported_filesystem;
        }
        return !error || fail(file_part::lock, error);
    }

    // Locks the lock file or the value's file. A blocking flock() has no deadline, so this polls. A
    // sync takes about a hundred microseconds: the pauses begin below that and grow, so that a crowd
    // of waiters leaves the processors to the holder. The pauses are random, so that waiters do not
    // poll at the same moments.
    //
    // A process that releases the lock and takes it again at once leaves it free for too short a
    // time for polling waiters. So one process that has waited long takes a second lock, the claim,
    // and polls often. If a process arrives and sees the claim, it pauses once and so lets the
    // claimant go first. It does not wait for the claim to end, because the claimant may be stopped.
    // With the option any_filesystem, the claim is not used: on some filesystems both locks would be
    // the same.
    bool wait(file_part part, bool exclusive, std::int64_t begin) noexcept {
        constexpr std::int64_t first_rest_ns = 20'000;
        constexpr std::int64_t longest_rest_ns = 2'000'000;
        constexpr std::int64_t long_wait_ns = 50'000'000;
        constexpr std::int64_t polite_rest_ns = 100'000; // a claimant tries twice in this time
        const int fd = part == file_part::lock ? lock_.get() : data_.get();
        const bool may_claim = part == file_part::lock && !set_.any_filesystem;
        std::int64_t rest = first_rest_ns;
        std::int64_t waited = 0;
        bool is_next = false;
        int tried = 0;
        if (may_claim && io_.is_claimed(fd)) {
            io_.sleep(std::min(polite_rest_ns, set_.retry_time_ns));
        }
        while ((tried = io_.try_lock(fd, exclusive)) != 0 && errno == EWOULDBLOCK &&
               (waited = io_.steady_ns() - begin) < set_.retry_time_ns) {
            is_next = is_next || (waited >= long_wait_ns && may_claim && io_.try_claim(fd));
            rest = is_next ? first_rest_ns : std::min(rest + rest / 2, longest_rest_ns);
            io_.sleep(std::min(rest / 2 + random_below(rest), set_.retry_time_ns - waited));
        }
        const int error = errno == EWOULDBLOCK ? ETIMEDOUT : errno;
        if (is_next) {
            io_.unclaim(fd);
        }
        return tried == 0 || fail(part, system_error_code(error));
    }

    void leave() noexcept {
        if (std::exchange(data_.is_locked, false)) {
            io_.unlock(data_.get());
        }
        if (lock_) {
            io_.unlock(lock_.get());
        }
        is_held_ = false;
    }

    // Returns 0 if there is none. A reader without the lock may read a half-written version.
    slot_version synced_version() noexcept {
        char bytes[8];
        return io_.read_at(lock_.get(), bytes, 8, 0) == 8 ? load_little<std::uint64_t>(bytes) : 0;
    }
    bool set_synced_version(slot_version version) noexcept {
        char bytes[8];
        store_little(bytes, std::uint64_t{version});
        return io_.write_at(lock_.get(), bytes, 8, 0) == 8;
    }

    // ---- reading

    // Reads without the lock, so that readers do not block writers. Returns true if a read under the
    // lock would give the same result: both pages are good, so no write of a page was under way; and
    // the newer version is known to be synced, so no sync was under way. Returns false if the file
    // is absent or older than before: its directory may be gone, or a value lost; the lock file
    // tells which.
    bool can_read_unlocked() {
        forget_stale_files();
        if (is_held_ || !lock_ || !attach(false) || pages_.is_absent || pages_.read(io_, data_) ||
            pages_.fell_back()) {
            return false;
        }
        const slot_version version = pages_.version();
        if (version < seen_ || lost_after_ == version ||
            (set_.is_synced && synced_ != version && synced_version() != version)) {
            return false;
        }
        seen_ = synced_ = version;
        return true;
    }

    // Opens the file that the path names. Opens it for writing if `to_write` is set or if permission
    // allows. Fails with EXDEV if the file is on another device than the lock file: then it was
    // mounted here from a directory with another lock. A missing file is no error: see
    // file_pages::is_absent.
    bool attach(bool to_write) noexcept {
        std::error_code error = data_.follow(path_.c_str(), !to_write);
        pages_.clear(error.value() == ENOENT);
        if (!error && data_.facts.st_dev != lock_.facts.st_dev) {
            data_.reset();
            error = system_error_code(EXDEV);
        }
        return !error || pages_.is_absent || fail(file_part::data, error);
    }

    // Opens the file for writing and takes the file's own lock, unless the file is absent. If
    // another program removed the lock file, two writers may hold locks on two lock files: the
    // file's own lock excludes one of them. Takes the lock first, and then looks at the path again:
    // from then on, no other writer replaces the file.
    // Blocks: for another writer, at most for the retry time.
    bool attach_locked() noexcept {
        const std::int64_t begin = io_.steady_ns();
        do {
            if (data_ && data_.is_writable) {
                data_.is_locked = wait(file_part::data, true, begin);
            }
            if ((data_ && data_.is_writable && !data_.is_locked) || !attach(true)) {
                return false;
            }
        } while (!pages_.is_absent && !data_.is_locked);
        return true;
    }

    // Reads the file. Requires the lock, as do all functions below.
    bool read(bool to_write) {
        // If any filesystem is allowed, a second lock may conflict with the lock that is held
        // already.
        if (!(to_write && !set_.any_filesystem ? attach_locked() : attach(to_write))) {
            return false;
        }
        if (pages_.is_absent) {
            return true;
        }
        if (const std::error_code error = pages_.read(io_, data_)) {
            return fail(file_part::data, error);
        }
        seen_ = std::max(seen_, pages_.version());
        return confirm_synced();
    }

    // Syncs if the last writer may have ended before its sync; call it before a page is used.
    // Without that, a crash could undo the value that was read, and the other page may be the only
    // good one.
    bool confirm_synced() {
        const slot_version version = pages_.version();
        const bool is_known_synced = !set_.is_synced || synced_ == version;
        if (is_known_synced && !pages_.fell_back()) {
            return true;
        }
        const slot_version mark = synced_version();
        find_loss(mark);
        if (!is_known_synced && mark != version) {
            file_descriptor<Io> directory(io_);
            if (!sync_data() || !open_directory(directory) || !sync_directory(directory)) {
                return false;
            }
            if (!lost_acknowledged()) { // otherwise the next reader must find the loss too
                set_synced_version(version);
            }
        }
        synced_ = version;
        return true;
    }

    // Finds out whether an acknowledged value was lost. The synced version was on the disk: if both
    // pages are older, a page is bad or the file is an older copy. If a page is bad and there is no
    // synced version, the bad page may have been acknowledged. A version that no clock will reach
    // counts as no synced version.
    void find_loss(slot_version mark) noexcept {
        const bool has_mark = mark != 0 && mark < file_versions::most_believed;
        if (has_mark ? mark > pages_.version() : set_.is_synced && pages_.fell_back()) {
            lost_after_ = pages_.version();
            seen_ = std::max(seen_, has_mark ? mark : 0);
        }
    }

    // ---- writing

    bool fits(std::string_view value) noexcept {
        return value.size() <= set_.max_value || fail(file_part::data, durable_errc::too_large);
    }

    cas_result put(std::string_view value) {
        if (!fits(value)) {
            return failed();
        }
        if (pages_.is_absent) {
            find_loss(synced_version()); // of the file that was deleted
        }
        const slot_version next = file_versions::next(pages_.version(), fell_back(),
                                                      pages_.claimed(), seen_, io_.clock_ns());
        const bool has_room =
            !pages_.is_absent && value.size() <= pages_.page_size - file_page::header_size;
        return has_room ? overwrite(value, next) : replace(value, next, false);
    }

    // Overwrites the page that does not count, and syncs once.
    cas_result overwrite(std::string_view value, slot_version next) {
        seen_ = next;
        const auto before = pages_.headers;
        if (!write_page(file_part::data, data_.get(), pages_.offset_of_other(),
                        file_page::header_size + value.size(), pages_.page_size, value, next)) {
            const bool is_unchanged = !pages_.read(io_, data_) && pages_.headers == before;
            drop_cache();
            return failed(!is_unchanged);
        }
        return !set_.is_synced || sync_data() ? stored(next) : failed(true);
    }

    // Writes a new file. It is complete and synced before it is renamed to the path. A damaged file
    // is kept as <path>.damaged, and replaces an earlier one of that name.
    cas_result replace(std::string_view value, slot_version next, bool is_damaged) {
        constexpr int how = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
        const std::string name = path_ + ".new";
        file_descriptor<Io> directory(io_);
        file_descriptor<Io> fresh(io_);
        // Allocates the lock file's space while a failure changes nothing yet.
        if (!(!pages_.is_absent || set_synced_version(synced_version()) || fail(file_part::lock)) ||
            !open_directory(directory) ||
            !(io_.remove_file(name.c_str()) == 0 || errno == ENOENT || fail(file_part::fresh))) {
            return failed();
        }
        fresh.reset(io_.open_file(name.c_str(), how, set_.mode));
        if (!fresh) {
            fail(file_part::fresh);
            return failed();
        }
        bool is_unsure = false;
        bool is_done = fill(fresh, value, next, is_damaged);
        if (is_done) {
            seen_ = next;
            is_done = rename(name, is_damaged, is_unsure);
        }
        if (!is_done) {
            io_.remove_file(name.c_str());
        } else if (set_.is_synced) {
            is_done = sync_directory(directory);
            is_unsure = !is_done;
        }
        data_.reset();
        if (!is_done) {
            return failed(is_unsure);
        }
        data_ = std::move(fresh);
        return stored(next);
    }

    // Writes both pages: one has the value, the other one the value before it, unless the file is
    // damaged. Writes all bytes, also the zeros: if the blocks were only reserved, the first sync of
    // each block would have to write the filesystem's journal.
    bool fill(file_descriptor<Io>& fresh, std::string_view value, slot_version next,
              bool is_damaged) {
        constexpr file_part part = file_part::fresh;
        const int fd = fresh.get();
        const bool has_before = !pages_.is_absent && !is_damaged;
        const std::size_t needed = file_page::header_size + value.size();
        std::size_t size = std::max(set_.page_size, has_before ? pages_.page_size : 0);
        if (needed > size) { // half as much again, so that a growing value is rarely moved
            size = (needed + needed / 2) / file_page::granule * file_page::granule +
                   file_page::granule;
        }
        const auto page = static_cast<std::uint32_t>(size);
        const std::string_view before = has_before ? pages_.value() : std::string_view();
        return (pages_.is_absent || io_.copy_owner_and_mode(fd, data_.facts) == 0 || fail(part)) &&
               write_page(part, fd, 0, size, page, value, next) &&
               write_page(part, fd, size, size, page, before, has_before ? pages_.version() : 0) &&
               ((io_.sync_all(fd) == 0 && io_.look_at(fd, fresh.facts) == 0) || fail(part));
    }

    // Renames the new file to the path. If the filesystem can exchange two names, the damaged file
    // always has a name. Otherwise a crash may leave the damaged file as <path>.damaged, with no
    // file at <path>. Sets `is_unsure` if there is an error but the new file may have the path.
    bool rename(const std::string& fresh, bool is_damaged, bool& is_unsure) {
        const std::string kept = path_ + ".damaged";
        if (is_damaged && io_.exchange_files(fresh.c_str(), path_.c_str()) == 0) {
            // If this fails, the next change removes the file.
            io_.rename_file(fresh.c_str(), kept.c_str());
            return true;
        }
        const bool is_moved = is_damaged && io_.rename_file(path_.c_str(), kept.c_str()) == 0;
        if ((is_moved || !is_damaged) && io_.rename_file(fresh.c_str(), path_.c_str()) == 0) {
            return true;
        }
        fail(file_part::fresh);
        is_unsure = (is_moved && io_.rename_file(kept.c_str(), path_.c_str()) != 0) ||
                    error_ == std::errc::io_error;
        return false;
    }

    // Writes `size` bytes of a page, at least the header and the value.
    bool write_page(file_part part, int fd, std::uint64_t at, std::size_t size,
                    std::uint32_t page_size, std::string_view value, slot_version version) {
        image_.assign(size, '\0');
        std::copy(value.begin(), value.end(), image_.data() + file_page::header_size);
        encode_header(image_.data(), page_size, version, static_cast<std::uint32_t>(value.size()));
        for (std::size_t done = 0; done < size;) {
            const ssize_t wrote = io_.write_at(fd, image_.data() + done, size - done, at + done);
            if (wrote <= 0) {
                return fail(part, system_error_code(wrote < 0 ? errno : EIO));
            }
            done += static_cast<std::size_t>(wrote);
        }
        return true;
    }

    bool sync_data() noexcept {
        if (io_.sync_data(data_.get()) == 0) {
            return true;
        }
        fail(file_part::data);
        drop_cache();
        return false;
    }
    bool open_directory(file_descriptor<Io>& to) {
        const std::string name = path_.substr(0, path_.rfind('/') + 1) + '.';
        to.reset(io_.open_file(name.c_str(), O_RDONLY | O_DIRECTORY));
        return to || fail(file_part::directory);
    }
    bool sync_directory(const file_descriptor<Io>& directory) noexcept {
        return io_.sync_all(directory.get()) == 0 || fail(file_part::directory);
    }

    // Drops the file's cached data. Call it after a disk error: the cache may differ from the disk,
    // and the kernel may report the error only once for each open file.
    void drop_cache() noexcept {
        io_.drop_cache(data_.get());
        data_.reset();
        synced_ = 0;
    }
    [[no_unique_address]] Io io_;
    const std::string path_;
    const std::string lock_path_ = path_ + ".lock";
    const file_settings set_;
    file_descriptor<Io> lock_;
    file_descriptor<Io> data_;
    file_pages pages_;
    std::string image_;           // what is written
    long owner_;                  // the process that opened the files
    bool is_held_ = false;        // the lock of lock_
    slot_version synced_ = 0;     // a version that is known to be on the disk
    slot_version seen_ = 0;       // the latest version that this object has seen
    slot_version lost_after_ = 0; // a later version was acknowledged and lost; 0: none is known
    std::error_code error_{};
    file_part part_ = file_part::data; // that the error concerns
};

}}} // namespace bide::BIDE_ABI::detail

#endif
