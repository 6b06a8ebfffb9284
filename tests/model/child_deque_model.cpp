#include <bide/model/linearizable.hpp>
#include <bide/sched/child_deque.hpp>
#include <bide/sched/idle.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// The forked children of a worker: each child is taken once, by its parent, by its worker or by a
// thief, with what the worker wrote before; thieves take the oldest; and a worker that goes to sleep
// sees the children.

namespace {

using model::platform;
template <unsigned Capacity> using deque = bide::basic_child_deque<platform, Capacity>;

struct child : bide::runnable {
    platform::var<int> taken{0};

    void take() noexcept { taken = taken + 1; }
};

using bide::detail::run_list;

template <unsigned N> bool push(deque<N>& to, child& c) noexcept {
    run_list one;
    one.push(c);
    return to.push(one);
}

// Takes all children. Returns their number.
template <unsigned N> int take_all(deque<N>& from) noexcept {
    run_list all;
    from.take_all(all);
    int n = 0;
    for (; auto* const c = static_cast<child*>(all.pop()); ++n) {
        c->take();
    }
    return n;
}

template <unsigned N> bool steal(deque<N>& from) noexcept {
    auto* const c = static_cast<child*>(from.steal());
    if (c != nullptr) {
        c->take();
    }
    return c != nullptr;
}

// Two thieves, which try so often. Their end is waited for.
template <class Deque> struct two_thieves {
    two_thieves(Deque& from, int attempts, int attempts_of_another)
        : one([this, &from, attempts] { steal_some(from, attempts); }),
          another([this, &from, attempts_of_another] { steal_some(from, attempts_of_another); }) {}

    int stolen = 0; // by both; no step of the model
    model::thread one;
    model::thread another;

private:
    void steal_some(Deque& from, int attempts) noexcept {
        for (; attempts > 0; --attempts) {
            stolen += steal(from) ? 1 : 0;
        }
    }
};

// Forks `Children` and takes them back, beside thieves that steal so often. What the parent cannot
// take back was stolen.
template <unsigned Capacity, std::size_t Children>
auto forks(int steals, int steals_of_another = 0) {
    return [=] {
        deque<Capacity> d;
        child all[Children];
        {
            const two_thieves beside(d, steals, steals_of_another);
            for (child& c : all) {
                MODEL_REQUIRE(push(d, c));
            }
            bool mine = true;
            for (std::size_t i = Children; i-- > 0;) {
                const bool got = d.take_back(all[i]);
                MODEL_REQUIRE(mine || !got); // all older ones were stolen, too
                mine = got;
                if (got) {
                    all[i].take();
                }
            }
            MODEL_REQUIRE(d.empty());
        }
        for (child& c : all) {
            MODEL_REQUIRE(c.taken == 1);
        }
    };
}

} // namespace

TEST_CASE("child_deque: each child is taken once, by its parent or a thief") {
    model::check("one child, a thief", forks<4, 1>(1));
    model::check("two children, a thief", forks<4, 2>(2));
    model::check("three children, a thief", forks<4, 3>(2));
    model::check("one child, two thieves", forks<4, 1>(1, 1));
    model::check("two children, two thieves", forks<4, 2>(1, 1));
}

TEST_CASE("child_deque: a slot is used again after its child was taken") {
    const auto in_turn = [](int steals, int steals_of_another) {
        return [=] {
            deque<1> d;
            child all[3];
            int mine = 0;
            int refused = 0;
            two_thieves beside(d, steals, steals_of_another);
            for (child& c : all) {
                if (!push(d, c)) {
                    ++refused;
                } else if (&c != &all[0] && d.take_back(c)) {
                    c.take();
                    ++mine;
                }
            }
            mine += take_all(d);
            beside.one.join();
            beside.another.join();
            MODEL_REQUIRE(mine + refused + beside.stolen == 3);
            for (child& c : all) {
                MODEL_REQUIRE(c.taken <= 1);
            }
        };
    };
    model::check("three children in one slot, a thief", in_turn(2, 0));
    model::check("three children in one slot, two thieves", in_turn(1, 1));
}

