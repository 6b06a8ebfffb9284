// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_VERSION_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_VERSION_FILE_HPP

// Detects that a database lost an acknowledged version of a slot's row, by the file
// `<database>-bide` beside the database. SQLite uses other names there (-journal, -wal, -shm
// and -mj...), and does not copy this file with a database.
//
// The file has an entry for each row: the last version that a slot acknowledged, and a checksum of
// its value. A slot writes the entry after the commit, and reads it before it reads the row. If a
// row is older than its entry, newer values of the row are lost. There are three causes: SQLite
// found a wrong checksum in a log and dropped the rest of the log, which it does without an error;
// the row was deleted; an older copy replaced the database. If a row has the version of its entry
// and another checksum, the disk damaged it: SQLite's pages have no checksums. The file is not
// synced; if an entry is lost or late, fewer losses are detected.
//
// The file is a table of 1,024 buckets of 128 bytes each, found by a hash of table and key. A
// bucket has four entries of 32 bytes. Numbers are little-endian.
//
//   bytes  0..7   the hash
//          8..15  the version
//         16..19  CRC-32C of the value
//         20..23  zeros
//         24..27  CRC-32C of bytes 0..23
//         28..31  zeros
//
// In a full bucket a new entry replaces the one with the earliest version. Two writers may
// overwrite each other's entries in a bucket. A half-written entry has a wrong checksum.
//
// Far behind the table are the bytes that presences lock; see presence_file.hpp.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/sqlite/statement.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct sqlite_known_version {
    slot_version version = 0; // 0: none
    std::uint32_t sum = 0;    // of the value
};

// FNV-1a (Fowler, Noll, Vo), mixed. Returns no zero.
constexpr std::uint64_t sqlite_entry_hash(std::string_view table, std::string_view key) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&hash](char c) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    };
    for (const char c : table) { // SQLite's table names are not case-sensitive
        add(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
    add('\0');
    for (const char c : key) {
        add(c);
    }
    hash = mixed_bits(hash);
    return hash != 0 ? hash : 1;
}

// The entry of one row. If anything fails, there is none.
class sqlite_version_file {
public:
    static constexpr std::size_t entry_size = 32;
    static constexpr std::size_t entries_per_bucket = 4;
    static constexpr std::size_t bucket_size = entry_size * entries_per_bucket;
    static constexpr std::uint64_t buckets = 1'024;

    sqlite_version_file(std::string_view table, std::string_view key) noexcept
        : hash_(sqlite_entry_hash(table, key)) {}

    // Throws: std::bad_alloc.
    static std::string path_beside(const std::string& database) { return database + "-bide"; }

    bool is_open() const noexcept { return static_cast<bool>(file_); }

    // Opens the file of the database that the path names now. Makes a missing file with the
    // database's owner and mode.
    // Throws: std::bad_alloc.
    void open(const std::string& database) {
        posix_io io;
        const std::string path = path_beside(database);
        constexpr int how = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        file_.reset();
        struct ::stat facts;
        file_descriptor<posix_io> opened(io, io.open_file(path.c_str(), how));
        if (!opened && errno == ENOENT && io.look_at(database.c_str(), facts) == 0) {
            opened.reset(io.open_file(path.c_str(), how | O_CREAT | O_EXCL, facts.st_mode & 0666));
            if (!opened && errno == EEXIST) {
                opened.reset(io.open_file(path.c_str(), how));
            } else if (opened) {
                ::fchmod(opened.get(), facts.st_mode & 0666);
                if (::geteuid() == 0) { // SQLite does the same for the files that it makes
                    [[maybe_unused]] const int owned =
                        ::fchown(opened.get(), facts.st_uid, facts.st_gid);
                }
            }
        }
        if (opened && io.look_at(opened.get(), facts) == 0 && S_ISREG(facts.st_mode) &&
            facts.st_nlink == 1 && io.is_reliable(opened.get())) {
            file_ = std::move(opened);
        }
    }

    sqlite_known_version get() noexcept {
        sqlite_known_version found;
        place_ = 0;
        char bytes[bucket_size] = {};
        if (!file_ || posix_io().read_at(file_.get(), bytes, bucket_size, bucket()) < 0) {
            return found;
        }
        slot_version earliest = ~slot_version(0);
        for (std::size_t i = 0; i < entries_per_bucket; ++i) {
            const char* const at = bytes + i * entry_size;
            const bool is_good = load_little<std::uint32_t>(at + 24) == crc32c({at, 24});
            const slot_version version = is_good ? load_little<std::uint64_t>(at + 8) : 0;
            const bool is_mine = is_good && load_little<std::uint64_t>(at) == hash_;
            if (is_mine && version >= found.version && version < most) {
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
    static constexpr slot_version most = slot_version{1} << 62; // the year 2116

    std::uint64_t bucket() const noexcept { return hash_ % buckets * bucket_size; }

    std::uint64_t hash_;
    std::size_t place_ = 0;
    file_descriptor<posix_io> file_{posix_io()};
};

// Compares the row with the last acknowledged version.
class sqlite_loss_detector {
public:
    // A detector that is not enabled finds nothing; for slots that may lose acknowledged versions.
    sqlite_loss_detector(std::string_view table, std::string_view key, bool enabled) noexcept
        : enabled_(enabled), file_(table, key) {}

    // Opens the file. Throws: std::bad_alloc.
    void open(const std::string& database) {
        if (enabled_) {
            file_.open(database);
        }
    }
    bool is_open() const noexcept { return file_.is_open(); }

    // Call it before the row is read or changed. Then a row with an earlier version has fallen
    // back.
    void load_known() noexcept { known_ = file_.get(); }
    slot_version known() const noexcept { return known_.version; }

    // Compares the row with the known version. Sets row.defect if the row is damaged.
    // Throws: std::bad_alloc.
    void check(sqlite_row& row) const {
        slot_snapshot& there = row.there;
        if (known_.version > there.version) {
            there.lost_acknowledged = true;
            there.fell_back = there.version != 0; // a missing row may have been deleted
        } else if (known_.version != 0 && known_.version == there.version &&
                   known_.sum != crc32c(there.value)) {
            row.defect = "the value is not the one that was stored as version " +
                         std::to_string(there.version);
        }
    }

    // Call it after the commit, and after load_known() in the same operation.
    void acknowledge(slot_version version, std::string_view value) noexcept {
        if (file_.is_open()) {
            file_.set({version, crc32c(value)});
        }
    }

private:
    bool enabled_;
    sqlite_version_file file_;
    sqlite_known_version known_{};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
