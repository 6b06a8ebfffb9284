// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_EXHAUSTIVE_HPP
#define BIDE_MODEL_IMPL_EXHAUSTIVE_HPP

// Explores every execution graph once (Kokologiannakis, Marmanis, Gladstein, Vafeiadis, "Truly
// Stateless, Optimal Dynamic Partial Order Reduction", POPL 2022).
//
// Executions that differ only in the order of independent steps have the same graph. The graph says
// from which store each read reads, and contains the modification orders. A graph is built step by
// step. The next step is always that of the first thread that can continue. A read may read any
// store that is in the graph already; each choice is a branch. If a store is added later, it
// *revisits* the earlier reads that could read from it: each revisit is a new branch. The branch
// keeps the events that were added before the read, and the events on which the store depends. It
// drops all other events, makes the read take the value of the store, and continues.
//
// No graph may be reached in two ways. So a revisit is made only if the read and all dropped events
// are "maximally added". A maximally added read reads the newest store. A maximally added store is
// the last one in its modification order. The first graph that the search builds has only such
// events. The list of freed blocks (memory.hpp) differs: there, a maximally added read takes no
// block, and its stores have no modification order.
//
// Only the unexplored branches are stored, each as a list of steps. A branch is run from the
// beginning of the body, because stacks cannot be copied.

#include <bide/model/impl/execution.hpp>

#include <deque>
#include <unordered_set>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

template <class T> void append(std::string& out, const T& value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

// Takes a T from the front of `from`. If there is none, returns false.
template <class T> bool extract(std::string_view& from, T& to) {
    if (from.size() < sizeof to) {
        return false;
    }
    std::memcpy(&to, from.data(), sizeof to);
    from.remove_prefix(sizeof to);
    return true;
}

} // namespace

class exhaustive final : public search {
public:
    explicit exhaustive(bool count_duplicates) : count_duplicates_(count_duplicates) {
        explores_graphs = true;
        explored = 0;
    }

    std::size_t branches() const noexcept { return work_.size(); }

    // Returns at most `most` unexplored branches as text, for begin_with() of another search of
    // the same body. The branches that probably lead to the most further branches come first.
    std::string branch_text(std::size_t most) const {
        std::string out;
        for (std::size_t i = 0; i < most && i < work_.size(); ++i) {
            const script& s = work_[i]; // oldest first: it branched off at the earliest step
            append(out, s.weight);
            append(out, static_cast<std::uint32_t>(s.known));
            append(out, static_cast<std::uint32_t>(s.steps.size()));
            out.append(reinterpret_cast<const char*>(s.steps.data()),
                       s.steps.size() * sizeof(step));
        }
        return out;
    }

    // Returns branch_text(most), and removes these branches from this search.
    std::string take_branches(std::size_t most) {
        std::string out = branch_text(most);
        for (; most != 0 && !work_.empty(); --most) {
            branch_bytes -= bytes_of(work_.front());
            work_.pop_front();
        }
        return out;
    }

    // Begins a search of only the branches of a text. If branch_text() cannot have returned the
    // text, does nothing, and returns false.
    bool begin_with(std::string_view text) {
        std::deque<script> all;
        while (!text.empty()) {
            script s;
            std::uint32_t known = 0;
            std::uint32_t steps = 0;
            if (!extract(text, s.weight) || !extract(text, known) || !extract(text, steps) ||
                known > steps || steps > text.size() / sizeof(step)) {
                return false;
            }
            s.known = known;
            s.steps.resize(steps);
            text.copy(reinterpret_cast<char*>(s.steps.data()), steps * sizeof(step));
            text.remove_prefix(steps * sizeof(step));
            all.push_back(std::move(s));
        }
        first_ = false;
        now_.weight = 0;
        work_ = std::move(all);
        explored = 1;
        for (const script& s : work_) {
            branch_bytes += bytes_of(s);
            explored -= s.weight;
        }
        return true;
    }

    bool begin() override {
        if (first_) {
            first_ = false;
        } else {
            explored += now_.weight;
            if (work_.empty()) {
                return false;
            }
            branch_bytes -= bytes_of(work_.back());
            now_ = std::move(work_.back());
            work_.pop_back();
        }
        begin_branch();
        return true;
    }

    void again() override {
        for (; work_.size() != branches_before_; work_.pop_back()) {
            branch_bytes -= bytes_of(work_.back());
            now_.weight += work_.back().weight;
        }
        begin_branch();
    }

