// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_FILE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_FILE_HPP

// The definitions of slots/file.hpp. The file has two pages of the same size, a multiple of 4096. A
// reader finds both by the size of the file, even if their bytes are damaged. Each page has
//
//   bytes  0.. 7   "bideslot"
//         8..11   the format: 1
//        12..15   the size of a page
//        16..23   the version of the value; 0: the page holds no value yet
//        24..27   the value's length
//        28..31   CRC-32C of bytes 0..27 and of the value
//        32..     the value; the bytes after it have no meaning
//
// Of two good pages, the one with the higher version is the current page. A change overwrites the
// other page, and syncs. If there is no file, or its pages are too small, the writer makes a new
// file, syncs it, renames it, and syncs the directory.
//
// A writer holds an exclusive flock(2) on the lock file until the sync has returned. Then it stores
// the version in the lock file, which has only these eight bytes: the synced version. A reader that
// finds a page with the synced version returns it, without the lock. Any other reader takes the
// shared lock, and so waits for the writer's sync.
//
// The lock file is not synced, and a writer may be killed before it stores the synced version. If
// the current page does not have that version, the next process with the lock syncs the file before
// it returns or writes a value. Else a loss of power could leave both pages half written.
//
// If one page is bad and one is good, the good page may have the value before the last one
// (slot_snapshot::fell_back). A crash during a change that was not acknowledged leaves this state.
// If the synced version is later than every version that can be read, or if a page is bad and there
// is no synced version, an acknowledged value is lost. If both pages are bad, or the file has a
// size that no slot writes, operations fail with durable_errc::corrupt_record until a repair.

#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/file.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- pages

struct file_page {
    static constexpr std::size_t header_size = 32;
    static constexpr std::size_t granule = 4096;
    static constexpr char magic[] = {'b', 'i', 'd', 'e', 's', 'l', 'o', 't'};
    static constexpr std::uint32_t known_format = 1;

    // As read; if the page is not good, the values may be invalid.
    bool is_good = false;
    std::uint32_t format = 0; // 0: not a page of a slot
    std::uint32_t page_size = 0;
    std::uint64_t version = 0;
    std::uint32_t length = 0;
    std::uint32_t sum = 0;

    bool operator==(const file_page&) const = default;

    // A page is good if its checksum matches as well.
    bool is_plausible(std::uint64_t page) const noexcept {
        return format == known_format && page_size == page && length <= page - header_size;
    }
};

inline std::uint32_t page_sum(const char* bytes, std::uint32_t length) noexcept {
    return crc32c({bytes + file_page::header_size, length}, crc32c({bytes, 28}));
}

inline file_page decode_header(const char* bytes) noexcept {
    file_page page;
    if (std::memcmp(bytes, file_page::magic, sizeof file_page::magic) == 0) {
        page.format = load_little<std::uint32_t>(bytes + 8);
        page.page_size = load_little<std::uint32_t>(bytes + 12);
        page.version = load_little<std::uint64_t>(bytes + 16);
        page.length = load_little<std::uint32_t>(bytes + 24);
        page.sum = load_little<std::uint32_t>(bytes + 28);
    }
    return page;
}

// Writes the header in front of the value, which is in place already.
inline void encode_header(char* bytes, std::uint32_t page_size, std::uint64_t version,
                          std::uint32_t length) noexcept {
    std::memcpy(bytes, file_page::magic, sizeof file_page::magic);
    store_little(bytes + 8, file_page::known_format);
    store_little(bytes + 12, page_size);
    store_little(bytes + 16, version);
    store_little(bytes + 24, length);
    store_little(bytes + 28, page_sum(bytes, length));
}

// What was read from the file. Without a file, all numbers are 0.
class file_pages {
public:
    std::uint32_t page_size = 0; // 0: unknown
    std::array<file_page, 2> headers{};

