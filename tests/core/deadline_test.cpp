#include <bide/core/deadline.hpp>
#include <support/fake_clock.hpp>
#include <support/test.hpp>

using bide::deadline;
using std::chrono::duration;

namespace {

std::int64_t now_ns() { return bide::native_platform::now(); }

template <class P, class R> std::int64_t in_ns(R count) {
    return deadline::saturated_ns(duration<R, P>(count));
}
constexpr std::int64_t ever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t gone = std::numeric_limits<std::int64_t>::min();

// Returns the time that is left of a deadline that was made just now.
template <class Make> bool is_from_now(Make make, std::chrono::nanoseconds rest) {
    const std::int64_t before = now_ns();
    const std::int64_t end = make().steady_ns();
    const std::int64_t after = now_ns();
    return before + rest.count() <= end && end <= after + rest.count();
}

} // namespace

TEST_CASE("deadline: never() never passes, poll() has always passed, a point in time is neither") {
    CHECK(deadline::never().is_never());
    CHECK_FALSE(deadline::never().is_poll());
    CHECK(deadline::poll().is_poll());
    CHECK_FALSE(deadline::poll().is_never());
    CHECK_FALSE(deadline::at_ns(5).is_poll());
    CHECK_FALSE(deadline::at_ns(5).is_never());
    CHECK(deadline::at_ns(5).steady_ns() == 5);
}

TEST_CASE("deadline: steady_ns() is never negative") {
    CHECK(deadline::poll().steady_ns() == 0);
    CHECK(deadline::at_ns(-5).steady_ns() == 0);
}

TEST_CASE("deadline: it has passed when its own clock has reached it") {
    struct tag;
    using clock = test::fake_clock<tag>;
    clock::set(10s);
    const deadline other = deadline::at(clock::time_point(10s + 1ms));
    CHECK(deadline::poll().has_passed());
    CHECK(deadline::at_ns(now_ns()).has_passed());
    CHECK(deadline::at(clock::time_point(10s)).has_passed());
    CHECK_FALSE(deadline::never().has_passed());
    CHECK_FALSE(deadline::after(1h).has_passed());
    CHECK_FALSE(other.has_passed());
    clock::set(10s + 1ms);
    CHECK(other.has_passed());
}

TEST_CASE("deadline: a zero, negative or NaN duration becomes poll()") {
    CHECK(deadline::after(0s).is_poll());
    CHECK(deadline::after(-1ns).is_poll());
    CHECK(deadline::after(std::chrono::hours::min()).is_poll());
    CHECK(deadline::after(duration<unsigned>(0)).is_poll());
    CHECK(deadline::after(duration<double>(-0.0)).is_poll());
    CHECK(deadline::after(duration<double>(-1e300)).is_poll());
    CHECK(deadline::after(duration<float>(std::numeric_limits<float>::quiet_NaN())).is_poll());
    CHECK(deadline::after(duration<double>(-std::numeric_limits<double>::infinity())).is_poll());
}

TEST_CASE("deadline: a duration of any unit counts from now") {
    CHECK(is_from_now([] { return deadline::after(3s); }, 3s));
    CHECK(is_from_now([] { return deadline::after(duration<double>(0.25)); }, 250ms));
    CHECK(is_from_now([] { return deadline::after(duration<float, std::milli>(1.5f)); }, 1500us));
    CHECK(is_from_now([] { return deadline::after(duration<signed char, std::ratio<60>>(2)); },
                      120s));
    CHECK(is_from_now([] { return deadline::after(duration<unsigned, std::micro>(7)); }, 7us));
}

TEST_CASE("deadline: a duration converts to from_now, which reads the clock when it converts") {
    const deadline::from_now rest = 1h;
    CHECK(is_from_now([&] { return deadline(rest); }, 1h));
    CHECK(deadline(deadline::from_now(-1s)).is_poll());
    const deadline at = std::chrono::steady_clock::time_point(1ns);
    CHECK(at.is_poll());
    CHECK(deadline(std::chrono::steady_clock::time_point::max()).is_never());
    // A wait until a point in time takes no duration, and a wait for a time takes no point.
    STATIC_REQUIRE(!std::is_convertible_v<std::chrono::seconds, deadline>);
    STATIC_REQUIRE(
        !std::is_convertible_v<std::chrono::steady_clock::time_point, deadline::from_now>);
}

