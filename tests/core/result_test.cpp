#include <bide/core/result.hpp>
#include <support/catch.hpp>
#include <support/counted.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>

using bide::errc;
using bide::result;
using bide::unexpected;

namespace {

// As channels' send_error: why it failed, and the value back.
struct refused {
    errc code;
    std::unique_ptr<int> value;
};

struct no_default {
    explicit no_default(int n) : number(n) {}
    int number;
};

struct hides_its_address {
    int number;
    hides_its_address* operator&() const = delete;
};

struct throws_on_move {
    throws_on_move() = default;
    throws_on_move(throws_on_move&&) { throw std::runtime_error("moved"); }
};

// What value() of a result with this error throws: the name of the class, or none.
template <class R> std::string thrown_by_value(const R& r, errc code) {
    try {
        r.value();
    } catch (const bide::closed_error& e) {
        return e.code() == code ? "closed_error" : "wrong code";
    } catch (const bide::stopped_error& e) {
        return e.code() == code ? "stopped_error" : "wrong code";
    } catch (const std::system_error& e) {
        return e.code() == code ? "system_error" : "wrong code";
    }
    return "nothing";
}

} // namespace

TEST_CASE("result: holds a value") {
    result<std::string> r("abc");
    CHECK(r.has_value());
    CHECK(static_cast<bool>(r));
    CHECK(r.value() == "abc");
    CHECK(*r == "abc");
    CHECK(r->size() == 3);
    *r += 'd';
    const result<std::string>& c = r;
    CHECK(c.value() == "abcd");
    CHECK(*c == "abcd");
    CHECK(c->size() == 4);
    CHECK(*std::move(r) == "abcd");
    const std::string taken = std::move(r).value();
    CHECK(taken == "abcd");
}

TEST_CASE("result: holds why there is no value") {
    const result<std::string> r(unexpected{errc::timeout});
    CHECK_FALSE(r.has_value());
    CHECK_FALSE(static_cast<bool>(r));
    CHECK(r.error() == errc::timeout);
}

TEST_CASE("result: is what std::expected is, to templates") {
    STATIC_REQUIRE(std::is_same_v<result<int>::value_type, int>);
    STATIC_REQUIRE(std::is_same_v<result<int>::error_type, errc>);
    STATIC_REQUIRE(std::is_same_v<result<void, refused>::error_type, refused>);
    STATIC_REQUIRE(std::is_void_v<result<void>::value_type>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<result<int>, bool>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<result<std::unique_ptr<int>>>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<result<int, refused>>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<result<void, refused>>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<result<std::unique_ptr<int>, refused>>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<result<void, refused>>);
    STATIC_REQUIRE_FALSE(std::is_nothrow_move_constructible_v<result<throws_on_move>>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<result<int>>().value()), int&&>);
    STATIC_REQUIRE(std::is_same_v<decltype(*std::declval<result<int>&>()), int&>);
    STATIC_REQUIRE(std::is_same_v<decltype(*std::declval<const result<int>&>()), const int&>);
}

TEST_CASE("result: value() without one throws what the error says") {
    CHECK(thrown_by_value(result<int>(unexpected{errc::closed}), errc::closed) == "closed_error");
    CHECK(thrown_by_value(result<int>(unexpected{errc::stopped}), errc::stopped) ==
          "stopped_error");
    for (const errc other : {errc::timeout, errc::empty, errc::full, errc::lagged}) {
        CHECK(thrown_by_value(result<int>(unexpected{other}), other) == "system_error");
        CHECK(thrown_by_value(result<void>(unexpected{other}), other) == "system_error");
    }
    CHECK(thrown_by_value(result<void>(unexpected{errc::closed}), errc::closed) == "closed_error");
    CHECK(thrown_by_value(result<void>(), errc::closed) == "nothing");
    CHECK(thrown_by_value(result<int>(1), errc::closed) == "nothing");

    result<int> r(unexpected{errc::closed});
    CHECK_THROWS_AS(r.value(), bide::closed_error);
    CHECK_THROWS_AS(std::move(r).value(), bide::closed_error);
}

TEST_CASE("result: an error may carry its code and the value that comes back") {
    result<int, refused> r(unexpected<refused>{refused{errc::closed, std::make_unique<int>(5)}});
    CHECK(thrown_by_value(r, errc::closed) == "closed_error");
    CHECK(r.error().code == errc::closed);
    const std::unique_ptr<int> back = std::move(r).error().value;
    CHECK(*back == 5);

    result<void, refused> v(unexpected<refused>{refused{errc::full, std::make_unique<int>(6)}});
    CHECK(thrown_by_value(v, errc::full) == "system_error");
    const refused out = std::move(v).error();
    CHECK(*out.value == 6);
}

