#include <bide/core/waiter_queue.hpp>
#include <support/catch.hpp>
#include <support/gate.hpp>
#include <support/platforms.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

using bide::deadline;
using bide::fate;
using waiter = bide::basic_waiter<test::native>;
using waiter_queue = bide::basic_waiter_queue<test::native>;
using wake_list = bide::basic_wake_list<test::native>;

namespace {

// Their numbers in the order of the queue, which is empty afterwards.
std::vector<int> drain(waiter_queue& queue) {
    std::vector<int> order;
    while (!queue.empty() && order.size() < 100) {
        waiter& first = queue.front();
        waiter& popped = queue.pop();
        order.push_back(&first == &popped ? static_cast<int>(popped.amount) : -1);
    }
    return order;
}

std::deque<waiter> numbered(int n) {
    std::deque<waiter> all;
    for (int i = 0; i < n; ++i) {
        all.emplace_back(i);
    }
    return all;
}

// Writes its number down when it is woken.
struct scribe {
    std::vector<int>* order;
    int number;
    static void write(void* self) noexcept {
        auto& me = *static_cast<scribe*>(self);
        me.order->push_back(me.number);
    }
};

} // namespace

TEST_CASE("waiter_queue: first come, first out") {
    const test::watchdog guard;
    for (int n = 0; n <= 5; ++n) {
        CAPTURE(n);
        auto all = numbered(n);
        waiter_queue queue;
        CHECK(queue.empty());
        std::vector<int> expected;
        for (waiter& w : all) {
            queue.push(w);
            CHECK(&queue.front() == &all.front());
            expected.push_back(static_cast<int>(w.amount));
        }
        CHECK(drain(queue) == expected);
        CHECK(queue.empty());
    }
}

TEST_CASE("waiter_queue: one is taken out of any place, and the order of the others stays") {
    const test::watchdog guard;
    for (int n = 1; n <= 5; ++n) {
        for (int out = 0; out < n; ++out) {
            CAPTURE(n, out);
            auto all = numbered(n);
            waiter_queue queue;
            std::vector<int> expected;
            for (waiter& w : all) {
                queue.push(w);
                if (w.amount != out) {
                    expected.push_back(static_cast<int>(w.amount));
                }
            }
            queue.remove(all[static_cast<std::size_t>(out)]);
            waiter late(99);
            queue.push(late);
            expected.push_back(99);
            CHECK(drain(queue) == expected);
        }
    }
}

TEST_CASE("waiter_queue: all are taken out in every possible order") {
    const test::watchdog guard;
    std::vector<int> order(5);
    std::iota(order.begin(), order.end(), 0);
    do {
        auto all = numbered(5);
        waiter_queue queue;
        std::vector<int> inside = {0, 1, 2, 3, 4};
        for (waiter& w : all) {
            queue.push(w);
        }
        for (const int i : order) {
            waiter& w = all[static_cast<std::size_t>(i)];
            const bool right = w.is_queued() && queue.front().amount == inside.front();
            queue.remove(w);
            inside.erase(std::find(inside.begin(), inside.end(), i));
            if (!right || w.is_queued() || queue.empty() != inside.empty()) {
                CAPTURE(order, i);
                FAIL("the wrong one went, or stayed");
            }
        }
    } while (std::next_permutation(order.begin(), order.end()));
    SUCCEED();
}

TEST_CASE("waiter_queue: removal does not get slower with the length of the queue") {
    auto all = numbered(200'000);
    waiter_queue queue;
    for (waiter& w : all) {
        queue.push(w);
    }
    const test::watchdog guard; // a search from either end would take 10^10 steps
    const std::size_t half = all.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        queue.remove(all[half + i]);
        queue.remove(all[half - 1 - i]);
    }
    CHECK(queue.empty());
}

TEST_CASE("wake_list: what it holds is published in order, once, and it is empty afterwards") {
    std::vector<int> order;
    std::deque<scribe> scribes;
    std::deque<waiter> all;
    wake_list list;
    CHECK(list.empty());
    for (int i = 0; i < 5; ++i) {
        scribes.push_back({&order, i});
        all.emplace_back(1, bide::waker(&scribe::write, &scribes.back()));
        list.push(all.back());
        CHECK_FALSE(list.empty());
    }
    CHECK(order.empty()); // no wake before
    list.publish(fate::closed);
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(list.empty());
    for (const waiter& w : all) {
        CHECK(w.outcome() == fate::closed);
    }
    list.publish(fate::granted);
    CHECK(order.size() == 5);
    CHECK(all.front().outcome() == fate::closed);
}

TEST_CASE("wake_list: all of a queue go into it in order, however many there are") {
    auto all = numbered(10'000);
    std::vector<int> order;
    std::deque<scribe> scribes;
    waiter_queue queue;
    for (waiter& w : all) {
        scribes.push_back({&order, static_cast<int>(w.amount)});
        w.set_waker(bide::waker(&scribe::write, &scribes.back()));
        queue.push(w);
    }
    wake_list list;
    queue.pop_all(list);
    CHECK(queue.empty());
    list.publish(fate::granted);
    REQUIRE(order.size() == 10'000);
    CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("wake_list: coroutines go on when all are published, before publish returns") {
    struct one_of_two {
        waiter* other;
        bool other_was_complete;
        bool ran;
        bide::runnable r;
        static void resume(void* self) noexcept {
            auto& me = *static_cast<one_of_two*>(self);
            me.other_was_complete = me.other->is_complete();
            me.ran = true;
        }
        static void wake(void* self) noexcept {
            auto& me = *static_cast<one_of_two*>(self);
            me.r.run = bide::waker(&resume, self);
            bide::wake_scope<test::native>::run(me.r);
        }
    } first{}, second{};
    waiter a(1, bide::waker(&one_of_two::wake, &first));
    waiter b(1, bide::waker(&one_of_two::wake, &second));
    first.other = &b;
    second.other = &a;
    wake_list list;
    list.push(a);
    list.push(b);
    list.publish(fate::granted);
    CHECK(first.ran);
    CHECK(first.other_was_complete);
    CHECK(second.ran);
    CHECK(second.other_was_complete);
}

TEMPLATE_TEST_CASE("wake_list: an owner that sees its outcome may free its node", "", test::native,
                   test::portable, test::jittery) {
    constexpr int rounds = 200;
    constexpr int sleepers = 3;
    using node = bide::basic_waiter<TestType>;
    std::atomic<node*> nodes[sleepers] = {};
    test::run_threads(sleepers + 1, [&](int me) {
        for (int i = 0; i < rounds; ++i) {
            if (me < sleepers) {
                auto w = std::make_unique<node>();
                nodes[me].store(w.get());
                w->park(deadline::never());
            } else {
                bide::basic_wake_list<TestType> list;
                for (auto& there : nodes) {
                    node* w = nullptr;
                    while ((w = there.exchange(nullptr)) == nullptr) {
                        std::this_thread::yield();
                    }
                    list.push(*w);
                }
                list.publish(fate::granted);
            }
        }
    });
    SUCCEED();
}
