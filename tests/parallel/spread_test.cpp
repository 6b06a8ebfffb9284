#include <bide/parallel/fork_join.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/catch.hpp>
#include <support/gate.hpp>
#include <support/scheduling.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

// Free workers find what is forked. Each leaf waits until all leaves run, so a case ends only if W workers
// run W leaves at the same time. Each case is one fork-join of a call site of its own, because a call site
// that took less time than a wake takes wakes no worker.

namespace {

using bide::scheduler;

// One type for each case, and so one call site.
template <int Leaves, bool FromWorker> class meeting {
public:
    static constexpr int leaves = Leaves;

    explicit meeting(scheduler& s) : on(s) {}

    void operator()(int = 0) {
        ++here_;
        if (!test::eventually([this] { return here_.load() == Leaves; })) {
            test::give_up(test::where(), "not all leaves run at the same time");
        }
    }

    template <class Fork> void hold(Fork fork) {
        if constexpr (FromWorker) {
            on.spawn([&] { fork(*this); }).join();
        } else {
            fork(*this);
        }
        CHECK(here_.load() == Leaves);
    }

    scheduler& on;

private:
    std::atomic<int> here_{0};
};

template <class Meeting> void tree(Meeting& leaf, int n) {
    if (n == 1) {
        return leaf();
    }
    bide::join(leaf.on, [&leaf, n] { tree(leaf, n / 2); }, [&leaf, n] { tree(leaf, n - n / 2); });
}

template <class Meeting, std::size_t... I>
void invoke_all(Meeting& leaf, std::index_sequence<I...>) {
    bide::parallel_invoke(leaf.on, [&leaf] { leaf(static_cast<int>(I)); }...);
}

template <int Workers, bool FromWorker> void spread() {
    INFO(Workers << " workers, from a worker: " << FromWorker);
    const test::watchdog guard;
    scheduler s(test::with(Workers, true));
    using leaves = meeting<Workers, FromWorker>;
    leaves(s).hold([](auto& leaf) { tree(leaf, Workers); });
    leaves(s).hold([](auto& leaf) { invoke_all(leaf, std::make_index_sequence<Workers>()); });
    leaves(s).hold([](auto& leaf) { bide::parallel_for(leaf.on, 0, Workers, leaf); });
    leaves(s).hold([](auto& leaf) {
        bide::parallel_for(leaf.on, 0, Workers, 1, [&leaf](int i) { leaf(i); });
    });
    leaves(s).hold([](auto& leaf) {
        bide::parallel_reduce(
            leaf.on, 0, Workers, 0, [&leaf](int i) { return leaf(i), 1; },
            [](int a, int b) { return a + b; });
    });
}

} // namespace

TEST_CASE("spread: as many leaves run at the same time as there are workers") {
    spread<2, false>();
    spread<2, true>();
    spread<4, false>();
    spread<4, true>();
    spread<8, false>();
    spread<8, true>();
    spread<16, false>();
    spread<16, true>();
}

TEST_CASE("spread: a worker that becomes free while another one is in a long leaf takes the rest") {
    const test::watchdog guard;
    scheduler s(test::with(2, true));
    std::atomic<int> others{0};
    const auto leaf = [&others](int i) {
        if (i == 0 && !test::eventually([&others] { return others.load() == 8; })) {
            test::give_up(test::where(), "the other leaves do not run beside the long one");
        }
        others += i == 0 ? 0 : 1;
    };
    SECTION("a loop") {
        s.spawn([&] { bide::parallel_for(s, 0, 9, leaf); }).join();
    }
    SECTION("parallel_invoke") {
        s.spawn([&] {
             bide::parallel_invoke(
                 s, [&] { leaf(0); }, [&] { leaf(1); }, [&] { leaf(2); }, [&] { leaf(3); },
                 [&] { leaf(4); }, [&] { leaf(5); }, [&] { leaf(6); }, [&] { leaf(7); },
                 [&] { leaf(8); });
         }).join();
    }
    CHECK(others.load() == 8);
}
