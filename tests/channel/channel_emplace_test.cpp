#include "support/channel_forms.hpp"
#include "support/text.hpp"

namespace {

using bide::errc;

using test::lives;
using test::text;

struct item { // an aggregate
    int number;
    text name;

    bool operator==(const item&) const = default;
};
struct box { // one in another
    item in;
    int number;

    bool operator==(const box&) const = default;
};
class whole { // no aggregate
public:
    whole(int number, const char* name) : number_(number), name_(name) {}
    bool operator==(const whole&) const = default;

private:
    int number_;
    text name_;
};
struct only { // an aggregate that cannot be copied
    std::unique_ptr<int> number;
    text name;
};
struct point { // an aggregate that nothing is lost of
    int x;
    int y;
    bool operator==(const point&) const = default;
};
struct convertible { // to an aggregate
    convertible() noexcept {}
    operator item() const;
};
using two_texts = std::array<text, 2>;

item make_item() { return item{1, "x"}; }
item make_converted() { return item{1, "converted"}; }
convertible::operator item() const { return make_converted(); }
box make_box() { return box{make_item(), 2}; }
whole make_whole() { return whole(1, "x"); }
two_texts make_texts() { return two_texts{"x", "x"}; }
text make_text() { return text("x"); }

template <class From, class T> bool receives(From& from, const T& what) {
    const auto got = from.try_recv();
    return got && *got == what;
}

// ---- Forms of one line, each a coroutine that sends what stands in the table

template <class T> using channel = bide::channel<T>;
template <class T> using form = test::held (*)(channel<T>&);

// Sends it where there is room, where a receiver comes later, and where none comes at all. Where
// nothing else lives at the end, all that was made was destroyed once, and nothing else was.
template <class T> bool sends(form<T> one, const T& what) {
    bool as_it_should = true;
    for (const std::size_t capacity : {std::size_t{2}, std::size_t{0}}) {
        channel<T> ch(capacity);
        test::held sender = one(ch);
        sender.start();
        as_it_should = as_it_should && sender.done() == (capacity != 0);
        as_it_should = as_it_should && receives(ch, what) && sender.done();
    }
    channel<T> ch(0);
    test::held abandoned = one(ch);
    abandoned.start();
    as_it_should = as_it_should && !abandoned.done();
    abandoned.destroy();
    return as_it_should && ch.try_recv().error() == errc::empty;
}

template <class T> struct row {
    form<T> send;
    const char* name;
};

template <class T> void check_forms(const std::vector<row<T>>& rows, T (*what)()) {
    for (const row<T>& r : rows) {
        INFO(r.name);
        const lives texts;
        CHECK(sends<T>(r.send, what()));
        CHECK(texts.are_over());
    }
}

// `co_await op` in a coroutine that sends to ch; `before` goes before it.
#define BIDE_FORM(T, before, op)                                                                   \
    row<T> {                                                                                       \
        [](channel<T>& ch) -> test::held {                                                         \
            before;                                                                                \
            static_cast<void>(co_await op);                                                        \
        },                                                                                         \
            #before " co_await " #op                                                               \
    }

template <class T> using bounded = test::forms::bounded<T, test::native>;
template <class T> using unbounded = test::forms::unbounded<T, test::native>;
template <class T> using handles = test::forms::bounded_handles<T, test::native>;

// Refuses to be made of 0.
class picky {
public:
    explicit picky(int number) : number_(number) {
        if (number == 0) {
            throw std::invalid_argument("0");
        }
    }
    int number() const noexcept { return number_; }

private:
    int number_;
};

template <class Sender, class... Args>
concept can_emplace = requires(Sender& to, Args... args) { to.async_emplace(args...); };

static_assert(can_emplace<channel<item>, int, const char*>);
static_assert(!can_emplace<channel<item>, const char*, int>);
static_assert(!can_emplace<channel<only>, only>); // an lvalue
static_assert(can_emplace<channel<std::vector<int>>, std::size_t, int>);
static_assert(std::same_as<decltype(std::declval<channel<item>&>().async_emplace(1, "x")),
                           decltype(std::declval<channel<item>&>().async_send(make_item()))>);

} // namespace

