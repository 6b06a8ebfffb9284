#include <bide/core/result.hpp>
#include <support/counted.hpp>
#include <support/test.hpp>

using namespace bide;

namespace {

// Carries a code and the value that was not sent, as send_error of a channel does.
struct refused {
    errc code;
    std::unique_ptr<int> value;
};

struct no_default {
    explicit no_default(int n) : number(n) {}
    int number;
};

// Overloads the comma and the address-of operator.
struct overloads_operators {
    int number = 0;
    overloads_operators* operator&() const = delete;
    template <class Any> friend void operator,(const overloads_operators&, Any&&) = delete;
    template <class Any> friend void operator,(Any&&, const overloads_operators&) = delete;
};

// Can be made of anything.
struct greedy {
    int made_of = 0; // 1: an int, 2: a result<int>, 3: anything else
    template <class Any>
        requires(!std::is_same_v<std::remove_cvref_t<Any>, greedy>)
    greedy(Any&&) noexcept
        : made_of(std::is_same_v<std::remove_cvref_t<Any>, int>           ? 1
                  : std::is_same_v<std::remove_cvref_t<Any>, result<int>> ? 2
                                                                          : 3) {}
};

struct has_answer {
    result<int> answer = 4;
};

struct immovable {
    explicit immovable(int n) noexcept : number(n) {}
    immovable(const immovable&) = delete;
    immovable& operator=(const immovable&) = delete;
    int number;
};

// Can be made of an int explicitly.
struct asked_for {
    explicit asked_for(int n) noexcept : number(n) {}
    int number;
};

// Can be moved and not assigned.
struct has_const_member {
    const std::unique_ptr<int> value;
    explicit has_const_member(int n) : value(std::make_unique<int>(n)) {}
    has_const_member(has_const_member&& other) noexcept
        : value(std::move(const_cast<std::unique_ptr<int>&>(other.value))) {}
};

// The copy throws on demand, and so does the move if Moves is false.
template <bool Moves> struct breakable {
    static inline bool breaks = false;
    static inline int alive = 0;
    int number;
    explicit breakable(int n) : number(n) { ++alive; }
    breakable(const breakable& other) : number(broken(other.number)) { ++alive; }
    breakable(breakable&& other) noexcept(Moves)
        : number(Moves ? other.number : broken(other.number)) {
        ++alive;
        other.number = -1;
    }
    breakable& operator=(const breakable& other) {
        number = -2; // half-finished
        number = broken(other.number);
        return *this;
    }
    breakable& operator=(breakable&& other) noexcept(false) {
        number = -2;
        number = broken(other.number);
        other.number = -1;
        return *this;
    }
    ~breakable() { --alive; }
    static int broken(int n) {
        if (breaks) {
            throw std::runtime_error("broken");
        }
        return n;
    }
};

struct throws_on_move {
    throws_on_move() = default;
    throws_on_move(throws_on_move&&) { throw std::runtime_error("moved"); }
};

// Returns the name of the exception that value() throws with this error; none if it does not throw.
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

TEST_CASE("result: has the member types of std::expected") {
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
    STATIC_REQUIRE(std::is_same_v<result<int>::unexpected_type, unexpected<errc>>);
    STATIC_REQUIRE(std::is_same_v<result<int, refused>::rebind<char>, result<char, refused>>);
    STATIC_REQUIRE(std::is_same_v<result<void, refused>::rebind<char>, result<char, refused>>);
}

TEST_CASE("unexpected: wraps an error") {
    unexpected e{errc::full};
    STATIC_REQUIRE(std::is_same_v<decltype(e), unexpected<errc>>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<errc, unexpected<errc>>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<unexpected<errc>, int>);
    CHECK(e.error() == errc::full);
    unexpected other{errc::empty};
    CHECK(e == unexpected{errc::full});
    CHECK(e != other);
    const unexpected<std::string> text(std::in_place, 3U, 'x');
    CHECK(text.error() == "xxx");
    unexpected<std::unique_ptr<int>> once(std::make_unique<int>(4));
    const std::unique_ptr<int> out = std::move(once).error();
    CHECK(*out == 4);
    constexpr unexpected<int> constant(5);
    STATIC_REQUIRE(constant.error() == 5);
}

TEST_CASE("result: is made in place, of a value, of an error, and by default") {
    CHECK(result<std::string>(std::in_place, 3U, 'x').value() == "xxx");
    CHECK(result<int, std::string>(bide::unexpect, 3U, 'x').error() == "xxx");
    CHECK(result<void, std::string>(bide::unexpect, 3U, 'x').error() == "xxx");
    CHECK(result<void>(std::in_place).has_value());
    CHECK(result<int>().value() == 0);
    CHECK(result<immovable>(std::in_place, 6)->number == 6);
    STATIC_REQUIRE_FALSE(std::is_default_constructible_v<result<no_default>>);
    STATIC_REQUIRE_FALSE(std::is_move_constructible_v<result<immovable>>);
    STATIC_REQUIRE_FALSE(std::is_move_assignable_v<result<immovable>>);
}

TEST_CASE("result: converts implicitly if the value and the error do, else explicitly") {
    STATIC_REQUIRE(std::is_convertible_v<const char*, result<std::string>>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<int, result<asked_for>>);
    STATIC_REQUIRE(std::is_constructible_v<result<asked_for>, int>);
    STATIC_REQUIRE(std::is_convertible_v<result<int>, result<long>>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<result<int>, result<asked_for>>);
    STATIC_REQUIRE(std::is_constructible_v<result<asked_for>, result<int>>);
    STATIC_REQUIRE(std::is_constructible_v<result<asked_for>, const result<int>&>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<result<int>, result<std::string>>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<result<int>, result<void>>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<result<void>, result<int>>);
    STATIC_REQUIRE(std::is_convertible_v<unexpected<errc>, result<int, std::error_code>>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<unexpected<int>, result<int, asked_for>>);
    STATIC_REQUIRE(std::is_constructible_v<result<int, asked_for>, unexpected<int>>);
    STATIC_REQUIRE(std::is_convertible_v<result<void>, result<void, std::error_code>>);
    STATIC_REQUIRE(std::is_constructible_v<result<void, asked_for>, result<void, int>>);
    STATIC_REQUIRE_FALSE(std::is_convertible_v<result<void, int>, result<void, asked_for>>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<result<int>, std::string>);

    const result<int> three(3);
    CHECK(result<long>(three).value() == 3);
    CHECK(result<asked_for>(three)->number == 3);
    const result<const char*> text("abc");
    CHECK(result<std::string, std::error_code>(text).value() == "abc");
    const result<int> failed(unexpected{errc::full});
    CHECK(result<long, std::error_code>(failed).error() == errc::full);
    result<std::unique_ptr<int>> owned(std::make_unique<int>(7));
    const result<std::shared_ptr<int>> shared(std::move(owned));
    CHECK(**shared == 7);
    const result<void> nothing(unexpected{errc::lagged});
    CHECK(result<void, std::error_code>(nothing).error() == errc::lagged);
}

TEST_CASE("result: a value that can be made of a result is made of it, and a copy is a copy") {
    result<greedy> of_int(5);
    CHECK(of_int->made_of == 1);
    const result<greedy> of_result(result<int>(5));
    CHECK(of_result->made_of == 2);
    result<greedy> copy(of_int);
    CHECK(copy->made_of == 1);
    const result<greedy> moved(std::move(copy));
    CHECK(moved->made_of == 1);
    const result<greedy> failed(unexpected{errc::full});
    CHECK_FALSE(failed.has_value());
    of_int = unexpected{errc::full};
    CHECK_FALSE(of_int.has_value());
    of_int = failed;
    CHECK_FALSE(of_int.has_value());
    of_int = 5;
    CHECK(of_int->made_of == 1);

    result<std::any> any(std::any(3));
    const result<std::any> any_copy(any);
    CHECK(std::any_cast<int>(*any_copy) == 3);
    any = unexpected{errc::empty};
    CHECK_FALSE(any.has_value());
    CHECK(any_copy.has_value());
}

TEST_CASE("result: results of an optional, a result and a bool do not confuse inner and outer") {
    using maybe = result<std::optional<int>>;
    CHECK_FALSE(maybe(std::nullopt)->has_value());
    CHECK(maybe(4).value() == 4);
    CHECK(maybe(std::optional<int>()).has_value());
    CHECK(maybe().has_value());
    maybe m(4);
    m = std::nullopt;
    REQUIRE(m.has_value());
    CHECK_FALSE(m->has_value());
    m = unexpected{errc::empty};
    CHECK_FALSE(m.has_value());
    CHECK(maybe(result<int>(4)).value() == 4);

    using nested = result<result<int>>;
    CHECK(nested(3).value().value() == 3);
    CHECK(nested(result<int>(3))->value() == 3);
    const nested inner_error(result<int>(unexpected{errc::full}));
    REQUIRE(inner_error.has_value());
    CHECK(inner_error->error() == errc::full);
    const nested outer_error(unexpected{errc::empty});
    CHECK(outer_error.error() == errc::empty);
    nested assigned(outer_error);
    assigned = result<int>(unexpected{errc::full});
    REQUIRE(assigned.has_value());
    CHECK(assigned->error() == errc::full);
    CHECK(assigned == inner_error);
    const nested copy(inner_error);
    CHECK(copy->error() == errc::full);

    using truth = result<bool>;
    const truth no(false);
    REQUIRE(no.has_value());
    CHECK_FALSE(*no);
    const truth copied(no);
    CHECK_FALSE(copied.value());
    CHECK_FALSE(truth(result<int>(0)).value());
    CHECK_FALSE(truth(result<int>(unexpected{errc::full})).has_value());
    CHECK_FALSE(truth(unexpected{errc::full}).has_value());
    STATIC_REQUIRE_FALSE(std::is_convertible_v<result<std::string>, truth>);
    STATIC_REQUIRE_FALSE(std::is_constructible_v<truth, result<std::string>>);
    STATIC_REQUIRE_FALSE(std::is_assignable_v<truth&, result<std::string>>);
}

TEST_CASE("result: overloaded comma and address-of operators are not called") {
    result<overloads_operators, overloads_operators> r(overloads_operators{1});
    result<overloads_operators, overloads_operators> e(
        unexpected<overloads_operators>(overloads_operators{2}));
    CHECK(e.error().number == 2);
    e = r;
    CHECK(e->number == 1);
    r = e;
    CHECK(r->number == 1);
    const auto copy(r);
    CHECK(copy->number == 1);
    e.emplace(overloads_operators{4});
    CHECK((*e).number == 4);
    CHECK(r.transform([](const overloads_operators& o) { return o.number; }) == 1);
}

TEST_CASE("result: is assigned values and errors, and emplaces") {
    result<std::string> r("a");
    r = "b";
    CHECK(r.value() == "b");
    r = unexpected{errc::full};
    CHECK(r.error() == errc::full);
    const unexpected<errc> empty{errc::empty};
    r = empty;
    CHECK(r.error() == errc::empty);
    r = "c";
    CHECK(r.value() == "c");
    CHECK(result<immovable>(unexpected{errc::full}).emplace(3).number == 3);
    result<immovable> i(unexpected{errc::full});
    CHECK(i.emplace(3).number == 3);
    CHECK(i.has_value());

    result<void> nothing(unexpected{errc::full});
    nothing.emplace();
    CHECK(nothing.has_value());
    nothing = unexpected{errc::timeout};
    CHECK(nothing.error() == errc::timeout);
    nothing = {};
    CHECK(nothing.has_value());
}

TEST_CASE("result: a value that cannot be assigned is replaced") {
    using fixed = result<has_const_member>;
    fixed r(has_const_member(1));
    r = fixed(has_const_member(2));
    CHECK(*r->value == 2);
    r = has_const_member(3);
    CHECK(*r->value == 3);
    r = unexpected{errc::full};
    r = fixed(has_const_member(4));
    CHECK(*r->value == 4);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<fixed>);
    STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<fixed>);
}

