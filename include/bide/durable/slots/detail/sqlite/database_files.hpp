// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_DATABASE_FILES_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_DATABASE_FILES_HPP

// What an SQLite slot checks before SQLite opens a database, and the file that it keeps beside one.

#include <bide/core/config.hpp>
#include <bide/durable/slot_types.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sqlite3.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- versions and names

constexpr bool sqlite_wal_is_safe(int version) noexcept {
    return version >= 3'051'003 || (version >= 3'050'007 && version < 3'051'000) ||
           (version >= 3'044'006 && version < 3'045'000);
}

// Returns true if the name consists of ASCII letters, digits and _, and is not reserved by SQLite.
// Such a name needs no escapes between quotes.
// Throws: std::bad_alloc.
inline bool is_sqlite_name(const std::string& name) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto is_good = [&](char c) {
        return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    return !name.empty() && name.size() <= 64 && !is_digit(name[0]) &&
           std::all_of(name.begin(), name.end(), is_good) &&
           ::sqlite3_strnicmp(name.c_str(), "sqlite_", 7) != 0;
}

// Returns true if the text is well-formed UTF-8 without zero bytes: the same in every encoding of
// SQLite.
inline bool is_sqlite_text(std::string_view text) noexcept {
    while (!text.empty() && text[0] != '\0' && utf8_length(text) != 0) {
        text.remove_prefix(utf8_length(text));
    }
    return text.empty();
}

// ---- the path
//
// SQLite would read a file that is not regular, and block there. SQLite finds the journal, the log
// and the shared memory of a database by the path. If processes reach one file by two paths (two
// directories or two names), each path has its own log. Then each process reads and writes a
// different database, without an error.
//
// No function here opens the database: to close a descriptor of it would drop this process's SQLite
// locks on it.

// Returns the path beside which SQLite makes its files: symbolic links are resolved.
// Throws: std::bad_alloc.
inline std::string sqlite_resolved(const std::string& path) {
    char* const real = ::realpath(path.c_str(), nullptr);
    std::string resolved = real == nullptr ? path : real;
    std::free(real);
    return resolved;
}

