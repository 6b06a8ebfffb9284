#ifndef BIDE_TESTS_SUPPORT_TEMP_DIRECTORY_HPP
#define BIDE_TESTS_SUPPORT_TEMP_DIRECTORY_HPP

#include <support/standard.hpp>

#include <sys/stat.h>
#include <unistd.h>

namespace test {

// A new directory that every user may enter. The process that made it removes it.
class temp_directory {
public:
    explicit temp_directory(const std::string& name, const std::string& under = "/tmp") {
        std::string pattern = under + "/bide-test-" + name + "-XXXXXX";
        if (::mkdtemp(pattern.data()) == nullptr || ::chmod(pattern.c_str(), 0755) != 0) {
            std::perror("mkdtemp");
            std::abort();
        }
        path_ = std::move(pattern);
    }
    temp_directory(const temp_directory&) = delete;
    temp_directory& operator=(const temp_directory&) = delete;
    ~temp_directory() {
        if (::getpid() == owner_) {
            std::error_code ignored;
            std::filesystem::remove_all(path_, ignored);
        }
    }

    const std::string& path() const noexcept { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

    // Makes a file in the directory with this content.
    std::string write(const std::string& name, const std::string& content) const {
        const std::string file = *this / name;
        std::ofstream(file) << content;
        return file;
    }

private:
    pid_t owner_ = ::getpid();
    std::string path_;
};

inline std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace test

#endif
