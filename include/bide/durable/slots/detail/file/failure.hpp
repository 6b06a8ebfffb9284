// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_FAILURE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_FAILURE_HPP

// The report of a file slot about a failed operation: the file that it concerns, what is wrong with
// the file, and what an operator can do.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <cerrno>
#include <string>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

enum class file_part { lock, data, fresh, directory };

struct file_failure {
    std::error_code error{};
    file_part part = file_part::data;

    // Returns one line of text. `path` is the slot's. Looks at the file, which may have been
    // replaced since.
    // Throws: std::bad_alloc.
    std::string explain(const std::string& path) const;

private:
    std::string of_store() const;
    std::string of_system(const std::string& file) const;
    static const char* kind_of(const std::string& file) noexcept;
};

inline std::string file_failure::explain(const std::string& path) const {
    if (!error) {
        return path;
    }
    std::string file = path;
    switch (part) {
    case file_part::lock: file += ".lock"; break;
    case file_part::data: break;
    case file_part::fresh: file += ".new"; break;
    case file_part::directory: file.erase(file.rfind('/') + 1); break;
    }
    if (error == std::errc::no_such_file_or_directory) {
        file.erase(file.rfind('/') + 1);
    }
    return file + ": " + (error.category() == durable_category() ? of_store() : of_system(file));
}

inline std::string file_failure::of_store() const {
    switch (static_cast<durable_errc>(error.value())) {
    case durable_errc::corrupt_record:
        return "is not a slot's file, or both copies of the record in it are damaged; a repair "
               "keeps "
               "it as .damaged and makes a new one";
    case durable_errc::unsupported_record_version:
        return "was written by a later version of this library, in a format that this one cannot "
               "read";
    case durable_errc::unsupported_filesystem:
        return "is on a network filesystem or on FUSE, where file locks and syncs may not work; "
               "use "
               "a local disk";
    case durable_errc::too_large: return "the record is larger than the slot's max_value";
    case durable_errc::invalid_argument: return "the path cannot name a file";
    default: return error.message();
    }
}

inline std::string file_failure::of_system(const std::string& file) const {
    switch (error.value()) {
    case EMLINK:
        return "has a second name (hard link): two locks would exist for one file; remove the "
               "other name, or copy the file";
    case ELOOP:
        return "is a symbolic link, or its path has too many: the link and the file would have two "
               "locks; name the file itself";
    case EXDEV:
        return "is mounted here from another place, where it has another lock; mount the directory "
               "instead";
    case EISDIR: return "is a directory, and has to be a file";
    case EINVAL:
        if (const char* const kind = kind_of(file)) {
            return std::string("is ") + kind + ", and has to be a regular file";
        }
        return error.message();
    case ENOENT: return "there is no such directory";
    case ENOTDIR: return "a part of the path is not a directory";
    case EACCES:
    case EPERM:
        return "no permission to open or make it (" + error.message() +
               "); a process that shares the lock needs to read and write both of its files";
    case EROFS: return "is on a read-only filesystem";
    case ENOSPC:
    case EDQUOT: return error.message() + ": the file cannot be made, or cannot grow";
    case ETIMEDOUT:
        return "another process has held its lock for longer than the slot waits; that process may "
               "be stopped";
    default: return error.message();
    }
}

inline const char* file_failure::kind_of(const std::string& file) noexcept {
    struct stat facts;
    if (posix_io().look_at(file.c_str(), facts) != 0) {
        return nullptr;
    }
    return S_ISFIFO(facts.st_mode)                            ? "a pipe (FIFO)"
           : S_ISSOCK(facts.st_mode)                          ? "a socket"
           : S_ISCHR(facts.st_mode) || S_ISBLK(facts.st_mode) ? "a device"
                                                              : nullptr;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
