#include <bide/core/errc.hpp>
#include <support/test.hpp>

using bide::errc;

TEST_CASE("errc: each code converts to bide's category and has its own message") {
    const std::error_code closed = errc::closed;
    CHECK(closed == errc::closed);
    CHECK_FALSE(closed == errc::stopped);
    CHECK(closed.value() == 1);
    CHECK(std::string(closed.category().name()) == "bide");
    CHECK(&closed.category() == &bide::make_error_code(errc::full).category());
    CHECK(closed.message() == "closed");
    CHECK(std::error_code(errc::stopped).message() == "stopped");
    CHECK(std::error_code(errc::timeout).message() == "timed out");
    CHECK(std::error_code(errc::empty).message() == "empty");
    CHECK(std::error_code(errc::full).message() == "full");
    CHECK(std::error_code(errc::lagged).message() == "lagged behind");
    CHECK(std::error_code(errc::no_driver) == std::errc::resource_deadlock_would_occur);
    CHECK_FALSE(closed == std::errc::resource_deadlock_would_occur);
    CHECK(std::error_code(4711, closed.category()).message() == "unknown");
    CHECK_FALSE(std::error_code(1, std::generic_category()) == closed);
}
