// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_SCHEDULES_HPP
#define BIDE_MODEL_DETAIL_SCHEDULES_HPP

// The searches that decide the order of all steps: all schedules, schedules with few preemptions,
// random schedules, and a given one.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// A depth-first search over all decisions. A decision chooses the thread of the next step, or the
// outcome of a step. With a bound on preemptions (Musuvathi and Qadeer, "Iterative Context
// Bounding", PLDI 2007), a thread that can continue is switched at most `bound_` times.
class depth_first final : public search {
public:
    static constexpr int no_bound = -1;
    explicit depth_first(int preemptions) : bound_(preemptions) {}

    bool begin() override;
    int thread(execution& x) override;
    int choose(execution& x, int thread, const std::vector<outcome>& all) override;
    void end(execution& x, bool complete) override;

private:
    int decide(execution& x, int among);

    int bound_;
    int left_ = 0;
    int current_ = -1;
    bool first_ = true;
    std::size_t at_ = 0;
    std::vector<std::pair<int, int>> decisions_; // the choice, and the number of choices
    std::vector<int> ready_;
};

// Threads have random priorities. At depth - 1 random steps, the thread that would run gets a new
// priority below all others. (Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler
// with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.) The guarantee of the paper holds
// for schedules. Here the store that a load reads is also chosen at random, most of the time the
// newest one.
class pct final : public search {
public:
    pct(int depth, std::uint64_t runs, std::uint64_t seed)
        : depth_(depth), runs_(runs), random_(seed) {}

    bool begin() override;
    int thread(execution& x) override;
    int choose(execution& x, int thread, const std::vector<outcome>& all) override;
    void end(execution& x, bool complete) override;

private:
    std::uint64_t below(std::uint64_t n) { return random_() % n; }

    int depth_;
    std::uint64_t runs_;
    std::mt19937_64 random_;
    std::size_t longest_ = 16;
    std::size_t step_ = 0;
    std::array<std::uint64_t, max_threads> priority_{};
    std::vector<std::size_t> changes_;
};

// One execution, by its path (impl/path.hpp).
class one_path final : public search {
public:
    explicit one_path(const std::string& path);

    bool begin() override { return !std::exchange(begun_, true); }
    int thread(execution& x) override;
    int choose(execution& x, int thread, const std::vector<outcome>& all) override;
    bool is_graph_search() const override { return graph_; }

    thread_names names; // the names in the path

private:
    static constexpr int from_writer = -1;
    struct step {
        int thread = 0;
        int pick = 0; // from_writer: `from` selects the outcome
        event_id from;
    };

    bool graph_ = false;
    bool begun_ = false;
    std::size_t at_ = 0;
    std::vector<step> steps_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
