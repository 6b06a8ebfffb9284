// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_ORDERED_LOOP_HPP
#define BIDE_PARALLEL_DETAIL_ORDERED_LOOP_HPP

// A loop for algorithms in which the work on an element needs the result of all elements before it.
// For a scan, that result is their sum. For a filter, it is the number of earlier elements that are
// kept, because this number is the place of the next element.
//
// One thread, the owner, visits the elements from left to right. It updates an object, the front,
// which has the result of all elements that were visited so far. While no other thread wants work,
// this is a serial loop: each element is visited once.
//
// If another thread, a thief, wants work, the owner offers it the second half of the remaining
// elements, and continues with the first half. The thief does not know the result of the first half
// yet. So it does only the work that needs no such result: for a scan, it adds up its elements.
// When the owner has visited the first half, it calls join(), which adds the thief's result to the
// front, and completes the thief's half by a parallel loop: for a scan, this writes the sums. If no
// thief has taken the second half, the owner visits it, too.
//
// A Front has these members. `from` and `to` are numbers of elements:
//
//   run(from, to)                continues the front; it has passed the elements before `from`
//   part                         the type of the result of a thief
//   ahead(loop, from, to, done)  called by a thief, while another thread calls run(). Does the work
//                                that needs no front, and stores the result in `done`, which is an
//                                empty optional
//   join(loop, part)             joins the thief's result to the front
//
// If `part` is a Front itself, there is no ahead(). The thief then constructs Front(front, range)
// and runs it as any front. Parts begin at multiples of the unit, and have at least one unit of
// elements.

#include <bide/core/config.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Forker> class ordered_loop {
    using platform = typename Forker::platform;
    using chunks = basic_chunk_sizes<platform>;

public:
    using range = loop_range<std::uint64_t>;

    // Thieves take only parts of at least `least` elements. If `unit` is greater than `size`, the
    // loop uses `size` as the unit, so that sums of sizes do not overflow.
    ordered_loop(Forker forks, const fork_options& options, std::uint64_t size, std::uint64_t unit,
                 std::uint64_t least = 1) noexcept
        : forks_(forks), unit_(lesser_of(greater_of(unit, 1), greater_of(size, 1))),
          least_(greater_of(unit_, least)), state_(options, size) {}

    // Takes all elements into the front.
    // Throws: what a serial run would throw, and stopped_error after a stop.
    template <class Front> void run(Front& front, std::uint64_t size) {
        if (size != 0) {
            range part{0, size};
            const auto run_pieces = [this, &front, &part](std::uint64_t n) -> std::uint64_t {
                const range now{part.first, part.first + rounded(part, n)};
                part.first = now.last;
                return run_piece(front, now) ? part.size() : 0;
            };
            detail::enter_loop<longest_brief_ns>(forks_, size, run_pieces,
                                                 [&] { advance(front, part); });
        }
        state_.finish();
    }

    // Takes the elements of the part into the front. If a stop was requested or an earlier part has
    // thrown, returns early, and leaves the remaining elements out.
    template <class Front> void advance(Front& front, range part) {
        std::uint64_t chunk = first_chunk();
        std::uint64_t piece = first_piece;
        std::int64_t before = 0; // when the chunk began, or 0 if that is unknown
        while (!part.empty()) {
            const std::uint64_t left = part.size();
            const std::uint64_t arms = most_arms(left, chunk);
            if (left / 2 >= greater_of(least_, chunk / 4) && forks_.wants_work(arms)) {
                if (!fork(front, part, left / 2,
                          [&](range half) { return advance(front, half), true; })) {
                    return;
                }
                before = 0;
                continue;
            }
            if (before == 0 && left > lesser_of(chunk, greater_of(piece, unit_))) {
                before = platform::now();
            }
            const bool goes_on =
                chunk <= unit_
                    ? fork(front, part, unit_, [&](range one) { return run_piece(front, one); })
                    : run_chunk(front, part, chunk, piece, arms);
            if (!goes_on || part.empty()) {
                return;
            }
            const std::int64_t after = platform::now();
            chunk = greater_of(chunks::next(left - part.size(), after - before), unit_);
            sizes_.learn(chunk);
            before = after;
        }
    }

    // Calls leaf(first, last) in parallel for parts of [0, count). `first` and `last` are numbers
    // of blocks. The leaf itself uses state() to check whether it is left out.
    template <class Leaf> void for_blocks(std::uint64_t count, Leaf leaf) const {
        detail::run_loop_over(forks_, range{0, count}, fork_options(), leaf);
    }

    basic_loop_state<platform>& state() noexcept { return state_; }
    Forker forks() const noexcept { return forks_; }

