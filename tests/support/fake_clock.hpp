#ifndef BIDE_TESTS_SUPPORT_FAKE_CLOCK_HPP
#define BIDE_TESTS_SUPPORT_FAKE_CLOCK_HPP

#include <support/standard.hpp>

namespace test {

// A clock that stands where it was set, and counts how often it is read. One for each Tag, so that
// test cases do not share one.
template <class Tag> struct fake_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<fake_clock>;
    static constexpr bool is_steady = false;

    static time_point now() noexcept {
        ++reads;
        return time_point(duration(at.load()));
    }
    static void set(duration since_epoch) noexcept { at = since_epoch.count(); }

    inline static std::atomic<rep> at{0};
    inline static std::atomic<int> reads{0};
};

} // namespace test

#endif
