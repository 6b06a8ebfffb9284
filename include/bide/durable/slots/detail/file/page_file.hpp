// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_PAGE_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_PAGE_FILE_HPP

// The file of a file slot: opens it, reads both pages, writes one page, and makes a new file that
// replaces it. The caller holds the lock of the lock file and decides when to sync.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/file/lock_file.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// What was read from the file.
struct page_contents {
    bool is_absent = true;
    std::uint32_t page_size = 0;
    file_page pages[2];
    unsigned index = 0; // the page that counts; the next change overwrites the other one

    const file_page& page() const noexcept { return pages[index]; }
    const file_page& other() const noexcept { return pages[1 - index]; }
    std::uint64_t version() const noexcept { return is_absent ? 0 : page().version; }
    bool fell_back() const noexcept { return !is_absent && page().is_good && !other().is_good; }
    // The version that the other page claims, which may be wrong.
    std::uint64_t claimed() const noexcept { return is_absent ? 0 : other().version; }
    bool is_same(const page_contents& as) const noexcept {
        return index == as.index && fell_back() == as.fell_back() &&
               pages[0].sum == as.pages[0].sum && pages[1].sum == as.pages[1].sum;
    }
};

template <class Io> class page_file {
public:
    page_file(std::string path, Io io)
        : io_(io), path_(std::move(path)), file_(io), replaced_(io) {}
    page_file(const page_file&) = delete;
    page_file& operator=(const page_file&) = delete;
    ~page_file() { release_if_not_ours(); }

    // Opens the file that the path names. Opens it for writing if `to_write` is set or if
    // permission allows. Fails with EXDEV if the file is on another device than the lock file: then
    // it was mounted here from a directory with another lock. A missing file is no error: see
    // found().is_absent.
    std::error_code attach(bool to_write, dev_t device) noexcept;
    void release_if_not_ours() noexcept { file_.release_unless(facts_); }
    void close() noexcept {
        file_.reset();
        replaced_.reset();
        is_locked_ = false;
    }

    // Opens the file for writing and takes the file's own lock, unless the file is absent. If
    // another program removed the lock file, two writers may hold locks on two lock files. The
    // file's own lock then excludes one of them.
    // Blocks: for another writer, at most for retry_time_ns.
    std::error_code attach_locked(dev_t device, std::int64_t retry_time_ns) noexcept;
    void release() noexcept {
        replaced_.reset();
        if (std::exchange(is_locked_, false)) {
            io_.unlock(file_.get());
        }
    }

    // Reads both pages of a file that exists. Fails if neither holds a value, or if the system
    // fails.
    std::error_code examine();
    const page_contents& found() const noexcept { return found_; }
    std::string_view value() const noexcept {
        return {bytes_[found_.index].data() + file_page::header_size, found_.page().length};
    }
    // The latest version that either page of a corrupt file claims, which may be wrong.
    std::uint64_t claimed_by_any() const noexcept {
        std::uint64_t latest = 0;
        for (const file_page& page : found_.pages) {
            if (page.version < file_versions::most_believed) {
                latest = std::max(latest, page.version);
            }
        }
        return latest;
    }
    bool has_room_for(std::string_view value) const noexcept {
        return value.size() <= found_.page_size - file_page::header_size;
    }

    // Overwrites the page that does not count.
    std::error_code overwrite(std::string_view value, std::uint64_t version);

    // Makes <path>.new with the value in one page. The value that was found goes into the other
    // page, unless the file is damaged. The new file is synced. After an error the new file is
    // removed.
    std::error_code prepare(std::string_view value, std::uint64_t version,
                            std::uint32_t least_page_size, unsigned mode, bool is_damaged);
    // Renames the new file to the path. A damaged file is kept as <path>.damaged and replaces an
    // earlier one of that name. Sets `is_unsure` if there is an error but the new file may have the
    // path.
    std::error_code replace_original(bool& is_unsure, bool is_damaged);

    // Waits until all that was written is on the disk.
    std::error_code sync() noexcept {
        return io_.sync_data(file_.get()) != 0 ? system_error_code() : std::error_code();
    }
    void drop_cache() noexcept { io_.drop_cache(file_.get()); }

private:
    std::error_code open(bool to_write, dev_t device) noexcept;
    std::error_code read_page(unsigned index);
    std::error_code read_fully(char* to, std::size_t size, std::uint64_t at) noexcept;
    std::error_code write_fully(int fd, std::size_t size, std::uint64_t at) noexcept;
    std::error_code fill(int fd, std::uint32_t page_size, std::string_view value,
                         std::uint64_t version);
    // Puts header and value at the beginning of the image.
    void compose(std::uint32_t page_size, std::string_view value, std::uint64_t version) noexcept {
        std::copy(value.begin(), value.end(), image_.data() + file_page::header_size);
        encode_header(image_.data(), page_size, version, static_cast<std::uint32_t>(value.size()));
    }

    [[no_unique_address]] Io io_;
    std::string path_;
    file_descriptor<Io> file_;
    file_descriptor<Io> replaced_; // the file before this change; still locked
    struct stat facts_{};
    bool is_writable_ = false;
    bool is_locked_ = false;
    page_contents found_;
    std::vector<char> bytes_[2]; // the beginnings of the pages: header and value, if they are good
    std::vector<char> image_;    // what is written
};

