#ifndef BIDE_DURABLE_SLOTS_DETAIL_LOCK_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_LOCK_FILE_HPP

// The file beside a file slot's. Who writes the slot holds an exclusive flock(2) on it; who reads
// holds a shared one, unless it can do without. It stays when the slot's file is replaced, and
// nothing ever removes it. The kernel lets go of a lock whose holder died; one whose holder is
// stopped is waited for with patience.
//
// In it is a mark: the version, eight bytes, that was last known to be on the disk. A writer leaves
// it after its sync, so whoever reads another version than the mark's knows that the writer came to
// an end in between, or that there was a mark that nobody could write, and syncs first. The mark is
// not synced itself: when it is lost, one sync more is all that happens. Writing it is also what
// wakes those who watch. A mark that is later than every version that can be read says that a value
// was acknowledged and is lost: no crash leaves that, as the mark is written last.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/page_format.hpp>
#include <bide/durable/slots/detail/posix_file.hpp>

#if defined(__unix__) || defined(__APPLE__)

#include <algorithm>
#include <string>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Io> class lock_file {
public:
    lock_file(std::string path, unsigned mode, bool any_filesystem, std::int64_t patience_ns, Io io)
        : io_(io), path_(std::move(path)), mode_(mode), any_filesystem_(any_filesystem),
          patience_ns_(patience_ns), file_(io) {}

    lock_file(lock_file&&) noexcept = default;
    lock_file& operator=(lock_file&&) noexcept = default;
    ~lock_file() { release_if_not_ours(); }

    // Blocks: until the lock is held, as long as the patience lasts.
    std::error_code enter(bool exclusive) noexcept;
    void leave() noexcept {
        if (file_) {
            io_.unlock(file_.get());
        }
    }

    bool is_open() const noexcept { return static_cast<bool>(file_); }
    void release_if_not_ours() noexcept { file_.release_unless(facts_); }

    // What another process shares is closed, and stays locked.
    void abandon() noexcept { file_.reset(); }

    const std::string& path() const noexcept { return path_; }
    const struct stat& facts() const noexcept { return facts_; }

    // 0: none. Without the lock it may be one that never was.
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
    static constexpr std::int64_t polite_rest_ns = 100'000; // he looks twice in that

    std::error_code open() noexcept;
    std::error_code wait(bool exclusive, std::int64_t begin) noexcept;
    std::int64_t jitter(std::int64_t below) noexcept;

    [[no_unique_address]] Io io_;
    std::string path_;
    unsigned mode_;
    bool any_filesystem_;
    std::int64_t patience_ns_;
    file_descriptor<Io> file_;
    struct stat facts_ {};
    std::uint64_t chance_ = 0;
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
        // Somebody may have removed it all the same, and others lock another one by now.
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
        if (io_.steady_ns() - begin > patience_ns_) {
            return std::make_error_code(std::errc::timed_out);
        }
    }
}

// Makes it where there is none. One that may not be written will do for readers, without a mark.
template <class Io> std::error_code lock_file<Io>::open() noexcept {
    constexpr int how = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    if (io_.look_at(path_.c_str(), facts_) == 0 && !S_ISREG(facts_.st_mode)) {
        return check_kind(facts_); // a socket cannot be opened, and a device may do something
    }
    int fd = io_.open_file(path_.c_str(), how | O_RDWR);
    if (fd < 0 && errno == ENOENT) {
        fd = io_.open_file(path_.c_str(), how | O_RDWR | O_CREAT, mode_);
    }
    if (fd < 0 && (errno == EACCES || errno == EROFS)) {
        const int why = errno;
        fd = io_.open_file(path_.c_str(), how | O_RDONLY);
        if (fd < 0 && errno == ENOENT) {
            errno = why;
        }
    }
    file_descriptor<Io> opened(io_, fd);
    if (!opened || io_.look_at(fd, facts_) != 0) {
        return system_error_code();
    }
    if (!S_ISREG(facts_.st_mode)) {
        return check_kind(facts_);
    }
    if (!any_filesystem_ && !io_.is_reliable(fd)) {
        return durable_errc::unsupported_filesystem;
    }
    file_ = std::move(opened);
    return {};
}

// The kernel's own queue would be waited in for ever. A sync takes a hundred microseconds or so:
// rests begin below that and grow, so that a crowd leaves the processors to who has the lock. They
// differ, so that those who wait do not come in step.
//
// Who comes back at once to the lock that he has just left hardly ever leaves it long enough for
// them. So one of those who have waited long holds a claim: he looks often, and who comes sees the
// claim and lets him go first, for a moment; he may have been stopped. On a filesystem of any kind
// the claim may be the same as the lock, and is not used.
template <class Io>
std::error_code lock_file<Io>::wait(bool exclusive, std::int64_t begin) noexcept {
    std::error_code error;
    std::int64_t rest = first_rest_ns;
    bool is_next = false;
    if (!any_filesystem_ && io_.is_claimed(file_.get())) {
        io_.sleep(std::min(polite_rest_ns, patience_ns_));
    }
    while (io_.try_lock(file_.get(), exclusive) != 0) {
        if (errno != EWOULDBLOCK) {
            error = system_error_code();
            break;
        }
        const std::int64_t waited = io_.steady_ns() - begin;
        if (waited >= patience_ns_) {
            error = std::make_error_code(std::errc::timed_out);
            break;
        }
        is_next =
            is_next || (waited >= long_wait_ns && !any_filesystem_ && io_.try_claim(file_.get()));
        rest = is_next ? first_rest_ns : std::min(rest + rest / 2, longest_rest_ns);
        io_.sleep(std::min(rest / 2 + jitter(rest), patience_ns_ - waited));
    }
    if (is_next) {
        io_.unclaim(file_.get());
    }
    return error;
}

// By xorshift: Marsaglia, "Xorshift RNGs" (2003).
template <class Io> std::int64_t lock_file<Io>::jitter(std::int64_t below) noexcept {
    if (chance_ == 0) {
        chance_ = (static_cast<std::uint64_t>(io_.process()) << 32) ^ io_.clock_ns() ^ 1;
    }
    chance_ ^= chance_ << 13;
    chance_ ^= chance_ >> 7;
    chance_ ^= chance_ << 17;
    return static_cast<std::int64_t>(chance_ % static_cast<std::uint64_t>(below));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
