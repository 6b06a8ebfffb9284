// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PIPELINE_HPP
#define BIDE_PARALLEL_DETAIL_PIPELINE_HPP

// How a pipeline runs. Its threads are equal: the caller, and each worker that takes an arm of the
// fork-join. Each takes work from one word (pipeline_work.hpp): the source, or a serial stage whose
// next item waits. A thread that has read an item takes it through the stages, as far as it can. If
// the item has no turn at a serial stage, the thread leaves it there (pipeline_queue.hpp) and takes
// other work. The source and the serial stages are put back before the thread goes on with the item,
// so another thread can take them while a stage runs long.
//
// The arms are forked once, at the begin, in halves. A thread that has taken one stays until all is
// over, and sleeps while there is nothing to do. An arm that no thread took by then returns at once.
// So no thread waits for an arm while there is work. What a stage forks is below its own frame, and
// no arm of the pipeline runs on top of a stage (invariant 3 of the room's README).
//
// Exceptions. The items are numbered by the source. After item n has thrown, no stage is called for
// a higher number, and the source is read no more. Items with lower numbers go on, because one of
// them may throw, too; the exception of the lowest number is the one of a serial run. An item that
// has thrown or is left out is dead: it has no value, but still takes its turns, so that the places
// of a serial stage have no gap.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/pipeline_item.hpp>
#include <bide/parallel/detail/pipeline_queue.hpp>
#include <bide/parallel/detail/pipeline_work.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// How the calls of a stage may overlap.
enum class stage_order : std::uint8_t { parallel, serial, serial_unordered };

// The function of a stage, as the pipeline calls it. A stage may be const.
template <class Stage> using stage_function = decltype((std::declval<Stage&>().call));

// The type of what stage K gets, if the source gives `Item`.
template <std::size_t K, class Item, class Stage, class... Rest> struct pipeline_input {
    using type = typename pipeline_input<
        K - 1, pipeline_value_t<std::invoke_result_t<stage_function<Stage>, Item&&>>,
        Rest...>::type;
};
template <class Item, class Stage, class... Rest> struct pipeline_input<0, Item, Stage, Rest...> {
    using type = Item;
};

// A serial stage's queue. A parallel stage has none.
template <class Platform, class Stage, class Item, bool = Stage::order != stage_order::parallel>
struct stage_queue : basic_pipeline_queue<Platform, Item> {
    using basic_pipeline_queue<Platform, Item>::basic_pipeline_queue;
};
template <class Platform, class Stage, class Item>
struct stage_queue<Platform, Stage, Item, false> {
    explicit stage_queue(std::uint32_t) noexcept {}
};

