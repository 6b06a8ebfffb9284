#ifndef BIDE_TESTS_SUPPORT_SLOT_RESULTS_HPP
#define BIDE_TESTS_SUPPORT_SLOT_RESULTS_HPP

// What the operations of a slot return, where a test needs them to succeed or to fail.

#include <bide/durable/slot.hpp>

#include <support/test.hpp>

namespace test {

// The result of load().
template <class Slot> auto loaded(Slot& slot) {
    auto there = slot.load();
    INFO((there ? "" : there.error().message()));
    REQUIRE(there.has_value());
    return there;
}

// The result of a compare_exchange() that stores the value.
template <class Slot>
bide::cas_result stored(Slot& slot, bide::slot_version version, std::string_view value) {
    bide::cas_result r = slot.compare_exchange(version, value);
    INFO(r.error.message());
    REQUIRE(r.status == bide::cas_status::stored);
    return r;
}

// Nothing was stored for certain, because of this.
template <class Error> bool fails(const bide::cas_result& r, const Error& why) {
    if (r.status != bide::cas_status::failed || r.error != why) {
        UNSCOPED_INFO("status " << static_cast<int>(r.status) << ", " << r.error.message());
        return false;
    }
    return true;
}

} // namespace test

#endif
