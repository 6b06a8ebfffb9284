#include <bide/sched/join_set.hpp>
#include <model/at_random.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

// A join_set and the threads that run its children. Each outcome is returned once, or destroyed with
// the set: when the destructor has returned, no outcome is left, although the thread that ran a child
// may still have the last reference to it. The list of ended children alone is in group_model.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using task_home = model::task_home<platform>;
using bide::cancel_reason;
using bide::wait_status;
template <class T> using var = platform::var<T>;

// An outcome, which its owner may destroy only while the counts exist.
class tracked {
public:
    struct counts {
        var<int> made{0};
        var<int> destroyed{0};
    };

    explicit tracked(counts& c) noexcept : of_(&c) { c.made = c.made + 1; }
    tracked(tracked&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    tracked& operator=(tracked&&) = delete;
    ~tracked() {
        if (of_ != nullptr) {
            of_->destroyed = of_->destroyed + 1;
        }
    }

private:
    counts* of_;
};

using base = bide::detail::basic_join_set_child<tracked, platform>;
using state_type = bide::detail::basic_join_set_state<platform>;
using list = bide::detail::basic_ended_children<platform>;

// A set with its functions of join_set.hpp.
class join_set {
public:
    // `cancels` is false where all children have ended anyway.
    // If `keeps_all` is true, it is the set of a join_map.
    explicit join_set(bool cancels = true, bool keeps_all = false) noexcept
        : state(keeps_all), cancels_(cancels) {}
    join_set(const join_set&) = delete;
    join_set& operator=(const join_set&) = delete;
    ~join_set() {
        if (cancels_) {
            state.cancel(cancel_reason::parent);
        }
        state.all.of_children().wait();
        base::drop_all(state.ended);
    }

    // Returns false if no child is left.
    bool join_next() {
        wait_status what = state.ended.try_reserve();
        if (what == wait_status::waiting) {
            what =
                bide::thread_wait<list, platform>::until(state.ended, 1, bide::deadline::never());
        }
        if (what == wait_status::granted) {
            try {
                static_cast<void>(base::take_reserved(state.ended));
            } catch (const bide::stopped_error&) { // it never ran
            }
        }
        return what == wait_status::granted;
    }

    state_type state;

private:
    const bool cancels_;
};

// A child with an outcome. `gone` counts the cells that were destroyed.
class child final : public base {
public:
    child(task_home& in, join_set& of, tracked::counts& c, platform::atomic<int>& gone) noexcept
        : base(in, false, of.state), counts_(c), gone_(gone) {
        of.state.ended.begin();
        of.state.all.begin(member());
    }

    void begin() noexcept { to_run().run.wake(); }

private:
    std::coroutine_handle<> start() noexcept override {
        kept().compute([this] { return tracked(counts_); });
        return {};
    }
    void never_start() noexcept override { set_never_ran(); }
    void settle() noexcept override {}
    void destroy() noexcept override {
        platform::atomic<int>& gone = gone_;
        delete this;
        gone.fetch_add(1, std::memory_order_relaxed);
    }

    tracked::counts& counts_;
    platform::atomic<int>& gone_;
};

using model::check_at_random;

// A set whose children run on threads of their own. `run` is called with the set and the counts of its outcomes. Then
// the set is destroyed, and the counts go at once, although the threads may not have ended.
template <class Run>
void with_children(int children, bool cancels, Run run, bool keeps_all = false) {
    task_home tasks;
    platform::atomic<int> gone{0};
    std::vector<model::thread> threads;
    {
        tracked::counts c[2];
        {
            join_set s(cancels, keeps_all);
            for (int i = 0; i < children; ++i) {
                auto* const one = new child(tasks, s, c[i], gone);
                threads.emplace_back([one] { one->begin(); });
            }
            run(s, c);
        }
        for (const tracked::counts& one : c) {
            MODEL_REQUIRE(one.made == one.destroyed);
        }
        model::record(std::to_string(c[0].made + c[1].made));
    }
    threads.clear();
    MODEL_REQUIRE(gone.load(std::memory_order_relaxed) == children);
}

// So many joins return an outcome, or the set is destroyed with it.
void joined(int children, int joins, bool cancels = true) {
    with_children(children, cancels, [=](join_set& s, tracked::counts(&c)[2]) {
        for (int i = 0; i < joins; ++i) {
            MODEL_REQUIRE(s.join_next() == (i < children));
        }
        MODEL_REQUIRE(joins < children || c[0].destroyed + c[1].destroyed == children);
    });
}
void destroyed(int children, bool cancels = true) {
    with_children(children, cancels, [](join_set&, auto&) {});
}

// Two threads join, one child runs elsewhere: one of the two gets it, the other one learns that no
// child is left, and then the set may be destroyed.
void joined_by_two(bool cancelled) {
    with_children(1, false, [=](join_set& s, auto&) {
        bool other = false;
        model::thread joiner([&] { other = s.join_next(); });
        if (cancelled) {
            s.state.cancel(cancel_reason::requested);
        }
        const bool mine = s.join_next();
        joiner.join();
        MODEL_REQUIRE(cancelled ? !(mine && other) : mine != other);
    });
}

// A cancellation comes while the child runs and another thread joins.
void cancelled_and_joined() {
    with_children(1, true, [](join_set& s, tracked::counts(&c)[2]) {
        s.state.cancel(cancel_reason::requested);
        const bool got = s.join_next();
        MODEL_REQUIRE(!s.join_next());
        MODEL_REQUIRE(got == (c[0].made == 1));
    });
}
// The same with a join_map, which returns the child in any case.
void cancelled_and_joined_in_a_map() {
    const auto joins = [](join_set& s, auto&) {
        s.state.cancel(cancel_reason::requested);
        MODEL_REQUIRE(s.join_next());
        MODEL_REQUIRE(!s.join_next());
    };
    with_children(1, true, joins, true);
}

} // namespace

TEST_CASE("join_set: its destructor leaves no outcome to the thread that ran the child") {
    model::check("destroyed beside the last reference", [] { destroyed(1, false); });
    model::check("joined, destroyed", [] { joined(1, 1, false); });
}

TEST_CASE("join_set: each outcome is returned once or destroyed with the set", "[long]") {
    const std::uint64_t runs = model::is_long() ? 20'000 : 500;
    check_at_random("destroyed, one child", runs, [] { destroyed(1); });
    check_at_random("destroyed, two children", runs, [] { destroyed(2); });
    check_at_random("one of two outcomes is joined", runs, [] { joined(2, 1); });
    check_at_random("two outcomes are joined", runs, [] { joined(2, 3, false); });
    check_at_random("two join", runs, [] { joined_by_two(false); });
    check_at_random("two join, one cancels", runs, [] { joined_by_two(true); });
    check_at_random("cancelled and joined", runs, cancelled_and_joined);
    // The first call makes the exception, which is never destroyed.
    static_cast<void>(bide::detail::error_of<bide::stopped_error>(bide::errc::stopped));
    check_at_random("cancelled and joined, in a map", runs, cancelled_and_joined_in_a_map);
    const model::options o{.how = model::options::method::pct, .runs = 500};
    CHECK(model::outcomes(o, [] { destroyed(1); }) == "0 1");
    CHECK(model::outcomes(o, cancelled_and_joined) == "0 1");
}
