// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_EXHAUSTIVE_HPP
#define BIDE_MODEL_DETAIL_EXHAUSTIVE_HPP

// Explores every execution graph once (Kokologiannakis, Marmanis, Gladstein, Vafeiadis, "Truly
// Stateless, Optimal Dynamic Partial Order Reduction", POPL 2022).
//
// Executions that differ only in the order of independent steps have the same graph. The graph says
// from which store each read reads, and contains the modification orders. A graph is built step by
// step, always by the first thread that can continue. A read may read any store that is in the
// graph already; each choice is a branch. If a store is added later, it *revisits* the earlier
// reads that could read from it. The new branch keeps the events that were added before the read,
// and the events that the store depends on. It drops all other events, lets the read read from the
// store, and continues. So that no graph is reached in two ways, a revisit is made only if the read
// and all dropped events are "maximally added": as the search would add them first, with reads of
// the newest store and stores at the end.
//
// Only the unexplored branches are stored, each as a list of steps. A branch is run from the
// beginning of the body, because stacks cannot be copied.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class exhaustive final : public search {
public:
    explicit exhaustive(bool count_duplicates) : count_duplicates_(count_duplicates) {}

    // Begins a search of only those branches that add_branches() adds.
    void begin_empty() noexcept {
        first_ = false;
        now_.weight = 0;
        explored_ = 1;
    }
    std::size_t branches() const noexcept { return work_.size(); }
    // Returns the unexplored branches as text, for add_branches() of another search of the same
    // body. Those that probably lead to more branches come first. There are at most `most`.
    std::string branch_text(std::size_t most) const;
    // As branch_text(), and removes these branches from this search.
    std::string take_branches(std::size_t most);
    // Returns false if branch_text() cannot have returned the text.
    bool add_branches(std::string_view text);

    bool begin() override;
    int thread(execution& x) override;
    bool knows(execution& x, int thread, outcome& to) override;
    int choose(execution& x, int thread, const std::vector<outcome>& all) override;
    void done(execution& x, int event) override;
    bool stuck(execution& x, int thread) override;
    void end(execution& x, bool complete) override;
    bool is_graph_search() const override { return true; }

    std::uint64_t duplicates() const override { return duplicates_; }
    double explored() const override { return explored_; }
    std::size_t branch_bytes() const override { return bytes_; }

private:
    struct step {
        std::uint8_t thread = 0;
        bool any = false;        // of a write: all of its places are explored
        int pick = 0;            // of a choice
        event_id from;           // a read reads from it; a write is placed behind it
        std::uint32_t stamp = 0; // as event::stamp
    };
    // The steps of a branch. An earlier execution has made the first `known` ones. The memory model
    // may not allow the others.
    struct script {
        std::vector<step> steps;
        std::size_t known = 0;
        double weight = 1; // its part of the exploration; a new branch takes half of its parent's
    };

    bool is_scripted() const noexcept { return at_ < now_.steps.size(); }
    void push(const step& last, bool with_rest);
    void add(script&& branch);
    static std::size_t bytes_of(const script& s) noexcept {
        return sizeof s + s.steps.capacity() * sizeof(step);
    }
    void revisit(execution& x, int thread);
    bool waits_in_vain(execution& x, int t) const;
    bool is_maximal(const memory& m, const event& e, const clock& kept) const;
    void push_revisit(const memory& m, const event& read, const step& write);

    bool count_duplicates_;
    bool first_ = true;
    std::vector<script> work_;
    std::size_t bytes_ = 0; // of work_
    double explored_ = 0;
    script now_;              // the steps with which this execution begins
    std::vector<step> taken_; // the steps of this execution so far
    std::size_t at_ = 0;
    std::uint32_t last_stamp_ = 0;
    event_id behind_; // step::from of the step that is being made
    std::vector<char> dropped_;
    std::uint64_t duplicates_ = 0;
    std::unordered_set<std::uint64_t> seen_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
