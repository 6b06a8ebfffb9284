#include <bide/core/waiter.hpp>
#include <model/check.hpp>
#include <support/test.hpp>
#include <support/tokens.hpp>

// One wait: decided once, under the primitive's lock, and published once, after that lock is
// released. The publication is the last access to the node. The primitive is minimal:
// support/tokens.hpp.

namespace {

using bide::deadline;
using bide::wait_status;
using model::platform;
using awake = model::platform_without_lock_sleep;
using waiter = bide::basic_waiter<platform>;
template <class T> using var = platform::var<T>;
template <class T> using atomic = platform::atomic<T>;
template <class P> using tokens = test::basic_tokens<P>;

constexpr deadline soon = deadline::at_ns(1'000'000);

// Counts its calls.
bide::waker counts(var<int>& calls) {
    return {[](void* of) noexcept {
                auto& count = *static_cast<var<int>*>(of);
                count = count + 1;
            },
            &calls};
}

TEST_CASE("waiter: a publication ends the park, and earlier writes are visible") {
    model::check("publish against park", {.spurious = 2}, [] {
        waiter w;
        var<int> done{0};
        model::thread publisher(
            model::after_writing(done, [&] { w.publish(wait_status::granted); }));
        MODEL_REQUIRE(w.park(deadline::never()));
        MODEL_REQUIRE(w.outcome() == wait_status::granted);
        MODEL_REQUIRE(done == 1);
    });
}

TEST_CASE("waiter: a publication that arrives with the time-out ends the next park") {
    model::check("publish against a time-out", {.spurious = 1, .timeouts = 1}, [] {
        waiter w;
        var<int> done{0};
        model::thread publisher(
            model::after_writing(done, [&] { w.publish(wait_status::closed); }));
        if (!w.park(soon)) {
            MODEL_REQUIRE(
                w.park(deadline::never())); // begins with `parked`, left by the first park
        }
        MODEL_REQUIRE(w.outcome() == wait_status::closed);
        MODEL_REQUIRE(done == 1);
    });
    CHECK(model::outcomes({.timeouts = 1}, [] {
              waiter w;
              model::thread publisher([&] { w.publish(wait_status::granted); });
              const bool first = w.park(soon);
              const bool second = w.park(soon);
              model::record(std::to_string(first) + std::to_string(second));
          }) == "00 01 11");
}

TEST_CASE("waiter: the publication is the last access to the node") {
    const auto body = [](auto end) {
        return [end] {
            auto w = std::make_unique<waiter>();
            var<int> done{0};
            model::thread publisher(model::after_writing(
                done, [mine = w.get()] { mine->publish(wait_status::granted); }));
            end(*w);
            w.reset();
            MODEL_REQUIRE(done == 1);
        };
    };
    model::check("destroyed after the park", {.spurious = 1},
                 body([](waiter& w) { w.park(deadline::never()); }));
    model::check("destroyed after a park that timed out", {.timeouts = 1}, body([](waiter& w) {
                     if (!w.park(soon)) {
                         w.await_outcome();
                     }
                 }));
    model::check("destroyed after a look at the outcome",
                 body([](waiter& w) { MODEL_REQUIRE(w.await_outcome() == wait_status::granted); }));
    model::find("destroyed without an outcome", model::failure::lifetime, {.timeouts = 1}, [] {
        auto w = std::make_unique<waiter>();
        model::thread publisher([mine = w.get()] { mine->publish(wait_status::granted); });
        w->park(soon);
        w.reset();
    });
}

TEST_CASE("waiter: a waker runs once, after the outcome, and needs nothing of the node") {
    model::check("a foreign waker", [] {
        var<int> calls{0};
        auto w = std::make_unique<waiter>(1, counts(calls));
        model::thread publisher([mine = w.get()] { mine->publish(wait_status::granted); });
        MODEL_REQUIRE(w->await_outcome() == wait_status::granted);
        w.reset(); // the waker may not have run yet
        publisher.join();
        MODEL_REQUIRE(calls == 1);
    });
}

TEST_CASE("waiter: it may wait again after a reset") {
    model::check("two waits of one node", {.spurious = 1}, [] {
        waiter w;
        atomic<int> again{0};
        var<int> done{0};
        model::thread publisher([&] {
            done = 1;
            w.publish(wait_status::granted);
            while (again.load(std::memory_order_acquire) == 0) {
                platform::pause();
            }
            done = 2;
            w.publish(wait_status::closed);
        });
        w.park(deadline::never());
        MODEL_REQUIRE(w.outcome() == wait_status::granted && done == 1);
        w.reset(1);
        again.store(1, std::memory_order_release);
        w.park(deadline::never());
        MODEL_REQUIRE(w.outcome() == wait_status::closed && done == 2);
    });
}

// A queue of at most one waiter, which may be roused, granted, or withdrawn by its owner.
template <class Platform> struct place {
    using node = bide::basic_waiter<Platform>;
    using lock = bide::lock_bits<Platform, std::uint32_t>;

    typename lock::atomic word{0};
    bide::basic_waiter_queue<Platform> queue;

    void enter(node& w) noexcept {
        lock::acquire(word);
        queue.push(w);
        lock::release(word);
    }
    void grant() noexcept {
        lock::acquire(word);
        node* const w = queue.empty() ? nullptr : &queue.pop();
        lock::release(word);
        if (w != nullptr) {
            w->publish(wait_status::granted);
        }
    }
    // The waiter may be granted and destroyed between the two steps.
    void rouse() noexcept {
        lock::acquire(word);
        typename node::address sleeper = nullptr;
        if (!queue.empty() && queue.front().rouse()) {
            sleeper = queue.front().where();
        }
        lock::release(word);
        if (sleeper != nullptr) {
            node::rouse_by(sleeper);
        }
    }
    // The owner withdraws. Returns false if the wait was granted.
    bool leave(node& w) noexcept {
        lock::acquire(word);
        const bool mine = w.is_queued();
        if (mine) {
            queue.remove(w);
        }
        lock::release(word);
        return mine;
    }
};

TEST_CASE("waiter: a rouse ends a sleep without an outcome") {
    model::check("rouse until it finds a sleeper", {.spurious = 1}, [] {
        waiter w;
        model::thread rouser([&] {
            while (!w.rouse()) {
                platform::pause();
            }
            waiter::rouse_by(w.where());
        });
        MODEL_REQUIRE(w.sleep(deadline::never()));
        MODEL_REQUIRE(!w.is_complete());
    });
}

TEST_CASE("waiter: a waiter is granted, or roused and then finds the reason") {
    // As in an adaptive mutex: a sleeping head is roused and finds the mutex free. A head that is
    // awake is granted the mutex.
    model::check("roused or granted", {.spurious = 2}, [] {
        auto p = std::make_unique<place<platform>>();
        auto w = std::make_unique<waiter>();
        var<int> done{0};
        var<bool> left{false}; // under the lock
        p->enter(*w);
        model::thread unlocker([&done, &left, mine = p.get()] {
            done = 1;
            place<platform>::lock::acquire(mine->word);
            waiter& head = mine->queue.front();
            const waiter::address sleeper = head.where();
            if (head.rouse()) {
                left = true;
                place<platform>::lock::release(mine->word);
                waiter::rouse_by(sleeper);
            } else {
                mine->queue.remove(head);
                place<platform>::lock::release(mine->word);
                head.publish(wait_status::granted);
            }
        });
        MODEL_REQUIRE(w->sleep(deadline::never()));
        if (w->is_complete()) {
            MODEL_REQUIRE(w->outcome() == wait_status::granted);
        } else {
            MODEL_REQUIRE(p->leave(*w));
            MODEL_REQUIRE(left);
        }
        p.reset();
        w.reset();
        MODEL_REQUIRE(done == 1);
    });
}

TEST_CASE("waiter: a rouse and a grant at the same time end the wait once") {
    const auto body = [] {
        place<awake> p;
        auto w = std::make_unique<bide::basic_waiter<awake>>();
        var<int> done{0};
        p.enter(*w);
        model::thread rouser([&] { p.rouse(); });
        model::thread granter(model::after_writing(done, [&] { p.grant(); }));
        MODEL_REQUIRE(w->park(deadline::never()));
        MODEL_REQUIRE(w->outcome() == wait_status::granted);
        w.reset();
        MODEL_REQUIRE(done == 1);
    };
    model::check("rouse against grant", body);
    model::check("rouse against grant, spurious", {.spurious = 1}, body);
}

TEST_CASE("waiter: a time-out and a grant decide a wait once") {
    const auto body = [] {
        tokens<platform> t(0);
        var<int> done{0};
        model::thread giver(model::after_writing(done, [&] { t.give(); }));
        const wait_status what = t.take_until(soon);
        if (what == wait_status::granted) {
            MODEL_REQUIRE(done == 1);
        } else {
            MODEL_REQUIRE(what == wait_status::timed_out);
        }
        giver.join();
        MODEL_REQUIRE(t.available() == (what == wait_status::granted ? 0 : 1));
        MODEL_REQUIRE(t.waiters() == 0);
        model::record(what == wait_status::granted ? "granted" : "timed_out");
    };
    model::check("grant against time-out", {.timeouts = 1}, body);
    model::check("grant against time-out, spurious", {.spurious = 1, .timeouts = 1}, body);
    CHECK(model::outcomes({.timeouts = 1}, body) == "granted timed_out");
}

TEST_CASE("waiter: the granted owner may destroy the primitive") {
    const auto body = [](deadline until) {
        return [until] {
            auto t = std::make_unique<tokens<platform>>(0);
            model::thread giver([mine = t.get()] { mine->give(); });
            if (t->take_until(until) == wait_status::timed_out) {
                giver.join();
            }
            t.reset();
        };
    };
    model::check("destroyed after a grant", {.spurious = 1}, body(deadline::never()));
    model::check("destroyed after a grant or a time-out", {.timeouts = 1}, body(soon));
}

TEST_CASE("waiter: if the time-out comes after the decision, the outcome is published") {
    // Does what thread_wait does, with a primitive that is destroyed at once.
    model::check("cancel against grant", {.timeouts = 1}, [] {
        auto p = std::make_unique<place<platform>>();
        auto w = std::make_unique<waiter>();
        var<int> done{0};
        p->enter(*w);
        model::thread granter(model::after_writing(done, [mine = p.get()] { mine->grant(); }));
        if (w->park(soon)) {
            MODEL_REQUIRE(done == 1);
        } else if (p->leave(*w)) {
            granter.join();
        } else {
            MODEL_REQUIRE(w->park(deadline::never()));
            MODEL_REQUIRE(w->outcome() == wait_status::granted);
            MODEL_REQUIRE(done == 1);
        }
        p.reset();
        w.reset();
    });
}

void timed_and_untimed() {
    tokens<awake> t(0);
    var<int> holders{0};
    const auto take = [&](deadline until) {
        if (t.take_until(until) == wait_status::granted) {
            holders = holders + 1;
            t.give();
        }
    };
    model::thread hasty([&] { take(soon); });
    model::thread patient([&] { take(deadline::never()); });
    t.give();
    hasty.join();
    patient.join();
    MODEL_REQUIRE(holders == 1 || holders == 2);
    MODEL_REQUIRE(t.available() == 1);
    MODEL_REQUIRE(t.waiters() == 0);
}

void three_takers() {
    tokens<awake> t(1);
    var<int> counted{0};
    const auto step = [&] {
        MODEL_REQUIRE(t.take_until(deadline::never()) == wait_status::granted);
        counted = counted + 1;
        t.give();
    };
    model::thread second(step);
    model::thread third(step);
    step();
    second.join();
    third.join();
    MODEL_REQUIRE(counted == 3);
    MODEL_REQUIRE(t.available() == 1);
}

TEST_CASE("waiter: a token passes through three threads, also past a wait that ends early",
          "[long]") {
    const model::options random{.how = model::options::method::pct, .spurious = 1, .timeouts = 1};
    model::check("two waiters, one of them timed", model::brief_or_long(random, {.timeouts = 1}),
                 timed_and_untimed);
    model::check("three takers of one token", model::brief_or_long(random, {}), three_takers);
}

// Does what thread_wait::until() does with a stop token. A thread stands for the stop token here, and its join
// for the destructor of the callback.
TEST_CASE("waiter: a stop before, during or after the wait ends it once") {
    const auto body = [](bool grants) {
        return [grants] {
            using node = bide::basic_waiter<awake>;
            tokens<awake> t(0);
            node w;
            model::thread stopper([&] {
                if (!w.is_complete() && t.cancel(w, wait_status::stopped)) {
                    w.publish(wait_status::stopped);
                }
            });
            const auto wait = [&] {
                const wait_status at_once = t.enqueue(w);
                if (at_once != wait_status::waiting) {
                    return at_once;
                }
                MODEL_REQUIRE(w.park(deadline::never()));
                return w.outcome();
            };
            wait_status what{};
            if (grants) {
                model::thread giver([&] { t.give(); });
                what = wait();
                giver.join();
            } else {
                what = wait();
                MODEL_REQUIRE(what == wait_status::stopped);
            }
            stopper.join();
            MODEL_REQUIRE(what == wait_status::granted || what == wait_status::stopped);
            MODEL_REQUIRE(t.available() == (grants && what != wait_status::granted ? 1 : 0));
            MODEL_REQUIRE(t.waiters() == 0);
        };
    };
    model::check("stop against queueing", {.spurious = 1}, body(false));
    model::check("stop against queueing and grant", body(true));
}

TEST_CASE("waiter: a wait in no queue is ended once, before it has begun or after") {
    model::check("begun alone, ended", [] {
        waiter w;
        var<int> data{0};
        var<int> done{0};
        model::thread ending([&] {
            done = 1;
            if (w.end_alone(wait_status::stopped)) {
                MODEL_REQUIRE(data == 1);
            }
        });
        data = 1;
        if (!w.begin_alone()) {
            MODEL_REQUIRE(done == 1 && w.outcome() == wait_status::stopped);
        }
        ending.join();
        MODEL_REQUIRE(w.outcome() == wait_status::stopped);
    });
    model::check("begun alone, ended by two", [] {
        waiter w;
        bool by_other = false;
        const bool begun = w.begin_alone();
        model::thread other([&] { by_other = w.end_alone(wait_status::stopped); });
        const bool by_me = w.end_alone(wait_status::timed_out);
        other.join();
        MODEL_REQUIRE(begun && by_me != by_other);
        MODEL_REQUIRE(w.outcome() == (by_me ? wait_status::timed_out : wait_status::stopped));
    });
}

// The owner waits for all cases with one waiter.
struct owned_choice : bide::basic_choice<platform> {
    owned_choice() noexcept : basic_choice(&main_of) {}
    static waiter* main_of(basic_choice& of) noexcept {
        return &static_cast<owned_choice&>(of).main;
    }
    waiter main;
};

TEST_CASE("waiter: a case of a choice is published with other waits, and then its owner") {
    model::check("a case and a waker of one list", [] {
        owned_choice c;
        waiter selected;
        var<int> calls{0};
        waiter beside(1, counts(calls));
        selected.contest(c);
        bide::basic_wake_list<platform> list;
        list.push(selected);
        list.push(beside);
        var<int> done{0};
        model::thread publisher(
            model::after_writing(done, [&] { list.publish(wait_status::granted); }));
        if (selected.is_complete()) {
            MODEL_REQUIRE(done == 1);
        }
        MODEL_REQUIRE(c.main.park(deadline::never()));
        MODEL_REQUIRE(selected.outcome() == wait_status::granted && done == 1);
    });
}

TEST_CASE("waiter: a list is published in order, and each node may be destroyed at once") {
    model::check("two of one list", [] {
        bide::basic_waiter_queue<platform> queue;
        auto first = std::make_unique<waiter>();
        auto second = std::make_unique<waiter>();
        queue.push(*first);
        queue.push(*second);
        bide::basic_wake_list<platform> list;
        queue.pop_all(list);
        var<int> done{0};
        model::thread owner([&] {
            first->park(deadline::never());
            MODEL_REQUIRE(done == 1);
            first.reset();
        });
        model::thread publisher([&] {
            done = 1;
            list.publish(wait_status::closed);
            MODEL_REQUIRE(list.empty());
        });
        MODEL_REQUIRE(second->park(deadline::never()));
        MODEL_REQUIRE(second->outcome() == wait_status::closed);
        second.reset();
        MODEL_REQUIRE(done == 1);
    });
    // A thread that sees the second outcome also sees the first.
    model::check("the first before the second", [] {
        bide::basic_wake_list<platform> list;
        waiter first;
        waiter second;
        list.push(first);
        list.push(second);
        model::thread publisher([&] { list.publish(wait_status::granted); });
        if (second.is_complete()) {
            MODEL_REQUIRE(first.is_complete());
        }
    });
}

// Two waiters with wakers. The waker of the first awaits the outcome of the second and frees it.
struct two_of_one_release {
    std::unique_ptr<waiter> second;
    waiter first{1,
                 {[](void* self) noexcept {
                      auto& me = *static_cast<two_of_one_release*>(self);
                      me.found = me.second->await_outcome();
                      me.second.reset();
                  },
                  this}};
    wait_status found = wait_status::waiting;

