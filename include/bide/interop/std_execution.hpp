// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_STD_EXECUTION_HPP
#define BIDE_INTEROP_STD_EXECUTION_HPP

/// \file
/// Makes the parallel algorithms of libstdc++, such as std::sort() with std::execution::par, run on
/// the workers of bide, without libtbb. Link the CMake target bide::std_execution, and include
/// `<execution>` as before. Without CMake, include this header in place of `<execution>`, and before
/// any header that includes `<execution>`.
///
/// An algorithm runs on the scheduler of its caller: in a task, or in an arm of a fork-join, on
/// scheduler::current(). On any other thread it runs on the scheduler that was given to
/// set_std_execution_scheduler(), or else on scheduler::shared(). The calling thread takes part. If
/// the scheduler has shut down, or its threads cannot be started, the calling thread runs the
/// algorithm alone.
///
/// All files of a program that call parallel algorithms of std must include this header: the
/// functions of libstdc++ have the same names with TBB as with bide, and the linker keeps one of
/// each.
//
// libstdc++ divides its parallel algorithms into patterns and a backend. A pattern is an algorithm
// in terms of a parallel loop, a reduction, two scans, a sort and a merge, which the backend
// provides. The folder pstl of libstdc++ selects a backend in parallel_backend.h. This header
// defines the include guard of that file, and provides the backend.
//
// For some patterns, bide has an algorithm of its own that takes fewer steps than libstdc++'s
// pattern. Their overloads below have the parameters of libstdc++'s functions and a
// requires-clause, so they are chosen where the clause holds. If it does not hold, for example for
// iterators of C++17 that are no iterators of C++20, libstdc++'s pattern runs on this backend.

#include <version>

#if !defined(__GLIBCXX__)
#error "bide/interop/std_execution.hpp replaces the backend of libstdc++'s parallel algorithms. \
Other standard libraries have no backend that a header can replace. Call the algorithms of \
bide/parallel.hpp in place of those of std::execution::par."
#elif !defined(__cpp_exceptions)
#error "The parallel algorithms of libstdc++ need exceptions. Those of bide/parallel.hpp do not."
#elif _GLIBCXX_RELEASE != 12 && !defined(BIDE_STD_EXECUTION_UNTESTED)
#error "bide/interop/std_execution.hpp was tested with the libstdc++ of GCC 12. To try \
another version, define BIDE_STD_EXECUTION_UNTESTED, and run the tests of your program."
#elif defined(_PSTL_PARALLEL_BACKEND_H) || defined(_GLIBCXX_EXECUTION)
#error "<execution> was included before bide/interop/std_execution.hpp, so the algorithms have \
another backend already. Include this header first, or link the CMake target bide::std_execution."
#endif

#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_remove_if.hpp>
#include <bide/parallel/parallel_scan.hpp>

// The next lines include parts of libstdc++ in an order that formatting must not change.
// clang-format off
#include <algorithm>
#include <memory>
#include <numeric>
#include <pstl/pstl_config.h>
#include <pstl/execution_defs.h>
#include <pstl/execution_impl.h>
#include <pstl/parallel_backend_utils.h>
#include <pstl/utils.h>
// clang-format on

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The scheduler that was given to set_std_execution_scheduler().
template <class Platform> struct BIDE_SHARED std_execution_choice {
    inline static constinit typename Platform::template atomic<scheduler*> given{nullptr};
};

} // namespace detail

/// Makes std's parallel algorithms run on `workers` if their caller runs on no scheduler of bide.
/// nullptr stands for scheduler::shared(), which is the default. Returns the previous scheduler, or
/// nullptr if it was the default.
/// Requires: the scheduler outlives its use by the algorithms. An algorithm that another thread
/// calls uses it if this call happens before.
/// Thread safety: any thread may call it.
inline scheduler* set_std_execution_scheduler(scheduler* workers) noexcept {
    // Order: relaxed; the caller orders this call before the algorithms of other threads.
    return detail::std_execution_choice<native_platform>::given.exchange(workers,
                                                                         std::memory_order_relaxed);
}

