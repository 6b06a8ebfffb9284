// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_LOCK_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_LOCK_FILE_HPP

// The lock file beside a file slot's file. A writer holds an exclusive flock(2) on it, a reader a
// shared one. The kernel releases the lock of a process that ends. If a holder is stopped, other
// processes wait at most for their `retry_time`.
//
// The file holds eight bytes, the synced version; see slots/file.hpp. It is not synced: if a crash
// loses it, the only cost is one more sync. Its write also wakes watches.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
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

template <class Io> class lock_file {
public:
    lock_file(std::string path, const file_settings& settings, Io io)
        : io_(io), path_(std::move(path)), set_(settings), file_(io) {}

    lock_file(const lock_file&) = delete;
    lock_file& operator=(const lock_file&) = delete;
    ~lock_file() { release_if_not_ours(); }

    // Blocks: until the lock is held, at most for retry_time_ns.
    std::error_code enter(bool exclusive) noexcept;
    void leave() noexcept {
        if (file_) {
            io_.unlock(file_.get());
        }
    }

    bool is_open() const noexcept { return static_cast<bool>(file_); }
    void release_if_not_ours() noexcept { file_.release_unless(facts_); }

    // Closes a file that another process shares, and leaves it locked.
    void abandon() noexcept { file_.reset(); }

    const std::string& path() const noexcept { return path_; }
    const struct stat& facts() const noexcept { return facts_; }

    // Returns 0 if there is none. A reader without the lock may read a half-written version.
    std::uint64_t synced_version() noexcept {
        char bytes[8];
        return io_.read_at(file_.get(), bytes, 8, 0) == 8 ? load_little<std::uint64_t>(bytes) : 0;
    }
    bool set_synced_version(std::uint64_t version) noexcept {
        char bytes[8];
        store_little(bytes, version);
        return io_.write_at(file_.get(), bytes, 8, 0) == 8;
    }

private:
    static constexpr std::int64_t first_rest_ns = 20'000;
    static constexpr std::int64_t longest_rest_ns = 2'000'000;
    static constexpr std::int64_t long_wait_ns = 50'000'000;
    static constexpr std::int64_t polite_rest_ns = 100'000; // a claimant tries twice in this time

    std::error_code open() noexcept;
    std::error_code wait(bool exclusive, std::int64_t begin) noexcept;

    [[no_unique_address]] Io io_;
    std::string path_;
    file_settings set_;
    file_descriptor<Io> file_;
    struct stat facts_{};
    random_numbers random_;
};

template <class Io> std::error_code lock_file<Io>::enter(bool exclusive) noexcept {
    const std::int64_t begin = io_.steady_ns();
    for (;;) {
        if (!file_) {
            if (const std::error_code error = open()) {
                return error;
            }
        }
        if (const std::error_code error = wait(exclusive, begin)) {
            return error;
        }
        // If another program removed the lock file, other processes may lock a new one.
        struct stat now;
        if (io_.look_at(path_.c_str(), now) == 0 && is_same_file(now, facts_)) {
            const std::error_code error = check_kind(now);
            if (error) {
                leave();
            }
            return error;
        }
        leave();
        file_.reset();
        if (io_.steady_ns() - begin > set_.retry_time_ns) {
            return std::make_error_code(std::errc::timed_out);
        }
    }
}

// A reader can use a file that it may not write.
template <class Io> std::error_code lock_file<Io>::open() noexcept {
    opened_file<Io> opened = open_regular(io_, path_.c_str(), true, set_.mode);
    facts_ = opened.facts;
    if (!opened.error && !set_.any_filesystem && !io_.is_reliable(opened.file.get())) {
        return durable_errc::unsupported_filesystem;
    }
    file_ = std::move(opened.file);
    return opened.error;
}

// A blocking flock() has no deadline, so this polls. A sync takes about a hundred microseconds: the
// pauses begin below that and grow, so that a crowd of waiters leaves the processors to the holder.
// The pauses are random, so that waiters do not poll at the same moments.
//
// A process that releases the lock and takes it again at once leaves it free for too short a time
// for polling waiters. So one process that has waited long takes a second lock, the claim, and
// polls often. If a process arrives and sees the claim, it pauses once and so lets the claimant go
// first. It does not wait for the claim to end, because the claimant may be stopped. With the
// option any_filesystem, the claim is not used: on some filesystems both locks would be the same.
template <class Io>
std::error_code lock_file<Io>::wait(bool exclusive, std::int64_t begin) noexcept {
    std::error_code error;
    std::int64_t rest = first_rest_ns;
    bool is_next = false;
    if (!set_.any_filesystem && io_.is_claimed(file_.get())) {
        io_.sleep(std::min(polite_rest_ns, set_.retry_time_ns));
    }
    while (io_.try_lock(file_.get(), exclusive) != 0) {
        if (errno != EWOULDBLOCK) {
            error = system_error_code();
            break;
        }
        const std::int64_t waited = io_.steady_ns() - begin;
        if (waited >= set_.retry_time_ns) {
            error = std::make_error_code(std::errc::timed_out);
            break;
        }
        is_next = is_next ||
                  (waited >= long_wait_ns && !set_.any_filesystem && io_.try_claim(file_.get()));
        rest = is_next ? first_rest_ns : std::min(rest + rest / 2, longest_rest_ns);
        io_.sleep(std::min(rest / 2 + random_.below(rest), set_.retry_time_ns - waited));
    }
    if (is_next) {
        io_.unclaim(file_.get());
    }
    return error;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
