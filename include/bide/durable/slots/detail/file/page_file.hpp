// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_PAGE_FILE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_PAGE_FILE_HPP

// The file of a file slot: its format, and how it is read. It has two pages of the same size, each
//
//   bytes  0.. 7   "bideslot"
//         8..11   the format: 1
//        12..15   the size of a page
//        16..23   the version of the value; 0: the page holds no value yet
//        24..27   the value's length
//        28..31   CRC-32C of bytes 0..27 and of the value
//        32..     the value; the bytes after it have no meaning
//
// Numbers are little-endian on every machine. The size of a page is a multiple of 4096 and half of
// the file's size. So both pages are found, whatever their bytes are.
//
// A page is good if its header is valid and its checksum matches. Otherwise it is bad: a write of
// it was interrupted, or the disk damaged it. These two cases look the same. Of two good pages, the
// one with the higher version counts.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4). `before` is the result for the bytes before these.
constexpr std::uint32_t crc32c_by_table(std::string_view bytes, std::uint32_t before = 0) noexcept {
    constexpr auto of_byte = [] {
        std::array<std::uint32_t, 256> table{};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t crc = byte;
            for (int bit = 0; bit < 8; ++bit) {
                crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
            }
            table[byte] = crc;
        }
        return table;
    }();
    std::uint32_t crc = ~before;
    for (const char c : bytes) {
        crc = (crc >> 8) ^ of_byte[(crc ^ static_cast<unsigned char>(c)) & 0xff];
    }
    return ~crc;
}

static_assert(crc32c_by_table("123456789") == 0xe3069283u);

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) inline std::uint32_t
crc32c_by_instruction(std::string_view bytes, std::uint32_t before) noexcept {
    std::uint64_t sum = ~before;
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
        std::uint64_t eight;
        std::memcpy(&eight, bytes.data(), 8);
        sum = __builtin_ia32_crc32di(sum, eight);
    }
    auto crc = static_cast<std::uint32_t>(sum);
    for (const char c : bytes) {
        crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(c));
    }
    return ~crc;
}
#endif

// A load of 3 kB takes 5 us with the instruction, and 20 us without.
inline std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0) noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2") != 0) {
        return crc32c_by_instruction(bytes, before);
    }
#endif
    return crc32c_by_table(bytes, before);
}

struct file_page {
    static constexpr std::size_t header_size = 32;
    static constexpr std::size_t summed_size = 28; // of the header
    static constexpr std::size_t granule = 4096;
    static constexpr char magic[] = {'b', 'i', 'd', 'e', 's', 'l', 'o', 't'};
    static constexpr std::uint32_t known_format = 1;

    // As read; if the page is not good, the values may be invalid.
    bool is_good = false;
    std::uint32_t format = 0; // 0: not a page of a slot
    std::uint32_t page_size = 0;
    std::uint64_t version = 0;
    std::uint32_t length = 0;
    std::uint32_t sum = 0;

    bool operator==(const file_page&) const = default;

    // Checks the header alone. A page is good if its checksum matches as well.
    bool is_plausible(std::uint64_t page) const noexcept {
        return format == known_format && page_size == page && length <= page - header_size;
    }
};

template <class T> T load_little(const char* from) noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(from[i])) << (8 * i));
    }
    return value;
}

template <class T> void store_little(char* to, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        to[i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
    }
}

// Reads the 32 bytes of a header.
inline file_page decode_header(const char* bytes) noexcept {
    file_page page;
    if (std::memcmp(bytes, file_page::magic, sizeof file_page::magic) == 0) {
        page.format = load_little<std::uint32_t>(bytes + 8);
        page.page_size = load_little<std::uint32_t>(bytes + 12);
        page.version = load_little<std::uint64_t>(bytes + 16);
        page.length = load_little<std::uint32_t>(bytes + 24);
        page.sum = load_little<std::uint32_t>(bytes + 28);
    }
    return page;
}

// Checks the checksum of header and value.
inline bool checksum_matches(const char* bytes, const file_page& page) noexcept {
    const std::uint32_t header = crc32c({bytes, file_page::summed_size});
    return crc32c({bytes + file_page::header_size, page.length}, header) == page.sum;
}

// Writes the header in front of the value, which is in place already.
inline void encode_header(char* bytes, std::uint32_t page_size, std::uint64_t version,
                          std::uint32_t length) noexcept {
    std::memcpy(bytes, file_page::magic, sizeof file_page::magic);
    store_little(bytes + 8, file_page::known_format);
    store_little(bytes + 12, page_size);
    store_little(bytes + 16, version);
    store_little(bytes + 24, length);
    const std::uint32_t header = crc32c({bytes, file_page::summed_size});
    store_little(bytes + 28, crc32c({bytes + file_page::header_size, length}, header));
}