namespace detail {

// Returns the scheduler on which an algorithm runs, or nullptr if there is none.
template <class Platform = native_platform> scheduler* std_execution_scheduler() noexcept {
    if (scheduler* const here = scheduler::current()) {
        return here;
    }
    // Order: relaxed; the caller has ordered set_std_execution_scheduler() before.
    if (scheduler* const given =
            std_execution_choice<Platform>::given.load(std::memory_order_relaxed)) {
        return given;
    }
    scheduler* shared = nullptr;
    detail::call_or([&] { shared = &scheduler::shared(); }, [] {});
    return shared;
}

// A reference to a function f(args...), of which the caller knows only the types of the arguments.
template <class R, class... Args> class std_call {
public:
    template <class F>
    explicit std_call(const F& f) noexcept
        : f_(std::addressof(f)), call_([](const void* to, Args... args) -> R {
              return (*static_cast<const F*>(to))(args...);
          }) {}
    R operator()(Args... args) const { return call_(f_, args...); }

private:
    const void* f_;
    R (*call_)(const void*, Args...);
};
using std_leaf = std_call<void, std::uint64_t, std::uint64_t>;

// The forks of one algorithm, as detail::forker. Two things differ.
//
// If the calling thread cannot enter a fork-join, it runs the algorithm alone. The reason is that
// the scheduler has shut down, or that there is no scheduler or no memory.
//
// A program calls many algorithms with many types. So that the loop of parallel_for.hpp is compiled
// once for all of them, the loop gets its leaf as a std_leaf. But in_fork() learns the time of an
// element from each place that calls it. So each algorithm has a function of its own that calls
// in_fork(): enter_loop_at<Place>().
class std_forker {
public:
    using platform = forker::platform;

    // `Place` is a type that no other algorithm gives.
    template <class Place>
    std_forker(scheduler* on, std::type_identity<Place>) noexcept
        : scheduler_(on), enter_loop_(&enter_loop_at<Place>) {}

    template <class F, class G> void both(F&& f, G&& g, bool is_brief = false) const {
        detail::fork(fork_context::here().lane, std::forward<F>(f), std::forward<G>(g), is_brief);
    }

    template <class F> void enter(F&& f) const {
        bool runs = false;
        enter_or_run(f, runs, [this](const auto& run) { forker(*scheduler_).enter(run); });
    }

    template <std::int64_t LongestNs, class Brief, class F>
    void enter_loop(std::uint64_t iterations, const Brief& run_briefly, F&& f) const {
        static_assert(LongestNs == longest_ns || LongestNs == 0);
        bool runs = false;
        const auto briefly = [&](std::int64_t begin, std::int64_t most_ns) {
            runs = true;
            const std::int64_t end = run_briefly(begin, most_ns);
            runs = false;
            return end;
        };
        enter_or_run(f, runs, [&](const auto& run) {
            enter_loop_(*scheduler_, iterations, std_brief(briefly), std_call<void>(run));
        });
    }

    bool wants_work(std::uint64_t most) const noexcept {
        return scheduler_ != nullptr && forker(*scheduler_).wants_work(most);
    }
    const void* thread() const noexcept { return fork_context::here().lane; }
    bool may_leave() const noexcept { return false; } // as without fork_options::yield_to_tasks
    bool leaves_for_task(std::int64_t) const noexcept { return false; }
    unsigned workers() const noexcept {
        return scheduler_ != nullptr ? scheduler_->concurrency() : 1;
    }

private:
    using std_brief = std_call<std::int64_t, std::int64_t, std::int64_t>;
    static constexpr std::int64_t longest_ns = 2'000; // that of parallel_loop

    template <class Place>
    static void enter_loop_at(scheduler& on, std::uint64_t iterations, const std_brief& run_briefly,
                              const std_call<void>& run) {
        detail::in_fork<longest_ns>(on, [&run] { run(); }, iterations, run_briefly);
    }

    // Calls enter(f). If that throws while neither f nor a part of the loop runs, as `runs` says,
    // the calling thread could not enter a fork-join, and f is called without one.
    template <class F, class Enter>
    void enter_or_run(const F& f, bool& runs, const Enter& enter) const {
        const auto run = [&] {
            runs = true;
            f();
        };
        try {
            if (scheduler_ != nullptr) {
                return enter(run);
            }
        } catch (...) {
            if (runs) {
                throw;
            }
        }
        f();
    }