    const file_page& page() const noexcept { return headers[index_]; } // the current page
    const file_page& other() const noexcept { return headers[1 - index_]; }
    // Requires: the file was read.
    std::string_view value() const noexcept {
        return std::string_view(bytes_[index_]).substr(file_page::header_size, page().length);
    }
    bool fell_back() const noexcept { return page().is_good && !other().is_good; }
    std::uint64_t offset_of_other() const noexcept { return std::uint64_t{1 - index_} * page_size; }

    // Makes the page with this version the current one. Returns false if there is none.
    bool choose(std::uint64_t version) noexcept {
        index_ = page().version == version ? index_ : 1 - index_;
        return page().is_good && page().version == version;
    }

    void clear() noexcept {
        page_size = index_ = 0;
        headers = {};
    }

    // Reads both pages. Fails if neither holds a value, or if the system fails.
    // Throws: std::bad_alloc.
    template <class Io> std::error_code read(Io& io, const file_descriptor<Io>& from) {
        clear();
        const auto size = static_cast<std::uint64_t>(from.facts.st_size);
        if (size == 0 || size % (2 * file_page::granule) != 0 || size / 2 > UINT32_MAX) {
            return durable_errc::corrupt_record;
        }
        page_size = static_cast<std::uint32_t>(size / 2);
        if (!read_page(io, from.get(), 0) || !read_page(io, from.get(), 1)) {
            return system_error_code();
        }
        index_ = headers[1].is_good && (!headers[0].is_good || other().version > page().version);
        const bool has_two_values = page().is_good && other().is_good &&
                                    page().version == other().version && page().sum != other().sum;
        if (page().is_good && page().version != 0 && !has_two_values) {
            return {};
        }
        return std::max(headers[0].format, headers[1].format) > file_page::known_format
                   ? durable_errc::unsupported_record_version
                   : durable_errc::corrupt_record;
    }

private:
    // Reads the first 4096 bytes, and the rest of a longer value. Sets errno if it fails.
    template <class Io> bool read_page(Io& io, int fd, unsigned which) {
        std::string& bytes = bytes_[which];
        file_page& to = headers[which];
        std::size_t size = file_page::granule;
        for (std::size_t done = 0; done < size;) {
            bytes.resize(std::max(bytes.size(), size));
            const ssize_t got = io.read_at(fd, bytes.data() + done, size - done,
                                           std::uint64_t{which} * page_size + done);
            if (got <= 0) {
                errno = got < 0 ? errno : EIO; // the file was cut off
                return false;
            }
            done += static_cast<std::size_t>(got);
            if (done == file_page::granule) {
                to = decode_header(bytes.data());
                size = std::max(size, file_page::header_size +
                                          (to.is_plausible(page_size) ? to.length : 0));
            }
        }
        to.is_good = to.is_plausible(page_size) && page_sum(bytes.data(), to.length) == to.sum;
        return true;
    }

    unsigned index_ = 0;
    std::string bytes_[2]; // the beginnings of the pages: header and value, if they are good
};

// ---- the slot