TEST_CASE("deadline: a duration is rounded up to nanoseconds") {
    CHECK(is_from_now([] { return deadline::after(duration<double>(1e-12)); }, 1ns));
    CHECK(is_from_now([] { return deadline::after(duration<int, std::pico>(1'001)); }, 2ns));
    using tenths = duration<std::int64_t, std::ratio<1, 10'000'000'000>>;
    const std::int64_t soon = now_ns() + 1'000'000'000;
    const std::chrono::time_point<steady_clock, tenths> odd(tenths(soon * 10 + 1));
    CHECK(deadline::at(odd).steady_ns() == soon + 1);
}

TEST_CASE("deadline: a period of a fraction of a nanosecond stays exact over 285 years") {
    using third = std::ratio<1, 3>;
    using frame = std::ratio<1, 60>;
    using ntsc = std::ratio<1001, 30000>;
    constexpr std::int64_t long_span = 9'000'000'000; // seconds: 285 years
    CHECK(in_ns<third>(3 * long_span) == long_span * 1'000'000'000);
    CHECK(in_ns<third>(-3 * long_span) == -long_span * 1'000'000'000);
    CHECK(in_ns<frame>(60 * long_span) == long_span * 1'000'000'000);
    CHECK(in_ns<frame>(60 * long_span + 1) == long_span * 1'000'000'000 + 16'666'667);
    CHECK(in_ns<ntsc>(std::int64_t{30'000} * 8'000'000) == 1'001LL * 8'000'000 * 1'000'000'000);
    CHECK(in_ns<third>(1) == 333'333'334);
    CHECK(in_ns<third>(-1) == -333'333'333);
    CHECK(in_ns<ntsc>(1) == 33'366'667);
    CHECK(in_ns<frame>(ever) == ever);
    CHECK(in_ns<frame>(gone) == gone);
    CHECK(in_ns<frame>(~std::uint64_t{0}) == ever);
    CHECK_FALSE(deadline::after(duration<std::int64_t, third>(3 * long_span)).is_poll());
    CHECK(is_from_now([] { return deadline::after(duration<int, frame>(120)); }, 2s));
}

TEST_CASE("deadline: every period is rounded up and saturates, from atto to exa") {
    CHECK(in_ns<std::atto>(1) == 1);
    CHECK(in_ns<std::atto>(-1) == 0);
    CHECK(in_ns<std::atto>(ever) == 9'223'372'037);
    CHECK(in_ns<std::atto>(gone) == -9'223'372'036);
    CHECK(in_ns<std::atto>(~std::uint64_t{0}) == 18'446'744'074);
    CHECK(in_ns<std::pico>(1'001) == 2);
    CHECK(in_ns<std::pico>(-1'999) == -1);
    CHECK(in_ns<std::nano>(ever) == ever);
    CHECK(in_ns<std::nano>(gone) == gone);
    CHECK(in_ns<std::nano>(gone + 1) == gone + 1);
    CHECK(in_ns<std::nano>(std::uint64_t{1} << 63) == ever);
    CHECK(in_ns<std::nano>((std::uint64_t{1} << 63) - 2) == ever - 1);
    CHECK(in_ns<std::ratio<1>>(9'223'372'036) == 9'223'372'036'000'000'000);
    CHECK(in_ns<std::ratio<1>>(9'223'372'037) == ever);
    CHECK(in_ns<std::ratio<1>>(-9'223'372'037) == gone);
    CHECK(in_ns<std::giga>(9) == 9'000'000'000'000'000'000);
    CHECK(in_ns<std::giga>(10) == ever);
    CHECK(in_ns<std::exa>(1) == ever);
    CHECK(in_ns<std::exa>(-1) == gone);
    CHECK(in_ns<std::exa>(0) == 0);
    CHECK(in_ns<std::exa>(static_cast<signed char>(-128)) == gone);
}

TEST_CASE("deadline: a period with a large numerator and denominator is exact") {
    // 1e9 * (1e18 + 9) / (1e18 + 3) is 1e9 and 6e-9 nanoseconds.
    using odd = std::ratio<1'000'000'000'000'000'009, 1'000'000'000'000'000'003>;
    CHECK(in_ns<odd>(1) == 1'000'000'001);
    CHECK(in_ns<odd>(-1) == -1'000'000'000);
    CHECK(in_ns<odd>(9'000'000'000) == 9'000'000'000'000'000'054);
    CHECK(in_ns<odd>(9'300'000'000) == ever);
    using tiny = std::ratio<3, 1'000'000'000'000'000'003>;
    CHECK(in_ns<tiny>(ever) == 27'670'116'111);
    CHECK(in_ns<tiny>(1) == 1);
}

TEST_CASE("deadline: floating-point counts are rounded up and saturate, and NaN is poll()") {
    CHECK(in_ns<std::ratio<1>>(0.1) == 100'000'000);
    CHECK(in_ns<std::ratio<1>>(1e-30) == 1);
    CHECK(in_ns<std::atto>(std::numeric_limits<double>::denorm_min()) == 1);
    CHECK(in_ns<std::ratio<1>>(-1e-30) == 0);
    CHECK(in_ns<std::ratio<1, 3>>(3.0) == 1'000'000'000);
    CHECK(in_ns<std::ratio<1, 49>>(49.0f) == 1'000'000'000);
    CHECK(in_ns<std::nano>(9223372036854775807.0) == ever); // 2^63
    CHECK(in_ns<std::nano>(9223372036854774784.0) == 9'223'372'036'854'774'784);
    CHECK(in_ns<std::nano>(-9223372036854775808.0) == gone);
    CHECK(in_ns<std::nano>(-1e19) == gone);
    CHECK(in_ns<std::nano>(9223372036854775807.0L) == ever);
    CHECK(in_ns<std::exa>(std::numeric_limits<double>::max()) == ever);
    CHECK(in_ns<std::atto>(std::numeric_limits<float>::max()) == ever);
    CHECK(in_ns<std::exa>(std::numeric_limits<long double>::lowest()) == gone);
    CHECK(in_ns<std::nano>(std::numeric_limits<float>::infinity()) == ever);
    CHECK(in_ns<std::nano>(-std::numeric_limits<double>::infinity()) == gone);
    CHECK(in_ns<std::nano>(std::numeric_limits<double>::quiet_NaN()) == gone);
    using seconds = duration<double>;
    const seconds no_number(std::numeric_limits<double>::quiet_NaN());
    CHECK(deadline::at(std::chrono::time_point<steady_clock, seconds>(no_number)).is_poll());
}

TEST_CASE("deadline: a point in time may count in any unit, from unsigned to thirds of a second") {
    using thirds = duration<std::uint64_t, std::ratio<1, 3>>;
    using point = std::chrono::time_point<steady_clock, thirds>;
    const auto soon = static_cast<std::uint64_t>(now_ns() / 1'000'000'000 + 5);
    CHECK(deadline::at(point(thirds(3 * soon))).steady_ns() ==
          static_cast<std::int64_t>(soon) * 1'000'000'000);
    CHECK(deadline::at(point(thirds(3 * std::uint64_t{9'000'000'000}))).steady_ns() ==
          9'000'000'000'000'000'000);
    CHECK(deadline::at(point(thirds(0))).is_poll());
    CHECK(deadline::at(point(thirds(~std::uint64_t{0}))).is_never());
}

TEST_CASE("deadline: durations that no clock can hold become never() and do not wrap round") {
    CHECK(deadline::after(std::chrono::hours::max()).is_never());
    CHECK(deadline::after(std::chrono::nanoseconds::max()).is_never());
    CHECK(deadline::after(std::chrono::years(1'000)).is_never());
    CHECK(deadline::after(duration<std::uint64_t>(~std::uint64_t{0})).is_never());
    CHECK(deadline::after(duration<std::uint64_t, std::nano>(~std::uint64_t{0})).is_never());
    CHECK(deadline::after(duration<std::uint64_t, std::nano>(std::uint64_t{1} << 63)).is_never());
    CHECK(deadline::after(duration<double>(1e300)).is_never());
    CHECK(deadline::after(duration<double>(std::numeric_limits<double>::infinity())).is_never());
    CHECK(deadline::after(duration<long double, std::ratio<31'556'952>>(1e30L)).is_never());
}

TEST_CASE("deadline: the longest duration that a clock can hold is kept or becomes never()") {
    for (const int years : {1, 100, 250, 290, 291, 292, 293, 300}) {
        CAPTURE(years);
        const deadline far = deadline::after(std::chrono::years(years));
        CHECK_FALSE(far.is_poll());
        CHECK(far.steady_ns() - now_ns() > (years < 290 ? years : 290) * 31'000'000'000'000'000);
    }
}

TEST_CASE("deadline: a steady time is exact to the nanosecond, and poll() if it has passed") {
    const auto soon = steady_clock::now() + 10s;
    CHECK(deadline::at(soon).steady_ns() == soon.time_since_epoch().count());
    CHECK_FALSE(deadline::at(soon).is_early());
    const auto whole = std::chrono::time_point_cast<std::chrono::seconds>(soon);
    CHECK(deadline::at(whole).steady_ns() == whole.time_since_epoch().count() * 1'000'000'000);
    CHECK(deadline::at(steady_clock::now()).is_poll());
    CHECK(deadline::at(steady_clock::time_point()).is_poll());
    CHECK(deadline::at(steady_clock::time_point::min()).is_poll());
    CHECK(deadline::at(steady_clock::time_point::max()).is_never());
}

TEST_CASE("deadline: years on the system clock saturate as well") {
    using std::chrono::system_clock;
    CHECK(deadline::at(system_clock::time_point::max()).is_never());
    CHECK(deadline::at(system_clock::time_point::min()).is_poll());
    using date = std::chrono::time_point<system_clock, std::chrono::years>;
    CHECK(deadline::at(date(std::chrono::years(30'000))).is_never());
    CHECK(deadline::at(date(std::chrono::years(-30'000))).is_poll());
    CHECK(
        deadline::at(date(std::chrono::years(-400))).is_poll()); // 64 bits of ns wrap to the future
    const std::int64_t before = now_ns();
    const std::int64_t at = deadline::at(system_clock::now() + 10s).steady_ns();
    const std::int64_t after = now_ns();
    CHECK(at > before - (after - before) + 9'000'000'000);
    CHECK(at <= after + 10'000'000'000);
}

TEST_CASE("deadline: another clock is read again at each call") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    clock::set(1'000s);
    const deadline end = deadline::at(clock::time_point(1'010s));
    CHECK(is_from_now([&] { return end; }, 10s));
    CHECK(end.is_early());

    clock::set(1'004s);
    CHECK(is_from_now([&] { return end; }, 6s));
    clock::set(900s); // back
    CHECK(is_from_now([&] { return end; }, 110s));
    CHECK(end.is_early());
    clock::set(1'010s);
    CHECK_FALSE(end.is_early());
    CHECK(is_from_now([&] { return end; }, 0s));
    clock::set(999s); // back again, after the deadline has passed
    CHECK(end.is_early());
}

TEST_CASE("deadline: a wait on another clock reads it once a second and at the deadline") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    clock::set(0s);
    const deadline end = deadline::at(clock::time_point(1h));
    const std::int64_t before = now_ns();
    std::int64_t look = end.next_check_ns();
    CHECK(look >= before + deadline::recheck_ns);
    CHECK(look <= now_ns() + deadline::recheck_ns);
    CHECK(is_from_now([&] { return end; }, 1h));
    clock::set(1h - 10ms);
    look = end.next_check_ns();
    CHECK(look >= before + 10'000'000);
    CHECK(look <= now_ns() + 10'000'000);
    clock::set(2h);
    look = end.next_check_ns();
    CHECK(look <= now_ns());
    CHECK_FALSE(end.is_early());
    const deadline steady = deadline::after(1h);
    CHECK(steady.next_check_ns() == steady.steady_ns());
    CHECK(deadline::never().next_check_ns() == deadline::never().steady_ns());
}

TEST_CASE("deadline: a past time of another clock is poll(), and its extreme times saturate") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    clock::set(50s);
    CHECK(deadline::at(clock::time_point(50s)).is_poll());
    CHECK(deadline::at(clock::time_point(-1s)).is_poll());
    CHECK(deadline::at(clock::time_point::max()).is_never());

    clock::set(std::chrono::nanoseconds::min() + 1'000'000h);
    const deadline ages = deadline::at(clock::time_point(1'000'000h));
    CHECK(ages.is_early());
    CHECK(ages.steady_ns() == std::numeric_limits<std::int64_t>::max());
}