    scheduler* scheduler_;
    void (*enter_loop_)(scheduler&, std::uint64_t, const std_brief&, const std_call<void>&);
};

// The place of an algorithm of bide that an algorithm of std calls, as fork_policy.
class std_policy {
public:
    template <class Place>
    explicit std_policy(std::type_identity<Place> place) noexcept
        : forks_(detail::std_execution_scheduler(), place) {}
    std_forker forks() const noexcept { return forks_; }
    const fork_options& options() const noexcept { return options_; }

private:
    std_forker forks_;
    fork_options options_;
};

// The policy of the algorithm that has these types.
template <class... Types> std_policy std_policy_for() noexcept {
    return std_policy(std::type_identity<std::type_identity<void(Types...)>>());
}

// Elements, or numbers, from `first` on. libstdc++ gives the bounds of a loop as iterators or as
// numbers.
template <class Index> struct std_bounds {
    using difference = decltype(std::declval<Index>() - std::declval<Index>());

    Index first;
    std::uint64_t size;

    std_bounds(Index from, const Index& last)
        : first(from), size(last > from ? static_cast<std::uint64_t>(last - from) : 0) {}
    Index at(std::uint64_t n) const {
        return static_cast<Index>(first + static_cast<difference>(n));
    }
};

// A reduction from the left, of a part of the elements. As a front (parallel_for.hpp), but for any
// types: see std_reduction_front.
class std_reduction {
public:
    virtual ~std_reduction() = default;
    std_reduction& operator=(std_reduction&&) = delete;

    // Adds the elements [from, to), which follow those that were added before.
    virtual void run(std::uint64_t from, std::uint64_t to) = 0;
    // Returns a reduction without elements, for a thief.
    virtual std::unique_ptr<std_reduction> begin_part() const = 0;
    // Adds the elements of `right`, which follow those of this reduction.
    virtual void join(std_reduction& right) = 0;

protected:
    std_reduction() = default;
};

class std_reduction_front {
public:
    using part = std_reduction_front;

    explicit std_reduction_front(std_reduction& of) noexcept : reduction_(&of) {}
    std_reduction_front(const std_reduction_front& of, loop_range<std::uint64_t>)
        : own_(of.reduction_->begin_part()), reduction_(own_.get()) {}

    void run(std::uint64_t from, std::uint64_t to) { reduction_->run(from, to); }
    template <class Loop> void join(Loop&, std_reduction_front&& right) {
        reduction_->join(*right.reduction_);
    }

private:
    std::unique_ptr<std_reduction> own_;
    std_reduction* reduction_;
};

// reduce(first, last, value) combines `value` with the elements. A part begins with
// seed(bounds, from), which moves `from` behind the elements that it has combined.
template <class Index, class T, class Seed, class Reduce, class Combine>
class std_reduction_of final : public std_reduction {
public:
    std_reduction_of(const std_bounds<Index>& in, std::optional<T> value, const Seed& seed,
                     const Reduce& reduce, const Combine& combine)
        : in_(in), seed_(seed), reduce_(reduce), combine_(combine), value_(std::move(value)) {}

