// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SHADOW_HPP
#define BIDE_MODEL_IMPL_SHADOW_HPP

// What the checker knows of the memory that a body accesses as plain data (model/watch.hpp), or as
// real atomics (model/unmodified.hpp).
//
// Each byte is a plain object of the memory model (impl/memory.hpp). An atomic access makes a cell
// of its bytes, with an atomic object. The memory itself always has the newest value of the cell. A
// plain write ends the cell, and so does the end of the block: the next atomic access makes a new
// cell, whose initial value is that of the memory. So an address may have several objects, one
// after the other.
//
// Memory that is neither on the stacks of the body nor on its heap exists before the body: global
// variables, for instance. Its first contents are noted, and are written back after the execution.

#include <bide/model/impl/memory.hpp>

#include <map>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class shadow {
public:
    // The bytes of an atomic.
    struct cell {
        std::uintptr_t from = 0;
        unsigned size = 0;
        int object = -1;
        bool has_value = false; // the memory has the value; false: it is a mutex, for instance
        std::array<unsigned char, 16> value{};
    };

    // Forgets all, and restores the memory that existed before the body.
    void clear() noexcept {
        for (auto i = undo_.rbegin(); i != undo_.rend(); ++i) {
            *i->first = i->second;
        }
        undo_.clear();
        cells_.clear();
        freed_.clear();
        used_ = 0;
        ++epoch_;
        last_ = none;
    }

    // ---- Plain accesses

    // Returns the number of the plain object of a byte.
    int plain(memory& m, std::uintptr_t byte) {
        int& p = at(byte).plain[byte % 8];
        if (p < 0) {
            p = freed_object(byte);
            p = p >= 0 ? p : m.make_watched();
        }
        return p;
    }
    // Returns the plain object of a byte; -1 if the byte was not accessed as plain data.
    int plain_if_any(std::uintptr_t byte) {
        const int p = at(byte).plain[byte % 8];
        return p >= 0 ? p : freed_object(byte);
    }
    // Returns the cell of a byte; nullptr if there is none.
    cell* cell_of(std::uintptr_t byte) {
        const int c = at(byte).cell[byte % 8];
        return c < 0 ? nullptr : &cells_[index(c)];
    }
    // Ends the cell.
    void end(const cell& c) {
        for (std::uintptr_t b = c.from; b < c.from + c.size; ++b) {
            at(b).cell[b % 8] = -1;
        }
    }
    // Makes a cell. Requires: its bytes have none.
    cell& make_cell(std::uintptr_t from, unsigned size, int object, bool has_value) {
        cell& c = cells_.emplace_back();
        c.from = from;
        c.size = size;
        c.object = object;
        c.has_value = has_value;
        for (std::uintptr_t b = from; b < from + size; ++b) {
            at(b).cell[b % 8] = static_cast<int>(cells_.size()) - 1;
        }
        return c;
    }

    // ---- Blocks

    // Notes that a block was freed. `drop` is called with each plain object in it, and `end_cell`
    // with each cell. `rest` is the plain object of the bytes that were not accessed.
    template <class Drop, class End>
    void free(std::uintptr_t block, std::size_t size, int rest, Drop&& drop, End&& end_cell) {
        for (std::uintptr_t g = block / 8; g <= (block + size - 1) / 8 && size != 0; ++g) {
            granule* const one = find(g);
            if (one == nullptr) {
                continue;
            }
            for (std::uintptr_t b = std::max(block, g * 8); b < std::min(block + size, g * 8 + 8);
                 ++b) {
                if (one->cell[b % 8] >= 0) {
                    const cell c = cells_[index(one->cell[b % 8])];
                    end(c);
                    end_cell(c);
                }
                if (one->plain[b % 8] >= 0) {
                    drop(one->plain[b % 8]);
                }
            }
        }
        freed_[block] = {block + size, rest};
    }
    // Notes that a freed block was allocated again. `object` makes the plain object of a byte.
    template <class Make> void reuse(std::uintptr_t block, std::size_t size, Make&& object) {
        freed_.erase(block);
        for (std::uintptr_t b = block; b < block + size; ++b) {
            at(b).plain[b % 8] = object();
        }
    }

    // ---- Memory from before the body

    void save(std::uintptr_t byte) {
        auto* const at = reinterpret_cast<unsigned char*>(byte);
        undo_.emplace_back(at, *at);
    }

private:
    // What belongs to eight bytes at an aligned address. -1: nothing.
    struct granule {
        std::array<int, 8> plain;
        std::array<int, 8> cell;
    };
    struct slot {
        std::uintptr_t key = 0; // the address / 8
        std::uint32_t epoch = 0;
        std::uint32_t granule = 0;
    };
    struct piece {
        std::uintptr_t end = 0;
        int object = -1;
    };
    static constexpr std::uintptr_t none = ~std::uintptr_t{0};

    // Returns the slot of the key, or the free slot where it belongs.
    slot& slot_of(std::uintptr_t key) {
        std::size_t i = static_cast<std::size_t>((key * 0x9e37'79b9'7f4a'7c15u) >> 20);
        for (;; ++i) {
            slot& s = slots_[i & (slots_.size() - 1)];
            if (s.epoch != epoch_ || s.key == key) {
                return s;
            }
        }
    }
    granule* find(std::uintptr_t key) {
        const slot& s = slot_of(key);
        return s.epoch == epoch_ ? &granules_[s.granule] : nullptr;
    }
    granule& at(std::uintptr_t byte) {
        const std::uintptr_t key = byte / 8;
        if (key == last_) {
            return granules_[last_granule_];
        }
        if (2 * used_ >= slots_.size()) {
            grow();
        }
        slot& s = slot_of(key);
        if (s.epoch != epoch_) {
            s = {key, epoch_, static_cast<std::uint32_t>(used_)};
            if (used_ == granules_.size()) {
                granules_.emplace_back();
            }
            granules_[used_].plain.fill(-1);
            granules_[used_].cell.fill(-1);
            ++used_;
        }
        last_ = key;
        last_granule_ = s.granule;
        return granules_[s.granule];
    }
    void grow() {
        std::vector<slot> all(2 * slots_.size());
        all.swap(slots_);
        for (const slot& s : all) {
            if (s.epoch == epoch_) {
                slot_of(s.key) = s;
            }
        }
    }
    int freed_object(std::uintptr_t byte) const {
        if (freed_.empty()) {
            return -1;
        }
        const auto next = freed_.upper_bound(byte);
        if (next == freed_.begin()) {
            return -1;
        }
        const piece& before = std::prev(next)->second;
        return byte < before.end ? before.object : -1;
    }

    std::vector<slot> slots_ = std::vector<slot>(1024);
    std::vector<granule> granules_;
    std::size_t used_ = 0; // the granules of this execution
    std::uint32_t epoch_ = 1;
    std::uintptr_t last_ = none;
    std::size_t last_granule_ = 0;
    std::vector<cell> cells_;
    std::map<std::uintptr_t, piece> freed_; // by the address of the block
    std::vector<std::pair<unsigned char*, unsigned char>> undo_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