TEST_CASE("result: moves what can only be moved") {
    result<std::unique_ptr<int>> r(std::make_unique<int>(7));
    result<std::unique_ptr<int>> moved(std::move(r));
    CHECK(*moved.value() == 7);
    result<std::unique_ptr<int>> assigned(unexpected{errc::empty});
    assigned = std::move(moved);
    const std::unique_ptr<int> out = *std::move(assigned);
    CHECK(*out == 7);
}

TEST_CASE("result: assigned to itself it stays what it is") {
    result<std::unique_ptr<int>, refused> value(std::make_unique<int>(7));
    auto& same_value = value;
    value = std::move(same_value);
    REQUIRE(value.has_value());
    CHECK(**value == 7);
    result<std::unique_ptr<int>, refused> error(
        unexpected<refused>{refused{errc::full, std::make_unique<int>(8)}});
    auto& same_error = error;
    error = std::move(same_error);
    REQUIRE_FALSE(error.has_value());
    CHECK(*error.error().value == 8);
}

TEST_CASE("result: value_or gives the value, or what is given") {
    CHECK(result<int>(3).value_or(9) == 3);
    CHECK(result<int>(unexpected{errc::empty}).value_or(9) == 9);
    CHECK(result<std::string>(unexpected{errc::empty}).value_or("none") == "none");
    const result<std::string> c("here");
    CHECK(c.value_or("none") == "here");
    CHECK(c.value() == "here"); // not moved from
    const auto p = result<std::unique_ptr<int>>(std::make_unique<int>(1)).value_or(nullptr);
    CHECK(*p == 1);
}

TEST_CASE("result: a value needs no default constructor, and may hide its address") {
    CHECK(result<no_default>(no_default(4))->number == 4);
    CHECK_FALSE(result<no_default>(unexpected{errc::empty}).has_value());
    const result<hides_its_address> r(hides_its_address{8});
    const result<hides_its_address> copy(r);
    CHECK(copy->number == 8);
    CHECK((*copy).number == 8);
}

TEST_CASE("result: copies, moves and assignments keep value and error apart, and lose none") {
    using counted = test::counted;
    test::tally values;
    test::tally errors;
    using both = result<counted, counted>;
    const auto value = [&](int n) { return both(counted(values, n)); };
    const auto error = [&](int n) { return both(unexpected<counted>{counted(errors, n)}); };
    {
        both v = value(1);
        both e = error(2);
        both v2(v);
        both e2(e);
        CHECK(v2->number() == 1);
        CHECK(e2.error().number() == 2);
        v2 = e; // value -> error
        CHECK_FALSE(v2.has_value());
        CHECK(v2.error().number() == 2);
        e2 = v; // error -> value
        CHECK(e2->number() == 1);
        e2 = value(3);
        CHECK(e2->number() == 3);
        v2 = error(4);
        CHECK(v2.error().number() == 4);
        both& self = v;
        v = self;
        CHECK(v->number() == 1);
        v = std::move(self);
        CHECK(v->number() == 1);
        both moved(std::move(v));
        CHECK(moved->number() == 1);
        CHECK(v->number() == -1);
        CHECK(values.alive() + errors.alive() == 5);
    }
    CHECK(values.alive() == 0);
    CHECK(errors.alive() == 0);
}

TEST_CASE("result<void>: copies, moves and assignments lose no error") {
    test::tally errors;
    using nothing = result<void, test::counted>;
    {
        nothing good;
        nothing bad(unexpected<test::counted>{test::counted(errors, 1)});
        CHECK(good.has_value());
        CHECK(static_cast<bool>(good));
        CHECK_FALSE(bad.has_value());
        nothing copy(bad);
        CHECK(copy.error().number() == 1);
        copy = good;
        CHECK(copy.has_value());
        copy = bad;
        CHECK(copy.error().number() == 1);
        const nothing& self = copy;
        copy = self;
        CHECK(copy.error().number() == 1);
        copy = std::move(bad);
        CHECK(copy.error().number() == 1);
        good = nothing();
        CHECK(good.has_value());
        CHECK(errors.alive() == 2);
    }
    CHECK(errors.alive() == 0);
}

TEST_CASE("result: a move that throws lets it through and leaves nothing behind") {
    const auto make = [] { return result<throws_on_move>(throws_on_move()); };
    CHECK_THROWS_AS(make(), std::runtime_error);
}
