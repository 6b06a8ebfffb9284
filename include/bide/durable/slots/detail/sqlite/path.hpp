// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PATH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PATH_HPP

// Checks a path before SQLite opens it, and names before they stand in a statement.
//
// SQLite would read a file that is not regular, and block there. SQLite finds the journal, the log
// and the shared memory of a database by the path. If processes reach one file by two paths (two
// directories or two names), each path has its own log. Then each process reads and writes a
// different database, without an error.
//
// No function here opens the file: to close a descriptor of the file would drop this process's
// SQLite locks on it.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns the path beside which SQLite makes its files: symbolic links are resolved.
// Throws: std::bad_alloc.
inline std::string sqlite_resolved(const std::string& path) {
    char* const real = ::realpath(path.c_str(), nullptr);
    std::string resolved = real == nullptr ? path : real;
    std::free(real);
    return resolved;
}

// A missing file is accepted.
// Returns: EISDIR for a directory, EINVAL for another kind of file that is not regular, EMLINK for
// a file with a second name, EXDEV for a file that is mounted without its directory; otherwise the
// system's error for the path.
inline std::error_code check_sqlite_path(const char* path) noexcept {
    struct ::stat facts{};
    if (::stat(path, &facts) != 0) {
        return errno == ENOENT || errno == EINTR ? std::error_code() : system_error_code();
    }
#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)
    struct ::statx more{};
    if (S_ISREG(facts.st_mode) && facts.st_nlink == 1 &&
        ::statx(AT_FDCWD, path, 0, STATX_TYPE, &more) == 0 &&
        (more.stx_attributes & more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
        return system_error_code(EXDEV);
    }
#endif
    return check_kind(facts);
}

// The text for an error of check_sqlite_path().
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

// Returns true if the name consists of letters, digits and _, and is not reserved by SQLite. Such a
// name needs no escapes between quotes.
inline bool is_sqlite_name(std::string_view name) noexcept {
    constexpr std::string_view reserved = "sqlite_";
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto lower = [](char c) {
        return static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    };
    return !name.empty() && name.size() <= 64 && !is_digit(name[0]) &&
           std::all_of(name.begin(), name.end(),
                       [&](char c) {
                           return is_digit(c) || c == '_' || (lower(c) >= 'a' && lower(c) <= 'z');
                       }) &&
           !std::equal(reserved.begin(), reserved.end(), name.begin(),
                       name.begin() +
                           static_cast<std::ptrdiff_t>(std::min(name.size(), reserved.size())),
                       [&](char a, char b) { return a == lower(b); });
}

// True if the text is well-formed UTF-8 without zero bytes: the same in every encoding of SQLite.
inline bool is_sqlite_text(std::string_view text) noexcept {
    while (!text.empty() && text[0] != '\0' && utf8_length(text) != 0) {
        text.remove_prefix(utf8_length(text));
    }
    return text.empty();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