    int thread(execution& x) override {
        if (is_scripted()) {
            return x.repeated(now_.steps[at_].thread);
        }
        int first = -1;
        for (int t = x.threads() - 1; t >= 0; --t) {
            if (x.thread(t).started && x.thread(t).wants.what == request::kind::pause &&
                x.thread(t).waits.in_vain(x.mem(), t)) {
                return -1;
            }
            if (x.enabled(t)) {
                if (x.thread(t).wants.inside) {
                    return t;
                }
                first = t;
            }
        }
        return first;
    }

    // An earlier execution has made the first `known` steps of this branch. The recorded outcomes
    // of these steps are still possible. So each step gets its recorded outcome, and the other
    // outcomes are not computed.
    bool knows(execution& x, int t, outcome& to) override {
        if (at_ >= now_.known || now_.steps[at_].any) {
            return false;
        }
        const request& r = x.thread(t).wants;
        const step& s = now_.steps[at_];
        const memory& m = x.mem();
        to.pick = s.pick;
        behind_ = s.from;
        if (r.what != request::kind::read && r.what != request::kind::write) {
            return true;
        }
        const int message = m.written_by(s.from, r.object);
        if (message < 0) {
            x.not_repeated();
        } else {
            to = outcome_of(r, message, m.msg(message).value);
        }
        return true;
    }

    int choose(execution& x, int t, const std::vector<outcome>& all) override {
        const request& wants = x.thread(t).wants;
        const memory& m = x.mem();
        const auto from = [&](const outcome& o) {
            return o.message < 0 ? event_id{} : m.msg(o.message).writer;
        };
        const auto as_step = [&](const outcome& o) {
            return step{.thread = static_cast<std::uint8_t>(t),
                        .pick = o.pick,
                        .from = from(o),
                        .stamp = is_scripted() ? now_.steps[at_].stamp : last_stamp_ + 1};
        };
        std::size_t pick = 0;
        if (is_scripted() && !now_.steps[at_].any) {
            const step& s = now_.steps[at_];
            const auto same = [&](const outcome& o) {
                return o.pick == s.pick && from(o) == s.from;
            };
            const auto found = std::find_if(all.begin(), all.end(), same);
            if (found == all.end() || !is_first_of_equals(m, t, wants, *found)) {
                return -1; // a revisit that the memory model does not allow, or an equal one
            }
            pick = static_cast<std::size_t>(found - all.begin());
        } else {
            if (!is_scripted() && wants.what == request::kind::write) {
                revisit(m, x.thread(t));
            }
            const auto is_first = [&](const outcome& o) {
                return is_first_of_equals(m, t, wants, o);
            };
            const auto first = std::find_if(all.begin(), all.end(), is_first);
            if (first == all.end()) {
                return -1;
            }
            pick = static_cast<std::size_t>(first - all.begin());
            for (std::size_t i = all.size(); i-- > pick + 1;) {
                if (!is_first(all[i])) {
                    continue;
                }
                if (all[i].exclusive && !wants.quiet && m.msg(all[i].message).taken_by >= 0) {
                    const step read = as_step(all[i]);
                    revisit(m, x.thread(t), &read, all[i].message);
                } else {
                    push(as_step(all[i]));
                }
            }
        }
        behind_ = from(all[pick]);
        return static_cast<int>(pick);
    }

    void done(execution& x, int number) override {
        event& e = x.mem().events[index(number)];
        e.stamp = is_scripted() ? now_.steps[at_].stamp : ++last_stamp_;
        taken_.push_back({.thread = e.id.thread,
                          .acts = e.what == event::kind::write && !x.mem().msg(e.message).repeats,
                          .pick = e.pick,
                          .from = behind_,
                          .stamp = e.stamp});
        ++at_;
    }

    // Called for the second half of a read-modify-write of thread `t`. Another read-modify-write
    // has read the same store, and has placed its write directly behind that store. Adds the
    // branches in which the write of thread `t` comes first. Returns true if `t` has read another
    // object between the two halves, as a futex call reads its word. Then the other threads
    // continue, because that read may still read a store that they add.
    bool stuck(execution& x, int t) override {
        if (is_scripted() || x.thread(t).wants.what != request::kind::write) {
            return false;
        }
        revisit(x.mem(), x.thread(t));
        return !x.mem().of(x.thread(t).knows.last()).exclusive;
    }

