#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using bide::sync_wait;
using bide::task;

// Chains of tasks that are destroyed while they wait. The innermost is destroyed first, on a
// bounded stack. At 200,000 frames, one call for each frame overflows a stack of 8 MiB in every
// build.

namespace {

constexpr int deep = 200'000;

// Checks that destructors run in order, from the innermost (0) to the outermost.
struct turns {
    int expected = 0;
    bool in_order = true;
};
class in_turn {
public:
    in_turn(turns& all, int number) noexcept : all_(all), number_(number) {}
    in_turn(const in_turn&) = delete;
    in_turn& operator=(const in_turn&) = delete;
    ~in_turn() {
        all_.in_order = all_.in_order && all_.expected == number_;
        ++all_.expected;
    }

private:
    turns& all_;
    const int number_;
};

// Each task refers to a local of its awaiting task until its own end.
task<> chain(bide::semaphore& s, turns& t, const in_turn* parent, int depth) {
    const in_turn local(t, depth);
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
    } else {
        co_await chain(s, t, &local, depth - 1);
    }
    static_cast<void>(parent);
}

test::held await_void(task<> t) { co_await std::move(t); }

// An awaitable lazy coroutine type of another library.
class foreign {
public:
    struct promise_type {
        promise_type() noexcept {}
        std::coroutine_handle<> parent;
        foreign get_return_object() noexcept {
            return foreign(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct to_parent {
            to_parent() noexcept {}
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
                return h.promise().parent;
            }
            void await_resume() noexcept {}
        };
        to_parent final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
    };

    explicit foreign(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}
    foreign(foreign&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    foreign& operator=(foreign&&) = delete;
    ~foreign() {
        if (frame_) {
            frame_.destroy();
        }
    }

    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
        frame_.promise().parent = parent;
        return frame_;
    }
    void await_resume() noexcept {}

private:
    std::coroutine_handle<promise_type> frame_;
};

task<> broken_chain(bide::semaphore& s, turns& t, int depth, int foreign_at);
foreign awaits_chain(bide::semaphore& s, turns& t, int depth) {
    const in_turn local(t, depth);
    co_await broken_chain(s, t, depth - 1, -1);
}
task<> broken_chain(bide::semaphore& s, turns& t, int depth, int foreign_at) {
    const in_turn local(t, depth);
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
    } else if (depth == foreign_at) {
        co_await awaits_chain(s, t, depth - 1);
    } else {
        co_await broken_chain(s, t, depth - 1, foreign_at);
    }
}

class says {
public:
    says(std::string& said, char what) noexcept : said_(said), what_(what) {}
    says(const says&) = delete;
    says& operator=(const says&) = delete;
    ~says() { said_ += what_; }

private:
    std::string& said_;
    const char what_;
};

task<int> ends(std::string& said, char what) {
    const says local(said, what);
    co_return 1;
}
// Its argument is destroyed with its frame.
task<int> ends_with(std::shared_ptr<says> argument) {
    static_cast<void>(argument);
    co_return 1;
}
task<int> waits(bide::semaphore& s, std::string& said, char what) {
    const says local(said, what);
    const auto got = co_await s.async_acquire().as_result();
    co_return got ? 1 : 0;
}
task<int> sums(bide::semaphore& s, std::string& said) {
    const says local(said, 'p');
    auto argument = std::make_shared<says>(said, 'a');
    co_return co_await ends_with(std::move(argument)) + co_await waits(s, said, 'w');
}
task<int> waits_itself(bide::semaphore& s, std::string& said) {
    const says local(said, 'p');
    const int first = co_await ends(said, 'e');
    const auto got = co_await s.async_acquire().as_result();
    co_return got ? first : 0;
}
test::held await_int(task<int> t, int& got) { got = co_await std::move(t); }

task<> above_another(bide::semaphore& s, turns& others, int depth) {
    if (depth == 0) {
        test::held other = await_void(chain(s, others, nullptr, deep));
        other.start();
        const auto permit = co_await s.async_acquire();
    } else {
        co_await above_another(s, others, depth - 1);
    }
}

task<> next_all(bide::semaphore& s, turns& t, int depth) {
    const in_turn local(t, depth);
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
    } else {
        co_await bide::when_all(next_all(s, t, depth - 1));
    }
}
task<> next_any(bide::semaphore& s, turns& t, int depth) {
    const in_turn local(t, depth);
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
    } else {
        std::vector<task<>> children;
        children.push_back(next_any(s, t, depth - 1));
        co_await bide::when_any(std::move(children));
    }
}