namespace {

template <bool Values> void change_while_copies_throw() {
    using both = result<breakable<Values>, breakable<true>>;
    const auto break_both = [](bool on) {
        breakable<Values>::breaks = on;
        breakable<true>::breaks = on;
    };
    {
        both v(std::in_place, 1);
        both e(bide::unexpect, 2);
        const both other_v(std::in_place, 3);
        const both other_e(bide::unexpect, 4);
        break_both(true);
        CHECK_THROWS_AS(v = other_e, std::runtime_error);
        CHECK_THROWS_AS(e = other_v, std::runtime_error);
        CHECK_THROWS_AS(v = other_v, std::runtime_error);
        CHECK_THROWS_AS(e = other_e, std::runtime_error);
        break_both(false);
        REQUIRE(v.has_value());
        CHECK(v->number == 1);
        REQUIRE_FALSE(e.has_value());
        CHECK(e.error().number == 2);
        v = other_e;
        e = other_v;
        CHECK(v.error().number == 4);
        CHECK(e->number == 3);
        CHECK(breakable<Values>::alive + (Values ? 0 : breakable<true>::alive) == 4);
    }
    CHECK(breakable<Values>::alive == 0);
    CHECK(breakable<true>::alive == 0);
}

} // namespace

TEST_CASE("result: an assignment that throws leaves both sides unchanged") {
    change_while_copies_throw<true>();
    change_while_copies_throw<false>();
    using unsafe = result<int, breakable<false>>;
    STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<unsafe>);
    STATIC_REQUIRE_FALSE(std::is_move_assignable_v<unsafe>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<result<breakable<true>>>);
    STATIC_REQUIRE_FALSE(std::is_nothrow_move_assignable_v<result<breakable<false>>>);
}

