#include "support/test.hpp"
#include "support/text.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/this_task.hpp>

// Arguments of a task or a function that stand in the expression that awaits it.

namespace {

using bide::task;
using test::text;

struct item {
    int number;
    text name;
};
item make_item() { return item{1, "x"}; }

task<bool> takes(item what) {
    co_await bide::this_task::yield();
    co_return what.number == 1 && what.name == "x";
}
task<bool> takes_text(text what) {
    co_await bide::this_task::yield();
    co_return what == "x";
}
bool is_x(const text& what) { return what == "x"; }
auto function_of(text what) {
    return [what] { return is_x(what); };
}

bool all(bool one) { return one; }
template <class... Bools> bool all(const std::tuple<Bools...>& each) {
    return std::apply([](auto... one) { return (one && ...); }, each);
}

struct row {
    task<bool> (*run)(bide::scheduler&);
    const char* name;
};

// Runs it on a worker, and on a thread that is no worker. At the end, each object was destroyed
// once.
void check_forms(const std::vector<row>& rows) {
    for (const row& r : rows) {
        INFO(r.name);
        const test::lives texts;
        bool held = false;
        bool held_here = false;
        {
            bide::scheduler workers;
            held = workers.spawn(r.run(workers)).join();
            held_here = bide::sync_wait(r.run(workers));
        }
        CHECK(held);
        CHECK(held_here);
        CHECK(texts.are_over());
    }
}

// Returns the value of `co_await op` in a task, after `before`. Both are true.
#define BIDE_FORM(before, op)                                                                      \
    row {                                                                                          \
        [](bide::scheduler& s) -> task<bool> {                                                     \
            static_cast<void>(s);                                                                  \
            before;                                                                                \
            co_return all(co_await op);                                                            \
        },                                                                                         \
            #before " co_await " #op                                                               \
    }

} // namespace

TEST_CASE("task: arguments that are named, returned or converted in the awaiting expression "
          "are destroyed once",
          "[promise.temporaries-once]") {
    check_forms({
        BIDE_FORM(, takes_text("x")),
        BIDE_FORM(, takes_text(text("x"))),
        BIDE_FORM(, takes(make_item())),
        BIDE_FORM(item i = make_item(), takes(std::move(i))),
        BIDE_FORM(auto t = takes({1, "x"}), std::move(t)),
        BIDE_FORM(, bide::when_all(takes_text("x"), takes(make_item()))),
        BIDE_FORM(const item i = make_item(), bide::when_all(takes(i), takes(i))),
        BIDE_FORM(, s.spawn(takes(make_item())).async_join()),
    });
}

TEST_CASE("spawn: a function that is named, returned or captures by reference is destroyed once in "
          "the expression that awaits it") {
    check_forms({
        BIDE_FORM(const text x("x"), s.spawn_blocking([&x] { return is_x(x); }).async_join()),
        BIDE_FORM(auto f = function_of("x"), s.spawn_blocking(std::move(f)).async_join()),
        BIDE_FORM(, s.spawn_blocking(function_of("x")).async_join()),
        BIDE_FORM(auto later = s.spawn_blocking(function_of("x")), std::move(later).async_join()),
        BIDE_FORM(auto later = s.spawn(function_of("x")), std::move(later).async_join()),
    });
}

#if !BIDE_BRACED_AWAIT_BUG
TEST_CASE("task: temporaries of the awaiting expression are destroyed once") {
    check_forms({
        BIDE_FORM(, takes({1, "x"})),
        BIDE_FORM(, takes(item{1, "x"})),
        BIDE_FORM(, bide::when_all(takes({1, "x"}), takes(item{1, "x"}))),
        BIDE_FORM(, s.spawn(takes({1, "x"})).async_join()),
        BIDE_FORM(const text x("x"), s.spawn([x] { return is_x(x); }).async_join()),
        BIDE_FORM(const text x("x"), s.spawn_blocking([x] { return is_x(x); }).async_join()),
    });
}
#endif
