// Coroutines that ask for nothing, and what one may do that is resumed.

#include "support/channel_waits.hpp"
#include "support/test.hpp"

using namespace test::channel_waits;

TEST_CASE("channel: a coroutine that asks for no item waits for none and gives none back") {
    channel ch(2);
    ints out{7, 8};
    ending<std::size_t> none;
    let_go(ch.async_recv_n(out, 0), none);
    CHECK((none.done && *none.out == 0));
    const auto wait = ch.async_recv_n(out, 0).as_case();
    REQUIRE(wait.ops->try_now(wait.target) == bide::wait_status::granted);
    wait.ops->give_back(wait.target, bide::wait_status::granted);
    CHECK(out == ints{7, 8});
    CHECK(ch.empty());
}

TEST_CASE("channel: a coroutine that is resumed may send, receive, close and destroy the channel") {
    SECTION("send and receive") {
        channel ch(1);
        ints seen;
        [](channel& at, ints& out) -> test::detached {
            const std::optional<int> got = co_await at.async_recv();
            out.push_back(*got);
            out.push_back(at.try_send(*got + 1) ? 1 : 0);
            const std::optional<int> again = co_await at.async_recv();
            out.push_back(*again);
            at.close();
        }(ch, seen);
        CHECK(ch.try_send(5));
        CHECK(seen == ints{5, 1, 6});
        CHECK(ch.is_closed());
    }
    SECTION("destroy, as a receiver") {
        const std::size_t capacity = GENERATE(0u, 1u, 3u);
        auto ch = std::make_unique<channel>(capacity);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const std::optional<int> got = co_await at->async_recv();
            if (got == 5) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.try_send(5));
        CHECK(ch == nullptr);
    }
    SECTION("destroy, as a sender") {
        const std::size_t capacity = GENERATE(0u, 1u, 3u);
        auto ch = std::make_unique<channel>(capacity);
        fill(*ch);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const auto got = co_await at->async_send(5);
            if (got) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.try_recv());
        CHECK(ch == nullptr);
    }
    SECTION("destroy, when it is closed") {
        auto ch = std::make_unique<channel>(1u);
        [](std::unique_ptr<channel>& at) -> test::detached {
            const std::optional<int> got = co_await at->async_recv();
            if (!got) {
                at.reset();
            }
        }(ch);
        channel& here = *ch;
        CHECK(here.close());
        CHECK(ch == nullptr);
    }
}