TEST_CASE("child_deque: each child is taken once, also if its worker takes all") {
    const auto takes_all = [](int steals, int steals_of_another) {
        return [=] {
            deque<2> d;
            child all[3];
            {
                const two_thieves beside(d, steals, steals_of_another);
                run_list two;
                two.push(all[0]);
                two.push(all[1]);
                MODEL_REQUIRE(d.push(two) && two.first() == nullptr);
                run_list paused; // the chain takes them along, and forks them again
                d.take_all(paused);
                MODEL_REQUIRE(d.empty());
                if (paused.first() != nullptr) {
                    MODEL_REQUIRE(d.push(paused) && paused.first() == nullptr);
                }
                const bool got = push(d, all[2]);
                if (!got || d.take_back(all[2])) {
                    all[2].take();
                }
                take_all(d);
            }
            for (int i = 0; i < 3; ++i) {
                MODEL_REQUIRE(all[i].taken == 1);
            }
        };
    };
    model::check("two children, a thief", takes_all(2, 0));
    model::check("two children, two thieves", takes_all(1, 1));
}

TEST_CASE("child_deque: take_back() takes the newest child alone") {
    model::check("not the newest", [] {
        deque<2> d;
        child a;
        child b;
        MODEL_REQUIRE(!d.take_back(a));
        MODEL_REQUIRE(push(d, a) && push(d, b));
        child c;
        MODEL_REQUIRE(!push(d, c));
        MODEL_REQUIRE(!d.take_back(a));
        MODEL_REQUIRE(d.steal() == &a && d.take_back(b) && d.empty());
    });
}

TEST_CASE("child_deque: a worker that goes to sleep sees the children, or is woken", "[idle]") {
    model::check("a push beside an announcement", [] {
        deque<2> d;
        child c;
        bide::basic_idle<platform> idle(2);
        bool sleeps = false;
        unsigned woken = bide::basic_idle<platform>::none;
        {
            model::thread sleeper([&] {
                static_cast<void>(idle.announce(0, false, false));
                sleeps = d.empty();
            });
            MODEL_REQUIRE(push(d, c));
            woken = idle.wake_one();
        }
        MODEL_REQUIRE(!sleeps || woken == 0);
    });
}

namespace {

bool push_child(deque<2>& to, child& c) { return push(to, c); }

// The calls of a parent and its thieves. A child is its number.
struct numbered_children {
    bool push(int n) { return push_child(children, all[n]); }
    bool take_back(int n) { return children.take_back(all[n]); }
    std::optional<int> steal() {
        auto* const c = static_cast<child*>(children.steal());
        return c == nullptr ? std::nullopt : std::optional<int>(static_cast<int>(c - all));
    }

    deque<2> children;
    child all[2];
};

struct specified_children : model::spec::queue<int> {
    using queue::queue;
    bool push(int n) { return try_push(n); }
    bool take_back(int n) { return try_pop_back() == n; }
    // Finds nothing if another thread takes the child.
    std::optional<int> steal() { return model::spec::maybe() ? std::nullopt : try_pop(); }
};

} // namespace

TEST_CASE("child_deque: a parent and two thieves see a deque") {
    model::check("its specification", [] {
        numbered_children d;
        model::linearizable checked(d, specified_children(2), "d");
        const auto steal = [&] { checked.call("steal", [](auto& o) { return o.steal(); }); };
        model::thread a(steal);
        model::thread b(steal);
        for (int i = 0; i < 2; ++i) {
            checked.call("push", [](auto& o, int n) { return o.push(n); }, i);
        }
        for (int i = 2; i-- > 0;) {
            checked.call("take_back", [](auto& o, int n) { return o.take_back(n); }, i);
        }
    });
}
