#include <bide/core/resume.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace bide;
using native = bide::native_platform;
using scope = bide::wake_scope<native>;

namespace {

// The steps that ran, in order. Each step may call a function when it runs.
struct script {
    std::vector<int> ran;
    int depth = 0;
    int deepest = 0;

    struct step {
        script* s;
        int number;
        void (*what)(script&);
        runnable r;
        static void run(void* self) noexcept {
            auto& me = *static_cast<step*>(self);
            me.s->ran.push_back(me.number);
            me.s->deepest = ++me.s->depth > me.s->deepest ? me.s->depth : me.s->deepest;
            if (me.what != nullptr) {
                me.what(*me.s);
            }
            --me.s->depth;
        }
    };
    std::deque<step> steps;

    runnable& add(int number, void (*what)(script&) = nullptr) {
        steps.push_back({this, number, what, {}});
        steps.back().r.run = waker(&step::run, &steps.back());
        return steps.back().r;
    }
};

using numbers = std::vector<int>;

// The executor that takes the runnables of a scope.
test::manual_executor& elsewhere() {
    static test::manual_executor e;
    return e;
}
int asked_where = 0;
executor_ref name_elsewhere() noexcept {
    ++asked_where;
    return elsewhere();
}

} // namespace

TEST_CASE("wake_scope: runnables run in order when the scope closes") {
    script s;
    {
        scope open;
        scope::run(s.add(1));
        scope::run(s.add(2));
        scope::run(s.add(3));
        CHECK(s.ran.empty());
    }
    CHECK(s.ran == numbers{1, 2, 3});
    scope::run(s.add(4)); // it is closed
    CHECK(s.ran == numbers{1, 2, 3, 4});
}

TEST_CASE("wake_scope: the outermost scope runs the runnables of inner scopes") {
    script s;
    {
        scope outer;
        scope::run(s.add(1));
        {
            scope middle;
            scope inner;
            scope::run(s.add(2));
        }
        CHECK(s.ran.empty());
        scope::run(s.add(3));
    }
    CHECK(s.ran == numbers{1, 2, 3});
}

TEST_CASE("wake_scope: a runnable that another one makes runnable runs after it, not inside it") {
    script s;
    scope::run(s.add(0, [](script& in) {
        scope nested; // opened by a release
        for (int i = 1; i <= 3; ++i) {
            scope::run(in.add(i, [](script& again) {
                if (again.steps.size() < 100) {
                    scope::run(again.add(9));
                }
            }));
        }
    }));
    CHECK(s.ran == numbers{0, 1, 2, 3, 9, 9, 9});
    CHECK(s.deepest == 1);
}

TEST_CASE("wake_scope: a scope is open on its own thread only") {
    script s;
    scope open;
    test::run_threads(1, [&](int) { scope::run(s.add(1)); });
    CHECK(s.ran == numbers{1});
}

TEST_CASE("wake_scope: a scope with a destination runs no runnable on this thread") {
    script s;
    asked_where = 0;
    {
        scope away(&name_elsewhere);
        scope::run(s.add(1));
        {
            scope inner;
            scope::run(s.add(2));
        }
        CHECK(elsewhere().size() == 0);
    }
    CHECK(s.ran.empty());
    CHECK(elsewhere().run_all() == 2);
    CHECK(s.ran == numbers{1, 2});

    asked_where = 0;
    {
        scope away(&name_elsewhere);
    }
    CHECK(asked_where == 0); // there was no runnable
    scope::run(s.add(3));
    CHECK(s.ran == numbers{1, 2, 3});
}

TEST_CASE("wake_scope: a scope with a destination does not post the runnables of an outer one") {
    script s;
    {
        scope outer;
        scope::run(s.add(1));
        {
            scope away(&name_elsewhere);
            scope::run(s.add(2));
        }
        scope::run(s.add(3));
        CHECK(s.ran.empty());
        CHECK(elsewhere().size() == 1);
    }
    CHECK(s.ran == numbers{1, 3});
    CHECK(elsewhere().run_all() == 1);
    CHECK(s.ran == numbers{1, 3, 2});
}

TEST_CASE("wake_scope: a forgotten runnable does not run, and the rest run") {
    for (int forgotten = 0; forgotten < 3; ++forgotten) {
        script s;
        numbers expected = {0, 1, 2, 3};
        expected.erase(expected.begin() + forgotten);
        {
            scope open;
            for (int i = 0; i < 3; ++i) {
                scope::run(s.add(i));
            }
            CHECK(scope::forget(s.steps[static_cast<std::size_t>(forgotten)].r));
            CHECK_FALSE(scope::forget(s.steps[static_cast<std::size_t>(forgotten)].r));
            scope::run(s.add(3));
        }
        CHECK(s.ran == expected);
        CHECK_FALSE(scope::forget(s.steps.back().r));
    }
}

TEST_CASE("wake_scope: a runnable may forget the next") {
    script s;
    {
        scope open;
        scope::run(s.add(0, [](script& in) { CHECK(scope::forget(in.steps[1].r)); }));
        scope::run(s.add(1));
        scope::run(s.add(2));
    }
    CHECK(s.ran == numbers{0, 2});
}

TEST_CASE(
    "wake_scope: a runnable of an outer scope is forgotten inside a scope with a destination") {
    script s;
    {
        scope open;
        scope::run(s.add(0));
        scope::run(s.add(1));
        {
            const scope away(&name_elsewhere);
            CHECK(scope::forget(s.steps[0].r));
        }
    }
    CHECK(s.ran == numbers{1});
    CHECK(elsewhere().run_all() == 0);
}

TEST_CASE("wake_scope: forget takes constant time") {
    constexpr int many = 200'000;
    script s;
    {
        scope open;
        for (int i = 0; i < many; ++i) {
            scope::run(s.add(i));
        }
        int forgotten = 0;
        for (std::size_t i = many; i-- > 1;) { // the last first
            forgotten += scope::forget(s.steps[i].r) ? 1 : 0;
        }
        CHECK(forgotten == many - 1);
    }
    CHECK(s.ran == numbers{0});
}

TEST_CASE("current_worker: a thread outside of a scheduler has no executor") {
    CHECK_FALSE(static_cast<bool>(bide::current_worker<native>()));
}

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
    CHECK(order == numbers{1, 2, 3, 4});
    CHECK(a.frame.done());
    CHECK(c.frame.done());
}
