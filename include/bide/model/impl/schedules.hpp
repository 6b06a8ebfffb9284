// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SCHEDULES_HPP
#define BIDE_MODEL_IMPL_SCHEDULES_HPP

// The searches that explore schedules: orders of all steps. They explore all schedules, the
// schedules with few preemptions, or random schedules.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

// Returns a thread that has begun, but not ended, one step of the machine; -1 if there is none.
int inside(execution& x) {
    for (int t = 0; t < x.threads(); ++t) {
        if (x.enabled(t) && x.thread(t).wants.inside) {
            return t;
        }
    }
    return -1;
}

} // namespace

// A depth-first search over all decisions. A decision chooses the thread of the next step, or the
// outcome of a step. `bound_` is the maximum number of preemptions in an execution (Musuvathi and
// Qadeer, "Iterative Context Bounding", PLDI 2007). A preemption is a switch from a thread that can
// continue to another thread.
class depth_first final : public search {
public:
    static constexpr int no_bound = -1;
    explicit depth_first(int preemptions) : bound_(preemptions) {}

    bool begin() override {
        if (!std::exchange(first_, false)) {
            while (!decisions_.empty() && decisions_.back().first + 1 == decisions_.back().second) {
                decisions_.pop_back();
            }
            if (decisions_.empty()) {
                return false;
            }
            ++decisions_.back().first;
        }
        at_ = 0;
        left_ = bound_;
        current_ = -1;
        return true;
    }

    int thread(execution& x) override {
        if (const int t = inside(x); t >= 0) {
            return t;
        }
        const bool goes_on = current_ >= 0 && x.enabled(current_);
        ready_.clear();
        if (goes_on) {
            ready_.push_back(current_);
        }
        for (int t = 0; t < x.threads(); ++t) {
            if (t != current_ && x.enabled(t) && (!goes_on || left_ != 0)) {
                ready_.push_back(t);
            }
        }
        if (ready_.empty()) {
            return -1;
        }
        const int next = ready_[index(decide(x, static_cast<int>(ready_.size())))];
        if (goes_on && next != current_ && left_ > 0) {
            --left_;
        }
        return current_ = next;
    }

    int choose(execution& x, int, const std::vector<outcome>& all) override {
        return decide(x, static_cast<int>(all.size()));
    }

    void end(execution& x, bool) override {
        if (at_ < decisions_.size()) {
            x.fail(failure::not_repeated, "the body does not repeat itself");
        }
    }

private:
    int decide(execution& x, int among) {
        if (among == 1) {
            return 0;
        }
        if (at_ == decisions_.size()) {
            decisions_.emplace_back(0, among);
        }
        if (decisions_[at_].second != among) {
            x.fail(failure::not_repeated, "the body does not repeat itself");
            return 0;
        }
        return decisions_[at_++].first;
    }

    int bound_;
    int left_ = 0;
    int current_ = -1;
    bool first_ = true;
    std::size_t at_ = 0;
    std::vector<std::pair<int, int>> decisions_; // the choice, and the number of choices
    std::vector<int> ready_;
};

// Runs random schedules. Each thread has a random priority, and the thread with the highest
// priority runs. At depth - 1 random steps, the thread that would run gets a new priority below the
// first priorities of all threads. (Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized
// Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.) The guarantee of the
// paper covers only the choice of the schedule. This search also chooses at random which store a
// load reads. Most of the time it chooses the newest store.
class pct final : public search {
public:
    pct(int depth, std::uint64_t runs, std::uint64_t seed)
        : depth_(depth), runs_(runs), random_(seed) {}

    bool begin() override {
        if (runs_ == 0) {
            return false;
        }
        --runs_;
        step_ = 0;
        for (auto& p : priority_) {
            p = static_cast<std::uint64_t>(depth_) + below(1'000'000);
        }
        changes_.clear();
        for (int i = 1; i < depth_; ++i) {
            changes_.push_back(below(longest_));
        }
        return true;
    }

    int thread(execution& x) override {
        if (const int t = inside(x); t >= 0) {
            return t;
        }
        const auto best = [&] {
            int found = -1;
            for (int t = 0; t < x.threads(); ++t) {
                if (x.enabled(t) && (found < 0 || priority_[index(t)] > priority_[index(found)])) {
                    found = t;
                }
            }
            return found;
        };
        int t = best();
        const auto change = std::find(changes_.begin(), changes_.end(), step_);
        ++step_;
        if (t >= 0 && change != changes_.end()) {
            priority_[index(t)] = static_cast<std::uint64_t>(change - changes_.begin());
            t = best();
        }
        return t;
    }

    int choose(execution& x, int t, const std::vector<outcome>& all) override {
        const bool is_access = x.thread(t).wants.what == request::kind::read ||
                               x.thread(t).wants.what == request::kind::write;
        if (all.size() == 1 || (is_access && below(2) == 0)) {
            return 0;
        }
        return static_cast<int>(below(all.size()));
    }

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

void pct::end(execution&, bool) { longest_ = std::max(longest_, step_); }

}}} // namespace bide::BIDE_ABI::model::detail

#endif