    void run(std::uint64_t from, std::uint64_t to) override {
        if (!value_) {
            value_.emplace(seed_(in_, from));
        }
        if (from != to) {
            T next = reduce_(in_.at(from), in_.at(to), std::move(*value_));
            value_.emplace(std::move(next));
        }
    }
    // Copies the functions, because they need not be callable by two threads at once.
    std::unique_ptr<std_reduction> begin_part() const override {
        return std::make_unique<std_reduction_of>(in_, std::nullopt, seed_, reduce_, combine_);
    }
    void join(std_reduction& right) override {
        T next =
            combine_(std::move(*value_), std::move(*static_cast<std_reduction_of&>(right).value_));
        value_.emplace(std::move(next));
    }
    T& value() noexcept { return *value_; }

private:
    const std_bounds<Index>& in_;
    Seed seed_;
    Reduce reduce_;
    Combine combine_;
    std::optional<T> value_;
};

// Not templates, so that the loop is compiled once.
template <class = void>
void std_run(const std_policy& on, std::uint64_t size, std_reduction& of, std::uint64_t unit) {
    std_reduction_front front(of);
    detail::run_in_order(on.forks(), on.options(), size, unit, front);
}
template <class = void>
void std_run(const std_policy& on, std::uint64_t size, const std_leaf& leaf, std::uint64_t unit,
             std::uint64_t least) {
    leaf_front front(leaf);
    detail::run_in_order(on.forks(), on.options(), size, unit, front, least);
}

// `unit` is the least number of elements that a seed combines.
template <class Index, class T, class Seed, class Reduce, class Combine>
T std_reduce(const std_bounds<Index>& in, T value, const Seed& seed, const Reduce& reduce,
             const Combine& combine, std::uint64_t unit) {
    using reduction_type = std_reduction_of<Index, T, Seed, Reduce, Combine>;
    reduction_type reduction(in, std::optional<T>(std::move(value)), seed, reduce, combine);
    detail::std_run(detail::std_policy_for<reduction_type>(), in.size, reduction, unit);
    return std::move(reduction.value());
}

// Calls body(first, last) for parts of the bounds, in parallel.
template <class Index, class Body> void std_loop(const std_bounds<Index>& in, const Body& body) {
    const auto run = [&](std::uint64_t from, std::uint64_t to) { body(in.at(from), in.at(to)); };
    detail::std_run(detail::std_policy_for<Index, Body>(), in.size, std_leaf(run), 0, 1);
}

// Merges by parts of the output. leaf(left, left_end, right, right_end, out, less) merges a part. It
// may move the elements away, so the elements of a part are found before any leaf begins. If
// elements are copied as bytes, merge_places() does not call the leaf, and finds the elements of a
// part itself.
template <class Left, class Right, class Out, class Compare, class Leaf>
void std_merge(const elements<Left>& left, const elements<Right>& right, const Out& out,
               Compare& less, const Leaf& leaf) {
    constexpr std::uint64_t unit = 512;
    const std::uint64_t size = left.size + right.size;
    if (size < 2 * unit) {
        leaf(left.first, left.end(), right.first, right.end(), out, less);
        return;
    }
    const elements<Out> to{out, size};
    const auto comes_first = [&](auto&& b, auto&& a) -> bool {
        return less(std::forward<decltype(b)>(b), std::forward<decltype(a)>(a));
    };
    const std_policy on = detail::std_policy_for<Left, Right, Out, Leaf>();
    if constexpr (merges_branchless<Left, Right>) {
        const auto merge_part = [&](std::uint64_t begin, std::uint64_t end) {
            detail::merge_places(left, right, to, begin, end, comes_first, leaf);
        };
        detail::std_run(on, size, std_leaf(merge_part), unit, 4 * unit);
    } else {
        const std::uint64_t part = greater_of(size / (4 * on.forks().workers()), unit);
        const std::uint64_t parts = size / part; // the last one takes the rest
        const auto begin_of = [&](std::uint64_t k) { return k == parts ? size : k * part; };
        const std::unique_ptr<std::uint64_t[]> from_left(new std::uint64_t[parts + 1]);
        from_left[0] = 0;
        for (std::uint64_t k = 0; k != parts; ++k) {
            from_left[k + 1] = detail::taken_from_left(left, right, begin_of(k + 1), comes_first,
                                                       begin_of(k), from_left[k]);
        }
        const auto merge_parts = [&](std::uint64_t k, std::uint64_t last) {
            for (; k != last; ++k) {
                const std::uint64_t begin = begin_of(k);
                const std::uint64_t end = begin_of(k + 1);
                leaf(left.at(from_left[k]), left.at(from_left[k + 1]),
                     right.at(begin - from_left[k]), right.at(end - from_left[k + 1]), to.at(begin),
                     less);
            }
        };
        detail::std_run(on, parts, std_leaf(merge_parts), 1, 1);
    }
}

// Calls reduce(from, size) for parts of [0, n), then apex(sum of all), then
// scan(from, size, sum of all before) for the same parts.
template <class Index, class T, class Reduce, class Combine, class Scan, class Apex>
void std_strict_scan(Index n, T initial, const Reduce& reduce, const Combine& combine,
                     const Scan& scan, const Apex& apex) {
    const auto size = static_cast<std::uint64_t>(n);
    const std::uint64_t most_parts = 4 * detail::std_policy_for<>().forks().workers();
    const std::uint64_t part = size < 2 ? 1 : (size - 1) / most_parts + 1;
    const std::uint64_t parts = (size + part - 1) / part;
    const auto for_parts = [&](const auto& f) {
        detail::std_loop(std_bounds(std::uint64_t{0}, parts),
                         [&](std::uint64_t from, std::uint64_t to) {
                             for (; from != to; ++from) {
                                 const std::uint64_t begin = from * part;
                                 f(from, static_cast<Index>(begin),
                                   static_cast<Index>(lesser_of(part, size - begin)));
                             }
                         });
    };
    const std::unique_ptr<T[]> sums(new T[parts + 1]);
    for_parts([&](std::uint64_t k, Index from, Index length) { sums[k] = reduce(from, length); });
    T before = initial;
    for (std::uint64_t k = 0; k != parts; ++k) {
        T behind = combine(before, sums[k]);
        sums[k] = std::exchange(before, behind);
    }
    apex(before);
    for_parts([&](std::uint64_t k, Index from, Index length) { scan(from, length, sums[k]); });
}

template <bool IsInclusive, class It, class Out, class Map, class T, class Op>
Out std_scan(const It& first, const It& last, const Out& out, Map& map, T& init, Op& op) {
    constexpr bool is_no_op = std::is_same_v<Map, __pstl::__internal::__no_op>;
    const auto to_value = [&map](auto&& element) noexcept(is_no_op) -> T {
        return static_cast<T>(map(std::forward<decltype(element)>(element)));
    };
    const std_policy on = detail::std_policy_for<It, Out, Map, Op>();
    constexpr scan_kind kind = IsInclusive ? scan_kind::inclusive : scan_kind::exclusive;
    return detail::scan<kind, T>(on, detail::elements_of(first, last), out, op, to_value,
                                 std::optional<T>(std::move(init)));
}

// True if bide's algorithm takes the arguments of libstdc++'s pattern.
template <class It, class Compare>
concept std_sorts = parallel_bounds<It, It> && std::sortable<It, Compare>;
template <class It, class Predicate>
concept std_partitions =
    parallel_bounds<It, It> && std::permutable<It> && finds_in<Predicate, It, std::identity>;
template <class It, class Predicate, class Out>
concept std_copies = parallel_bounds<It, It> && finds_in<Predicate, It, std::identity> &&
                     parallel_output<Out, std::iter_reference_t<It>>;
template <class It, class Equal>
concept std_compares = parallel_bounds<It, It> && compares_in<Equal, It, std::identity>;
// libstdc++'s scan of floating-point numbers is wrong if T{} is not the identity of the operation,
// as for std::multiplies. So for these, the results of the map need not have the type T.
template <class It, class Out, class Map, class T, class Op>
concept std_scans = parallel_bounds<It, It> && takes_scan<Out, Op, T> &&
                    std::invocable<Map&, std::iter_reference_t<It>> &&
                    (std::same_as<mapped_t<Map, It>, T> ||
                     (std::floating_point<T> && std::convertible_to<mapped_t<Map, It>, T>));

} // namespace detail
}} // namespace bide::BIDE_ABI

