#ifndef BIDE_BENCH_DURABLE_DIRECTORY_HPP
#define BIDE_BENCH_DURABLE_DIRECTORY_HPP

// Where the files of the slots are: in a fresh directory below BIDE_BENCH_DIRECTORY, or else the working
// directory, since /tmp is often memory.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <sys/vfs.h>
#include <unistd.h>

namespace bench {

inline std::string filesystem_of(const std::string& path) {
    struct statfs facts{};
    if (::statfs(path.c_str(), &facts) != 0) {
        return "unknown";
    }
    struct known {
        long type;
        const char* name;
    };
    static constexpr known all[] = {
        {0xef53, "ext4"},     {0x58465342, "xfs"},   {0x9123683e, "btrfs"},
        {0x2fc12fc1, "zfs"},  {0x01021994, "tmpfs"}, {0x794c7630, "overlay"},
        {0xf2f52010, "f2fs"}, {0x858458f6, "ramfs"}, {0x6969, "nfs"},
    };
    for (const known& k : all) {
        if (static_cast<unsigned long>(facts.f_type) == static_cast<unsigned long>(k.type)) {
            return k.name;
        }
    }
    char number[32];
    std::snprintf(number, sizeof number, "type 0x%lx", static_cast<unsigned long>(facts.f_type));
    return number;
}

// Made with the first use, removed by the process that made it.
class work_directory {
public:
    static std::string below() {
        const char* const chosen = std::getenv("BIDE_BENCH_DIRECTORY");
        return chosen == nullptr ? "." : chosen;
    }

    static const std::string& path() {
        work_directory& self = here();
        if (self.path_.empty()) {
            std::string pattern = below() + "/bide-bench-XXXXXX";
            if (::mkdtemp(pattern.data()) == nullptr) {
                throw std::system_error(errno, std::generic_category(), below());
            }
            self.path_ = std::filesystem::absolute(pattern).string();
            self.owner_ = ::getpid();
        }
        return self.path_;
    }

    // A name that was not used before.
    static std::string fresh_name() { return "place" + std::to_string(++here().names_); }

    static void remove_all() {
        work_directory& self = here();
        if (!self.path_.empty() && self.owner_ == ::getpid()) {
            std::error_code ignored;
            std::filesystem::remove_all(self.path_, ignored);
            self.path_.clear();
        }
    }

private:
    static work_directory& here() {
        static work_directory it;
        return it;
    }

    std::string path_;
    pid_t owner_ = 0;
    unsigned names_ = 0;
};

} // namespace bench

#endif