private:
    // The meaning of few_elements is as in parallel_loop: until an element was visited, up to
    // few_elements elements are divided as if each took long. first_piece and longest_piece are the
    // first and the greatest number of elements between two checks whether thieves want work.
    static constexpr std::uint64_t few_elements = 1'024;
    static constexpr std::uint64_t first_piece = 64;
    static constexpr std::uint64_t longest_piece = 4'096;

    // Runs `first` on about n elements of the part, while the remaining elements are an arm. Sets
    // `part` to the remaining elements. If a thief has taken the arm, joins its result to the
    // front, and `part` is empty. Returns false if the remaining elements must be left out.
    template <class Front, class First>
    bool fork(Front& front, range& part, std::uint64_t n, First first) {
        const range rest{part.first + rounded(part, n), part.last};
        const range begin{part.first, rest.first};
        part = rest;
        const void* const here = forks_.thread();
        if (rest.empty() || rest.size() < least_ || here == nullptr) {
            return first(begin);
        }
        bool goes_on = false;
        std::optional<typename Front::part> ahead;
        // If there is no memory for the fork, no arm begins, and the parts behind it are left out.
        state_.run(begin.first, 0, [&] {
            forks_.both([&] { goes_on = first(begin); },
                        [&] {
                            if (forks_.thread() != here) {
                                run_ahead(front, rest, ahead);
                            }
                        });
        });
        if (!goes_on || state_.leaves_out(rest.first)) {
            return false;
        }
        if (ahead) {
            front.join(*this, std::move(*ahead));
            part.first = part.last;
        }
        return true;
    }

    template <class Front>
    void run_ahead(Front& front, range rest, std::optional<typename Front::part>& done) {
        if constexpr (std::is_same_v<typename Front::part, Front>) {
            done.emplace(front, rest);
            advance(*done, rest);
        } else {
            front.ahead(*this, rest.first, rest.last, done);
        }
    }

    // Visits up to n elements, in pieces. If thieves want work, visits fewer. Returns false if the
    // remaining elements must be left out.
    template <class Front>
    bool run_chunk(Front& front, range& part, std::uint64_t n, std::uint64_t& piece,
                   std::uint64_t arms) {
        const std::uint64_t end = part.first + rounded(part, n);
        for (;;) {
            const range all{part.first, end};
            const range now{part.first, part.first + rounded({part.first, part.last},
                                                             lesser_of(all.size(), piece))};
            part.first = now.last;
            if (!run_piece(front, now)) {
                return false;
            }
            piece = lesser_of(4 * piece, longest_piece);
            if (part.first >= end || forks_.wants_work(arms)) {
                return true;
            }
        }
    }

    template <class Front> bool run_piece(Front& front, range part) {
        if (state_.leaves_out(part.first)) {
            return false;
        }
        state_.run(part.first, part.size(), [&] { front.run(part.first, part.last); });
        return true;
    }

    // Returns how many elements to cut off from the front of the part: about n, a multiple of the
    // unit. If less than a unit would remain, returns the size of the part.
    std::uint64_t rounded(range part, std::uint64_t n) const noexcept {
        const std::uint64_t step = n / vector >= unit_ ? vector * unit_ : unit_;
        const std::uint64_t whole = greater_of(n / step * step, unit_);
        return part.size() < whole + unit_ ? part.size() : whole;
    }

    std::uint64_t most_arms(std::uint64_t left, std::uint64_t chunk) const noexcept {
        if (sizes_.learned() != 0) {
            return left / greater_of(chunk * chunks::arm_time / chunks::chunk_time, least_);
        }
        return left / unit_ <= few_elements ? left / least_ : 1;
    }

    std::uint64_t first_chunk() const noexcept { return greater_of(sizes_.learned(), unit_); }

    static constexpr std::uint64_t vector = 64;

    const Forker forks_;
    const std::uint64_t unit_;
    const std::uint64_t least_;
    basic_loop_state<platform> state_;
    chunks sizes_;
};

// Takes all elements into the front. Parts begin at multiples of the grain, and have at least
// `least` elements.
template <class On, class Front>
void run_in_order(const On& on, std::uint64_t size, Front& front, std::uint64_t least = 1) {
    ordered_loop(on.forks(), on.options(), size, on.options().grain, least).run(front, size);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
