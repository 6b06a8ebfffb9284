// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PIPELINE_HPP
#define BIDE_PARALLEL_PARALLEL_PIPELINE_HPP

/// \file
/// Takes the items of a source through stages. A parallel stage runs for several items at the same
/// time, a serial stage for one item after the other. detail/pipeline.hpp explains how.
///
/// \code
/// bide::scheduler workers;
/// std::ifstream in("log");
/// const auto next_line = [&]() -> std::optional<std::string> {
///     std::string line;
///     return std::getline(in, line) ? std::optional(std::move(line)) : std::nullopt;
/// };
/// bide::parallel_pipeline(workers, 64, next_line,
///                         bide::parallel_stage([](std::string line) { return parse(line); }),
///                         bide::serial_stage([&](record r) { out << r; })); // in order
/// \endcode

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/pipeline.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The sources of a pipeline. One thread at a time reads a source.

template <class T>
concept optional_item = std::same_as<T, std::optional<typename T::value_type>>;

// A function that returns an item, or std::nullopt at the end.
template <class F>
concept item_generator =
    std::invocable<F&> && optional_item<std::remove_cvref_t<std::invoke_result_t<F&>>>;

// The type of the items that a pipeline reads from a range. An element of a forward range stays
// valid when the iterator advances. So the result of operator* is passed on as it is, for example
// as an lvalue reference. An element of a single-pass range does not stay valid, so its value is
// taken.
template <class It> struct pipeline_element {
    using type = std::iter_value_t<It>;
};
template <std::forward_iterator It> struct pipeline_element<It> {
    using type = pipeline_value_t<std::iter_reference_t<It>>;
};

template <class It, class End> class iterator_source {
public:
    using item = typename pipeline_element<It>::type;

    iterator_source(It first, End last, std::uint64_t items)
        : at_(std::move(first)), last_(std::move(last)), size_(items) {}

    // Returns the number of items, or the largest number if it is not known.
    std::uint64_t size() const noexcept { return size_; }

    // Returns true if it is known, without a read, that there are no more items.
    bool is_at_end() {
        if constexpr (std::forward_iterator<It>) {
            step();
            return at_ == last_;
        } else {
            return false;
        }
    }

    // Reads an item. Returns false at the end.
    bool read(pipeline_item<item>& to) {
        step();
        if (at_ == last_) {
            return false;
        }
        to.emplace([this]() -> decltype(auto) {
            if constexpr (std::same_as<std::iter_reference_t<It>, item>) {
                return *at_;
            } else {
                return item(*at_);
            }
        });
        has_read_ = true;
        return true;
    }

private:
    // Advances the iterator, if an item was read before. It does so only before the next read,
    // because ++ may block, and because the item must be valid until then.
    void step() {
        if (std::exchange(has_read_, false)) {
            ++at_;
        }
    }

    It at_;
    [[no_unique_address]] End last_;
    const std::uint64_t size_;
    bool has_read_ = false;
};

template <class F> class generator_source {
    using result = std::invoke_result_t<F&>;

public:
    using item = typename std::remove_cvref_t<result>::value_type;

    explicit generator_source(F& body) noexcept : f_(body) {}

    std::uint64_t size() const noexcept { return (std::numeric_limits<std::uint64_t>::max)(); }
    bool is_at_end() const noexcept { return false; }
    bool read(pipeline_item<item>& to) {
        result next = std::invoke(f_);
        if (!next.has_value()) {
            return false;
        }
        to.emplace([&]() -> decltype(auto) { return *std::forward<result>(next); });
        return true;
    }

private:
    F& f_;
};

template <class Source> auto source_of(Source& source) {
    if constexpr (std::ranges::input_range<Source&>) {
        using iterator = std::ranges::iterator_t<Source&>;
        using sentinel = std::ranges::sentinel_t<Source&>;
        std::uint64_t size = (std::numeric_limits<std::uint64_t>::max)();
        if constexpr (std::ranges::sized_range<Source&>) {
            size = static_cast<std::uint64_t>(std::ranges::size(source));
        }
        return iterator_source<iterator, sentinel>(std::ranges::begin(source),
                                                   std::ranges::end(source), size);
    } else {
        return generator_source<Source>(source);
    }
}

} // namespace detail

/// A stage of a pipeline: a function, and the order of its calls. parallel_stage(), serial_stage()
/// and serial_unordered_stage() make stages.
template <detail::stage_order Order, class F> class pipeline_stage {
public:
    /// How its calls may overlap.
    static constexpr detail::stage_order order = Order;

    /// Makes a stage of a function.
    template <class G>
        requires std::constructible_from<F, G>
    explicit pipeline_stage(G&& body) : call(std::forward<G>(body)) {}

    /// The function, which the pipeline calls in place.
    F call;
};

/// Makes a stage whose calls for different items may run at the same time.
/// Requires: several threads may call f at once.
template <class F> auto parallel_stage(F&& f) {
    return pipeline_stage<detail::stage_order::parallel, std::decay_t<F>>(std::forward<F>(f));
}