// next() returns a version that was never used. It is later than the current version and than each
// version that this slot has seen. If the clock is right, it is also later than each version from
// before the file was deleted or restored from a copy. If the value may have fallen back to an
// older one (`fell_back`), the version of the lost value is unknown. Then next() skips 2^20
// versions, and skips past the version that the bad page claims to have (`claimed`).
struct file_versions {
    static constexpr std::uint64_t jump = std::uint64_t{1} << 20;
    static constexpr std::uint64_t most_believed = std::uint64_t{1} << 62;

    static std::uint64_t next(std::uint64_t last, bool fell_back, std::uint64_t claimed,
                              std::uint64_t seen, std::uint64_t clock_ns) noexcept {
        const std::uint64_t after_bad = fell_back && claimed < most_believed ? claimed + jump : 0;
        return std::max({last + (fell_back ? jump : 1), after_bad, seen + 1, clock_ns});
    }
};

// What was read from the file.
class file_pages {
public:
    bool is_absent = true;       // there is no file
    std::uint32_t page_size = 0; // 0: unknown
    std::array<file_page, 2> headers{};
    unsigned index = 0; // the page that counts; the next change overwrites the other one

    const file_page& page() const noexcept { return headers[index]; }
    const file_page& other() const noexcept { return headers[1 - index]; }
    // Of the page that counts.
    std::uint64_t version() const noexcept { return is_absent ? 0 : page().version; }
    std::string_view value() const noexcept {
        return std::string_view(bytes_[index]).substr(file_page::header_size, page().length);
    }
    bool fell_back() const noexcept { return !is_absent && page().is_good && !other().is_good; }
    // The version that the other page claims, which may be wrong.
    std::uint64_t claimed() const noexcept { return is_absent ? 0 : other().version; }
    // The latest version that either page of a corrupt file claims, which may be wrong.
    std::uint64_t claimed_by_any() const noexcept {
        const auto believed = [](const file_page& of) {
            return of.version < file_versions::most_believed ? of.version : 0;
        };
        return std::max(believed(headers[0]), believed(headers[1]));
    }
    std::uint64_t offset_of_other() const noexcept { return std::uint64_t{1 - index} * page_size; }

    // Forgets what was read.
    void clear(bool absent) noexcept {
        is_absent = absent;
        page_size = index = 0;
        headers = {};
    }

    // Reads both pages. Fails if neither holds a value, or if the system fails.
    // Throws: std::bad_alloc.
    template <class Io> std::error_code read(Io& io, const file_descriptor<Io>& from) {
        clear(false);
        const auto size = static_cast<std::uint64_t>(from.facts.st_size);
        if (size == 0 || size % (2 * file_page::granule) != 0 || size / 2 > UINT32_MAX) {
            return durable_errc::corrupt_record;
        }
        page_size = static_cast<std::uint32_t>(size / 2);
        if (!read_page(io, from.get(), 0) || !read_page(io, from.get(), 1)) {
            return system_error_code();
        }
        index = headers[1].is_good && (!headers[0].is_good || other().version > page().version);
        const bool has_two_values = page().is_good && other().is_good &&
                                    page().version == other().version && page().sum != other().sum;
        if (page().is_good && page().version != 0 && !has_two_values) {
            return {};
        }
        return std::max(headers[0].format, headers[1].format) > file_page::known_format
                   ? durable_errc::unsupported_record_version
                   : durable_errc::corrupt_record;
    }

private:
    // Sets errno if it fails.
    template <class Io> bool read_page(Io& io, int fd, unsigned which) {
        std::string& bytes = bytes_[which];
        file_page& to = headers[which];
        std::size_t size = file_page::granule;
        for (std::size_t done = 0; done < size;) {
            bytes.resize(std::max(bytes.size(), size));
            const ssize_t got = io.read_at(fd, bytes.data() + done, size - done,
                                           std::uint64_t{which} * page_size + done);
            if (got < 0) {
                return false;
            }
            if (got == 0) { // bytes beyond the end of the file read as zeros
                std::memset(bytes.data() + done, 0, size - done);
            }
            done = got == 0 ? size : done + static_cast<std::size_t>(got);
            if (done == file_page::granule) { // the header is there
                to = decode_header(bytes.data());
                size = std::max(size, file_page::header_size +
                                          (to.is_plausible(page_size) ? to.length : 0));
            }
        }
        to.is_good = to.is_plausible(page_size) && checksum_matches(bytes.data(), to);
        return true;
    }

    std::string bytes_[2]; // the beginnings of the pages: header and value, if they are good
};

}}} // namespace bide::BIDE_ABI::detail

#endif
