#ifndef BIDE_DURABLE_SLOTS_DETAIL_PAGE_FORMAT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_PAGE_FORMAT_HPP

// What is in a file slot's file: two pages of the same size, each
//
//   bytes  0.. 7   "bideslot"
//         8..11   the format: 1
//        12..15   the size of a page
//        16..23   the version of the value; 0: a page that holds none yet
//        24..27   the value's length
//        28..31   CRC-32C of the 28 bytes before and of the value
//        32..     the value; what follows it means nothing
//
// Numbers are little-endian on every machine. The size of a page is a multiple of 4096, half of the
// file's size, so that both pages are found whatever is in them.
//
// A page is good when all of it is as it should be, else bad: a write of it came to nothing
// half-way, or it has rotted; the two look the same. Of two good pages the one with the higher
// version counts.

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/crc32c.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bide::inline BIDE_ABI {
namespace detail {

struct file_page {
    static constexpr std::size_t header_size = 32;
    static constexpr std::size_t summed_size = 28; // of the header
    static constexpr std::size_t granule = 4096;
    static constexpr char magic[] = {'b', 'i', 'd', 'e', 's', 'l', 'o', 't'};
    static constexpr std::uint32_t known_format = 1;

    // As read, whether it makes sense or not.
    std::uint32_t format = 0; // 0: no page of ours
    std::uint32_t page_size = 0;
    std::uint64_t version = 0;
    std::uint32_t length = 0;
    std::uint32_t sum = 0;

    // The header alone; a page is good when its value sums up as well.
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

// Of the header's 32 bytes.
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

// Header and value, as one.
inline bool checksum_matches(const char* bytes, const file_page& page) noexcept {
    const std::uint32_t header = crc32c(bytes, file_page::summed_size);
    return crc32c(bytes + file_page::header_size, page.length, header) == page.sum;
}

// Writes the header before the value, which is there already.
inline void encode_header(char* bytes, std::uint32_t page_size, std::uint64_t version,
                          std::uint32_t length) noexcept {
    std::memcpy(bytes, file_page::magic, sizeof file_page::magic);
    store_little(bytes + 8, file_page::known_format);
    store_little(bytes + 12, page_size);
    store_little(bytes + 16, version);
    store_little(bytes + 24, length);
    const std::uint32_t header = crc32c(bytes, file_page::summed_size);
    store_little(bytes + 28, crc32c(bytes + file_page::header_size, length, header));
}

// What two pages say.
struct page_choice {
    enum class kind {
        value,        // in the page `index`
        corrupt,      // neither holds one
        later_format, // neither holds one of this format, one may hold one of a later one
    };
    kind what = kind::corrupt;
    unsigned index = 0;     // of the page that counts; the other one is written next
    bool fell_back = false; // the other one is bad
};

inline page_choice choose_page(const file_page (&pages)[2], const bool (&good)[2]) noexcept {
    page_choice choice;
    if (good[0] && good[1] && pages[0].version == pages[1].version &&
        pages[0].sum != pages[1].sum) {
        return choice; // one version, two values
    }
    choice.index = good[1] && (!good[0] || pages[1].version > pages[0].version) ? 1 : 0;
    if (good[choice.index] && pages[choice.index].version != 0) {
        choice.what = page_choice::kind::value;
        choice.fell_back = !good[1 - choice.index];
    } else if (pages[0].format > file_page::known_format ||
               pages[1].format > file_page::known_format) {
        choice.what = page_choice::kind::later_format;
    }
    return choice;
}

// A version that was never used: later than the one that counts, than any that this slot has seen
// and, the clock willing, than any there was before the file was deleted or put back from a copy.
// Where the value fell back, the lost version may have been any of a good many; the bad page may
// still say which.
struct file_versions {
    static constexpr std::uint64_t jump = std::uint64_t{1} << 20;
    static constexpr std::uint64_t most_believed = std::uint64_t{1} << 62;

    static std::uint64_t next(std::uint64_t last, bool fell_back, std::uint64_t claimed,
                              std::uint64_t seen, std::uint64_t clock_ns) noexcept {
        std::uint64_t version = last + (fell_back ? jump : 1);
        if (fell_back && claimed < most_believed) {
            version = later(version, claimed + jump);
        }
        return later(later(version, seen + 1), clock_ns);
    }

private:
    static std::uint64_t later(std::uint64_t a, std::uint64_t b) noexcept { return a > b ? a : b; }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
