// The hand-over of a strand: posters against the runner that finds its queue empty.

#include <bide/core/executor.hpp>
#include <bide/core/waker.hpp>
#include <bide/task/detail/serial_queue.hpp>
#include <model/check.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform;
using queue = bide::detail::basic_serial_queue<platform>;
using model::at_random;
template <class T> using var = platform::var<T>;

// Runs on the strand; two at a time would be a data race on the count.
struct job {
    explicit job(var<int>& c) noexcept : count(c) {
        to_run.run = bide::waker(
            [](void* self) noexcept {
                auto& me = *static_cast<job*>(self);
                MODEL_REQUIRE(me.news == 1);
                me.count = me.count + 1;
                me.turn = me.count;
            },
            this);
    }

    bide::runnable to_run;
    var<int>& count;
    var<int> turn{0};
    var<int> news{0}; // written before the post
};

void run(queue& q) {
    while (q.has_next()) {
        q.pop().run.wake();
    }
}

// The poster that must start the runner is the runner.
void post(queue& q, job& j) {
    j.news = 1;
    if (q.push(j.to_run)) {
        run(q);
    }
}

} // namespace

TEST_CASE("strand: each job runs once, none at the same time as another, in the order of the posts",
          "[strand]") {
    model::check("two post", {}, [] {
        queue q;
        var<int> count{0};
        job a(count);
        job b(count);
        model::thread other([&] { post(q, a); });
        post(q, b);
        other.join();
        MODEL_REQUIRE(q.is_idle());
        MODEL_REQUIRE(count == 2);
    });
    model::check("two post, one of them twice", {}, [] {
        queue q;
        var<int> count{0};
        job a(count);
        job b(count);
        job c(count);
        model::thread other([&] {
            post(q, a);
            post(q, b);
        });
        post(q, c);
        other.join();
        MODEL_REQUIRE(q.is_idle());
        MODEL_REQUIRE(count == 3);
        MODEL_REQUIRE(a.turn < b.turn);
    });
    model::check("three post, two of them twice", at_random(), [] {
        queue q;
        var<int> count{0};
        job a(count);
        job b(count);
        job c(count);
        job d(count);
        job e(count);
        model::thread first([&] {
            post(q, a);
            post(q, b);
        });
        model::thread second([&] {
            post(q, c);
            post(q, d);
        });
        post(q, e);
        first.join();
        second.join();
        MODEL_REQUIRE(q.is_idle());
        MODEL_REQUIRE(count == 5);
        MODEL_REQUIRE(a.turn < b.turn && c.turn < d.turn);
    });
}

// The owner waits until the runner has left.
TEST_CASE("strand: may be destroyed when it is idle", "[strand]") {
    model::check("post, idle, destroy", {}, [] {
        auto* const q = new queue;
        var<int> count{0};
        job a(count);
        job b(count);
        model::thread first([&] { post(*q, a); });
        model::thread second([&] { post(*q, b); });
        first.join();
        while (!q->is_idle()) {
            platform::pause();
        }
        second.join();
        MODEL_REQUIRE(count == 2);
        delete q;
    });
    model::check("a runner that leaves, destroy", {}, [] {
        auto* const q = new queue;
        var<int> count{0};
        job a(count);
        a.news = 1;
        const bool starts = q->push(a.to_run);
        model::thread runner([&] {
            if (starts) {
                run(*q);
            }
        });
        while (!q->is_idle()) {
            platform::pause();
        }
        MODEL_REQUIRE(count == 1);
        delete q;
    });
}