// A slot on any Io. A function that returns false has called fail().
template <class Io> class file_store final : public locking_slot<file_store<Io>> {
    using base = locking_slot<file_store<Io>>;
    using base::error_;
    using base::failed;

public:
    file_store(std::string path, const file_slot_options& options, Io io = Io())
        : io_(io), path_(std::move(path)), options_(options), lock_(io), data_(io),
          owner_(io_.process()) {}
    ~file_store() override { forget_stale_files(); }

    result<slot_snapshot, std::error_code> load() override {
        if (can_read_unlocked()) {
            return slot_snapshot{.version = version(), .value = std::string(pages_.value())};
        }
        return base::load();
    }

    result<std::shared_ptr<slot_presence>, std::error_code> be_present() override {
        if (!is_file_name(path_)) {
            return unexpected{make_error_code(durable_errc::invalid_argument)};
        }
        return presence_file::be_present(lock_path_, options_.mode, options_.descriptor);
    }
    presence is_present(std::int64_t mark) const override {
        return presence_file::is_present(lock_path_, mark);
    }
    bool watch(int inotify) const override { return presence_file::watch(lock_path_, inotify); }
    bool has_mark(int descriptor, std::int64_t mark) const noexcept {
        // F_OFD_GETLK does not report the lock of the open file that asks.
        return presence_file::ask(descriptor, mark) == presence::no &&
               is_present(mark) == presence::yes;
    }

    std::string explain() const override {
        if (!error_) {
            return path_;
        }
        const std::string& file =
            error_ == std::errc::no_such_file_or_directory ? directory_ : *wrong_;
        return file + ": " +
               (error_ == durable_errc::corrupt_record
                    ? "is not a slot's file, or both copies of the record in it are damaged; a "
                      "repair keeps it as .damaged and makes a new one"
                : error_ == durable_errc::invalid_argument ? "the path cannot name a file"
                                                           : file_error_text(error_, file));
    }

private:
    friend base;

    static constexpr std::size_t largest_page = std::size_t{1} << 30;
    static constexpr slot_version most_believed = slot_version{1} << 62; // no clock reaches it

    // ---- results

    bool fail(const std::string& file, std::error_code error = system_error_code()) noexcept {
        error_ = error;
        wrong_ = &file;
        return false;
    }
    cas_result stored(slot_version version) {
        // Readers without the lock would still return the value of the earlier synced version.
        if (!set_synced_version(version) && synced_version() != 0) {
            fail(lock_path_);
            return failed(true);
        }
        return {cas_status::stored, version, {}, {}};
    }
    slot_version version() const noexcept { return pages_.page().version; }
    slot_snapshot snapshot() const {
        if (!data_) {
            return {};
        }
        return {.version = version(),
                .value = std::string(pages_.value()),
                .fell_back = fell_back(),
                .lost_acknowledged = is_lost_};
    }
    bool fell_back() const noexcept { return pages_.fell_back() || is_lost_; }

    // ---- the lock

    // Forgets descriptors that other code has closed and, after fork(), closes the parent's: a lock
    // belongs to the open file description, which a fork shares.
    void forget_stale_files() noexcept {
        data_.forget_if_not_ours();
        lock_.forget_if_not_ours();
        if (const long now = io_.process(); std::exchange(owner_, now) != now) {
            data_.reset();
            lock_.reset();
        }
    }

    // Blocks: until the lock is held, at most for the retry time.
    bool enter(bool exclusive) noexcept {
        forget_stale_files();
        if (!is_file_name(path_)) {
            return fail(path_, durable_errc::invalid_argument);
        }
        if (lock_.is_locked) {
            return fail(lock_path_, system_error_code(EDEADLK));
        }
        if (exclusive && !lock_.is_writable) {
            lock_.reset();
        }
        begin_ns_ = io_.steady_ns();
        do {
            if (!lock_) { // a reader can use a file that it may not write
                if (const std::error_code error =
                        lock_.open(lock_path_.c_str(), !exclusive, O_CREAT, options_.mode)) {
                    return fail(lock_path_, error);
                }
            }
            if (!wait(lock_, exclusive)) {
                return false;
            }
            // If another program removed the lock file, other processes may lock a new one.
            struct stat now;
            if (io_.look_at(lock_path_.c_str(), now) == 0 && is_same_file(now, lock_.facts) &&
                !check_kind(now)) {
                return lock_.is_locked = true;
            }
            io_.unlock(lock_.get()); // a child of fork() may have it open, too
            lock_.reset();
        } while (io_.steady_ns() - begin_ns_ <= retry_time_ns_);
        return fail(lock_path_, system_error_code(ETIMEDOUT));
    }

    // Locks the lock file or the value's file. A blocking flock() has no deadline, so this function
    // polls. A sync takes about a hundred microseconds: the pauses begin below that and grow, so
    // that many waiters leave the processors to the holder.
    //
    // Polling waiters do not see that a process releases the lock and takes it again at once. So a
    // waiter that has waited long takes a second lock, the claim, and polls often. A process that
    // arrives and sees the claim pauses once, no longer: the claimant may be suspended.
    bool wait(const file_descriptor<Io>& file, bool exclusive) noexcept {
        constexpr std::int64_t first_rest_ns = 20'000;
        constexpr std::int64_t longest_rest_ns = 2'000'000;
        constexpr std::int64_t long_wait_ns = 50'000'000;
        constexpr std::int64_t polite_rest_ns = 100'000; // a claimant tries twice in this time
        const int fd = file.get();
        const bool may_claim = &file == &lock_;
        std::int64_t rest = first_rest_ns;
        std::int64_t waited = 0;
        bool is_next = false;
        int tried = 0;
        if (may_claim && io_.claim(fd, byte_lock::ask) == 1) {
            io_.sleep(std::min(polite_rest_ns, retry_time_ns_));
        }
        while ((tried = io_.try_lock(fd, exclusive)) != 0 && errno == EWOULDBLOCK &&
               (waited = io_.steady_ns() - begin_ns_) < retry_time_ns_) {
            is_next = is_next ||
                      (waited >= long_wait_ns && may_claim && io_.claim(fd, byte_lock::set) == 0);
            rest = is_next ? first_rest_ns : std::min(rest + rest / 2, longest_rest_ns);
            io_.sleep(std::min(rest / 2 + jitter(rest), retry_time_ns_ - waited));
        }
        const int error = errno == EWOULDBLOCK ? ETIMEDOUT : errno;
        if (is_next) {
            io_.claim(fd, byte_lock::remove);
        }
        return tried == 0 || fail(may_claim ? lock_path_ : path_, system_error_code(error));
    }

    void leave() noexcept {
        for (auto* const file : {&data_, &lock_}) {
            if (std::exchange(file->is_locked, false)) {
                io_.unlock(file->get());
            }
        }
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

    // Reads without the lock. Returns true if a page has the synced version. After a crash, the
    // synced version may be an earlier one. So returns false unless this slot has read under the
    // lock before, and has seen no later version. Also returns false if the file is absent: a read
    // under the lock then finds whether a value is lost.
    bool can_read_unlocked() {
        data_.forget_if_not_ours();
        if (lock_.is_locked || !lock_ || !attach(false) || !data_ || pages_.read(io_, data_)) {
            return false;
        }
        const slot_version mark = synced_version();
        // If a page is later than the synced version, its writer has not ended, or it locked a new
        // lock file because another program removed this one. Then the path names another file.
        struct stat now;
        const bool is_current = version() == mark || (io_.look_at(lock_path_.c_str(), now) == 0 &&
                                                      is_same_file(now, lock_.facts));
        const bool is_latest = is_current && seen_ != 0 && mark >= seen_ && pages_.choose(mark);
        seen_ = is_latest ? mark : seen_;
        return is_latest;
    }

    // Opens the file that the path names; `data_` stays closed if it is missing. Fails with EXDEV
    // if the file is on another device than the lock file: such a file was mounted here from
    // another directory, which has its own lock file.
    //
    // If `to_write` is set, locks the file itself, and looks at the path again: from then on no
    // other writer replaces the file. The lock file alone would not do: if another program removed
    // it, a second writer could make and lock a new one while the first writer still writes.
    bool attach(bool to_write) noexcept {
        do {
            if (to_write && data_ && data_.is_writable && !(data_.is_locked = wait(data_, true))) {
                return false;
            }
            std::error_code error = data_.follow(path_.c_str(), !to_write);
            pages_.clear();
            if (!error && data_.facts.st_dev != lock_.facts.st_dev) {
                data_.reset();
                error = system_error_code(EXDEV);
            }
            if (error) {
                return error.value() == ENOENT || fail(path_, error);
            }
        } while (to_write && !data_.is_locked);
        return true;
    }

    // Reads the file. If the last writer may have ended before its sync, syncs the file.
    // Requires: the lock is held. This also applies to all functions below.
    bool read(bool to_write) {
        if (!attach(to_write)) {
            return false;
        }
        if (!data_) {
            return true;
        }
        if (const std::error_code error = pages_.read(io_, data_)) {
            return fail(path_, error);
        }
        const slot_version mark = synced_version();
        find_loss(mark);
        if (mark != version()) {
            if (!sync_data() || !sync_directory(open_directory())) {
                return false;
            }
            if (!is_lost_) { // if it is lost, the next reader has to find the loss, too
                set_synced_version(version());
            }
        }
        return true;
    }

    // Finds out whether an acknowledged value was lost. `mark`: the synced version, or 0.
    void find_loss(slot_version mark) noexcept {
        const bool has_mark = mark != 0 && mark < most_believed;
        is_lost_ = data_ && (has_mark ? mark > version() : pages_.fell_back());
        seen_ = std::max({seen_, version(), has_mark ? mark : 0});
    }

    // ---- writing

    bool fits(std::string_view value) noexcept {
        return value.size() <= std::min(options_.max_value, largest_page) ||
               fail(path_, durable_errc::too_large);
    }

    cas_result put(std::string_view value) {
        if (!fits(value)) {
            return failed();
        }
        if (!data_) {
            find_loss(synced_version()); // next_version() has to exceed that of the deleted file
        }
        const slot_version next = next_version(fell_back());
        if (!data_ || value.size() > pages_.page_size - file_page::header_size) {
            return replace(value, next, false);
        }
        seen_ = next;
        const auto before = pages_.headers;
        if (!write_page(data_, pages_.offset_of_other(), file_page::header_size + value.size(),
                        pages_.page_size, value, next)) {
            fail(path_);
            const bool is_unchanged = !pages_.read(io_, data_) && pages_.headers == before;
            drop_cache();
            return failed(!is_unchanged);
        }
        return sync_data() ? stored(next) : failed(true);
    }

    // Replaces a file that is damaged. A file of a later format is not replaced.
    cas_result mend(std::string_view value) {
        return fits(value) ? replace(value, next_version(true), true) : failed();
    }

    // Returns a version that was never used: later than the current one, than each that this slot
    // has seen, and than the clock. If a value is lost, its version is unknown. In that case the
    // result is also 2^20 later than the latest version that stands in a page or the lock file.
    slot_version next_version(bool is_lost) noexcept {
        constexpr slot_version jump = slot_version{1} << 20;
        slot_version next = std::max<slot_version>(seen_ + 1, io_.clock_ns());
        if (pages_.page().is_good) {
            next = std::max(next, version() + (is_lost ? jump : 1));
        }
        if (is_lost) {
            for (const slot_version claimed :
                 {version(), pages_.other().version, synced_version()}) {
                next = std::max(next, claimed < most_believed ? claimed + jump : 0);
            }
        }
        return next;
    }

    // Writes a new file, and renames it to the path. A damaged file becomes <path>.damaged, in
    // place of an earlier one of that name.
    cas_result replace(std::string_view value, slot_version next, bool is_damaged) {
        // What can fail comes before the first change: the directory, the lock file's space.
        const file_descriptor<Io> directory = open_directory();
        const bool is_ready = (directory || fail(directory_)) &&
                              (data_ || set_synced_version(synced_version()) || fail(lock_path_)) &&
                              make_new(value, next, is_damaged);
        seen_ = is_ready ? next : seen_;
        const bool is_renamed =
            is_ready &&
            (io_.rename_file(new_path_.c_str(), path_.c_str(), is_damaged) == 0 || fail(new_path_));
        data_.reset();
        if (is_renamed && is_damaged) {
            io_.rename_file(new_path_.c_str(), (path_ + ".damaged").c_str(), false);
        }
        if (!is_renamed) {
            io_.remove_file(new_path_.c_str());
            return failed(is_ready && error_ == std::errc::io_error);
        }
        return sync_directory(directory) ? stored(next) : failed(true);
    }

    // Makes <path>.new, in place of one that a crash left. One page has the value, the other one
    // the value before it, unless the file is damaged. Writes all bytes, also the zeros: the first
    // sync of a block that is only reserved has to write the filesystem's journal.
    bool make_new(std::string_view value, slot_version next, bool is_damaged) {
        constexpr std::size_t granule = file_page::granule;
        constexpr int how = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
        const bool has_before = data_ && !is_damaged;
        const std::size_t needed = file_page::header_size + value.size();
        std::size_t size = std::max<std::size_t>(std::min(options_.page_size, largest_page),
                                                 has_before ? pages_.page_size : 1);
        size = needed <= size ? size : needed + needed / 2; // so a growing value is rarely moved
        size = (size + granule - 1) / granule * granule;
        const auto page = static_cast<std::uint32_t>(size);
        file_descriptor<Io> to(io_);
        if (io_.remove_file(new_path_.c_str()) == 0 || errno == ENOENT) {
            to.reset(io_.open_file(new_path_.c_str(), how, options_.mode));
        }
        const bool is_made =
            to && (!data_ || io_.copy_owner_and_mode(to.get(), data_.facts) == 0) &&
            write_page(to, 0, size, page, value, next) &&
            write_page(to, size, size, page, has_before ? pages_.value() : std::string_view(),
                       has_before ? version() : 0) &&
            io_.sync_all(to.get()) == 0;
        return is_made || fail(new_path_);
    }

    // Writes `size` bytes of a page, at least the header and the value. Sets errno if it fails.
    bool write_page(const file_descriptor<Io>& to, std::uint64_t at, std::size_t size,
                    std::uint32_t page_size, std::string_view value, slot_version version) {
        image_.assign(size, '\0');
        std::copy(value.begin(), value.end(), image_.data() + file_page::header_size);
        encode_header(image_.data(), page_size, version, static_cast<std::uint32_t>(value.size()));
        for (std::size_t done = 0; done < size;) {
            const ssize_t wrote =
                io_.write_at(to.get(), image_.data() + done, size - done, at + done);
            if (wrote <= 0) {
                errno = wrote < 0 ? errno : EIO;
                return false;
            }
            done += static_cast<std::size_t>(wrote);
        }
        return true;
    }

    bool sync_data() noexcept {
        if (io_.sync_data(data_.get()) == 0) {
            return true;
        }
        fail(path_);
        drop_cache();
        return false;
    }
    file_descriptor<Io> open_directory() {
        constexpr int how = O_RDONLY | O_DIRECTORY;
        return file_descriptor<Io>(io_, io_.open_file((directory_ + '.').c_str(), how));
    }
    bool sync_directory(const file_descriptor<Io>& directory) noexcept {
        return (directory && io_.sync_all(directory.get()) == 0) || fail(directory_);
    }

    // After a disk error, the cache may differ from the disk, and the kernel may report the error
    // only once for each open file.
    void drop_cache() noexcept {
        io_.drop_cache(data_.get());
        data_.reset();
    }

    [[no_unique_address]] Io io_;
    const std::string path_;
    const std::string lock_path_ = path_ + ".lock";
    const std::string new_path_ = path_ + ".new";
    const std::string directory_ = path_.substr(0, path_.rfind('/') + 1);
    const file_slot_options options_;
    const std::int64_t retry_time_ns_ =
        1'000'000 * std::clamp<std::int64_t>(options_.retry_time.count(), 0, 1'000'000'000);
    file_descriptor<Io> lock_;
    file_descriptor<Io> data_; // not open if there is no file
    file_pages pages_;
    std::string image_;         // what is written
    long owner_;                // the process that opened the files
    std::int64_t begin_ns_ = 0; // of the operation
    slot_version seen_ = 0;     // the latest version that this object has seen
    bool is_lost_ = false;      // an acknowledged value is lost, which is later than that read
    const std::string* wrong_ = &path_; // the file that the error concerns
};

using file_core = file_store<posix_io>;

} // namespace detail

BIDE_DURABLE_INLINE file_slot::file_slot(const std::string& path, const file_slot_options& options)
    : slot_handle(std::make_unique<detail::file_core>(detail::absolute_path(path), options)) {}

BIDE_DURABLE_INLINE bool file_slot::has_mark(int descriptor, std::int64_t mark) const noexcept {
    return static_cast<const detail::file_core&>(*core_).has_mark(descriptor, mark);
}

}} // namespace bide::BIDE_ABI

#endif
