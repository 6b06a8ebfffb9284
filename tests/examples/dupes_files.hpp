#ifndef BIDE_TESTS_EXAMPLES_DUPES_FILES_HPP
#define BIDE_TESTS_EXAMPLES_DUPES_FILES_HPP

// What dupes knows of files: how one is read, and hashed, and what its name looks like.

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dupes_parts {

using bytes = std::span<const unsigned char>;
using digest = std::array<std::uint64_t, 2>;
constexpr std::size_t block = 64 * 1024; // what is read at once

// MurmurHash3_x64_128 with seed 0 (Austin Appleby, public domain), fed in pieces. Fast and well
// mixed, not cryptographic. (A big-endian machine gets other values, which are as good.)
class murmur128 {
public:
    void update(bytes piece) { // all pieces but the last: a multiple of 16 bytes
        length_ += piece.size();
        for (; piece.size() >= 16; piece = piece.subspan(16)) {
            h1_ = (std::rotl(h1_ ^ low(piece.first(8)), 27) + h2_) * 5 + 0x52dce729;
            h2_ = (std::rotl(h2_ ^ high(piece.subspan(8, 8)), 31) + h1_) * 5 + 0x38495ab5;
        }
        h1_ ^= low(piece.first(std::min<std::size_t>(piece.size(), 8)));
        if (piece.size() > 8)
            h2_ ^= high(piece.subspan(8));
    }
    digest value() const {
        std::uint64_t a = h1_ ^ length_, b = h2_ ^ length_;
        a += b, b += a;
        a = mix(a), b = mix(b);
        a += b, b += a;
        return {a, b};
    }

private:
    static constexpr std::uint64_t c1 = 0x87c37b91114253d5, c2 = 0x4cf5ad432745937f;
    static std::uint64_t low(bytes b) { return std::rotl(word(b) * c1, 31) * c2; }
    static std::uint64_t high(bytes b) { return std::rotl(word(b) * c2, 33) * c1; }
    static std::uint64_t word(bytes b) { // of up to 8 bytes
        std::uint64_t w = 0;
        if (!b.empty())
            std::memcpy(&w, b.data(), b.size());
        return w;
    }
    static std::uint64_t mix(std::uint64_t k) {
        k = (k ^ (k >> 33)) * 0xff51afd7ed558ccd;
        k = (k ^ (k >> 33)) * 0xc4ceb9fe1a85ec53;
        return k ^ (k >> 33);
    }
    std::uint64_t h1_ = 0, h2_ = 0, length_ = 0;
};

inline std::string why() { return std::generic_category().message(errno); }

inline std::string printable(std::string_view name) { // one line, and nothing that a terminal obeys
    std::string out;
    for (const char c : name) {
        const auto octal = [c](int shift) { return static_cast<char>('0' + ((c >> shift) & 7)); };
        if (c == '\\')
            out += "\\\\";
        else if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
            out += {'\\', octal(6), octal(3), octal(0)};
        else
            out += c;
    }
    return out;
}

struct file {
    std::string path; // the name that it was found under first
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    digest hash{};                 // these two are the grouper's
    std::set<std::string> names{}; // hard links are one file; see sieve
};

// An open file, read block by block. Its maker holds a permit of `disk` for it.
class reader {
public:
    explicit reader(const file& f)
        : fd_(::open(f.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK)),
          size_(f.size), buffer_(std::min(block, static_cast<std::size_t>(size_))) {
        struct stat s{};
        if (fd_ < 0 || ::fstat(fd_, &s) != 0)
            trouble_ = why();
        else if (s.st_dev != f.device || s.st_ino != f.inode || s.st_size != f.size)
            trouble_ = "changed since it was found";
    }
    ~reader() {
        if (fd_ >= 0)
            ::close(fd_);
    }
    reader(const reader&) = delete;

    bytes next() { // full blocks, then what remains; empty at the end, and when there is trouble
        const auto want = std::min(block, static_cast<std::size_t>(size_ - at_));
        std::size_t got = 0;
        while (trouble_.empty() && got < want) {
            const ssize_t n = ::pread(fd_, buffer_.data() + got, want - got, at_);
            if (n > 0)
                got += static_cast<std::size_t>(n), at_ += n;
            else if (n == 0)
                trouble_ = "shrank while it was read";
            else if (errno != EINTR)
                trouble_ = why();
        }
        return trouble_.empty() ? bytes(buffer_.data(), got) : bytes();
    }
    const std::string& trouble() const { return trouble_; } // empty: none

private:
    const int fd_;
    const off_t size_;
    off_t at_ = 0;
    std::vector<unsigned char> buffer_;
    std::string trouble_;
};

} // namespace dupes_parts

#endif
