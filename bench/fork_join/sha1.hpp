#ifndef BIDE_BENCH_FORK_JOIN_SHA1_HPP
#define BIDE_BENCH_FORK_JOIN_SHA1_HPP

// SHA-1 (FIPS 180-4) of messages that fit into one block, as the nodes of a search tree draw their
// children from it.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bench {

using sha1_digest = std::array<std::uint32_t, 5>;

// Of the first `length` words of the block; the rest of it is zero.
inline sha1_digest sha1(std::array<std::uint32_t, 16> block, std::size_t length) {
    block[length] = 0x80000000u;
    block[15] = static_cast<std::uint32_t>(32 * length);
    std::array<std::uint32_t, 80> w;
    for (std::size_t i = 0; i < 80; ++i) {
        w[i] = i < 16 ? block[i] : std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    }
    const sha1_digest start{0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    auto [a, b, c, d, e] = start;
    const auto step = [&](std::uint32_t f, std::uint32_t k, std::size_t i) {
        const std::uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = std::rotl(b, 30);
        b = a;
        a = next;
    };
    for (std::size_t i = 0; i < 20; ++i) {
        step((b & c) | (~b & d), 0x5a827999u, i);
    }
    for (std::size_t i = 20; i < 40; ++i) {
        step(b ^ c ^ d, 0x6ed9eba1u, i);
    }
    for (std::size_t i = 40; i < 60; ++i) {
        step((b & c) | (b & d) | (c & d), 0x8f1bbcdcu, i);
    }
    for (std::size_t i = 60; i < 80; ++i) {
        step(b ^ c ^ d, 0xca62c1d6u, i);
    }
    return {start[0] + a, start[1] + b, start[2] + c, start[3] + d, start[4] + e};
}

// Of 16 zero bytes and the seed.
inline sha1_digest sha1_root(std::uint32_t seed) {
    std::array<std::uint32_t, 16> block{};
    block[4] = seed;
    return sha1(block, 5);
}

// Of the parent's digest and the child's number.
inline sha1_digest sha1_child(const sha1_digest& parent, std::uint32_t number) {
    std::array<std::uint32_t, 16> block{};
    for (std::size_t i = 0; i < 5; ++i) {
        block[i] = parent[i];
    }
    block[5] = number;
    return sha1(block, 6);
}

} // namespace bench

#endif