/// Makes a stage that is called for one item after the other, in the order of the source. Calls may
/// come from different threads; each call sees what the previous call wrote.
template <class F> auto serial_stage(F&& f) {
    return pipeline_stage<detail::stage_order::serial, std::decay_t<F>>(std::forward<F>(f));
}

/// Makes a stage that is called for one item after the other, in the order in which the items
/// arrive. Calls may come from different threads; each call sees what the previous call wrote.
template <class F> auto serial_unordered_stage(F&& f) {
    return pipeline_stage<detail::stage_order::serial_unordered, std::decay_t<F>>(
        std::forward<F>(f));
}

namespace detail {

template <class T> inline constexpr bool is_stage = false;
template <stage_order Order, class F>
inline constexpr bool is_stage<pipeline_stage<Order, F>> = true;

template <class T>
concept pipeline_stage_type = is_stage<std::remove_cvref_t<T>>;

// True if each stage can be called with the result of the previous stage, and if the items of
// serial stages can be moved to their queues.
template <class Item, class... Stages> inline constexpr bool stages_fit = true;
template <class Item, class Stage, class... Rest>
    requires(!std::invocable<stage_function<Stage>, Item &&> ||
             (Stage::order != stage_order::parallel && !std::move_constructible<Item>))
inline constexpr bool stages_fit<Item, Stage, Rest...> = false;
template <class Item, class Stage, class Next, class... Rest>
    requires std::invocable<stage_function<Stage>, Item&&> &&
                 (Stage::order == stage_order::parallel || std::move_constructible<Item>)
inline constexpr bool stages_fit<Item, Stage, Next, Rest...> = [] {
    using result = std::invoke_result_t<stage_function<Stage>, Item&&>;
    if constexpr (std::is_void_v<result>) {
        return false;
    } else {
        return stages_fit<pipeline_value_t<result>, Next, Rest...>;
    }
}();

template <class Source>
concept pipeline_source = std::ranges::input_range<Source&> || item_generator<Source>;

template <class On, class Source, class... Stages>
void run_pipeline(const On& on, std::size_t tokens, Source source, Stages&... stages) {
    using machine = pipeline<decltype(on.forks()), Source, Stages...>;
    if (tokens == 0) {
        BIDE_THROW(std::invalid_argument("bide: a pipeline needs at least one token"));
    }
    const std::uint64_t size = (std::max)(source.size(), std::uint64_t{1});
    const auto most = static_cast<std::uint32_t>(
        (std::min)({std::uint64_t{tokens}, size, std::uint64_t{machine::most_tokens}}));
    machine(on.forks(), most, source, on.options(), stages...)
        .run((std::min)({most, on.forks().workers() + 1, machine::most_threads}));
}

} // namespace detail

/// Takes each item of the source through all stages, on the calling thread and on idle workers. At
/// most `tokens` items are in flight at a time, and each serial stage has room for `tokens` items.
/// That bounds the memory of a pipeline.
///
/// The source is any input range, such as a std::list, a filtered view, or a range of
/// std::istream_iterator. It may also be a function that returns a std::optional, which is empty at
/// the end. One thread at a time reads the source. For a forward range, stages get the results of
/// the iterator's operator*. For a single-pass range, they get values.
///
/// Each stage is called with the result of the previous one: with an lvalue reference, or with a
/// value that it may move from. The result of the last stage is ignored. Items need not be copyable
/// or default-constructible. Only the items of a serial stage must be movable. No item costs an
/// allocation.
///
/// Blocks: until all items have ended. Meanwhile the caller runs stages.
/// Throws: the exception that a serial run would throw: that of the first item, in the order of the
/// source, for which the source or a stage threw. All items before that item have gone through all
/// stages, and later items through none or some. stopped_error after a stop. std::invalid_argument
/// if `tokens` is 0. std::bad_alloc. Other exceptions are those of join(). Before it throws, all
/// calls have ended and each item is destroyed.
/// Requires: a stage waits for a later item only if free workers can take that item to the awaited
/// point.
/// Cancellation: see fork_options::stop. After a stop, no further item is read, and all items that
/// were read go through all stages. If the source has ended before the stop, the stop has no
/// effect.
///
/// fork_options::progress counts the items that have ended. Its total is the size of the source. If
/// that size is not known, the total is the number of items that were read. fork_options::grain has
/// no effect.
///
/// A worker that takes part in the pipeline does so until the end of the pipeline. While there is
/// no work, its thread sleeps, and another thread may run the worker. If the tasks of the scheduler
/// must not wait for the pipeline, use a separate scheduler for it.
template <class Source, detail::pipeline_stage_type... Stages>
    requires detail::pipeline_source<Source> && (sizeof...(Stages) != 0)
void parallel_pipeline(const fork_policy& on, std::size_t tokens, Source&& source,
                       Stages&&... stages) {
    auto items = detail::source_of(source);
    static_assert(
        detail::stages_fit<typename decltype(items)::item, std::remove_reference_t<Stages>...>,
        "each stage must be callable with what the source or the stage before returns; "
        "what a serial stage gets must be movable");
    detail::run_pipeline(on, tokens, std::move(items), stages...);
}

}} // namespace bide::BIDE_ABI

#endif
