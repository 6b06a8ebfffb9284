// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PATH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PATH_HPP

// Checks a path before SQLite opens it. SQLite would read a file that is not regular, and block
// there. SQLite finds the journal, the log and the shared memory of a database by the path. If
// processes reach one file by two paths (two directories or two names), each path has its own log.
// Then each process reads and writes a different database, without an error.
//
// No function here opens the file: to close a descriptor of the file would drop this process's
// SQLite locks on it.

#include <bide/core/config.hpp>

#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#if defined(__unix__) || defined(__APPLE__)
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns the absolute path, resolved against the current working directory. An absolute path
// cannot be taken for a URI or for a database in memory.
// Throws: std::bad_alloc.
inline std::string sqlite_absolute(std::string path) {
#if defined(__unix__) || defined(__APPLE__)
    if (path.empty() || path.front() == '/') {
        return path;
    }
    std::string here(256, '\0');
    while (::getcwd(here.data(), here.size()) == nullptr) {
        if (errno != ERANGE) {
            return "./" + path; // the working directory is gone, and its files are too
        }
        here.resize(2 * here.size());
    }
    here.resize(here.find('\0'));
    return here + '/' + path;
#else
    return path;
#endif
}

// Returns the path beside which SQLite makes its files: the target of a symbolic link.
// Throws: std::bad_alloc.
inline std::string sqlite_resolved(const std::string& path) {
#if defined(__unix__) || defined(__APPLE__)
    struct ::stat facts{};
    if (::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode)) {
        char* const real = ::realpath(path.c_str(), nullptr);
        const std::string resolved = real == nullptr ? path : real;
        std::free(real);
        return resolved;
    }
#endif
    return path;
}

// Returns the text in one line: control characters become '?'.
// Throws: std::bad_alloc.
inline std::string printable(std::string_view text) {
    std::string line(text);
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            c = '?';
        }
    }
    return line;
}

// A missing file is accepted.
// Returns: EISDIR for a directory, EINVAL for another kind of file that is not regular, EMLINK for
// a file with a second name, EXDEV for a file that is mounted without its directory; otherwise the
// system's error for the path.
inline std::error_code check_sqlite_path(const char* path) noexcept {
#if defined(__unix__) || defined(__APPLE__)
    const auto is = [](int error) { return std::error_code(error, std::generic_category()); };
    struct ::stat facts{};
    if (::stat(path, &facts) != 0) {
        return errno == ENOENT || errno == EINTR ? std::error_code() : is(errno);
    }
    if (!S_ISREG(facts.st_mode)) {
        return is(S_ISDIR(facts.st_mode) ? EISDIR : EINVAL);
    }
    if (facts.st_nlink > 1) {
        return is(EMLINK);
    }
#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)
    struct ::statx more{};
    if (::statx(AT_FDCWD, path, 0, STATX_TYPE, &more) == 0 &&
        (more.stx_attributes & more.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
        return is(EXDEV);
    }
#endif
#else
    static_cast<void>(path);
#endif
    return {};
}

// The text for an error of check_sqlite_path(), or null.
inline const char* sqlite_path_error_text(std::error_code error) noexcept {
    if (error == std::errc::too_many_links) {
        return "the file has a second name (a hard link); the two names would have two journals";
    }
    if (error == std::errc::cross_device_link) {
        return "the file is mounted without its directory: mount the directory";
    }
    if (error == std::errc::is_a_directory) {
        return "this is a directory";
    }
    return error == std::errc::invalid_argument ? "this is not a regular file" : nullptr;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
