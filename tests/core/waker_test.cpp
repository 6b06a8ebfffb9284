#include <bide/core/executor.hpp>
#include <support/test.hpp>

namespace {

void count(void* calls) noexcept { ++*static_cast<int*>(calls); }

} // namespace

TEST_CASE("waker: it has two words, is trivially copyable, and is made at compile time") {
    STATIC_REQUIRE(std::is_trivially_copyable_v<bide::waker>);
    STATIC_REQUIRE(sizeof(bide::waker) == 2 * sizeof(void*));
    STATIC_REQUIRE(noexcept(bide::waker().wake()));
    constexpr bide::waker none;
    constexpr bide::waker some(&count, nullptr);
    CHECK_FALSE(static_cast<bool>(none));
    CHECK(static_cast<bool>(some));
    STATIC_REQUIRE_FALSE(std::is_convertible_v<bide::waker, bool>);
}

TEST_CASE("waker: wake() of an empty waker does nothing") {
    bide::waker().wake();
    const bide::waker no_function(nullptr, nullptr);
    CHECK_FALSE(static_cast<bool>(no_function));
    no_function.wake();
}

TEST_CASE("waker: each wake() calls the function once with the context") {
    int one = 0;
    int other = 0;
    const bide::waker w(&count, &one);
    bide::waker copy = w;
    w.wake();
    CHECK(one == 1);
    copy.wake();
    CHECK(one == 2);
    copy = bide::waker(&count, &other);
    copy.wake();
    CHECK(one == 2);
    CHECK(other == 1);
}

TEST_CASE("waker: a lambda without captures is accepted as a function") {
    int calls = 0;
    const bide::waker w([](void* c) noexcept { *static_cast<int*>(c) += 5; }, &calls);
    w.wake();
    CHECK(calls == 5);
}