// Accepts a missing file.
// Returns: EISDIR for a directory, EINVAL for another kind of file that is not regular, EMLINK for
// a file with a second name, EXDEV for a file that is mounted without its directory; otherwise the
// system's error for the path.
inline std::error_code check_sqlite_path(const char* path) noexcept {
    struct ::stat facts{};
    if (::stat(path, &facts) != 0) {
        return errno == ENOENT || errno == EINTR ? std::error_code() : system_error_code();
    }
    const std::error_code wrong = check_kind(facts);
#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)
    struct ::statx more{};
    if (!wrong && ::statx(AT_FDCWD, path, 0, STATX_TYPE, &more) == 0 &&
        (more.stx_attributes & more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
        return system_error_code(EXDEV);
    }
#endif
    return wrong;
}

// Returns the text for an error of check_sqlite_path().
inline std::string sqlite_path_error_text(std::error_code error) {
    switch (error.value()) {
    case EMLINK:
        return "the file has a second name (a hard link); the two names would have two journals";
    case EXDEV: return "the file is mounted without its directory: mount the directory";
    case EISDIR: return "this is a directory";
    case EINVAL: return "this is not a regular file";
    default: return error.message();
    }
}

// ---- the file of acknowledged versions
//
// The file `<database>-bide` beside the database detects that the database lost an acknowledged
// version of a slot's row. SQLite uses other names there (-journal, -wal, -shm and -mj...), and does
// not copy this file with a database.
//
// The file has an entry for each row: the last version that a slot acknowledged, and a checksum of
// its value. A slot writes the entry after the commit, and reads it before it reads the row. If a
// row is older than its entry, newer values of the row are lost. There are three causes: SQLite
// found a wrong checksum in a log and dropped the rest of the log, which it does without an error;
// the row was deleted; an older or empty file replaced the database. If a row has the version of its
// entry and another checksum, the disk damaged it: SQLite's pages have no checksums. The file is not
// synced; if an entry is lost or late, fewer losses are detected.
//
// The file is a table of 1,024 buckets of 128 bytes each, found by a hash of table and key. A bucket
// has four entries of 32 bytes. Numbers are little-endian.
//
//   bytes  0..7   the hash
//          8..15  the version
//         16..19  CRC-32C of the value
//         20..23  zeros
//         24..27  CRC-32C of bytes 0..23
//         28..31  zeros
//
// In a full bucket a new entry replaces the one with the earliest version. Two writers may overwrite
// each other's entries in a bucket. A half-written entry has a wrong checksum.
//
// Far behind the table are the bytes that presences lock; see posix_file.hpp.

struct sqlite_known_version {
    slot_version version = 0; // 0: none
    std::uint32_t sum = 0;    // of the value
};

// The entry of one row. If anything fails, there is none.
class sqlite_version_file {
public:
    static constexpr std::size_t entry_size = 32;
    static constexpr std::size_t entries_per_bucket = 4;
    static constexpr std::size_t bucket_size = entry_size * entries_per_bucket;
    static constexpr std::uint64_t buckets = 1'024;

    sqlite_version_file(std::string_view table, std::string_view key) noexcept
        : hash_(hash_of(table, key)) {}

    // Throws: std::bad_alloc.
    static std::string path_beside(const std::string& database) { return database + "-bide"; }

    // Opens the file of the database that the path names now. Makes a missing file with the
    // database's owner and mode.
    // Throws: std::bad_alloc.
    void open(const std::string& database) {
        posix_io io;
        struct ::stat facts{};
        const bool has_facts = io.look_at(database.c_str(), facts) == 0;
        const mode_t mode = facts.st_mode & 0666;
        if (file_.open(path_beside(database).c_str(), false, has_facts ? O_CREAT : 0, mode) ||
            !io.is_reliable(file_.get())) {
            file_.reset();
        } else if (has_facts && file_.facts.st_size == 0) { // it is new: the umask does not count
            ::fchmod(file_.get(), mode);
            if (::geteuid() == 0) { // SQLite does the same for the files that it makes
                static_cast<void>(!::fchown(file_.get(), facts.st_uid, facts.st_gid));
            }
        }
    }

    sqlite_known_version get() noexcept {
        sqlite_known_version found;
        char bytes[bucket_size] = {};
        place_ = 0;
        if (!file_ || posix_io().read_at(file_.get(), bytes, bucket_size, bucket()) < 0) {
            return found;
        }
        slot_version earliest = ~slot_version(0);
        for (std::size_t i = 0; i < entries_per_bucket; ++i) {
            const char* const at = bytes + i * entry_size;
            const bool is_good = load_little<std::uint32_t>(at + 24) == crc32c({at, 24});
            const slot_version version = is_good ? load_little<std::uint64_t>(at + 8) : 0;
            const bool is_mine = is_good && load_little<std::uint64_t>(at) == hash_;
            if (is_mine && version >= found.version && version < std::uint64_t{1} << 62) {
                found = {version, load_little<std::uint32_t>(at + 16)};
            }
            if (is_mine || (version < earliest && earliest != 0)) {
                place_ = i;
                earliest = is_mine ? 0 : version;
            }
        }
        return found;
    }

    // Requires a get() before.
    void set(sqlite_known_version known) noexcept {
        if (!file_) {
            return;
        }
        char bytes[entry_size] = {};
        store_little(bytes, hash_);
        store_little(bytes + 8, std::uint64_t{known.version});
        store_little(bytes + 16, known.sum);
        store_little(bytes + 24, crc32c({bytes, 24}));
        posix_io().write_at(file_.get(), bytes, entry_size, bucket() + place_ * entry_size);
    }

private:
    // FNV-1a (Fowler, Noll, Vo), mixed. SQLite's table names are not case-sensitive.
    static std::uint64_t hash_of(std::string_view table, std::string_view key) noexcept {
        std::uint64_t hash = 0xcbf29ce484222325;
        const auto add = [&hash](char c) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        };
        for (const char c : table) {
            add(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
        }
        add('\0');
        for (const char c : key) {
            add(c);
        }
        return std::max<std::uint64_t>(mixed_bits(hash), 1);
    }

    std::uint64_t bucket() const noexcept { return hash_ % buckets * bucket_size; }

    const std::uint64_t hash_;
    std::size_t place_ = 0;
    file_descriptor<posix_io> file_{posix_io()};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