    explicit two_of_one_release(var<int>& woken)
        : second(std::make_unique<waiter>(1, counts(woken))) {}
};

TEST_CASE("waiter: a waker may end another wait of the same release") {
    const auto awaits_another = [](bool in_two_lists) {
        var<int> woken{0};
        two_of_one_release both(woken);
        waiter thread;
        bide::basic_wake_list<platform> first;
        bide::basic_wake_list<platform> second;
        first.push(both.first);
        (in_two_lists ? second : first).push(*both.second);
        (in_two_lists ? second : first).push(thread);
        model::thread publisher([&] {
            if (in_two_lists) {
                bide::basic_wake_list<platform>::publish(first, wait_status::granted, second,
                                                         wait_status::closed);
            } else {
                first.publish(wait_status::granted);
            }
        });
        MODEL_REQUIRE(thread.park(deadline::never())); // before or after the wakers run
        publisher.join();
        MODEL_REQUIRE(both.found == (in_two_lists ? wait_status::closed : wait_status::granted));
        MODEL_REQUIRE(!both.second && woken == 0);
        MODEL_REQUIRE(both.first.outcome() == wait_status::granted);
    };
    model::check("a waker against a thread of the release", [=] { awaits_another(false); });
    model::check("two lists of one release", [=] { awaits_another(true); });
    // await_outcome() on another thread ends when the node is published, the last access to the
    // node.
    model::check("a waker and another thread", [] {
        var<int> woken{0};
        two_of_one_release both(woken);
        auto third = std::make_unique<waiter>(1, bide::waker());
        var<int> rung{0};
        third->set_waker(counts(rung));
        bide::basic_wake_list<platform> list;
        list.push(both.first);
        list.push(*both.second);
        list.push(*third);
        model::thread publisher([&] { list.publish(wait_status::closed); });
        MODEL_REQUIRE(third->await_outcome() == wait_status::closed);
        third.reset();
        publisher.join();
        MODEL_REQUIRE(both.found == wait_status::closed && woken == 0 && rung == 1);
    });
}

// Lets a thread and a waiter with a waker through when it is woken.
struct passing {
    waiter thread;
    std::unique_ptr<waiter> other;
    waiter first{1,
                 {[](void* self) noexcept {
                      auto& me = *static_cast<passing*>(self);
                      bide::basic_wake_list<platform> list;
                      list.push(*me.other);
                      list.push(me.thread);
                      list.publish(wait_status::closed);
                  },
                  this}};

    explicit passing(var<int>& woken) : other(std::make_unique<waiter>(1, counts(woken))) {}
};

TEST_CASE("waiter: what a waker lets through is decided at once and published last") {
    model::check("let through by a waker", [] {
        var<int> woken{0};
        passing p(woken);
        model::thread publisher([&] {
            bide::basic_wake_list<platform>::publish(p.first, wait_status::granted);
            MODEL_REQUIRE(woken == 1);
        });
        model::thread parked([&] { MODEL_REQUIRE(p.thread.park(deadline::never())); });
        MODEL_REQUIRE(p.other->await_outcome() == wait_status::closed);
        p.other.reset();
        publisher.join();
        parked.join();
    });
}

TEST_CASE("waiter: a close ends all waits and refuses new ones") {
    const auto body = [] {
        tokens<awake> t(0);
        const auto take = [&] {
            MODEL_REQUIRE(t.take_until(deadline::never()) == wait_status::closed);
        };
        model::thread first(take);
        model::thread second(take);
        t.close();
        first.join();
        second.join();
        MODEL_REQUIRE(t.waiters() == 0);
    };
    model::check("close against two waits", body);
}

} // namespace