task<> hold_and_say(bide::semaphore& s, std::string& said, char what) {
    const says local(said, what);
    const auto permit = co_await s.async_acquire();
}
task<> nests(bide::semaphore& s, std::string& said) {
    const says local(said, '.');
    co_await bide::when_all(hold_and_say(s, said, 'a'), ends(said, 'b'),
                            bide::when_any(hold_and_say(s, said, 'c'), hold_and_say(s, said, 'd')),
                            hold_and_say(s, said, 'e'));
}

task<int> counts(bide::semaphore& s, int depth, bool throws) {
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
        co_return throws ? throw std::runtime_error("bottom") : 0;
    }
    co_return 1 + co_await counts(s, depth - 1, throws);
}
task<int> counts_all(bide::semaphore& s, int depth) {
    if (depth == 0) {
        const auto permit = co_await s.async_acquire();
        co_return 0;
    }
    const auto [below] = co_await bide::when_all(counts_all(s, depth - 1));
    co_return below + 1;
}
test::held outcome_of(task<int> t, int& value, std::string& error) {
    try {
        value = co_await std::move(t);
    } catch (const std::runtime_error& e) {
        error = e.what();
    }
}

} // namespace

TEST_CASE("task: a waiting chain is destroyed innermost first, on a bounded stack",
          "[promise.chain-destruction]") {
    bide::semaphore s(0);
    turns t;
    {
        test::held root = await_void(chain(s, t, nullptr, deep));
        root.start();
        CHECK(s.waiters() == 1);
        CHECK(t.expected == 0);
    }
    CHECK(s.waiters() == 0);
    CHECK(t.expected == deep + 1);
    CHECK(t.in_order);
}

TEST_CASE("task: in a destroyed chain, a coroutine of another library is destroyed in order") {
    bide::semaphore s(0);
    turns t;
    {
        test::held root = await_void(broken_chain(s, t, deep, deep / 2));
        root.start();
        CHECK(s.waiters() == 1);
    }
    CHECK(s.waiters() == 0);
    CHECK(t.expected == deep + 1);
    CHECK(t.in_order);
}

TEST_CASE("task: destroyed in the second await of an expression, it destroys both children once") {
    bide::semaphore s(0);
    std::string said;
    int got = 0;
    {
        test::held root = await_int(sums(s, said), got);
        root.start();
        CHECK(said.empty());
    }
    CHECK(said == "wap");
    said.clear();
    test::held root = await_int(sums(s, said), got);
    root.start();
    s.release();
    CHECK(root.done());
    CHECK(got == 2);
    CHECK(said.size() == 3);
}

TEST_CASE("task: destroyed in a later wait, it does not destroy a child that has ended") {
    bide::semaphore s(0);
    std::string said;
    int got = 0;
    {
        test::held root = await_int(waits_itself(s, said), got);
        root.start();
        CHECK(said == "e");
    }
    CHECK(said == "ep");
    CHECK(s.waiters() == 0);
}

TEST_CASE("task: a destructor in a destroyed chain may destroy a chain") {
    bide::semaphore s(0);
    turns others;
    {
        test::held root = await_void(above_another(s, others, 1'000));
        root.start();
        CHECK(s.waiters() == 2);
    }
    CHECK(s.waiters() == 0);
    CHECK(others.expected == deep + 1);
    CHECK(others.in_order);
}

TEST_CASE("compose: nested when_all and when_any are destroyed in order, on a bounded stack",
          "[promise.chain-destruction]") {
    bide::semaphore s(0);
    turns all;
    turns any;
    {
        test::held with_all = await_void(next_all(s, all, deep / 2));
        with_all.start();
        test::held with_any = await_void(next_any(s, any, deep / 2));
        with_any.start();
        CHECK(s.waiters() == 2);
    }
    CHECK(s.waiters() == 0);
    CHECK(all.expected == deep / 2 + 1);
    CHECK(all.in_order);
    CHECK(any.expected == deep / 2 + 1);
    CHECK(any.in_order);
}

TEST_CASE("compose: children of a destroyed parent are destroyed one after the other, in order") {
    bide::semaphore s(0);
    std::string said;
    {
        test::held root = await_void(nests(s, said));
        root.start();
        CHECK(said == "b");
    }
    CHECK(said == "bacde.");
    CHECK(s.waiters() == 0);
}

TEST_CASE("task: deep chains, and deeply nested when_alls, end on a bounded stack") {
    bide::semaphore s(0);
    int value = 0;
    std::string error;
    const auto run = [&](task<int> t) {
        test::held root = outcome_of(std::move(t), value, error);
        root.start();
        s.release();
        return root.done();
    };
    CHECK(run(counts(s, deep, false)));
    CHECK(value == deep);
    CHECK(run(counts(s, deep, true)));
    CHECK(error == "bottom");
    CHECK(run(counts_all(s, deep / 2)));
    CHECK(value == deep / 2);
}
