// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_OBJECT_PLACE_HPP
#define BIDE_SYNC_DETAIL_OBJECT_PLACE_HPP

// A caller of an object_pool that has a permit, on its way to an object; and the callables of the
// pool. Whatever throws on that way, the object and the permit are given up.

#include <bide/core/config.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/idle_objects.hpp>

#include <memory>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The callables of a pool.
template <class T, class Platform> class object_source {
public:
    using object = pooled_object<T, Platform>;

    virtual ~object_source() = default;
    virtual object* make() = 0;
    virtual bool is_good(T& value) = 0;
};

template <class T, class Platform, class Make, class IsGood>
class object_source_of final : public object_source<T, Platform> {
    using object = pooled_object<T, Platform>;

public:
    object_source_of(Make&& make, IsGood&& is_good)
        : make_(std::move(make)), is_good_(std::move(is_good)) {}

    object* make() override { return std::make_unique<object>(std::in_place, make_).release(); }
    bool is_good(T& value) override { return static_cast<bool>(is_good_(value)); }

private:
    [[no_unique_address]] Make make_;
    [[no_unique_address]] IsGood is_good_;
};

struct always_good {
    template <class T> bool operator()(const T&) const noexcept { return true; }
};

// A permit of a pool, and an object if it has found or made one.
template <class T, class Platform> class object_place {
    using pool = object_pool<T, Platform>;
    using object = pooled_object<T, Platform>;

public:
    // Requires: the caller has a permit.
    explicit object_place(pool& of) noexcept : of_(of) {}
    object_place(const object_place&) = delete;
    object_place& operator=(const object_place&) = delete;
    // Destroys the object, and gives the permit back. That is the last access to the pool.
    ~object_place() {
        drop();
        if (!lent_) {
            of_.permits_.give(1);
        }
    }

    // Decides: closed; lend: it has an idle object that is good; make: fill() has to be called.
    // Throws: what the check throws; the object that it was called with is destroyed.
    pool_step find() {
        for (;;) {
            object* found = nullptr;
            switch (of_.idle_.take(of_.idle_.now(), found)) {
            case pool_step::closed: return pool_step::closed;
            case pool_step::destroy: delete found; continue;
            case pool_step::make: counts_ = true; return pool_step::make;
            case pool_step::lend:
                counts_ = true;
                mine_ = found;
                if (of_.source_->is_good(found->value)) {
                    return pool_step::lend;
                }
                drop();
            }
        }
    }

    // Requires: find() has returned make.
    void fill(object* made) noexcept { mine_ = made; }

    object_lease<T, Platform> lend() noexcept {
        lent_ = true;
        counts_ = false;
        return object_lease<T, Platform>(of_, *std::exchange(mine_, nullptr));
    }

private:
    void drop() noexcept {
        delete std::exchange(mine_, nullptr);
        if (std::exchange(counts_, false)) {
            of_.idle_.lose();
        }
    }

    pool& of_;
    object* mine_ = nullptr;
    bool counts_ = false; // among the pool's objects
    bool lent_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