namespace {

// A value (1, 2) or an error (-1, -2) of counted types, or nothing in place of the value.
using counted_result = result<test::counted, test::counted>;
using counted_void = result<void, test::counted>;

template <class R> R made(test::tally& in, int content) {
    if (content < 0) {
        return R(bide::unexpect, in, content);
    }
    if constexpr (std::is_void_v<typename R::value_type>) {
        return R();
    } else {
        return R(std::in_place, in, content);
    }
}
template <class R> bool holds(const R& r, int content) {
    if (r.has_value() != (content > 0) || static_cast<bool>(r) != r.has_value()) {
        return false;
    }
    if constexpr (std::is_void_v<typename R::value_type>) {
        return content > 0 || r.error().number() == content;
    } else {
        return content > 0 ? r->number() == content : r.error().number() == content;
    }
}

} // namespace

TEMPLATE_TEST_CASE(
    "result: copies, moves, assignments and swaps neither mix up nor lose values and "
    "errors",
    "", counted_result, counted_void) {
    test::tally in;
    for (const int from : {1, 2, -1, -2}) {
        for (const int to : {1, 2, -1, -2}) {
            CAPTURE(from, to);
            const auto source = made<TestType>(in, from);
            auto copy(source);
            CHECK(holds(copy, from));
            const auto moved(std::move(copy));
            CHECK(holds(moved, from));
            auto target = made<TestType>(in, to);
            target = source;
            CHECK(holds(target, from));
            target = made<TestType>(in, to);
            CHECK(holds(target, to));
            auto& same = target;
            target = same;
            target = std::move(same);
            CHECK(holds(target, to));
            auto other = made<TestType>(in, from);
            std::swap(target, other);
            CHECK((holds(target, from) && holds(other, to)));
        }
    }
    CHECK(in.alive() == 0);
}

