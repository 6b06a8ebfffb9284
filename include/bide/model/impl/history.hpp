// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_HISTORY_HPP
#define BIDE_MODEL_IMPL_HISTORY_HPP

// Judges the calls of an object (detail/history.hpp): looks for an order in which the specification
// gives the results that the threads got. The search is that of Wing and Gong (Testing and
// verifying concurrent objects, JPDC 1993). It remembers the sets of calls, with the state behind
// them, from which it found no order (Lowe, Testing for linearizability, 2017).
//
// Call A comes before call B if the return of A happens before the beginning of B. Two calls of
// different threads are thus ordered only by synchronisation. "Earlier in time" means nothing else
// in C++: the order in which the checker runs the steps of two threads is its own choice, and no
// program can observe it. An order that a program can only infer from the order S of seq_cst
// operations is not used. So no history is refused that a program could not refuse, and two objects
// that are right one by one need not be right as one.

#include <bide/model/impl/execution.hpp>

#include <algorithm>
#include <bit>
#include <tuple>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// A set of the calls of a history.
using call_set = std::uint64_t;
inline constexpr std::size_t most_calls = 64;
inline constexpr call_set one_call(int number) { return call_set{1} << number; }

inline bool comes_before(const history::call& a, const history::call& b) {
    return a.has_returned && (a.returned.thread == b.began.thread ? a.returned_at < b.began_at
                                                                  : b.began.follows(a.returned));
}

class judge {
public:
    explicit judge(history& of) : of_(of), count_(static_cast<int>(of.calls.size())) {
        for (int i = 0; i < count_; ++i) {
            before_.push_back(0);
            for (int j = 0; j < count_; ++j) {
                before_.back() |= i != j && comes_before(call(j), call(i)) ? one_call(j) : 0;
            }
            order_.push_back(i);
            complete_ |= call(i).has_returned ? one_call(i) : 0;
        }
        // The order in which the calls returned is tried first.
        std::sort(order_.begin(), order_.end(), [&](int a, int b) {
            return std::tuple(!call(a).has_returned, call(a).returned_at, a) <
                   std::tuple(!call(b).has_returned, call(b).returned_at, b);
        });
    }

    judge(const judge&) = delete;
    judge& operator=(const judge&) = delete;
    ~judge() { repeated = {}; }

    // Returns true if there is an order of the calls in `wanted` with the results that they had.
    // The other calls may be in the order, at places that are possible for them, with any result.
    // If `until_blocked` is true, the other calls are not in the order: each waits at its end.
    bool has_order(call_set wanted, bool until_blocked = false) {
        wanted_ = wanted;
        until_blocked_ = until_blocked;
        of_.forget();
        path_.clear();
        best_.clear();
        best_score_ = {};
        return search(0);
    }
    call_set complete() const { return complete_; }
    call_set before(int number) const { return before_[index(number)]; }
    // The longest order that the last search has found.
    const std::vector<int>& longest() const { return best_; }

    // Returns a smallest set of calls that has no order. The set of all complete calls has none.
    call_set smallest() {
        constexpr int most_tries = 100'000;
        const auto all = static_cast<int>(complete_size());
        int tries = 0;
        for (int size = 1; size < all; ++size) {
            std::vector<bool> chosen(index(all), false);
            std::fill(chosen.begin(), chosen.begin() + size, true);
            do {
                call_set set = 0;
                for (int i = 0; i < all; ++i) {
                    set |= chosen[index(i)] ? one_call(order_[index(i)]) : 0;
                }
                if (!has_order(set)) {
                    return set;
                }
                if (++tries == most_tries) {
                    return without_surplus();
                }
            } while (std::prev_permutation(chosen.begin(), chosen.end()));
        }
        return complete_;
    }

    // Says what the specification gives for `number` after the calls of longest().
    std::string specified(int number) {
        std::size_t depth = 0;
        for (const int i : best_) {
            repeat(i, depth++, 0);
        }
        repeat(number, depth, 0);
        if (repeated.unordered >= 0) {
            return "waits until " + text(repeated.unordered) + " happens before its return";
        }
        if (repeated.waits) {
            return "waits";
        }
        if (repeated.throws) {
            return "throws an exception";
        }
        const std::string result = of_.repeated_text(number);
        return result.empty() ? "returns" : "returns " + result;
    }
    std::string text(int number) const {
        return thread_text(call(number).began.thread) + "'s " + of_.call_text(number);
    }

private:
    const history::call& call(int number) const { return of_.calls[index(number)]; }
    std::size_t complete_size() const { return static_cast<std::size_t>(std::popcount(complete_)); }

