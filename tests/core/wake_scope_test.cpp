#include <bide/core/wake_scope.hpp>
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

TEST_CASE("wake_scope: a scope that posts asks the runnables where to") {
    script s;
    {
        const scope away(bide::detail::post_all{});
        scope::run(s.add(1), &name_elsewhere);
    }
    CHECK(s.ran.empty());
    CHECK(elsewhere().run_all() == 1);
    CHECK(s.ran == numbers{1});
}

TEST_CASE("wake_scope: a scope that posts runs what no run() of its thread has named a place for") {
    script s;
    std::thread([&s] {
        const scope away(bide::detail::post_all{});
        scope::run(s.add(1));
        s.ran.push_back(0); // before the end of the scope
    }).join();
    CHECK(s.ran == numbers{0, 1});
}

TEST_CASE("current_worker: a thread outside of a scheduler has no executor") {
    CHECK_FALSE(static_cast<bool>(bide::current_worker<native>()));
}
