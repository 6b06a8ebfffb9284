// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_SCHEDULES_HPP
#define BIDE_MODEL_IMPL_SCHEDULES_HPP

// A schedule is an order of all steps. The searches here explore all schedules, the schedules with
// few preemptions, or random schedules. A path identifies one execution.

#include <bide/model/impl/execution.hpp>

#include <random>

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
            x.not_repeated();
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
            x.not_repeated();
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

    void end(execution&, bool) override { longest_ = std::max(longest_, step_); }

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

// ---- Paths
//
// A path identifies an execution. It is a text, which begins with "g" (a search of graphs) or "s"
// (a search of schedules). If a thread other than thread 0 starts threads, a list of the threads
// T1, T2 and so on follows. An entry has the number of the parent, which started the thread, and
// the number of threads that the parent had started before. In "0.0,0.1,2.0;", T3 is the first
// thread that T2 started. Then the steps follow:
//
//   2      thread 2 makes a step with the first of the possible outcomes
//   2*3    thread 2 makes three such steps
//   2:1    thread 2 makes a step with the outcome number 1, counted from 0
//   2<0.4  thread 2 reads the store that is the fourth step of thread 0, or writes behind it
//   2<i    thread 2 reads the initial value of an object, or writes behind it

inline std::string execution::path() const {
    const memory& m = memory_;
    std::vector<std::string> steps;
    // A search of graphs writes the outcome of a step if it is not the first of the possible ones.
    for (std::size_t i = 0; search_.explores_graphs && i < m.events.size(); ++i) {
        const event& e = m.events[i];
        std::string& step = steps.emplace_back(std::to_string(e.id.thread));
        if (e.what == event::kind::choice && e.pick != 0) {
            step += ":" + std::to_string(e.pick);
        } else if (e.what == event::kind::read || (e.what == event::kind::write && !e.exclusive)) {
            const auto newer = m.behind(e.object, e.message);
            const event_id writer = m.source_of(e);
            const bool takes_block = m.at(e.object).free_list && !writer.is_initial();
            if (takes_block || std::any_of(newer.begin(), newer.end(), [&](int later) {
                    return static_cast<std::size_t>(m.msg(later).event) < i;
                })) {
                step += writer.is_initial() ? "<i"
                                            : "<" + std::to_string(writer.thread) + "." +
                                                  std::to_string(writer.index);
            }
        }
    }
    for (const auto& [t, pick] : picks_) {
        if (!search_.explores_graphs) {
            steps.push_back(std::to_string(t) + (pick == 0 ? "" : ":" + std::to_string(pick)));
        }
    }
    if (refused_step_of_ >= 0) {
        steps.push_back(std::to_string(refused_step_of_));
    }
    std::string out = search_.explores_graphs ? "g" : "s";
    out += names_.text(threads());
    for (std::size_t i = 0; i < steps.size();) {
        std::size_t end = i + 1;
        if (steps[i].find_first_of(":<") == std::string::npos) {
            while (end < steps.size() && steps[end] == steps[i]) {
                ++end;
            }
        }
        out += (i == 0 ? "" : ",") + steps[i];
        out += end - i > 1 ? "*" + std::to_string(end - i) : "";
        i = end;
    }
    return out;
}

// Runs only the execution of a path.
class one_path final : public search {
public:
    explicit one_path(std::string_view path) {
        explores_graphs = take(path, 'g');
        path.remove_prefix(!explores_graphs && !path.empty() ? 1 : 0);
        if (const auto end = path.find(';'); end != path.npos) {
            names->read(path.substr(0, end + 1));
            path.remove_prefix(end + 1);
        }
        do {
            step s;
            s.thread = take_number(path);
            int times = 1;
            if (take(path, ':')) {
                s.pick = take_number(path);
            } else if (take(path, '*')) {
                times = take_number(path);
            } else if (take(path, '<')) {
                s.pick = from_writer;
                if (!take(path, 'i')) {
                    s.from.thread = static_cast<std::uint8_t>(std::max(take_number(path), 0));
                    s.from.index = static_cast<step_count>(take(path, '.') ? take_number(path) : 0);
                }
            }
            steps_.insert(steps_.end(), index(std::clamp(times, 0, most_steps)), s);
        } while (take(path, ','));
    }

    bool begin() override { return !std::exchange(begun_, true); }
    void again() override { at_ = 0; }

    int thread(execution& x) override {
        if (at_ != steps_.size()) {
            return x.repeated(steps_[at_].thread, wrong);
        }
        for (int t = 0; t < x.threads(); ++t) {
            if (x.enabled(t)) {
                return x.not_repeated(wrong);
            }
        }
        return -1;
    }

    int choose(execution& x, int, const std::vector<outcome>& all) override {
        const step& s = steps_[at_++];
        int pick = s.pick;
        if (pick == from_writer) {
            const auto found = std::find_if(all.begin(), all.end(), [&](const outcome& o) {
                return o.message >= 0 && x.mem().msg(o.message).writer == s.from;
            });
            pick = static_cast<int>(found - all.begin());
        }
        return pick >= 0 && pick < static_cast<int>(all.size()) ? pick : x.not_repeated(wrong);
    }

private:
    static constexpr const char* wrong = "the path is not one of this body";
    static constexpr int from_writer = -2;
    struct step {
        int thread = 0;
        int pick = 0; // from_writer: `from` selects the outcome
        event_id from;
    };

    bool begun_ = false;
    std::size_t at_ = 0;
    std::vector<step> steps_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