    // Makes the call again. Returns true if it can be the next one.
    bool repeat(int number, std::size_t depth, unsigned answers) {
        const bool is_wanted = (wanted_ & one_call(number)) != 0;
        repeated = {.of = &of_, .number = number, .is_complete = is_wanted, .answers = answers};
        bool is_same = false;
#if BIDE_EXCEPTIONS
        try {
            is_same = of_.repeat(number, depth);
        } catch (...) {
            repeated.throws = true;
        }
#else
        is_same = of_.repeat(number, depth);
#endif
        return (is_same || !is_wanted) && !repeated.waits && !repeated.throws &&
               repeated.unordered < 0;
    }

    bool search(call_set done) {
        const auto score = std::pair(std::popcount(done & wanted_), path_.size());
        if (score > best_score_) {
            best_ = path_;
            best_score_ = score;
        }
        if ((wanted_ & ~done) == 0 && (!until_blocked_ || is_blocked(done))) {
            return true;
        }
        const std::size_t depth = path_.size();
        if (of_.is_remembered(done, depth)) {
            return false;
        }
        for (const int next : order_) {
            const bool is_left_out = until_blocked_ && (wanted_ & one_call(next)) == 0;
            if ((done & one_call(next)) != 0 || (before_[index(next)] & ~done) != 0 ||
                is_left_out) {
                continue;
            }
            unsigned answers = 0;
            unsigned asked = 0;
            do {
                const bool fits = repeat(next, depth, answers);
                asked = repeated.asked;
                if (fits) {
                    path_.push_back(next);
                    if (search(done | one_call(next))) {
                        return true;
                    }
                    path_.pop_back();
                }
            } while (++answers >> asked == 0);
        }
        of_.remember(done, depth);
        return false;
    }
    // Returns true if no other call can return.
    bool is_blocked(call_set done) {
        for (const int next : order_) {
            if ((done & one_call(next)) == 0 && (before_[index(next)] & ~done) == 0 &&
                repeat(next, path_.size(), 0)) {
                return false;
            }
        }
        return true;
    }
    // Leaves out calls as long as the rest has no order.
    call_set without_surplus() {
        call_set set = complete_;
        for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
            const call_set less = set & ~one_call(*i);
            set = less != 0 && !has_order(less) ? less : set;
        }
        return set;
    }

    history& of_;
    const int count_;
    std::vector<call_set> before_; // for each call, those that come before it
    std::vector<int> order_;       // in which calls are tried; the incomplete ones are the last
    call_set complete_ = 0;
    call_set wanted_ = 0;
    bool until_blocked_ = false;
    std::vector<int> path_;
    std::vector<int> best_; // the longest order of the wanted calls, with other calls between them
    std::pair<int, std::size_t> best_score_;
};

// Draws calls as intervals, in a row for each thread. Two intervals overlap, if neither call comes
// before the other, and if rows can show that.
class history_drawing {
public:
    // `shown` are the calls to draw. The results of those that are not in `wanted` do not matter.
    history_drawing(history& of, const judge& by, call_set shown, call_set wanted)
        : of_(of), by_(by), shown_(shown), wanted_(wanted) {
        for (call_set rest = shown; rest != 0; rest &= rest - 1) {
            used_rows_ |= one_call(static_cast<int>(row_of(std::countr_zero(rest))));
        }
    }

    std::string print() {
        for (call_set left = shown_; left != 0 || open_ != 0;) {
            const call_set begun = begin_all(left);
            left &= ~begun;
            if (begun == 0 && !end_some(left)) {
                break; // the rest does not return
            }
        }
        std::string out;
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            if ((used_rows_ >> t & 1) != 0) {
                rows_[t].resize(std::max(rows_[t].size(), width()), open_in(t) ? '-' : ' ');
                rows_[t] += open_in(t) ? "..." : "";
                rows_[t].resize(rows_[t].find_last_not_of(' ') + 1);
                out += "    " + thread_text(static_cast<int>(t)) + "  " + rows_[t] + "\n";
            }
        }
        return out +
               (shows_surplus_ ? "The results of the calls in brackets do not matter.\n" : "") +
               orders();
    }

