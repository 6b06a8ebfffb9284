#ifndef BIDE_TESTS_SUPPORT_SLOT_RESULTS_HPP
#define BIDE_TESTS_SUPPORT_SLOT_RESULTS_HPP

// What the operations of a slot return, where a test needs them to succeed or to fail.

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>

#include <support/children.hpp>
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

// Stores `value` over any current value. Returns the version; 0 if it fails.
template <class Slot> bide::slot_version put(Slot& slot, std::string_view value) {
    const auto there = slot.load();
    return there ? slot.compare_exchange(there->version, value).version : 0;
}

template <class Slot> std::string value_of(Slot&& slot) {
    const auto there = slot.load();
    return there ? there->value : "error: " + there.error().message();
}

// Whether a lock takes the error for a permanent one, and does not try again.
inline bool lasts(std::error_code error) {
    constexpr std::errc all[] = {std::errc::permission_denied,
                                 std::errc::operation_not_permitted,
                                 std::errc::no_such_file_or_directory,
                                 std::errc::not_a_directory,
                                 std::errc::is_a_directory,
                                 std::errc::too_many_links,
                                 std::errc::too_many_symbolic_link_levels,
                                 std::errc::cross_device_link,
                                 std::errc::invalid_argument,
                                 std::errc::protocol_error,
                                 std::errc::read_only_file_system,
                                 std::errc::filename_too_long,
                                 std::errc::operation_not_supported,
                                 std::errc::function_not_supported};
    return error == bide::durable_errc::invalid_argument ||
           std::any_of(std::begin(all), std::end(all), [&](std::errc e) { return error == e; });
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