TEST_CASE("async_emplace: an item that is made in the co_await expression is destroyed once, "
          "whatever it is made of",
          "[promise.temporaries-once]") {
    const std::vector<row<item>> items{
        BIDE_FORM(item, , ch.async_emplace(1, "x")),
        BIDE_FORM(item, , ch.async_emplace(1, text("x"))),
        BIDE_FORM(item, , ch.async_emplace(make_item())),
        BIDE_FORM(item, , ch.async_emplace(1, "x").with_timeout(1h)),
        BIDE_FORM(item, const text x("x"), ch.async_emplace(1, x)),
        BIDE_FORM(item, text x("x"), ch.async_emplace(1, std::move(x))),
        BIDE_FORM(item, item one = make_item(), ch.async_emplace(std::move(one))),
        BIDE_FORM(item, auto op = ch.async_emplace(1, "x"), std::move(op)),
    };
    check_forms(items, make_item);

    const std::vector<row<box>> boxes{
        BIDE_FORM(box, , ch.async_emplace(make_item(), 2)),
        BIDE_FORM(box, item in = make_item(), ch.async_emplace(std::move(in), 2)),
    };
    check_forms(boxes, make_box);

    const std::vector<row<two_texts>> arrays{
        BIDE_FORM(two_texts, , ch.async_emplace("x", "x")),
        BIDE_FORM(two_texts, , ch.async_emplace(text("x"), "x")),
    };
    check_forms(arrays, make_texts);

    const std::vector<row<whole>> wholes{
        BIDE_FORM(whole, , ch.async_emplace(1, "x")),
    };
    check_forms(wholes, make_whole);
}

TEST_CASE("async_send: an item that is named, returned, converted or no aggregate is destroyed "
          "once",
          "[promise.temporaries-once]") {
    const std::vector<row<item>> items{
        BIDE_FORM(item, item one = make_item(), ch.async_send(std::move(one))),
        BIDE_FORM(item, const item one = make_item(), ch.async_send(one)),
        BIDE_FORM(item, , ch.async_send(make_item())),
        BIDE_FORM(item, auto op = ch.async_send(item{1, "x"}), std::move(op)),
        BIDE_FORM(item, item one = make_item(), ch.async_send_from(one)),
    };
    check_forms(items, make_item);

    const std::vector<row<item>> converted{
        BIDE_FORM(item, const convertible from, ch.async_send(from)),
        BIDE_FORM(item, , ch.async_send(convertible())),
    };
    check_forms(converted, make_converted);

    const std::vector<row<whole>> wholes{
        BIDE_FORM(whole, , ch.async_send({1, "x"})),
        BIDE_FORM(whole, , ch.async_send(whole{1, "x"})),
        BIDE_FORM(whole, , ch.async_send(whole(1, "x"))),
    };
    check_forms(wholes, make_whole);

    const std::vector<row<text>> texts{
        BIDE_FORM(text, , ch.async_send("x")),
        BIDE_FORM(text, , ch.async_send({"x"})),
        BIDE_FORM(text, , ch.async_send(text("x"))),
    };
    check_forms(texts, make_text);
}