private:
    static constexpr int none = -1;

    const history::call& call(int number) const { return of_.calls[index(number)]; }
    std::size_t row_of(int number) const { return index(call(number).began.thread); }
    std::size_t width() const {
        std::size_t all = 0;
        for (const std::string& row : rows_) {
            all = std::max(all, row.size());
        }
        return all;
    }
    bool open_in(std::size_t row) const {
        for (call_set left = open_; left != 0; left &= left - 1) {
            if (row_of(std::countr_zero(left)) == row) {
                return true;
            }
        }
        return false;
    }
    void fill() {
        const std::size_t all = width();
        for (std::size_t t = 0; t < rows_.size(); ++t) {
            rows_[t].resize(all, open_in(t) ? '-' : ' ');
        }
    }

    // Begins all calls that can begin now. Returns them.
    call_set begin_all(call_set left) {
        call_set begun = 0;
        for (call_set rest = left; rest != 0; rest &= rest - 1) {
            const int n = std::countr_zero(rest);
            if ((by_.before(n) & shown_ & (left | open_)) == 0 && !open_in(row_of(n))) {
                begun |= one_call(n);
            }
        }
        fill();
        for (call_set rest = begun; rest != 0; rest &= rest - 1) {
            const int n = std::countr_zero(rest);
            const std::string result = of_.result_text(n);
            std::string what = of_.call_text(n) + (result.empty() ? "" : " -> " + result);
            if ((wanted_ & one_call(n)) == 0 && call(n).has_returned) {
                what = "(" + what + ")";
                shows_surplus_ = true;
            }
            rows_[row_of(n)] += (rows_[row_of(n)].empty() ? "|- " : " |- ") + what + " ";
        }
        open_ |= begun;
        return begun;
    }
    // Ends the calls that must end before the next one can begin. Returns false if none ends.
    bool end_some(call_set left) {
        call_set ending = 0;
        for (call_set rest = left; rest != 0 && ending == 0; rest &= rest - 1) {
            const call_set needed = by_.before(std::countr_zero(rest)) & shown_;
            ending = (needed & left) == 0 ? needed & open_ : 0;
        }
        if (left == 0) {
            for (call_set rest = open_; rest != 0; rest &= rest - 1) {
                const int n = std::countr_zero(rest);
                ending |= call(n).has_returned ? one_call(n) : 0;
            }
        }
        fill();
        for (call_set rest = ending; rest != 0; rest &= rest - 1) {
            rows_[row_of(std::countr_zero(rest))] += "-|";
        }
        open_ &= ~ending;
        return ending != 0;
    }

    // Says which calls of different threads are ordered.
    std::string orders() const {
        std::string out;
        for (call_set rest = shown_; rest != 0; rest &= rest - 1) {
            const int after = std::countr_zero(rest);
            call_set first = by_.before(after) & shown_; // without those before another one of them
            for (call_set all = first; all != 0; all &= all - 1) {
                first &= ~by_.before(std::countr_zero(all));
            }
            for (; first != 0; first &= first - 1) {
                const int n = std::countr_zero(first);
                if (row_of(n) != row_of(after)) {
                    out += by_.text(n) + " happens before " + by_.text(after) + ".\n";
                }
            }
        }
        return out;
    }

    history& of_;
    const judge& by_;
    const call_set shown_;
    const call_set wanted_;
    call_set used_rows_ = 0;
    call_set open_ = 0;
    std::array<std::string, max_threads> rows_;
    bool shows_surplus_ = false;
};

inline std::string name_of(const history& h) {
    return *h.name == '\0' ? std::string("the object") : std::string(h.name);
}