TEST_CASE("result: holds a move-only value and a move-only error") {
    using both = result<std::unique_ptr<int>, refused>;
    both value(std::make_unique<int>(7));
    both error(bide::unexpect, refused{errc::full, std::make_unique<int>(8)});
    both moved(std::move(value));
    value = std::move(error);
    std::swap(moved, value);
    auto& same = moved;
    moved = std::move(same);
    CHECK(*moved.error().value == 8);
    const std::unique_ptr<int> out = *std::move(value);
    CHECK(*out == 7);
}

TEST_CASE("result: is equal to a result, a value and an error") {
    const result<int> one(1);
    const result<int> full(unexpected{errc::full});
    CHECK(one == result<long>(1L));
    CHECK(one != result<int>(2));
    CHECK(one != full);
    CHECK(full == result<int>(unexpected{errc::full}));
    CHECK(full != result<int>(unexpected{errc::empty}));
    CHECK(one == 1);
    CHECK(1 == one);
    CHECK(one != 2);
    CHECK(full != 1);
    CHECK(full == unexpected{errc::full});
    CHECK(unexpected{errc::full} == full);
    CHECK(full != unexpected{errc::empty});
    CHECK(one != unexpected{errc::full});
    CHECK(result<void>() == result<void>());
    CHECK(result<void>() != result<void>(unexpected{errc::full}));
    CHECK(result<void>(unexpected{errc::full}) == unexpected{errc::full});
    CHECK(result<result<int>>(1) == one);
}

