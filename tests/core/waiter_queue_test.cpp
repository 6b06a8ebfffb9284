#include <bide/core/waiter.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

using namespace bide;
using waiter = bide::basic_waiter<test::native>;
using waiter_queue = bide::basic_waiter_queue<test::native>;
using wake_list = bide::basic_wake_list<test::native>;

namespace {

std::deque<waiter> numbered(int n) {
    std::deque<waiter> all;
    for (int i = 0; i < n; ++i) {
        all.emplace_back(i);
    }
    return all;
}

// Records its number when it is woken.
struct scribe {
    std::vector<int>* order;
    int number;
    static void write(void* self) noexcept {
        auto& me = *static_cast<scribe*>(self);
        me.order->push_back(me.number);
    }
};

// Reads other waiters of its release when it is woken.
struct observer {
    std::vector<waiter*> at{};
    std::vector<wait_status> seen{};
    int woken = 0;
    static void look(void* self) noexcept {
        auto& me = *static_cast<observer*>(self);
        ++me.woken;
        for (waiter* w : me.at) {
            me.seen.push_back(w->await_outcome());
        }
    }
    bide::waker waker() noexcept { return {&look, this}; }
};

// When it is woken, notes its number, and lets a waiter through.
struct passing {
    std::vector<int>& order;
    int number;
    waiter* next = nullptr;
    bool next_was_decided = false;
    bool next_was_complete = true;
    waiter w{1, {&pass, this}};

    static void pass(void* self) noexcept {
        auto& me = *static_cast<passing*>(self);
        me.order.push_back(me.number);
        if (me.next != nullptr) {
            wake_list::publish(*me.next, wait_status::granted);
            me.next_was_decided = me.next->is_decided();
            me.next_was_complete = me.next->is_complete();
        }
        me.order.push_back(me.number);
    }
};

} // namespace

TEST_CASE("waiter_queue: any sequence of steps gives what a list of the waiters gives") {
    constexpr std::uint32_t waiters = 6;
    test::jitter chance(test::run_seed());
    auto all = numbered(waiters);
    waiter_queue queues[2];
    std::deque<waiter*> lists[2];
    const auto is_right = [&] {
        bool right = true;
        for (int i = 0; i < 2; ++i) {
            right = right && queues[i].empty() == lists[i].empty() &&
                    (lists[i].empty() || &queues[i].front() == lists[i].front());
        }
        for (waiter& w : all) {
            const bool inside = std::count(lists[0].begin(), lists[0].end(), &w) +
                                    std::count(lists[1].begin(), lists[1].end(), &w) !=
                                0;
            right = right && w.is_queued() == inside;
        }
        return right;
    };
    for (int step = 0; step < 20'000; ++step) {
        const std::uint32_t which = chance.below(2);
        waiter_queue& queue = queues[which];
        auto& list = lists[which];
        waiter& any = all[chance.below(waiters)];
        const auto at = std::find(list.begin(), list.end(), &any);
        const std::uint32_t act = chance.below(7);
        if (act == 0 && !any.is_queued()) {
            queue.push_front(any);
            list.push_front(&any);
        } else if (act < 3 && !any.is_queued()) {
            queue.push(any);
            list.push_back(&any);
        } else if (act == 3 && at != list.end()) {
            queue.remove(any);
            list.erase(at);
        } else if (act == 4 && !list.empty()) {
            REQUIRE(&queue.pop() == list.front());
            list.pop_front();
        } else if (act == 5 && !list.empty() && !any.is_queued()) {
            auto& old = list[chance.below(static_cast<std::uint32_t>(list.size()))];
            queue.replace(*old, any);
            old = &any;
        } else if (act == 6 && list.empty()) {
            queue.take(queues[1 - which]);
            list.swap(lists[1 - which]);
        }
        REQUIRE(is_right());
    }
    for (int i = 0; i < 2; ++i) {
        for (const waiter* w : lists[i]) {
            REQUIRE(&queues[i].pop() == w);
        }
    }
}

TEST_CASE("waiter_queue: remove takes constant time") {
    auto all = numbered(200'000);
    waiter_queue queue;
    for (waiter& w : all) {
        queue.push(w);
    }
    const std::size_t half = all.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        queue.remove(all[half + i]);
        queue.remove(all[half - 1 - i]);
    }
    CHECK(queue.empty());
}

TEST_CASE("wake_list: publish publishes each waiter once, in order, and empties the list") {
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
    CHECK(order.empty()); // no waker has run yet
    list.publish(wait_status::closed);
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(list.empty());
    for (const waiter& w : all) {
        CHECK(w.outcome() == wait_status::closed);
    }
    list.publish(wait_status::granted);
    CHECK(order.size() == 5);
    CHECK(all.front().outcome() == wait_status::closed);
}