#if !BIDE_BRACED_AWAIT_BUG
TEST_CASE("async_send: an aggregate that is written in the co_await expression is destroyed once") {
    const std::vector<row<item>> items{
        BIDE_FORM(item, , ch.async_send({1, "x"})),
        BIDE_FORM(item, , ch.async_send({.number = 1, .name = "x"})),
        BIDE_FORM(item, , ch.async_send(item{1, "x"})),
        BIDE_FORM(item, , ch.async_send(item{.number = 1, .name = "x"})),
        BIDE_FORM(item, const text x("x"), ch.async_send({1, x})),
        BIDE_FORM(item, const bool own = ch.empty(),
                  ch.async_send(own ? item{1, "x"} : make_item())),
    };
    check_forms(items, make_item);

    const std::vector<row<box>> boxes{
        BIDE_FORM(box, , ch.async_send({{1, "x"}, 2})),
        BIDE_FORM(box, , ch.async_emplace(item{1, "x"}, 2)),
    };
    check_forms(boxes, make_box);

    const std::vector<row<two_texts>> arrays{
        BIDE_FORM(two_texts, , ch.async_send({"x", "x"})),
    };
    check_forms(arrays, make_texts);
}
#endif

TEST_CASE("async_send: braces make an aggregate of what needs no destructor") {
    channel<point> ch(1);
    const auto send = [](channel<point>& to) -> test::held {
        static_cast<void>(co_await to.async_send({1, 2}));
    };
    send(ch).start();
    CHECK(receives(ch, point{1, 2}));
}

TEST_CASE("async_send: takes of an aggregate what a parameter by value takes, and nothing else") {
    const auto takes = []<class T, class U>(channel<T>& ch, U&& value) {
        return requires { ch.async_send(std::forward<U>(value)); };
    };
    const lives texts;
    channel<item> items(1);
    item one{1, "x"};
    CHECK(takes(items, one));
    CHECK(takes(items, std::as_const(one)));
    CHECK(takes(items, std::move(one)));
    CHECK(takes(items, convertible()));
    CHECK_FALSE(takes(items, point{1, 2}));
    CHECK_FALSE(takes(items, 1));
    channel<only> onlys(1);
    only own{nullptr, "x"};
    CHECK(takes(onlys, std::move(own)));
    CHECK_FALSE(takes(onlys, own));

    {
        const item kept{1, "x"};
        const auto send = [](channel<item>& ch, const item& it) -> test::held {
            static_cast<void>(co_await ch.async_send(it));
        };
        send(items, kept).start();
        CHECK(texts.copies() == 1);
        CHECK(receives(items, kept));
    }
    {
        const auto send = [](channel<item>& ch) -> test::held {
            item mine{1, "x"};
            static_cast<void>(co_await ch.async_send(std::move(mine)));
            static_cast<void>(co_await ch.async_emplace(2, "y"));
        };
        channel<item> two(2);
        send(two).start();
        CHECK(texts.copies() == 1);
    }
}

TEMPLATE_TEST_CASE("async_emplace: makes the item of its arguments and sends it", "", bounded<item>,
                   unbounded<item>, handles<item>) {
    const lives texts;
    {
        TestType end(1);
        const auto send = [](TestType& through) -> test::held {
            static_cast<void>(co_await through.tx().async_emplace(5, "x"));
        };
        send(end).start();
        CHECK(receives(end.rx(), item{5, "x"}));
        CHECK(texts.copies() == 0);

        end.tx().close();
        const auto in_vain = [](TestType& through, std::optional<item>& back) -> test::held {
            auto sent = co_await through.tx().async_emplace(7, "x");
            if (!sent) {
                back.emplace(std::move(sent.error().value));
            }
        };
        std::optional<item> back;
        in_vain(end, back).start();
        CHECK(back == item{7, "x"});
    }
    CHECK(texts.are_over());
}

TEMPLATE_TEST_CASE("async_emplace: a constructor that throws leaves the channel as it was", "",
                   bounded<picky>, unbounded<picky>, handles<picky>) {
    TestType end(1);
    CHECK_THROWS_AS(static_cast<void>(end.tx().async_emplace(0)), std::invalid_argument);
    CHECK(end.rx().empty());
    CHECK(end.tx().try_send(picky(1))); // of one place, none is taken
    auto got = end.rx().try_recv();
    REQUIRE(got);
    CHECK(got->number() == 1);
}
