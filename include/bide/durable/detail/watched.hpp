#ifndef BIDE_DURABLE_DETAIL_WATCHED_HPP
#define BIDE_DURABLE_DETAIL_WATCHED_HPP

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// What the vigil (durable/detail/vigil.hpp) tells that its time has come, or its file is readable.
class watched {
public:
    watched() = default;
    watched(const watched&) = delete;
    watched& operator=(const watched&) = delete;
    virtual ~watched() = default;

    // On the vigil's thread, outside its lock.
    virtual void happened() noexcept = 0;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
