// A program in which one file is compiled with BIDE_DURABLE_HEADER_ONLY, and this one is not: it uses
// the library bide::durable.
#include <bide/durable/locks.hpp>

#include "header_only_part.hpp"

#include <bide/durable/slots/file.hpp>

#include <support/temp_directory.hpp>
#include <support/test.hpp>
#include <support/unhurried.hpp>

#if defined(BIDE_DURABLE_HEADER_ONLY)
#error "this file is compiled without BIDE_DURABLE_HEADER_ONLY"
#endif

TEST_CASE("durable: files with and without the definitions in their headers share their locks") {
    const test::temp_directory directory("mixed");
    const std::string path = directory.path() + "/lock";
    bide::durable_mutex mine(bide::file_slot(path), test::unhurried());
    bide::durable_mutex theirs = header_only_part::lock_on(path);

    auto held = mine.try_acquire();
    REQUIRE(held.has_value());
    CHECK_FALSE(header_only_part::try_to_acquire(theirs));
    CHECK_FALSE(header_only_part::try_to_acquire(mine)); // an object of this file
    CHECK(held->release().has_value());

    auto of_theirs = header_only_part::try_to_acquire(theirs);
    REQUIRE(of_theirs);
    CHECK(of_theirs->is_held());
    CHECK_FALSE(mine.try_acquire().has_value());
    bide::durable_guard moved = *std::move(of_theirs);
    CHECK(moved.release().has_value());
    CHECK(mine.try_acquire().has_value());
}

TEST_CASE("durable: a file with the definitions in its headers may use every part of the room") {
    CHECK(header_only_part::uses_every_part());
}

TEST_CASE("durable: all files of a program have the same error categories") {
    CHECK(&header_only_part::sqlite_category() == &bide::sqlite_category());
    CHECK(header_only_part::sqlite_error() == std::error_code(5, bide::sqlite_category()));
}
