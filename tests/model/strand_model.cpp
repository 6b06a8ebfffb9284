// The hand-over of a strand: posters against the runner that finds its queue empty.

#include <bide/task/strand.hpp>
#include <model/posted.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform;
using queue = bide::detail::basic_serial_queue<platform>;
using model::at_random;
template <class T> using var = platform::var<T>;

// Runs on the strand; two at a time would be a data race on the count.
struct job : model::posted {
    explicit job(var<int>& count)
        : posted([this, &count] {
              MODEL_REQUIRE(news == 1);
              count = count + 1;
              turn = count;
          }) {}

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
    if (q.push(j)) {
        run(q);
    }
}

// Threads that post one job or two each, the last one in the body.
auto posters(std::initializer_list<std::size_t> posts) {
    return [all = std::vector<std::size_t>(posts)] {
        queue q;
        var<int> count{0};
        job jobs[3][2] = {
            {job(count), job(count)}, {job(count), job(count)}, {job(count), job(count)}};
        const auto work = [&](std::size_t thread) {
            for (std::size_t i = 0; i < all[thread]; ++i) {
                post(q, jobs[thread][i]);
            }
        };
        {
            std::vector<model::thread> others;
            for (std::size_t t = 0; t + 1 < all.size(); ++t) {
                others.emplace_back([&work, t] { work(t); });
            }
            work(all.size() - 1);
        }
        MODEL_REQUIRE(q.is_idle());
        std::size_t sum = 0;
        for (std::size_t t = 0; t < all.size(); ++t) {
            sum += all[t];
            MODEL_REQUIRE(all[t] == 1 || jobs[t][0].turn < jobs[t][1].turn);
        }
        MODEL_REQUIRE(count == static_cast<int>(sum));
    };
}

} // namespace

TEST_CASE(
    "strand: each job runs once, none at the same time as another, in the order of the posts") {
    model::check("two post", posters({1, 1}));
    model::check("two post, one of them twice", posters({2, 1}));
    model::check("three post, two of them twice", at_random(), posters({2, 2, 1}));
}

// The owner waits until the runner has left.
TEST_CASE("strand: may be destroyed when it is idle") {
    model::check("post, idle, destroy", [] {
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
    model::check("a runner that leaves, destroy", [] {
        auto* const q = new queue;
        var<int> count{0};
        job a(count);
        a.news = 1;
        const bool starts = q->push(a);
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