// Describes the shortest part of a history that has no order.
inline std::string refused_text(history& h, judge& by) {
    const call_set wanted = by.smallest();
    // Calls that come after all of these are not shown.
    call_set shown = wanted;
    for (int n = 0; n < static_cast<int>(h.calls.size()); ++n) {
        shown |= (wanted & ~by.before(n)) != 0 ? one_call(n) : 0;
    }
    std::string out = "Calls of " + name_of(h) +
                      " that have no order which the specification "
                      "allows:\n\n" +
                      history_drawing(h, by, shown, wanted).print();
    by.has_order(wanted);
    call_set done = 0;
    std::string first;
    for (const int n : by.longest()) {
        done |= one_call(n);
        first += (first.empty() ? "" : ", ") + by.text(n);
    }
    for (int n = 0; n < static_cast<int>(h.calls.size()); ++n) {
        if ((wanted & ~done & one_call(n)) != 0 && (by.before(n) & ~done) == 0) {
            out += (first.empty() ? "By the specification, "
                                  : "After " + first + ", by the specification, ") +
                   by.text(n) + " " + by.specified(n) + ".\n";
        }
    }
    return out + "\n";
}

// Describes a history whose threads wait for ever.
inline std::string waiting_text(history& h, judge& by) {
    std::string waiting;
    call_set all = 0;
    for (int n = 0; n < static_cast<int>(h.calls.size()); ++n) {
        all |= one_call(n);
        waiting += h.calls[index(n)].has_returned ? "" : (waiting.empty() ? "" : ", ") + by.text(n);
    }
    if (waiting.empty()) {
        return {};
    }
    return "Calls of " + name_of(h) + ":\n\n" + history_drawing(h, by, all, by.complete()).print() +
           (by.has_order(by.complete(), true)
                ? "By the specification, too, these calls wait for ever: "
                : "By the specification, one of these calls returns: ") +
           waiting + ".\n\n";
}

// Returns what the histories of a failed execution say about the failure.
inline std::string histories_text(execution& x) {
    std::string out;
    for (const auto& h : x.histories) {
        if (h->calls.size() > most_calls) {
            continue;
        }
        judge by(*h);
        if (!by.has_order(by.complete())) {
            out += refused_text(*h, by);
        } else if (x.what() == failure::lost_wakeup || x.what() == failure::deadlock ||
                   x.what() == failure::livelock) {
            out += waiting_text(*h, by);
        }
    }
    return out;
}

// ---- What a body calls

namespace {

moment moment_of(execution& x) {
    const view& v = x.self().knows;
    moment now{.thread = v.thread, .next = v.next().index};
    std::copy(v.hb.seen.begin(), v.hb.seen.end(), now.known.begin());
    return now;
}

} // namespace

void history::begin() noexcept {
    execution& x = execution::needed();
    const heap::leave guard;
    const int number = static_cast<int>(calls.size());
    int& mine = running_[index(x.self().knows.thread)]; // plus 1; 0: none
    calls.push_back({.began = moment_of(x),
                     .began_at = count_++,
                     .outer = std::exchange(mine, number + 1) - 1});
}

void history::end(bool has_returned) noexcept {
    execution& x = execution::needed();
    int& mine = running_[index(x.self().knows.thread)];
    call& c = calls[index(mine - 1)];
    c.returned = moment_of(x);
    c.has_returned = has_returned;
    c.returned_at = count_++;
    mine = c.outer + 1;
}

int history::running() const noexcept {
    return running_[index(execution::needed().self().knows.thread)] - 1;
}

namespace ops {

history* keep_history(std::unique_ptr<history> made) noexcept {
    const heap::leave guard;
    return execution::needed().histories.emplace_back(std::move(made)).get();
}

void judge(history& of) noexcept {
    execution& x = execution::needed();
    const heap::leave guard;
    if (of.calls.size() > most_calls) {
        x.fail_now(failure::too_large,
                   "more than " + std::to_string(most_calls) + " calls of " + name_of(of));
    }
    const auto is_right = [&] {
        detail::judge by(of);
        return by.has_order(by.complete());
    };
    if (!is_right()) {
        x.fail_now(failure::not_linearizable,
                   "the calls of " + name_of(of) + " have no order which the specification allows");
    }
}

BIDE_NOINLINE void clear_stack() noexcept {
    volatile std::uint64_t below[256];
    for (volatile std::uint64_t& word : below) {
        word = 0;
    }
}

outside_of_body::outside_of_body() noexcept : thread_(std::exchange(heap::inside, -1)) {}
outside_of_body::~outside_of_body() { heap::inside = thread_; }

} // namespace ops

}}} // namespace bide::BIDE_ABI::model::detail

#endif
