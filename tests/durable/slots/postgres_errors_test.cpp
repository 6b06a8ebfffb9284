#include <bide/durable/slots/postgres.hpp>

#include <support/test.hpp>

TEST_CASE("postgres_error: a SQLSTATE becomes a code, and the code the SQLSTATE") {
    for (const char* const state : {"00000", "08006", "28P01", "ZB001", "XX000"}) {
        const std::error_code error = bide::postgres_error(state);
        CHECK(error.category() == bide::postgres_category());
        CHECK(bide::sqlstate(error) == state);
    }
    for (const char* const text : {"", "0800", "080061", "0800a", "0800 "}) {
        CAPTURE(text);
        CHECK(!bide::postgres_error(text));
    }
}

TEST_CASE("postgres_error: codes equal the conditions that mean the same") {
    CHECK(bide::postgres_error("42501") == std::errc::permission_denied);
    CHECK(bide::postgres_error("55P03") == std::errc::timed_out);
    CHECK(bide::postgres_error("42703") == std::errc::invalid_argument);
    CHECK(bide::postgres_error("22003") != std::errc::result_out_of_range);
    CHECK(bide::postgres_error("28P01").message() == "Permission denied (SQLSTATE 28P01)");
    CHECK(bide::postgres_error("99999").message() == "SQLSTATE 99999");
}
