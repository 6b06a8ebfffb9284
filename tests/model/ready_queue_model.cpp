#include <bide/core/ready_queue.hpp>
#include <bide/model/linearizable.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// Many threads post runnables to one owner. Each runnable is popped once, those of one poster in
// order. The owner sleeps only while there is none. The CAS is the last access of a post to the
// queue.

namespace {

using bide::deadline;
using model::platform;
using ready_queue = bide::basic_ready_queue<platform>;
template <class T> using var = platform::var<T>;

constexpr deadline soon = deadline::at_ns(1'000'000);

struct numbered : bide::runnable {
    var<int> number{0};
};

numbered* pop(ready_queue& queue, deadline until = deadline::never()) {
    return static_cast<numbered*>(queue.pop(until));
}

void post(ready_queue& queue, numbered& r, int number) {
    r.number = number;
    queue.post(r);
}

TEST_CASE("ready_queue: a post reaches the owner, sleeping or awake") {
    const auto body = [] {
        ready_queue queue;
        numbered r;
        model::thread poster([&] { post(queue, r, 7); });
        numbered* const got = pop(queue);
        MODEL_REQUIRE(got == &r);
        MODEL_REQUIRE(got->number == 7);
        MODEL_REQUIRE(pop(queue, deadline::poll()) == nullptr);
    };
    model::check("one post", body);
    model::check("one post, spurious", {.spurious = 2, .weak_failures = 1}, body);
}

TEST_CASE("ready_queue: two runnables of one poster are popped in order") {
    const auto body = [] {
        ready_queue queue;
        numbered all[2];
        model::thread poster([&] {
            post(queue, all[0], 1);
            post(queue, all[1], 2);
        });
        MODEL_REQUIRE(pop(queue)->number == 1);
        MODEL_REQUIRE(pop(queue)->number == 2);
        MODEL_REQUIRE(pop(queue, deadline::poll()) == nullptr);
    };
    model::check("two posts", body);
    model::check("two posts, spurious", {.spurious = 1, .weak_failures = 1}, body);
}

// The owner pops until it has both, the first time with that deadline.
void two_posters(deadline until) {
    ready_queue queue;
    numbered all[2];
    model::thread first([&] { post(queue, all[0], 1); });
    model::thread second([&] { post(queue, all[1], 2); });
    int sum = 0;
    for (int left = 2; left > 0;) {
        if (numbered* const r = pop(queue, until)) {
            sum += r->number;
            --left;
        } else {
            until = deadline::never();
        }
    }
    MODEL_REQUIRE(sum == 3);
}

void three_posts() {
    ready_queue queue;
    numbered left[2];
    numbered right;
    model::thread first([&] {
        post(queue, left[0], 1);
        post(queue, left[1], 2);
    });
    model::thread second([&] { post(queue, right, 3); });
    int before = 0;
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
        if (i == 2) { // later steps add executions only
            first.join();
            second.join();
        }
        const int n = pop(queue)->number;
        sum += n;
        if (n != 3) {
            MODEL_REQUIRE(n == before + 1);
            before = n;
        }
    }
    MODEL_REQUIRE(sum == 6);
    MODEL_REQUIRE(pop(queue, deadline::poll()) == nullptr);
}