// ---- The backend

/// \cond
#define _PSTL_PARALLEL_BACKEND_H // of pstl/parallel_backend.h, which selects another backend

namespace __pstl {
namespace __bide_backend {

// Memory for objects that a pattern constructs.
template <class T> class __buffer {
public:
    explicit __buffer(std::size_t n) : size_(n), begin_(std::allocator<T>().allocate(n)) {}
    __buffer(const __buffer&) = delete;
    __buffer& operator=(const __buffer&) = delete;
    ~__buffer() { std::allocator<T>().deallocate(begin_, size_); }
    explicit operator bool() const noexcept { return true; }
    T* get() const noexcept { return begin_; }

private:
    const std::size_t size_;
    T* const begin_;
};

// The patterns check a flag of their own in each part, so there is nothing to cancel.
inline void __cancel_execution() noexcept {}

template <class Policy, class Index, class F>
void __parallel_for(Policy&&, Index first, Index last, F f) {
    bide::detail::std_loop(bide::detail::std_bounds<Index>(first, last), f);
}

template <class Policy, class T, class Index, class Reduce, class Combine>
T __parallel_reduce(Policy&&, Index first, Index last, const T& identity, const Reduce& reduce,
                    const Combine& combine) {
    const bide::detail::std_bounds<Index> all(first, last);
    const auto seed = [&identity](const auto&, std::uint64_t&) { return identity; };
    return bide::detail::std_reduce(all, T(identity), seed, reduce, combine, 1);
}

template <class Policy, class Index, class Map, class T, class Combine, class Reduce>
T __parallel_transform_reduce(Policy&&, Index first, Index last, Map map, T init, Combine combine,
                              Reduce reduce) {
    const bide::detail::std_bounds<Index> all(first, last);
    // The type of an element need not convert to T, but that of a combination does.
    const auto seed = [map, combine](const auto& in, std::uint64_t& from) mutable -> T {
        const std::uint64_t at = from;
        from += 2;
        return combine(map(in.at(at)), map(in.at(at + 1)));
    };
    return bide::detail::std_reduce(all, std::move(init), seed, reduce, combine, 2);
}

template <class Policy, class Index, class T, class Reduce, class Combine, class Scan, class Apex>
void __parallel_strict_scan(Policy&&, Index n, T initial, Reduce reduce, Combine combine, Scan scan,
                            Apex apex) {
    bide::detail::std_strict_scan(n, initial, reduce, combine, scan, apex);
}

// Only for scans of types that do not fit into bide's (std_scans): it reduces all elements twice.
template <class Policy, class Index, class Map, class T, class Combine, class Reduce, class Scan>
T __parallel_transform_scan(Policy&&, Index n, Map, T init, Combine, Reduce, Scan scan) {
    return scan(Index(0), n, init);
}

template <class Policy, class It, class Compare, class LeafSort>
void __parallel_stable_sort(Policy&&, It first, It last, Compare less, LeafSort sort_leaf,
                            std::size_t sorted = 0) {
    using namespace bide::detail;
    if constexpr (std_sorts<It, Compare>) {
        const std_policy on = std_policy_for<It, Compare, LeafSort>();
        const auto all = bide::detail::elements_of(first, last);
        if (sorted == 0) {
            return bide::detail::sort<true>(on, all, less);
        }
        // The leaves of a pattern may construct the elements. So each element is in one leaf.
        const std::uint64_t leaf = greater_of(all.size / (4 * on.forks().workers()), 512);
        const std::uint64_t leaves = greater_of(all.size / leaf, 1);
        std_loop(std_bounds(std::uint64_t{0}, leaves), [&](std::uint64_t from, std::uint64_t to) {
            for (; from != to; ++from) {
                const bool is_last = from + 1 == leaves;
                sort_leaf(all.at(from * leaf), is_last ? all.end() : all.at((from + 1) * leaf),
                          less);
            }
        });
        bide::detail::partial_sort(on, all, lesser_of(sorted, all.size), less);
    } else {
        sort_leaf(first, last, less);
    }
}

template <class Policy, class Left, class Right, class Out, class Compare, class LeafMerge>
void __parallel_merge(Policy&&, Left left, Left left_end, Right right, Right right_end, Out out,
                      Compare less, LeafMerge merge_leaf) {
    if constexpr (std::random_access_iterator<Left> && std::random_access_iterator<Right> &&
                  std::random_access_iterator<Out>) {
        bide::detail::std_merge(bide::detail::elements_of(left, left_end),
                                bide::detail::elements_of(right, right_end), out, less, merge_leaf);
    } else {
        merge_leaf(left, left_end, right, right_end, out, less);
    }
}

template <class Policy, class F, class G> void __parallel_invoke(Policy&&, F&& f, G&& g) {
    const auto on = bide::detail::std_policy_for<F, G>();
    on.forks().enter([&] { on.forks().both(std::forward<F>(f), std::forward<G>(g)); });
}

} // namespace __bide_backend

namespace __par_backend = __bide_backend;

// ---- The patterns for which bide has an algorithm

namespace __internal {

// Each pattern does with an exception what those of libstdc++ do (__except_handler): std::bad_alloc
// leaves the algorithm, and any other exception terminates the program.

// Neighbours in a vector<bool> share a word, so two threads must not write to them.
template <class It>
    requires bide::detail::packs_bits<It>
struct __is_random_access_iterator<It> : std::false_type {};

template <class Policy, class It, class Compare, class Vector>
    requires bide::detail::std_sorts<It, Compare>
void __pattern_sort(Policy&&, It first, It last, Compare less, Vector, std::true_type,
                    std::true_type) {
    __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Compare>();
        bide::detail::sort<false>(on, bide::detail::elements_of(first, last), less);
    });
}

