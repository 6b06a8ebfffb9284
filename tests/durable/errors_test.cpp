#include <bide/durable/errors.hpp>

#include <bide/core/result.hpp>
#include <support/test.hpp>

using bide::durable_errc;

static_assert(std::is_error_code_enum_v<durable_errc>);
static_assert(!std::is_error_condition_enum_v<durable_errc>);
static_assert(noexcept(bide::durable_category()));
static_assert(noexcept(make_error_code(durable_errc::lock_lost)));

namespace {

constexpr durable_errc all[] = {
    durable_errc::conflict_timeout, durable_errc::lock_lost,
    durable_errc::corrupt_record,   durable_errc::unsupported_record_version,
    durable_errc::permits_mismatch, durable_errc::clock_mismatch,
    durable_errc::queue_full,       durable_errc::too_heavy,
    durable_errc::storage_error,    durable_errc::indeterminate,
    durable_errc::too_large,        durable_errc::unsupported_filesystem,
    durable_errc::invalid_argument, durable_errc::store_busy,
    durable_errc::no_answer,
};
constexpr int highest = static_cast<int>(durable_errc::no_answer);

} // namespace

TEST_CASE("durable_errc: each code has a message of its own") {
    std::set<std::string> messages{"unknown"};
    for (const durable_errc e : all) {
        CAPTURE(static_cast<int>(e));
        const std::string message = make_error_code(e).message();
        CHECK_FALSE(message.empty());
        CHECK(messages.insert(message).second);
    }
}

TEST_CASE("durable_errc: the codes count from 1, and no other code has a message") {
    std::set<int> codes;
    for (const durable_errc e : all) {
        codes.insert(static_cast<int>(e));
    }
    CHECK(codes.size() == static_cast<std::size_t>(highest));
    CHECK(*codes.begin() == 1);
    CHECK(*codes.rbegin() == highest);
    for (const int other : {-1, 0, highest + 1, 1'000'000}) {
        CAPTURE(other);
        CHECK(bide::durable_category().message(other) == "unknown");
    }
}

TEST_CASE("durable_errc: becomes an error_code of its own category") {
    const std::error_code code = durable_errc::lock_lost;
    CHECK(code);
    CHECK(code == durable_errc::lock_lost);
    CHECK(code != durable_errc::conflict_timeout);
    CHECK(code.value() == 2);
    CHECK(code.category() == bide::durable_category());
    CHECK(std::string(code.category().name()) == "bide.durable");
    CHECK(&bide::durable_category() == &bide::durable_category());
}

TEST_CASE("durable_errc: is not mistaken for another category's code of the same number") {
    const std::error_code ours = durable_errc::conflict_timeout;
    CHECK(ours != std::error_code(bide::errc::closed));
    CHECK(ours != std::error_code(1, std::generic_category()));
    CHECK(ours != std::error_code(1, std::system_category()));
    CHECK(ours != std::errc::operation_not_permitted);
}

TEST_CASE("durable_errc: a result's value() throws a system_error that carries it") {
    const bide::result<int, std::error_code> lost =
        bide::unexpected{std::error_code(durable_errc::lock_lost)};
    std::error_code thrown;
    try {
        static_cast<void>(lost.value());
    } catch (const std::system_error& e) {
        thrown = e.code();
    }
    CHECK(thrown == durable_errc::lock_lost);
}
