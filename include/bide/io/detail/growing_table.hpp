// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_GROWING_TABLE_HPP
#define BIDE_IO_DETAIL_GROWING_TABLE_HPP

// A table that maps a number to a T, and makes the T when the number is first used. It is for small
// numbers that are reused, such as file descriptors. Chunk 0 holds the first 64 objects; in a
// model, it holds one. Each later chunk holds as many objects as all earlier chunks together. A T
// stays at its address until the table is destroyed, so a lookup takes no lock.
//
// Guarantee: let thread A write a flag (seq_cst) and then call each(). Let thread B find or make a
// T and then read the flag (seq_cst). Then each() visits that T, or B reads the value that A has
// written [growing_table.chunk]. This is also true if a third thread has made the T.

#include <bide/core/platform.hpp>

#include <bit>
#include <memory>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class T, class Platform> class growing_table {
public:
    using number = std::uint32_t;

    ~growing_table() {
        for (auto& chunk : chunks_) {
            // Order: relaxed; no other thread uses the table.
            delete[] chunk.load(std::memory_order_relaxed);
        }
    }

    // Returns nullptr if the chunk of this number was never made.
    T* find(number n) const noexcept {
        const place at = place_of(n);
        T* const first = chunk(at.chunk);
        return first != nullptr ? first + at.index : nullptr;
    }

    // Returns nullptr if there is no memory.
    T* make(number n) noexcept {
        const place at = place_of(n);
        T* first = chunk(at.chunk);
        if (first == nullptr) {
            std::unique_ptr<T[]> made(new (std::nothrow) T[size_of(at.chunk)]);
            if (made == nullptr) {
                return nullptr;
            }
            // Order: seq_cst [growing_table.chunk]; a thread that finds the chunk sees its
            // construction. An each() that misses the chunk comes before this CAS. Failure:
            // seq_cst, too; another thread has made the chunk.
            if (chunks_[at.chunk].compare_exchange_strong(
                    first, made.get(), std::memory_order_seq_cst, std::memory_order_seq_cst)) {
                first = made.release();
            }
        }
        return first + at.index;
    }

    template <class F> void each(F f) noexcept {
        for (number i = 0; i < chunks; ++i) {
            if (T* const first = chunk(i)) {
                for (number k = 0; k < size_of(i); ++k) {
                    f(first[k]);
                }
            }
        }
    }

private:
    static constexpr number first_chunk = Platform::model ? 1 : 64;
    static constexpr number digits =
        Platform::model ? 8 : std::numeric_limits<number>::digits; // of the largest number
    static constexpr number chunks = digits - integer_cast<number>(std::bit_width(first_chunk)) + 2;

    struct place {
        number chunk;
        number index;
    };
    static constexpr place place_of(number n) noexcept {
        const auto at = integer_cast<number>(std::bit_width(n / first_chunk));
        return {at, at == 0 ? n : n - (first_chunk << (at - 1))};
    }
    static constexpr std::size_t size_of(number at) noexcept {
        return std::size_t{first_chunk} << (at == 0 ? 0 : at - 1);
    }

    T* chunk(number at) const noexcept {
        // Order: seq_cst [growing_table.chunk]; sees the construction of the chunk. In each(), this
        // read comes after the write of the flag; in find(), it comes before the read of the flag.
        return chunks_[at].load(std::memory_order_seq_cst);
    }

    typename Platform::template atomic<T*> chunks_[chunks] = {};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
