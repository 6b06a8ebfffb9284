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

namespace bide::inline BIDE_ABI::model::detail {

class exhaustive final : public search {
public:
    explicit exhaustive(bool count_duplicates) : count_duplicates_(count_duplicates) {}

    // Explores nothing but what add_branches() brings.
    void begin_empty() noexcept {
        first_ = false;
        now_.weight = 0;
        explored_ = 1;
    }
    std::size_t branches() const noexcept { return work_.size(); }
    // Returns the unexplored branches as text, for add_branches() of another search of the same
    // body. Those that probably lead to more branches come first. There are at most `most`.
    std::string branch_text(std::size_t most) const;
    // The same, and takes them out.
    std::string take_branches(std::size_t most);
    // Returns false if the text is not one of branch_text().
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
        bool any = false;        // a write: anywhere it may be placed
        int pick = 0;            // of a choice
        event_id from;           // what a read reads; what a write is behind
        std::uint32_t stamp = 0; // see event
    };
    // The first `known` steps were made so before; whether the others can be is to be seen.
    struct script {
        std::vector<step> steps;
        std::size_t known = 0;
        double weight = 1; // its part of the whole, if each branch is half of what it branches off
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
    script now_;              // of this execution: followed first
    std::vector<step> taken_; // its steps so far
    std::size_t at_ = 0;
    std::uint32_t last_stamp_ = 0;
    event_id behind_; // of the write that is being done
    std::vector<char> dropped_;
    std::uint64_t duplicates_ = 0;
    std::unordered_set<std::uint64_t> seen_;
};

} // namespace bide::inline BIDE_ABI::model::detail

#endif