TEST_CASE("wake_list: pop_all moves any number of waiters into it in order") {
    auto all = numbered(10'000);
    std::vector<int> order;
    std::deque<scribe> scribes;
    waiter_queue queue;
    for (waiter& w : all) {
        scribes.push_back({&order, static_cast<int>(w.amount())});
        w.set_waker(bide::waker(&scribe::write, &scribes.back()));
        queue.push(w);
    }
    wake_list list;
    queue.pop_all(list);
    CHECK(queue.empty());
    list.publish(wait_status::granted);
    REQUIRE(order.size() == 10'000);
    CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("wake_list: coroutines resume after all are published, before publish returns") {
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
    list.publish(wait_status::granted);
    CHECK(first.ran);
    CHECK(first.other_was_complete);
    CHECK(second.ran);
    CHECK(second.other_was_complete);
}

TEST_CASE("wake_list: every outcome is visible before the first waker runs",
          "[promise.decided-before-wakers]") {
    observer eyes[3];
    waiter first(1, eyes[0].waker());
    waiter thread;
    waiter second(1, eyes[1].waker());
    waiter third(1, eyes[2].waker());
    eyes[0].at = {&thread, &second};
    wake_list list;
    for (waiter* w : {&first, &thread, &second, &third}) {
        list.push(*w);
    }
    list.publish(wait_status::closed);
    CHECK(list.empty());
    CHECK(eyes[0].seen == std::vector{wait_status::closed, wait_status::closed});
    CHECK(eyes[0].woken == 1);
    CHECK(eyes[1].woken == 0); // the first waker has taken it out
    CHECK(eyes[2].woken == 1);
    for (const waiter* w : {&first, &second, &third}) {
        CHECK(w->outcome() == wait_status::closed);
    }
}

TEST_CASE("wake_list: the outcomes of two lists are visible before the first waker runs") {
    for (const bool first_looks : {true, false}) {
        observer eyes[4];
        std::deque<waiter> all;
        for (observer& o : eyes) {
            all.emplace_back(1, o.waker());
        }
        wake_list granted;
        wake_list closed;
        granted.push(all[0]);
        granted.push(all[1]);
        closed.push(all[2]);
        closed.push(all[3]);
        eyes[first_looks ? 0 : 2].at = {&all[1], &all[3]};
        wake_list::publish(granted, wait_status::granted, closed, wait_status::closed);
        CHECK(eyes[first_looks ? 0 : 2].seen ==
              std::vector{wait_status::granted, wait_status::closed});
        CHECK(eyes[1].woken == (first_looks ? 0 : 1));
        CHECK(eyes[3].woken == 0);
        CHECK((granted.empty() && closed.empty()));
        CHECK(
            (all[0].outcome() == wait_status::granted && all[2].outcome() == wait_status::closed));
    }
}

TEST_CASE("wake_list: a node is not complete before its own waker is about to run") {
    struct witness {
        waiter* behind = nullptr;
        bool complete = true;
        bool decided = false;
        static void look(void* self) noexcept {
            auto& me = *static_cast<witness*>(self);
            me.complete = me.behind->is_complete();
            me.decided = me.behind->is_decided();
        }
    } eyes;
    std::vector<int> order;
    scribe writes{&order, 7};
    waiter first(1, {&witness::look, &eyes});
    auto behind = std::make_unique<waiter>(1, bide::waker(&scribe::write, &writes));
    eyes.behind = behind.get();
    wake_list list;
    list.push(first);
    list.push(*behind);
    list.publish(wait_status::granted);
    CHECK_FALSE(eyes.complete);
    CHECK(eyes.decided);
    CHECK(behind->outcome() == wait_status::granted);
    CHECK(order == std::vector{7});
}

TEST_CASE("wake_list: what a waker lets through is decided at once, and woken after the rest",
          "[promise.waker-stack]") {
    std::vector<int> order;
    passing third{order, 3};
    passing fourth{order, 4};
    passing first{order, 1, &third.w};
    passing second{order, 2, &fourth.w};
    wake_list list;
    list.push(first.w);
    list.push(second.w);
    list.publish(wait_status::granted);
    CHECK(order == std::vector{1, 1, 2, 2, 3, 3, 4, 4});
    CHECK((first.next_was_decided && !first.next_was_complete));
    CHECK(fourth.w.outcome() == wait_status::granted);
}

TEST_CASE("wake_list: a waker that blocks in bide is behind no other one") {
    std::vector<int> order;
    waiter blocked;
    passing second{order, 2, &blocked};
    struct blocking {
        waiter& until;
        waiter& next;
        static void run(void* self) noexcept {
            auto& me = *static_cast<blocking*>(self);
            wake_list::publish(me.next, wait_status::granted);
            me.until.park(deadline::never());
        }
    } blocks{blocked, second.w};
    waiter first(1, {&blocking::run, &blocks});
    wake_list::publish(first, wait_status::granted);
    CHECK(order == std::vector{2, 2});
}
