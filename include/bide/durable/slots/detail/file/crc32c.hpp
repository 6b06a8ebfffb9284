// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_FILE_CRC32C_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_FILE_CRC32C_HPP

// CRC-32C (Castagnoli; RFC 3720, appendix B.4). Uses the processor's instruction if it has one,
// otherwise eight tables at a time.

#include <bide/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

using crc32c_tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the CRC of the byte b, followed by k zero bytes.
constexpr crc32c_tables make_crc32c_tables() noexcept {
    crc32c_tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
        }
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
        }
    }
    return tables;
}

inline constexpr crc32c_tables crc32c_of = make_crc32c_tables();

// `crc` is the result for the bytes before these; 0 at first.
constexpr std::uint32_t crc32c_by_table(const char* data, std::size_t size,
                                        std::uint32_t crc = 0) noexcept {
    const auto byte = [](char c) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(c));
    };
    const crc32c_tables& t = crc32c_of;
    crc = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        crc ^= byte(data[0]) | byte(data[1]) << 8 | byte(data[2]) << 16 | byte(data[3]) << 24;
        crc = t[7][crc & 0xff] ^ t[6][(crc >> 8) & 0xff] ^ t[5][(crc >> 16) & 0xff] ^
              t[4][crc >> 24] ^ t[3][byte(data[4])] ^ t[2][byte(data[5])] ^ t[1][byte(data[6])] ^
              t[0][byte(data[7])];
    }
    for (; size != 0; --size, ++data) {
        crc = (crc >> 8) ^ t[0][(crc ^ byte(*data)) & 0xff];
    }
    return ~crc;
}

static_assert(crc32c_by_table("123456789", 9) == 0xe3069283u);

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

inline bool crc32c_has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) inline std::uint32_t
crc32c_by_instruction(const char* data, std::size_t size, std::uint32_t crc = 0) noexcept {
    std::uint64_t sum = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        std::uint64_t eight;
        std::memcpy(&eight, data, 8);
        sum = __builtin_ia32_crc32di(sum, eight);
    }
    auto rest = static_cast<std::uint32_t>(sum);
    for (; size != 0; --size, ++data) {
        rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*data));
    }
    return ~rest;
}

#elif defined(__ARM_FEATURE_CRC32) && defined(__BYTE_ORDER__) &&                                   \
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

inline bool crc32c_has_instruction() noexcept { return true; }

inline std::uint32_t crc32c_by_instruction(const char* data, std::size_t size,
                                           std::uint32_t crc = 0) noexcept {
    crc = ~crc;
    for (; size >= 8; size -= 8, data += 8) {
        std::uint64_t eight;
        std::memcpy(&eight, data, 8);
        crc = __crc32cd(crc, eight);
    }
    for (; size != 0; --size, ++data) {
        crc = __crc32cb(crc, static_cast<unsigned char>(*data));
    }
    return ~crc;
}

#else

inline bool crc32c_has_instruction() noexcept { return false; }

inline std::uint32_t crc32c_by_instruction(const char* data, std::size_t size,
                                           std::uint32_t crc = 0) noexcept {
    return crc32c_by_table(data, size, crc);
}

#endif

inline std::uint32_t crc32c(const char* data, std::size_t size, std::uint32_t crc = 0) noexcept {
    return crc32c_has_instruction() ? crc32c_by_instruction(data, size, crc)
                                    : crc32c_by_table(data, size, crc);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