TEST_CASE("result: value_or and error_or return their own content or the argument") {
    CHECK(result<int>(3).value_or(9) == 3);
    CHECK(result<int>(unexpected{errc::empty}).value_or(9) == 9);
    CHECK(result<std::string>(unexpected{errc::empty}).value_or("none") == "none");
    const result<std::string> c("here");
    CHECK(c.value_or("none") == "here");
    CHECK(c.value() == "here"); // not moved from
    const auto p = result<std::unique_ptr<int>>(std::make_unique<int>(1)).value_or(nullptr);
    CHECK(*p == 1);
    const result<int, std::string> good(1);
    const result<int, std::string> bad(bide::unexpect, "bad");
    CHECK(good.error_or("fine") == "fine");
    CHECK(bad.error_or("fine") == "bad");
    CHECK(result<void, std::string>().error_or("fine") == "fine");
    using once = result<int, std::unique_ptr<int>>;
    CHECK(*once(bide::unexpect, std::make_unique<int>(3)).error_or(nullptr) == 3);
    CHECK(result<std::vector<int>>(unexpected{errc::full}).value_or({1, 2}).size() == 2);
    CHECK(result<int, std::vector<int>>(1).error_or({1, 2}).size() == 2);
}

namespace {

// The argument that f() got: 1 for const T&, 2 for T&&.
struct category {
    int operator()(const std::string&) const { return 1; }
    int operator()(std::string&&) const { return 2; }
};

// The same as a result.
template <class R, bool Error> struct category_result {
    template <class S> R operator()(S&& s) const {
        const int which = category()(std::forward<S>(s));
        if constexpr (Error) {
            return R(bide::unexpect, which);
        } else {
            return R(which);
        }
    }
};

} // namespace

TEST_CASE("result: each chain passes the value or the error in the result's value category") {
    using text = result<std::string, std::string>;
    text good("value");
    text bad(bide::unexpect, "error");

    const category_result<result<int, std::string>, false> next;
    CHECK(good.and_then(next) == 1);
    CHECK(std::move(good).and_then(next) == 2);
    CHECK(bad.and_then(next).error() == "error");
    CHECK(good.transform(category()) == 1);
    CHECK(std::move(good).transform(category()) == 2);
    CHECK(bad.transform(category()).error() == "error");

    const category_result<result<std::string, int>, true> instead;
    CHECK(bad.or_else(instead).error() == 1);
    CHECK(std::move(bad).or_else(instead).error() == 2);
    CHECK(*good.or_else(instead) == "value");
    CHECK(bad.transform_error(category()).error() == 1);
    CHECK(std::move(bad).transform_error(category()).error() == 2);
    CHECK(*good.transform_error(category()) == "value");

    // A chain moves a move-only value along.
    using once = result<std::unique_ptr<int>>;
    const auto taken =
        once(std::make_unique<int>(5)).transform([](std::unique_ptr<int> p) { return *p + 1; });
    CHECK(taken == 6);
    CHECK(once(unexpected{errc::full}).transform_error([](errc e) { return e == errc::full; }) ==
          unexpected{true});
    const auto moved = once(std::make_unique<int>(5)).or_else([](errc) { return once(); });
    CHECK(**moved == 5);
    CHECK(result<std::string>("abc").transform(&std::string::size) == 3U);
    CHECK(result<has_answer>(std::in_place).and_then(&has_answer::answer) == 4);
    CHECK(result<int>(3).transform([](int) {}).has_value());
}