// ---- finding the file

template <class Io> std::error_code page_file<Io>::attach(bool to_write, dev_t device) noexcept {
    struct stat now;
    found_ = page_contents();
    if (io_.look_at(path_.c_str(), now) != 0) {
        const std::error_code error = system_error_code();
        close();
        return error == std::errc::no_such_file_or_directory ? std::error_code() : error;
    }
    found_.is_absent = false;
    if (const std::error_code error = check_kind(now)) {
        return error;
    }
    if (!file_ || !is_same_file(now, facts_) || (to_write && !is_writable_)) {
        return open(to_write, device);
    }
    facts_ = now;
    return {};
}

// Locks first, then looks at the path again: no other writer replaces the file after that. The lock
// is rarely contended.
template <class Io>
std::error_code page_file<Io>::attach_locked(dev_t device, std::int64_t retry_time_ns) noexcept {
    constexpr std::int64_t rest_ns = 100'000;
    std::int64_t begin = 0;
    for (;;) {
        is_locked_ = file_ && is_writable_ && io_.try_lock(file_.get(), true) == 0;
        if (!is_locked_ && file_ && is_writable_) {
            if (errno != EWOULDBLOCK) {
                return system_error_code();
            }
            begin = begin != 0 ? begin : io_.steady_ns();
            if (io_.steady_ns() - begin >= retry_time_ns) {
                return std::make_error_code(std::errc::timed_out);
            }
            io_.sleep(std::min(rest_ns, retry_time_ns));
        }
        const std::error_code error = attach(true, device);
        if (error || found_.is_absent || is_locked_) {
            return error;
        }
    }
}

template <class Io> std::error_code page_file<Io>::open(bool to_write, dev_t device) noexcept {
    close();
    opened_file<Io> opened = open_regular(io_, path_.c_str(), !to_write);
    facts_ = opened.facts;
    is_writable_ = opened.is_writable;
    if (!opened.error && facts_.st_dev != device) {
        return system_error_code(EXDEV);
    }
    file_ = std::move(opened.file);
    return opened.error;
}

// ---- reading

template <class Io> std::error_code page_file<Io>::examine() {
    const auto size = static_cast<std::uint64_t>(facts_.st_size);
    if (size == 0 || size % (2 * file_page::granule) != 0 || size / 2 > UINT32_MAX) {
        return durable_errc::corrupt_record;
    }
    found_.page_size = static_cast<std::uint32_t>(size / 2);
    file_page(&pages)[2] = found_.pages;
    for (const unsigned index : {0u, 1u}) {
        if (const std::error_code error = read_page(index)) {
            return error;
        }
    }
    found_.index = pages[1].is_good && (!pages[0].is_good || pages[1].version > pages[0].version);
    const file_page& page = found_.page();
    const bool has_two_values = page.is_good && found_.other().is_good &&
                                page.version == found_.other().version &&
                                page.sum != found_.other().sum;
    if (page.is_good && page.version != 0 && !has_two_values) {
        return {};
    }
    return std::max(pages[0].format, pages[1].format) > file_page::known_format
               ? durable_errc::unsupported_record_version
               : durable_errc::corrupt_record;
}

template <class Io> std::error_code page_file<Io>::read_page(unsigned index) {
    std::vector<char>& bytes = bytes_[index];
    const std::uint64_t begin = std::uint64_t{index} * found_.page_size;
    bytes.resize(std::max(bytes.size(), file_page::granule));
    if (const auto error = read_fully(bytes.data(), file_page::granule, begin)) {
        return error;
    }
    file_page& page = found_.pages[index];
    page = decode_header(bytes.data());
    if (!page.is_plausible(found_.page_size)) {
        return {};
    }
    const std::size_t size = file_page::header_size + page.length;
    if (size > file_page::granule) {
        bytes.resize(std::max(bytes.size(), size));
        if (const auto error = read_fully(bytes.data() + file_page::granule,
                                          size - file_page::granule, begin + file_page::granule)) {
            return error;
        }
    }
    page.is_good = checksum_matches(bytes.data(), page);
    return {};
}

