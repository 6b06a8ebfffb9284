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

namespace bide { inline namespace BIDE_ABI { namespace detail {

enum class file_part { lock, data, fresh, directory };

struct file_failure {
    std::error_code error{};
    file_part part = file_part::data;

    // Returns one line of text. `path` is the slot's. Looks at the file, which may have been
    // replaced since.
    // Throws: std::bad_alloc.
    std::string explain(const std::string& path) const {
        std::string file = path;
        if (!error) {
            return file;
        }
        if (part == file_part::directory || error == std::errc::no_such_file_or_directory) {
            file.erase(file.rfind('/') + 1);
        } else if (part != file_part::data) {
            file += part == file_part::lock ? ".lock" : ".new";
        }
        return file + ": " + reason(file);
    }

private:
    std::string reason(const std::string& file) const;
};

inline std::string file_failure::reason(const std::string& file) const {
    if (error == durable_errc::corrupt_record) {
        return "is not a slot's file, or both copies of the record in it are damaged; a repair "
               "keeps it as .damaged and makes a new one";
    }
    if (error == durable_errc::unsupported_record_version) {
        return "was written by a later version of this library, in a format that this one cannot "
               "read";
    }
    if (error == durable_errc::unsupported_filesystem) {
        return "is on a network filesystem or on FUSE, where file locks and syncs may not work; "
               "use a local disk";
    }
    if (error == durable_errc::too_large) {
        return "the record is larger than the slot's max_value";
    }
    if (error == durable_errc::invalid_argument) {
        return "the path cannot name a file";
    }
    const std::string words = error.message();
    switch (error.category() == std::generic_category() ? error.value() : 0) {
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
    case EINVAL: {
        struct stat facts{};
        posix_io().look_at(file.c_str(), facts);
        const char* const kind = S_ISFIFO(facts.st_mode)   ? "a pipe (FIFO)"
                                 : S_ISSOCK(facts.st_mode) ? "a socket"
                                 : S_ISCHR(facts.st_mode) || S_ISBLK(facts.st_mode) ? "a device"
                                                                                    : nullptr;
        return kind == nullptr ? words
                               : std::string("is ") + kind + ", and has to be a regular file";
    }
    case ENOENT: return "there is no such directory";
    case ENOTDIR: return "a part of the path is not a directory";
    case EACCES:
    case EPERM:
        return "no permission to open or make it (" + words +
               "); a process that shares the lock needs to read and write both of its files";
    case EROFS: return "is on a read-only filesystem";
    case ENOSPC:
    case EDQUOT: return words + ": the file cannot be made, or cannot grow";
    case ETIMEDOUT:
        return "another process has held its lock for longer than the slot waits; that process may "
               "be stopped";
    default: return words;
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