// `Stages` are instances of pipeline_stage; `Source` is as in pipeline_source.hpp.
template <class Forker, class Source, class... Stages> class pipeline {
    using platform = typename Forker::platform;
    using work = basic_pipeline_work<platform>;
    using number = std::uint64_t;

    static constexpr std::size_t count = sizeof...(Stages);
    static constexpr number none = (std::numeric_limits<number>::max)();

    template <std::size_t K> using stage_at = std::tuple_element_t<K, std::tuple<Stages...>>;
    template <std::size_t K>
    using input = typename pipeline_input<K, typename Source::item, Stages...>::type;

    static constexpr bool is_serial(stage_order order) noexcept {
        return order != stage_order::parallel;
    }
    // The number of serial stages before stage K.
    template <std::size_t K> static constexpr unsigned serials_before() noexcept {
        constexpr std::array<stage_order, count> orders{Stages::order...};
        unsigned n = 0;
        for (std::size_t i = 0; i < K; ++i) {
            n += is_serial(orders[i]) ? 1U : 0U;
        }
        return n;
    }
    static_assert((unsigned{0} + ... + (is_serial(Stages::order) ? 1U : 0U)) <= work::most_stages,
                  "a pipeline has at most 16 serial stages");

    template <class> struct queues_of;
    template <std::size_t... Ks> struct queues_of<std::index_sequence<Ks...>> {
        using type = std::tuple<stage_queue<platform, Stages, input<Ks>>...>;
    };
    using queues = typename queues_of<std::index_sequence_for<Stages...>>::type;

public:
    static constexpr std::uint32_t most_tokens = work::most_tokens;
    static constexpr unsigned most_threads = work::most_threads;

    // The lowest number of an item that has thrown, among those of one thread or several.
    struct failure {
        number at = none;
        std::exception_ptr error{};

        void keep_first(failure& other) noexcept {
            if (other.at < at) {
                *this = std::move(other);
            }
        }
    };

    pipeline(Forker forks, std::uint32_t tokens, Source& source, const fork_options& options,
             Stages&... stages)
        : forks_(forks), source_(source), stop_(options.stop), progress_(options.progress),
          stages_(stages...), work_(tokens), queues_(((void)stages, tokens)...) {
        if (progress_ != nullptr && source_.size() != none) {
            progress_->expect(source_.size());
        }
    }
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    // Runs all, on at most so many threads.
    // Throws: the exception of the first item, in order, that threw. stopped_error after a stop.
    void run(unsigned threads) {
        failure first;
        forks_.enter([&] { run_on(forks_.lane() != nullptr ? threads : 1, first); });
        finish(first);
    }

    // The work of one thread, until all is over.
    void run_here(failure& mine) noexcept {
        bool has_token = false;
        for (;;) {
            const int what = work_.take(has_token);
            if (what == work::over) {
                return;
            }
            has_token = what == work::source ? read(mine)
                                             : run_waiting(static_cast<unsigned>(what), mine,
                                                           std::index_sequence_for<Stages...>());
        }
    }

    // Called after all threads have ended. Throws what run() throws.
    void finish(failure& first) {
#if BIDE_EXCEPTIONS
        if (first.at != none) {
            std::rethrow_exception(std::move(first.error));
        }
#else
        static_cast<void>(first);
#endif
        if (was_stopped_) {
            BIDE_THROW(stopped_error(make_error_code(errc::stopped)));
        }
    }

private:
    void run_on(unsigned threads, failure& mine) noexcept {
        if (threads > 1 && fork(threads, mine)) {
            return;
        }
        run_here(mine);
    }

    // Runs two halves of the threads. Returns false if there is no memory to fork.
    bool fork(unsigned threads, failure& mine) noexcept {
        failure other;
        const auto both = [&] {
            forks_.both([&]() noexcept { run_on(threads - threads / 2, mine); },
                        [&]() noexcept { run_on(threads / 2, other); });
        };
#if BIDE_EXCEPTIONS
        try {
            both();
        } catch (const std::bad_alloc&) {
            return false; // neither has begun
        }
#else
        both();
#endif
        mine.keep_first(other);
        return true;
    }

    // Calls f(). Returns false if it threw: then the exception is that of item n.
    template <class F> bool attempt(number n, failure& mine, F&& f) noexcept {
#if BIDE_EXCEPTIONS
        try {
            f();
            return true;
        } catch (...) {
            failure thrown{n, std::current_exception()};
            mine.keep_first(thrown);
        }
        detail::lower(failed_at_, n);
        return false;
#else
        static_cast<void>(n);
        static_cast<void>(mine);
        f();
        return true;
#endif
    }

    // Returns true if an item with a number lower than n has thrown.
    bool leaves_out(number n) const noexcept {
        // Order: relaxed; a thread that sees it late calls a stage in vain.
        return failed_at_.load(std::memory_order_relaxed) < n;
    }

    // Reads an item, and takes it through the stages. Returns true if the token is free again.
    // Requires: the caller has the source, with a token.
    bool read(failure& mine) noexcept {
        const number n = next_number_;
        pipeline_item<input<0>> item;
        bool is_read = false;
        attempt(n, mine, [&] { is_read = may_read(n) && source_.read(item); });
        if (!is_read) {
            work_.close_source();
            return true;
        }
        next_number_ = n + 1;
        if (progress_ != nullptr && source_.size() == none) {
            progress_->expect(1);
        }
        work_.put_source();
        return go_on<0>(n, item, mine);
    }

    bool may_read(number n) {
        if (leaves_out(n) || source_.is_at_end()) {
            return false;
        }
        if (stop_.stop_requested()) {
            was_stopped_ = true;
            return false;
        }
        return true;
    }

    // Takes item n from before stage K as far as it can go now. Returns true if it has ended.
    template <std::size_t K, class T>
    bool go_on(number n, pipeline_item<T>& item, failure& mine) noexcept {
        if constexpr (K == count) {
            if (progress_ != nullptr && item.has_value()) {
                progress_->count(1);
            }
            return true;
        } else if constexpr (!is_serial(stage_at<K>::order)) {
            return run_stage<K>(n, item, mine, []() noexcept {});
        } else {
            auto& queue = std::get<K>(queues_);
            const number place = stage_at<K>::order == stage_order::serial ? n : queue.arrive();
            pipeline_item<T>* at = &item;
            if (!queue.has_turn(place)) {
                auto& held = queue.slot_of(place);
                held.number = n;
                if (!attempt(n, mine, [&] { held.item.take(item); })) {
                    item.reset();
                }
                if (queue.leave(place)) {
                    return false;
                }
                at = &held.item;
            }
            return run_serial<K>(n, *at, mine);
        }
    }

    // Runs serial stage K, which has item n, and goes on. The next item of the stage is put where
    // other threads find it.
    template <std::size_t K, class T>
    bool run_serial(number n, pipeline_item<T>& item, failure& mine) noexcept {
        return run_stage<K>(n, item, mine, [this]() noexcept {
            if (std::get<K>(queues_).pass_turn()) {
                work_.put_stage(serials_before<K>());
            }
        });
    }

    // Calls stage K with the item, then done(), and goes on with the result.
    template <std::size_t K, class T, class Done>
    bool run_stage(number n, pipeline_item<T>& item, failure& mine, Done done) noexcept {
        auto& function = std::get<K>(stages_).call;
        constexpr bool is_last = K + 1 == count;
        if (item.has_value() && leaves_out(n)) {
            item.reset();
        }
        if constexpr (is_last) {
            pipeline_item<bool> end;
            if (item.has_value()) {
                attempt(n, mine, [&] {
                    static_cast<void>(std::invoke(function, item.get()));
                    end.emplace([] { return true; });
                });
                item.reset();
            }
            done();
            return go_on<count>(n, end, mine);
        } else {
            pipeline_item<input<K + 1>> out;
            if (item.has_value()) {
                attempt(n, mine, [&] {
                    out.emplace(
                        [&]() -> decltype(auto) { return std::invoke(function, item.get()); });
                });
                item.reset();
            }
            done();
            return go_on<K + 1>(n, out, mine);
        }
    }

    // Runs the serial stage with that number, whose next item waits. Returns true if it has ended.
    template <std::size_t... Ks>
    bool run_waiting(unsigned serial, failure& mine, std::index_sequence<Ks...>) noexcept {
        bool has_ended = false;
        static_cast<void>((run_if<Ks>(serial, mine, has_ended) || ...));
        return has_ended;
    }
    template <std::size_t K> bool run_if(unsigned serial, failure& mine, bool& has_ended) noexcept {
        if constexpr (is_serial(stage_at<K>::order)) {
            if (serial == serials_before<K>()) {
                auto& held = std::get<K>(queues_).next();
                has_ended = run_serial<K>(held.number, held.item, mine);
                return true;
            }
        }
        return false;
    }

    const Forker forks_;
    // These belong to the thread that has the source:
    Source& source_;
    typename platform::template var<number> next_number_{0};
    typename platform::template var<bool> was_stopped_{false}; // an item was not read for a stop
    const std::stop_token& stop_;
    fork_progress* const progress_;
    const std::tuple<Stages&...> stages_;
    typename platform::template atomic<number> failed_at_{none};
    work work_;
    queues queues_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