// Bytes beyond the end of the file read as zeros.
template <class Io>
std::error_code page_file<Io>::read_fully(char* to, std::size_t size, std::uint64_t at) noexcept {
    while (size != 0) {
        const ssize_t got = io_.read_at(file_.get(), to, size, at);
        if (got < 0) {
            return system_error_code();
        }
        if (got == 0) {
            std::memset(to, 0, size);
            return {};
        }
        to += got;
        size -= static_cast<std::size_t>(got);
        at += static_cast<std::uint64_t>(got);
    }
    return {};
}

// ---- writing

template <class Io>
std::error_code page_file<Io>::overwrite(std::string_view value, std::uint64_t version) {
    const std::size_t size = file_page::header_size + value.size();
    image_.resize(std::max(image_.size(), size));
    compose(found_.page_size, value, version);
    return write_fully(file_.get(), size, std::uint64_t{1 - found_.index} * found_.page_size);
}

template <class Io>
std::error_code page_file<Io>::prepare(std::string_view value, std::uint64_t version,
                                       std::uint32_t least_page_size, unsigned mode,
                                       bool is_damaged) {
    const std::size_t needed = file_page::header_size + value.size();
    const bool has_owner = !found_.is_absent;
    if (is_damaged) {
        found_ = page_contents();
    }
    std::size_t page_size = std::max(least_page_size, found_.page_size);
    if (needed > page_size) { // half as much again, so that a growing value is rarely moved
        page_size =
            (needed + needed / 2) / file_page::granule * file_page::granule + file_page::granule;
    }
    const std::string fresh = path_ + ".new";
    if (io_.remove_file(fresh.c_str()) != 0 && errno != ENOENT) {
        return system_error_code();
    }
    constexpr int how = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
    file_descriptor<Io> file(io_, io_.open_file(fresh.c_str(), how, mode));
    if (!file) {
        return system_error_code();
    }
    std::error_code error;
    if (has_owner && io_.copy_owner_and_mode(file.get(), facts_) != 0) {
        error = system_error_code();
    }
    if (!error) {
        error = fill(file.get(), static_cast<std::uint32_t>(page_size), value, version);
    }
    if (!error && (io_.sync_all(file.get()) != 0 || io_.look_at(file.get(), facts_) != 0)) {
        error = system_error_code();
    }
    if (error) {
        io_.remove_file(fresh.c_str());
    } else {
        replaced_ = std::exchange(file_, std::move(file));
        is_locked_ = false;
        is_writable_ = true;
    }
    return error;
}

// Writes all bytes of both pages, also the zeros. If the blocks were only reserved, the first sync
// of each block would have to write the filesystem's journal.
template <class Io>
std::error_code page_file<Io>::fill(int fd, std::uint32_t page_size, std::string_view value,
                                    std::uint64_t version) {
    image_.assign(page_size, 0);
    compose(page_size, value, version);
    if (const std::error_code error = write_fully(fd, page_size, 0)) {
        return error;
    }
    image_.assign(page_size, 0);
    compose(page_size, found_.is_absent ? std::string_view() : this->value(), found_.version());
    return write_fully(fd, page_size, page_size);
}

// If the filesystem can exchange two names, the damaged file always has a name. Otherwise a crash
// may leave the damaged file as <path>.damaged, with no file at <path>.
template <class Io>
std::error_code page_file<Io>::replace_original(bool& is_unsure, bool is_damaged) {
    const std::string fresh = path_ + ".new";
    const std::string kept = path_ + ".damaged";
    if (is_damaged && io_.exchange_files(fresh.c_str(), path_.c_str()) == 0) {
        // If this fails, the next change removes the file.
        io_.rename_file(fresh.c_str(), kept.c_str());
        return {};
    }
    const bool is_moved = is_damaged && io_.rename_file(path_.c_str(), kept.c_str()) == 0;
    if ((is_moved || !is_damaged) && io_.rename_file(fresh.c_str(), path_.c_str()) == 0) {
        return {};
    }
    const std::error_code error = system_error_code();
    is_unsure = error == std::errc::io_error;
    if (is_moved && io_.rename_file(kept.c_str(), path_.c_str()) != 0) {
        is_unsure = true;
    }
    io_.remove_file(fresh.c_str());
    return error;
}

// Writes the first `size` bytes of the image.
template <class Io>
std::error_code page_file<Io>::write_fully(int fd, std::size_t size, std::uint64_t at) noexcept {
    for (std::size_t done = 0; done < size;) {
        const ssize_t wrote = io_.write_at(fd, image_.data() + done, size - done, at + done);
        if (wrote <= 0) {
            return system_error_code(wrote < 0 ? errno : EIO);
        }
        done += static_cast<std::size_t>(wrote);
    }
    return {};
}

}}} // namespace bide::BIDE_ABI::detail

#endif