template <class Policy, class It, class Compare, class Vector>
    requires bide::detail::std_sorts<It, Compare>
void __pattern_partial_sort(Policy&&, It first, It middle, It last, Compare less, Vector,
                            std::true_type) {
    __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Compare>();
        bide::detail::partial_sort(on, bide::detail::elements_of(first, last),
                                   static_cast<std::uint64_t>(middle - first), less);
    });
}

template <class Policy, class It, class Compare, class Vector>
    requires bide::detail::std_sorts<It, Compare>
void __pattern_nth_element(Policy&&, It first, It nth, It last, Compare less, Vector,
                           std::true_type) {
    __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Compare>();
        bide::detail::nth_element(on, bide::detail::elements_of(first, last),
                                  static_cast<std::uint64_t>(nth - first), less);
    });
}

template <class Policy, class It, class Predicate, class Vector>
    requires bide::detail::std_partitions<It, Predicate>
It __pattern_partition(Policy&&, It first, It last, Predicate matches, Vector, std::true_type) {
    return __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Predicate>();
        std::identity same;
        return bide::detail::partition(on, bide::detail::elements_of(first, last), matches, same);
    });
}

template <class Policy, class It, class Predicate, class Vector>
    requires bide::detail::std_partitions<It, Predicate>
It __pattern_stable_partition(Policy&&, It first, It last, Predicate matches, Vector,
                              std::true_type) {
    return __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Predicate>();
        std::identity same;
        return bide::detail::stable_partition(on, bide::detail::elements_of(first, last), matches,
                                              same);
    });
}