TEST_CASE("ready_queue: runnables of two posters are popped once, in order for each poster",
          "[long]") {
    model::check("two posters", model::brief_or_long({}, {.spurious = 1, .weak_failures = 1}),
                 [] { two_posters(deadline::never()); });
    const model::options random{
        .how = model::options::method::pct, .runs = 10'000, .spurious = 1, .weak_failures = 1};
    model::check("two posters, three posts", model::brief_or_long(random, {}), three_posts);
    model::check("time-out against two posters",
                 model::brief_or_long({.how = model::options::method::pct}, {.timeouts = 1}),
                 [] { two_posters(soon); });
}

TEST_CASE("ready_queue: a post that arrives with the time-out is popped or stays") {
    model::check("time-out against post", {.spurious = 1, .timeouts = 1}, [] {
        ready_queue queue;
        numbered r;
        model::thread poster([&] { post(queue, r, 7); });
        numbered* got = pop(queue, soon);
        if (got == nullptr) {
            got = pop(queue);
        }
        MODEL_REQUIRE(got == &r);
        MODEL_REQUIRE(got->number == 7);
        MODEL_REQUIRE(pop(queue, deadline::poll()) == nullptr);
    });
    CHECK(model::outcomes({.timeouts = 1}, [] {
              ready_queue queue;
              numbered r;
              model::thread poster([&] { queue.post(r); });
              const char* when = pop(queue, deadline::poll()) != nullptr ? "at_once" : "never";
              if (*when == 'n' && pop(queue, soon) != nullptr) {
                  when = "in_time";
              }
              model::record(when);
          }) == "at_once in_time never");
}

TEST_CASE("ready_queue: the owner and another thread post") {
    model::check("the owner posts, too", {.weak_failures = 1}, [] {
        ready_queue queue;
        numbered mine;
        numbered theirs;
        model::thread poster([&] { post(queue, theirs, 2); });
        post(queue, mine, 1);
        const int one = pop(queue)->number;
        const int other = pop(queue)->number;
        MODEL_REQUIRE(one + other == 3);
    });
}

TEST_CASE("ready_queue: a popped runnable may be posted again when the owner allows it") {
    model::check("one runnable to and fro", [] {
        ready_queue there;
        ready_queue back;
        numbered ball;
        model::thread partner([&] {
            for (int i = 0; i < 2; ++i) {
                numbered* const r = pop(there);
                post(back, *r, r->number + 1);
            }
        });
        for (int i = 0; i < 2; ++i) {
            post(there, ball, ball.number + 1);
            MODEL_REQUIRE(pop(back) == &ball);
        }
        MODEL_REQUIRE(ball.number == 4);
    });
}

TEST_CASE("ready_queue: a runnable may make the owner destroy the queue and the runnable") {
    const auto body = [] {
        auto queue = std::make_unique<ready_queue>();
        auto r = std::make_unique<numbered>();
        model::thread poster([q = queue.get(), r = r.get()] { post(*q, *r, 7); });
        numbered* got = pop(*queue, soon);
        if (got == nullptr) {
            got = pop(*queue);
        }
        queue.reset();
        MODEL_REQUIRE(got->number == 7);
        r.reset();
    };
    model::check("destroyed after the pop", {.spurious = 1, .timeouts = 1}, body);
    model::check("destroyed after the last of two pops", [] {
        auto queue = std::make_unique<ready_queue>();
        auto left = std::make_unique<numbered>();
        auto right = std::make_unique<numbered>();
        model::thread first([q = queue.get(), r = left.get()] { post(*q, *r, 1); });
        model::thread second([q = queue.get(), r = right.get()] { post(*q, *r, 2); });
        pop(*queue);
        pop(*queue);
        queue.reset();
        MODEL_REQUIRE(left->number + right->number == 3);
        left.reset();
        right.reset();
    });
    // Not after the first: the other poster has not posted yet.
    model::find("destroyed too early", model::failure::lifetime, {}, [] {
        auto queue = std::make_unique<ready_queue>();
        numbered all[2];
        model::thread first([&, q = queue.get()] { post(*q, all[0], 1); });
        model::thread second([&, q = queue.get()] { post(*q, all[1], 2); });
        pop(*queue);
        queue.reset();
    });
}

int number_of_next(ready_queue& queue) { return pop(queue)->number; }
std::optional<int> number_of_next_if_any(ready_queue& queue) {
    numbered* const r = pop(queue, deadline::poll());
    return r == nullptr ? std::nullopt : std::optional<int>(r->number);
}

// A runnable is its number.
struct numbered_posts {
    void push(int n) { post(queue, all[n], n); }
    int pop() { return number_of_next(queue); }
    std::optional<int> try_pop() { return number_of_next_if_any(queue); }

    ready_queue queue;
    numbered all[3];
};

TEST_CASE("ready_queue: two posters and the owner see a queue") {
    model::check("its specification", [] {
        numbered_posts q;
        model::linearizable checked(q, model::spec::queue<int>(), "q");
        const auto push = [&](int n) {
            checked.call("post", [](auto& o, int i) { o.push(i); }, n);
        };
        model::thread a([&] {
            push(0);
            push(1);
        });
        model::thread b([&] { push(2); });
        checked.call("try_pop", [](auto& o) { return o.try_pop(); });
        checked.call("pop", [](auto& o) { return o.pop(); });
        a.join();
        b.join();
        checked.call("try_pop", [](auto& o) { return o.try_pop(); });
    });
}

} // namespace
