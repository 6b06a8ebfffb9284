#include <bide/core/executor.hpp>
#include <bide/sched/child_deque.hpp>
#include <support/test.hpp>

using namespace bide;

using deque = basic_child_deque<native_platform, 4>;
using bide::detail::run_list;

namespace {

bool push(deque& d, runnable& r) {
    run_list one;
    one.push(r);
    return d.push(one);
}

} // namespace

TEST_CASE("child_deque: the owner takes the newest child, a thief the oldest") {
    deque d;
    runnable r[4];
    for (runnable& one : r) {
        CHECK(push(d, one));
    }
    CHECK_FALSE(push(d, r[0])); // full
    CHECK_FALSE(d.take_back(r[2]));
    CHECK(d.steal() == &r[0]);
    CHECK(d.take_back(r[3]));
    CHECK(d.take_back(r[2]));
    CHECK(d.take_back(r[1]));
    CHECK(d.empty());
    CHECK(d.size() == 0);
    CHECK(d.steal() == nullptr);
    CHECK_FALSE(d.take_back(r[1]));
}

TEST_CASE("child_deque: takes and gives lists, the oldest child first, as far as there is room") {
    deque d;
    runnable r[6];
    run_list list;
    CHECK_FALSE(d.push(list));
    for (runnable& one : r) {
        list.push(one);
    }
    CHECK(d.push(list));
    CHECK(list.first() == &r[4]);
    CHECK_FALSE(d.push(list));
    CHECK(d.steal() == &r[0]);
    d.take_all(list);
    CHECK(d.empty());
    for (const int i : {4, 5, 1, 2, 3}) {
        CHECK(list.pop() == &r[i]);
    }
    d.take_all(list);
    CHECK(list.first() == nullptr);
}