TEST_CASE("result<void>: each chain continues without a value or with the error") {
    using nothing = result<void, std::string>;
    nothing good;
    nothing bad(bide::unexpect, "error");
    const auto one = [] { return result<int, std::string>(1); };
    CHECK(good.and_then(one) == 1);
    CHECK(std::move(good).and_then(one) == 1);
    CHECK(bad.and_then(one).error() == "error");
    CHECK(good.transform([] { return 2; }) == 2);
    CHECK(good.transform([] {}).has_value());
    CHECK(bad.transform([] { return 2; }).error() == "error");
    const category_result<result<void, int>, true> instead;
    CHECK(bad.or_else(instead).error() == 1);
    CHECK(std::move(bad).or_else(instead).error() == 2);
    CHECK(good.or_else(instead).has_value());
    CHECK(bad.transform_error(category()).error() == 1);
    CHECK(good.transform_error(category()).has_value());
}

TEST_CASE("result: it is trivial and small if its types are trivial") {
    using plain = result<int>;
    STATIC_REQUIRE(std::is_trivially_copyable_v<plain>);
    STATIC_REQUIRE(std::is_trivially_copyable_v<result<void>>);
    STATIC_REQUIRE(std::is_trivially_destructible_v<plain>);
    STATIC_REQUIRE(sizeof(plain) == 2 * sizeof(int));
    STATIC_REQUIRE(sizeof(result<void>) == 2 * sizeof(int));
    STATIC_REQUIRE_FALSE(std::is_trivially_copyable_v<result<std::string>>);
    STATIC_REQUIRE(std::is_nothrow_move_assignable_v<result<std::string>>);
}

namespace {

constexpr int constant() {
    result<int> r(3);
    const result<long> wide(r);
    r = result<int>(bide::unexpect, errc::full);
    const result<std::pair<int, int>> pair(std::in_place, 1, 2); // not trivially copyable
    return r.value_or(4) + static_cast<int>(*wide) + pair->second +
           r.transform([](int n) { return n; }).value_or(5);
}

} // namespace

TEST_CASE("result: works at compile time") { STATIC_REQUIRE(constant() == 4 + 3 + 2 + 5); }

TEST_CASE("result: value() without a value throws the exception of the error") {
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

TEST_CASE("result: an error may carry a code and a value") {
    result<int, refused> r(unexpected<refused>{refused{errc::closed, std::make_unique<int>(5)}});
    CHECK(thrown_by_value(r, errc::closed) == "closed_error");
    const std::unique_ptr<int> back = std::move(r.error().value); // of a named result
    CHECK(*back == 5);
    CHECK(r.error().value == nullptr);
    r.error().code = errc::full;
    CHECK(std::as_const(r).error().code == errc::full);

    result<void, refused> v(unexpected<refused>{refused{errc::full, std::make_unique<int>(6)}});
    CHECK(thrown_by_value(v, errc::full) == "system_error");
    const refused out = std::move(v).error();
    CHECK(*out.value == 6);
}

TEST_CASE("result: a move that throws passes the exception on and leaks nothing") {
    const auto make = [] { return result<throws_on_move>(throws_on_move()); };
    CHECK_THROWS_AS(make(), std::runtime_error);
}

namespace elsewhere {

// Names that bide also uses, in the namespace of a value and an error.
struct value {
    int i = 0;
};
struct error {
    bide::errc code = bide::errc::closed;
};
template <class... T> void construct(T&&...) = delete;
template <class... T> void destroy(T&&...) = delete;
template <class... T> void call_with(T&&...) = delete;
template <class... T> void place(T&&...) = delete;
template <class... T> void throw_error(T&&...) = delete;
template <class T> int code_of(const T&) = delete;

} // namespace elsewhere

TEST_CASE("result: functions of the same names in the namespace of its types are not called") {
    using result = bide::result<elsewhere::value, elsewhere::error>;
    result r(elsewhere::value{1});
    CHECK(r.transform([](const elsewhere::value& v) { return v.i + 1; }).value() == 2);
    r = bide::unexpected(elsewhere::error{});
    CHECK_THROWS_AS(r.value(), bide::closed_error);
    r.emplace(elsewhere::value{3});
    CHECK(r->i == 3);
}