template <class Policy, class It, class Predicate, class Vector>
    requires bide::detail::std_partitions<It, Predicate>
It __pattern_remove_if(Policy&&, It first, It last, Predicate matches, Vector, std::true_type) {
    return __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Predicate>();
        std::identity same;
        return bide::detail::compact(
            on, bide::detail::elements_of(first, last),
            bide::detail::keeps_unmatched<Predicate, std::identity>{matches, same});
    });
}

template <class Policy, class It, class Equal, class Vector>
    requires bide::detail::std_compares<It, Equal> && std::permutable<It>
It __pattern_unique(Policy&&, It first, It last, Equal equal, Vector, std::true_type) {
    return __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Equal>();
        std::identity same;
        return bide::detail::compact(on, bide::detail::elements_of(first, last),
                                     bide::detail::keeps_first<Equal, std::identity>{equal, same});
    });
}

template <class Policy, class It, class Out, class Predicate, class Vector>
    requires bide::detail::std_copies<It, Predicate, Out>
Out __pattern_copy_if(Policy&&, It first, It last, Out out, Predicate matches, Vector,
                      std::true_type) {
    return __internal::__except_handler([&] {
        const auto on = bide::detail::std_policy_for<It, Out, Predicate>();
        std::identity same;
        return bide::detail::copy_if(on, bide::detail::elements_of(first, last), out, matches,
                                     same);
    });
}

template <class Policy, class It, class Out, class Map, class T, class Op, class Inclusive,
          class Vector>
    requires bide::detail::std_scans<It, Out, Map, T, Op>
typename std::enable_if<!std::is_floating_point<T>::value, Out>::type
__pattern_transform_scan(Policy&&, It first, It last, Out out, Map map, T init, Op op, Inclusive,
                         Vector, std::true_type) {
    return __internal::__except_handler(
        [&] { return bide::detail::std_scan<Inclusive::value>(first, last, out, map, init, op); });
}
template <class Policy, class It, class Out, class Map, class T, class Op, class Inclusive,
          class Vector>
    requires bide::detail::std_scans<It, Out, Map, T, Op>
typename std::enable_if<std::is_floating_point<T>::value, Out>::type
__pattern_transform_scan(Policy&&, It first, It last, Out out, Map map, T init, Op op, Inclusive,
                         Vector, std::true_type) {
    return __internal::__except_handler(
        [&] { return bide::detail::std_scan<Inclusive::value>(first, last, out, map, init, op); });
}

} // namespace __internal
} // namespace __pstl
/// \endcond

#include <execution>

#endif
