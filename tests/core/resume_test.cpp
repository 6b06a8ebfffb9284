#include <bide/core/resume.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace bide;
using native = bide::native_platform;

namespace {

// Transfers the thread to another coroutine by transfer().
struct hand_over {
    explicit hand_over(std::coroutine_handle<>& where, bide::detail::transfer_node& by) noexcept
        : to(where), node(by) {}
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<>) const noexcept {
        return bide::transfer<native>(to, node);
    }
    void await_resume() const noexcept {}
    std::coroutine_handle<>& to;
    bide::detail::transfer_node& node;
};

struct player {
    struct promise_type {
        promise_type() noexcept {}
        player get_return_object() noexcept {
            return player(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
    explicit player(std::coroutine_handle<> h) noexcept : frame(h) {}
    player(player&& other) noexcept : frame(std::exchange(other.frame, nullptr)) {}
    player& operator=(player&&) = delete;
    ~player() {
        if (frame) {
            frame.destroy();
        }
    }
    std::coroutine_handle<> frame;
};

player play(std::coroutine_handle<>& partner, bide::detail::transfer_node& node, int strokes,
            int& played) {
    for (int i = 0; i < strokes; ++i) {
        ++played;
        co_await hand_over(partner, node);
    }
}

} // namespace

TEST_CASE("transfer: two coroutines transfer a million times on a bounded stack") {
    constexpr int strokes = 500'000;
    int ping_played = 0;
    int pong_played = 0;
    std::coroutine_handle<> ping;
    std::coroutine_handle<> pong;
    bide::detail::transfer_node to_ping;
    bide::detail::transfer_node to_pong;
    const player a = play(pong, to_pong, strokes, ping_played);
    const player b = play(ping, to_ping, strokes, pong_played);
    ping = a.frame;
    pong = b.frame;
    SECTION("resumed by bide") { bide::resume<native>(ping); }
    SECTION("resumed by foreign code") { ping.resume(); }
    CHECK(ping_played == strokes);
    CHECK(pong_played == strokes);
    CHECK(ping.done()); // pong has transferred to it for the last time
    CHECK_FALSE(pong.done());
}

namespace {

player note(std::vector<int>& order, int number) {
    order.push_back(number);
    co_return;
}

player resume_inside(std::vector<int>& order, std::coroutine_handle<>& inner) {
    order.push_back(1);
    bide::resume<native>(inner);
    order.push_back(4);
    co_return;
}

player note_and_hand_over(std::vector<int>& order, int number, std::coroutine_handle<>& to,
                          bide::detail::transfer_node& node) {
    order.push_back(number);
    co_await hand_over(to, node);
}

} // namespace

TEST_CASE("transfer: a coroutine that is resumed inside another one ends before that continues") {
    std::vector<int> order;
    std::coroutine_handle<> second;
    std::coroutine_handle<> third;
    bide::detail::transfer_node node;
    const player a = resume_inside(order, second);
    const player b = note_and_hand_over(order, 2, third, node);
    const player c = note(order, 3);
    second = b.frame;
    third = c.frame;
    bide::resume<native>(a.frame);
    CHECK(order == std::vector<int>{1, 2, 3, 4});
    CHECK(a.frame.done());
    CHECK(c.frame.done());
}
