// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_STRONGER_HPP
#define BIDE_MODEL_IMPL_STRONGER_HPP

// Finds the memory orders that are too weak, by exploring the body again with stronger orders. If
// an exploration finds no failure, it proves that the stronger orders suffice.

#include <bide/core/config.hpp>
#include <bide/model/impl/report.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

class order_search {
public:
    // The type of a function that explores with changed orders.
    using exploring = std::function<failure(const weakening*)>;

    order_search(execution& x, const std::vector<weakening>& seen, const exploring& explore)
        : explore_(explore) {
        // The root folder of the library is found from the path of this header.
        constexpr std::string_view here = "model/impl/stronger.hpp";
        std::string_view root = __FILE__;
        root.remove_suffix(std::min(here.size(), root.size()));
        std::vector<candidate> own; // their orders are in headers of the library
        for (const weakening& w : seen) {
            candidate c;
            c.change = w;

            for (const event& e : x.mem().events) {
                if (same_place(e.where, w.where)) {
                    c.reads =
                        c.reads || e.what == event::kind::read || e.what == event::kind::fence;
                    c.writes = c.writes || (w.slot == 0 && (e.what == event::kind::write ||
                                                            e.what == event::kind::fence));
                }
            }
            const bool is_own = std::string_view(w.where.file).starts_with(root);
            (is_own ? own : all_).push_back(c);
        }
        all_.insert(all_.end(), own.begin(), own.end()); // the user's orders are tried first
    }

    // Returns a sentence that names the stronger orders with which no execution fails. Returns an
    // empty text if the explorations did not decide that.
    std::string print() {
        weakening everywhere;
        everywhere.to = order::seq_cst;
        switch (with({everywhere})) {
        case failure::none: break;
        case failure::too_large:
        case failure::not_repeated:
        case failure::empty: return {};
        default:
            return "With seq_cst everywhere, an execution still fails: it is not for want of an "
                   "order.\n";
        }
        const std::string one = one_is_enough();
        return one.empty() ? several_are_needed() : one;
    }

private:
    struct candidate {
        weakening change;
        bool reads = false;
        bool writes = false;

        // Returns the stronger orders below seq_cst, the weakest first.
        std::vector<order> steps() const {
            std::vector<order> out;
            const order now = change.from;
            if (now == order::relaxed && reads) {
                out.push_back(order::acquire);
            }
            if (now == order::relaxed && writes) {
                out.push_back(order::release);
            }
            if (now != order::seq_cst && now != order::acq_rel && reads && writes) {
                out.push_back(order::acq_rel);
            }
            return out;
        }
    };

    failure with(const std::vector<weakening>& changes) const {
        std::vector<weakening> chain = changes;
        for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
            chain[i].next = &chain[i + 1];
        }
        return explore_(chain.empty() ? nullptr : &chain.front());
    }

    std::string one_is_enough() const {
        constexpr int most = 3;
        std::string out;
        int found = 0;
        for (const candidate& c : all_) {
            for (const order to : c.steps()) {
                weakening change = c.change;
                change.to = to;
                if (found < most && with({change}) == failure::none) {
                    out += line_of(change);
                    ++found;
                    break; // stronger orders suffice, too
                }
            }
        }
        return found == 0
                   ? out
                   : (found == 1 ? "With this stronger order, no execution fails:\n"
                                 : "With any one of these stronger orders, no execution fails:\n") +
                         out;
    }

    // First all orders are seq_cst. Then each order is weakened as far as possible.
    std::string several_are_needed() {
        std::vector<weakening> chain;
        for (const candidate& c : all_) {
            if (c.change.from != order::seq_cst) {
                chain.push_back(c.change);
                chain.back().to = order::seq_cst;
            }
        }
        if (with(chain) != failure::none) {
            return {};
        }
        for (std::size_t i = all_.size(); i-- > 0;) {
            const weakening& mine = all_[i].change;
            const auto at = std::find_if(chain.begin(), chain.end(), [&](const weakening& w) {
                return w.slot == mine.slot && w.from == mine.from &&
                       same_place(w.where, mine.where);
            });
            if (at == chain.end()) {
                continue;
            }
            std::vector<weakening> less = chain;
            less.erase(less.begin() + (at - chain.begin()));
            if (with(less) == failure::none) {
                chain = less;
                continue;
            }
            for (const order to : all_[i].steps()) {
                less = chain;
                less[static_cast<std::size_t>(at - chain.begin())].to = to;
                if (with(less) == failure::none) {
                    chain = less;
                    break;
                }
            }
        }
        std::string out = "With these stronger orders together, no execution fails:\n";
        for (const weakening& w : chain) {
            out += line_of(w);
        }
        return out;
    }

    static std::string line_of(const weakening& w) {
        return std::string("    ") + detail::text(w.to) + " in place of " + detail::text(w.from) +
               (w.slot == 1 ? " on failure" : "") + "  " + text(w.where) + "  " +
               source_text(w.where) + "\n";
    }

    const exploring& explore_;
    std::vector<candidate> all_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