    void end(execution& x, bool complete) override {
        if (!count_duplicates_ || !complete) {
            return;
        }
        const memory& m = x.mem();
        std::string graph;
        for (int t = 0; t < x.threads(); ++t) {
            append(graph, t);
            for (const int n : m.of_thread(t)) {
                const event& e = m.event_at(n);
                const event_id from = is_access(e) ? m.source_of(e) : event_id{};
                append(graph, e.what);
                append(graph, e.pick);
                append(graph, from.thread);
                append(graph, from.index);
            }
        }
        duplicates += seen_.insert(std::move(graph)).second ? 0 : 1;
    }

private:
    struct step {
        std::uint8_t thread = 0;
        bool any = false;        // of a write: all of its places are explored
        bool acts = false;       // it has written another value
        int pick = 0;            // of a choice
        event_id from;           // a read reads from it; a write is placed behind it
        std::uint32_t stamp = 0; // as event::stamp
    };
    // The steps of a branch. An earlier execution has made the first `known` steps. The memory
    // model may forbid one of the other steps.
    struct script {
        std::vector<step> steps;
        std::size_t known = 0;
        double weight = 1; // its part of the exploration; a new branch takes half of its parent's
    };

    void begin_branch() {
        branches_before_ = work_.size();
        taken_.clear();
        at_ = 0;
        last_stamp_ = 0;
        acts_before_ = {};
        for (std::size_t i = 0; i < now_.steps.size(); ++i) {
            const step& s = now_.steps[i];
            last_stamp_ = std::max(last_stamp_, s.stamp);
            if (s.acts && i < now_.known) {
                acts_before_[s.thread] = i + 1;
            }
        }
    }

    // Of executions that differ only in which of equal threads is which, one is explored. In it, if
    // two equal threads have done the same so far, and both read the same object next, the thread
    // that was started first reads the older value; if both write it, it writes first. Returns false
    // if the outcome of the next step of thread `t` contradicts that.
    //
    // The rule is that of Kokologiannakis, Marmanis and Vafeiadis ("SPORE: Combining Symmetry and
    // Partial Order Reduction", PLDI 2024). With it goes that a step depends on the same step of the
    // thread before (memory::add()): a revisit that keeps the one keeps the other.
    bool is_first_of_equals(const memory& m, int t, const request& r, const outcome& o) const {
        if (r.what != request::kind::read || m.at(r.object).free_list) {
            return true;
        }
        const bool writes = r.what == request::kind::write;
        const std::size_t mine = writes || o.message >= 0 ? m.position(r.object, o.message) : 0;
        const auto compare = [&](int other, bool is_earlier) {
            const event* const e = m.counterpart(t, other);
            if (e == nullptr || e->object != r.object ||
                (e->what == event::kind::write) != writes || !is_access(*e)) {
                return true;
            }
            const std::size_t theirs = m.position(r.object, e->message);
            const bool is_behind = writes ? mine >= theirs : mine > theirs;
            const bool is_same = mine == theirs && !writes && !(o.exclusive && e->exclusive);
            return is_same || is_behind == is_earlier;
        };
        for (int other = m.equal_before(t); other >= 0; other = m.equal_before(other)) {
            if (!compare(other, true)) {
                return false;
            }
        }
        for (int other = m.equal_after(t); other >= 0; other = m.equal_after(other)) {
            if (!compare(other, false)) {
                return false;
            }
        }
        return true;
    }

    bool is_scripted() const noexcept { return at_ < now_.steps.size(); }

    // Stores a branch: the steps of this execution so far, then `last` in place of the current
    // step, then the remaining steps of the current branch.
    void push(const step& last) {
        script s;
        s.steps.reserve(std::max(now_.steps.size(), taken_.size() + 1));
        s.steps = taken_;
        s.steps.push_back(last);
        s.known = s.steps.size();
        if (is_scripted()) {
            s.steps.insert(s.steps.end(), now_.steps.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                           now_.steps.end());
        }
        add(std::move(s));
    }

    void add(script&& branch) {
        now_.weight /= 2;
        branch.weight = now_.weight;
        branch_bytes += bytes_of(branch);
        work_.push_back(std::move(branch));
    }

    static std::size_t bytes_of(const script& s) noexcept {
        return sizeof s + s.steps.capacity() * sizeof(step);
    }

