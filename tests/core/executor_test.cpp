#include <bide/core/executor.hpp>
#include <bide/core/resume.hpp>
#include <support/coroutines.hpp>
#include <support/test.hpp>

using namespace bide;

namespace {

void count(void* calls) noexcept { ++*static_cast<int*>(calls); }

struct takes_wakers {
    int posts = 0;
    void post(waker w) noexcept {
        ++posts;
        w.wake();
    }
};

struct takes_runnables {
    runnable* last = nullptr;
    void post(runnable& r) noexcept { last = &r; }
};

struct takes_both {
    int wakers = 0;
    int runnables = 0;
    void post(waker) noexcept { ++wakers; }
    void post(runnable&) noexcept { ++runnables; }
};

struct may_throw {
    void post(waker) {}
};

struct silent_promise {};
template <class Named> struct promise {
    Named named;
    Named get_scheduler() const noexcept { return named; }
};

} // namespace

TEST_CASE("executor: a type with a noexcept post() of a waker or a runnable is an executor") {
    STATIC_REQUIRE(bide::executor<takes_wakers>);
    STATIC_REQUIRE(bide::executor<takes_runnables>);
    STATIC_REQUIRE(bide::executor<takes_both>);
    STATIC_REQUIRE(bide::executor<executor_ref>);
    STATIC_REQUIRE(bide::executor<test::manual_executor>);
    STATIC_REQUIRE(bide::intrusive_executor<takes_runnables>);
    STATIC_REQUIRE_FALSE(bide::intrusive_executor<takes_wakers>);
    STATIC_REQUIRE_FALSE(bide::executor<may_throw>);
    STATIC_REQUIRE_FALSE(bide::executor<int>);
}

TEST_CASE("executor_ref: a default-constructed one refers to no executor") {
    const executor_ref none;
    CHECK_FALSE(static_cast<bool>(none));
    CHECK(none == executor_ref());
}

TEST_CASE("executor_ref: post() posts to the executor that it refers to") {
    int calls = 0;
    runnable r;
    r.run = waker(&count, &calls);

    takes_wakers by_waker;
    const executor_ref first(by_waker);
    CHECK(static_cast<bool>(first));
    first.post(r);
    CHECK(by_waker.posts == 1);
    CHECK(calls == 1);

    takes_runnables by_runnable;
    executor_ref(by_runnable).post(r);
    CHECK(by_runnable.last == &r);
    CHECK(calls == 1);
}

TEST_CASE("executor_ref: an intrusive executor gets the runnable itself") {
    takes_both e;
    runnable r;
    executor_ref(e).post(r);
    CHECK(e.runnables == 1);
    CHECK(e.wakers == 0);
}

TEST_CASE("executor_ref: two are equal if they refer to the same executor") {
    takes_wakers a;
    takes_wakers b;
    CHECK(executor_ref(a) == executor_ref(a));
    CHECK_FALSE(executor_ref(a) == executor_ref(b));
    CHECK_FALSE(executor_ref(a) == executor_ref());
    const executor_ref copy = executor_ref(a);
    CHECK(copy == executor_ref(a));
}

TEST_CASE("executor_of: a promise returns its executor by reference, by pointer, or has none") {
    takes_wakers e;
    silent_promise silent;
    CHECK_FALSE(static_cast<bool>(executor_of(silent)));
    promise<takes_wakers&> by_reference{e};
    CHECK(executor_of(by_reference) == executor_ref(e));
    promise<takes_wakers*> by_pointer{&e};
    CHECK(executor_of(by_pointer) == executor_ref(e));
    promise<takes_wakers*> by_null{nullptr};
    CHECK_FALSE(static_cast<bool>(executor_of(by_null)));
    promise<executor_ref> by_ref{executor_ref(e)};
    CHECK(executor_of(by_ref) == executor_ref(e));
    promise<executor_ref> by_empty_ref{executor_ref()};
    CHECK_FALSE(static_cast<bool>(executor_of(by_empty_ref)));

    int calls = 0;
    runnable r;
    r.run = waker(&count, &calls);
    executor_of(by_pointer).post(r);
    CHECK(e.posts == 1);
    CHECK(calls == 1);
}