    // The thread is about to add a write. Stores a branch for each earlier read that may read from
    // that write instead: a revisit (see the head of this file).
    //
    // If `first` is not nullptr, the thread is about to add a read-modify-write. `first` is its
    // first half, which reads `taken`. Another read-modify-write has placed its write directly
    // behind `taken`. So the second half has no place, except in the revisits: they need no
    // execution that ends there.
    void revisit(const memory& m, const model_thread& writer, const step* first = nullptr,
                 int taken = -1) {
        const request& wants = writer.wants;
        event_id id = writer.knows.next();
        clock kept = writer.knows.causes; // what the write depends on
        int from = wants.exclusive ? wants.from : -1;
        if (first != nullptr) {
            ++id.index;
            from = taken;
            if (const int other = m.msg(taken).event; other >= 0) {
                kept.join(m.event_at(other).causes);
            }
            m.depend_on_equal(id.thread, kept);
        }
        kept.seen[id.thread] = id.index;
        const int taken_by = from >= 0 ? m.msg(from).taken_by : -1;

        const step write{.thread = id.thread,
                         .any = from < 0,
                         .from = from >= 0 ? m.msg(from).writer : event_id{},
                         .stamp = last_stamp_ + (first != nullptr ? 2 : 1)};
        for (const int message : m.at(wants.object).messages) {
            for (const int r : m.msg(message).readers) {
                const event& read = m.event_at(r);
                if (kept.covers(read.id)) {
                    continue;
                }
                dropped_.assign(m.events.size(), 0);
                bool maximal = is_maximal(m, read, kept);
                for (std::size_t i = 0; i < m.events.size() && maximal; ++i) {
                    const event& e = m.events[i];
                    if (e.stamp > read.stamp && !kept.covers(e.id)) {
                        dropped_[i] = 1;
                        maximal = is_maximal(m, e, kept);
                    }
                }
                if (maximal && (taken_by < 0 || dropped_[index(taken_by)] != 0)) {
                    dropped_[index(r)] = 1; // the branch adds the read again at its end
                    push_revisit(m, read, first, write);
                }
            }
        }
    }

    // Considers only the events up to `e` and the events of `kept`. Returns true if `e` is
    // maximally added in their graph (see the head of this file).
    bool is_maximal(const memory& m, const event& e, const clock& kept) const {
        if (e.what == event::kind::choice) {
            return e.pick == 0;
        }
        if (e.what != event::kind::read && e.what != event::kind::write) {
            return true;
        }
        const auto previous = [&](const event& other) {
            return other.stamp <= e.stamp || kept.covers(other.id);
        };
        const detail::message& mine = m.msg(e.message);
        if (e.what == event::kind::write) {
            for (const int r : mine.readers) {
                if (previous(m.event_at(r))) {
                    return false; // that read was revisited, and it stays
                }
            }
        }
        if (m.at(e.object).free_list) {
            return e.what == event::kind::write || mine.event < 0;
        }
        if (mine.event >= 0 && !previous(m.event_at(mine.event))) {
            return false;
        }
        const auto later_ones = m.behind(e.object, e.message);
        return std::none_of(later_ones.begin(), later_ones.end(),
                            [&](int later) { return previous(m.event_at(m.msg(later).event)); });
    }

    // Stores a branch: the kept events in their order, then `first`, `write`, and then `read`, which
    // now reads from `write`.
    void push_revisit(const memory& m, const event& read, const step* first, const step& write) {
        script branch;
        auto& s = branch.steps;
        s.reserve(m.events.size() + 3);
        for (std::size_t i = 0; i < m.events.size(); ++i) {
            if (dropped_[i] != 0) {
                continue;
            }
            const event& e = m.events[i];
            step kept = taken_[i];
            if (e.what == event::kind::write) {
                // The nearest older store that is kept and was added before.
                const auto& all = m.at(e.object).messages;
                auto at = std::find(all.begin(), all.end(), e.message);
                while (at != all.begin()) {
                    --at;
                    const int other = m.msg(*at).event;
                    if (other < 0 ||
                        (static_cast<std::size_t>(other) < i && dropped_[index(other)] == 0)) {
                        break;
                    }
                }
                kept.from = m.at(e.object).free_list ? event_id{} : m.msg(*at).writer;
            }
            s.push_back(kept);
        }
        if (first != nullptr) {
            s.push_back(*first);
        }
        branch.known = s.size();
        s.push_back(write);
        const auto writes = std::count_if(s.begin(), s.end(),
                                          [&](const step& k) { return k.thread == write.thread; });
        s.push_back({.thread = read.id.thread,
                     .from = {write.thread, static_cast<step_count>(writes)},
                     .stamp = read.stamp});
        add(std::move(branch));
    }

    bool count_duplicates_;
    bool first_ = true;
    std::deque<script> work_;
    script now_;                      // the steps with which this execution begins
    std::vector<step> taken_;         // the steps of this execution so far
    std::size_t branches_before_ = 0; // the unexplored branches when this execution began
    std::uint32_t last_stamp_ = 0;
    event_id behind_; // step::from of the step that is being made
    std::vector<char> dropped_;
    std::unordered_set<std::string> seen_; // graphs
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
