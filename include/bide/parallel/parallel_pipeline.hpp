// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PIPELINE_HPP
#define BIDE_PARALLEL_PARALLEL_PIPELINE_HPP

/// \file
/// Takes the items of a source through stages. A parallel stage runs for several items at the same
/// time, a serial stage for one item after the other.
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
//
// How a pipeline runs. The threads of a pipeline are the caller, and each worker that takes an arm,
// that is, a function of the fork-join. All threads do the same. One word shows the work that a
// thread can take: the source, or a serial stage whose next item waits. A thread that has read an
// item takes the item through the stages, as far as it can. If the item is not the next one of a
// serial stage, the thread leaves the item at that stage and takes other work. Before a thread
// continues with an item, it puts the source or the serial stage back. So another thread can take
// the source or the stage while the item is in a long stage.
//
// The arms are forked once, at the beginning, as a binary tree. A thread that has taken an arm
// stays until the end of the pipeline, and sleeps while there is no work. An arm that begins after
// the end returns at once. So no thread waits for an arm while there is work. No arm of the
// pipeline runs on top of a stage: a thread in a stage runs only arms that the stage itself has
// forked (invariant 3 in parallel/README.md).
//
// Exceptions. The source numbers the items. After item n has thrown, no stage is called for an item
// with a higher number, and the source is no longer read. Items with lower numbers continue,
// because one of them may throw, too. The exception of the item with the lowest number is the one
// that a serial run would throw. An item that has thrown or is skipped is called dead. A dead item
// has no value, but it still passes the serial stages, so that their numbering has no gap.

#include <bide/parallel/fork_join.hpp>
#include <bide/sync/semaphore.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The type that is passed to the next stage, if a stage returns Result: an lvalue reference, or a
// value.
template <class Result>
using pipeline_value_t =
    std::conditional_t<std::is_lvalue_reference_v<Result>, Result, std::remove_cvref_t<Result>>;

// Holds one item between two stages, as a value or a reference. An item without a value is dead: no
// further stage is called with it.
template <class T> class pipeline_item {
    using kept = std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, T>;

public:
    pipeline_item() noexcept {}
    pipeline_item(const pipeline_item&) = delete;
    pipeline_item& operator=(const pipeline_item&) = delete;
    ~pipeline_item() { reset(); }

    bool has_value() const noexcept { return has_value_; }

    // Stores the result of make(). A value is constructed in place, without a move.
    // Requires: there is no value.
    template <class Make> void emplace(Make&& make) {
        if constexpr (std::is_reference_v<T>) {
            ::new (static_cast<void*>(storage_)) kept(std::addressof(make()));
        } else {
            ::new (static_cast<void*>(storage_)) kept(make());
        }
        has_value_ = true;
    }

    // Returns the value as an rvalue, or the reference. Requires: there is a value.
    T&& get() noexcept {
        if constexpr (std::is_reference_v<T>) {
            return *value();
        } else {
            return static_cast<T&&>(value());
        }
    }

    void reset() noexcept {
        if (has_value_) {
            has_value_ = false;
            value().~kept();
        }
    }

    // Moves the value of `from` here, if there is one. `from` is empty afterwards.
    // Throws: what the move throws. The value is then still in `from`.
    void take(pipeline_item& from) {
        if (from.has_value_) {
            emplace([&]() -> T&& { return from.get(); });
            from.reset();
        }
    }

private:
    // With a union in the place of the bytes, g++ 12 would warn about an uninitialized value.
    kept& value() noexcept { return *std::launder(reinterpret_cast<kept*>(storage_)); }

    alignas(kept) std::byte storage_[sizeof(kept)];
    bool has_value_ = false;
};

// The work that the threads of a pipeline can take next, in one word:
//
//   tokens     bits 0 to 23    how many more items may be in flight
//   sleepers   bits 24 to 34   threads that sleep, or are about to, and that no thread is waking
//   searchers  bits 35 to 45   threads that look for work: they spin, or are being woken
//   closed     bit 46          the source gives no more items
//   source     bit 47          the source can be taken: no thread reads it, and it is not closed
//   stages     bits 48 to 63   for each serial stage: it can be taken, because its next item waits
//                              and no thread runs the stage
//
// A thread takes a stage, or the source and a token, by one CAS. The stage with its item, or the
// source, belongs to that thread until the thread puts it back [pipeline_work.taken]. A thread
// prefers a stage to the source, and a late stage to an early one, so that items end before others
// begin. The pipeline is over when the source is closed and no token is in use.
//
// Sleeping. A thread that finds no work counts itself as a searcher. If it still finds none, it
// becomes a sleeper, by a CAS that fails if there is work meanwhile. A thread may put work into the
// word, or leave work there. The value that its read-modify-write returns then shows the numbers of
// sleepers and searchers. If there is a sleeper and no searcher, the thread turns a sleeper into a
// searcher and gives it a permit of the semaphore. If there is a searcher, the searcher sees the
// work before it sleeps. If the searcher leaves work in the word, it wakes another thread. So no
// wake is lost, and there is only one wake at a time, even if many threads sleep.
//
// A thread that sleeps has no item, no stage and no source. A thread that has one of these never
// waits for another thread of the pipeline. So even a pipeline with one thread ends.
template <class Platform> class basic_pipeline_work {
    using word = std::uint64_t;

public:
    // The maximum number of items in flight, of threads, and of serial stages.
    static constexpr std::uint32_t most_tokens = (1U << 24) - 1;
    static constexpr unsigned most_threads = 1U << 10;
    static constexpr unsigned most_stages = 16;

    // The work that a thread has taken: `over`, `source`, or the number of a serial stage. These
    // numbers begin at 0.
    static constexpr int over = -2;
    static constexpr int source = -1;

    // Requires: 1 <= tokens <= most_tokens.
    explicit basic_pipeline_work(std::uint32_t tokens) noexcept
        : tokens_(tokens), word_(source_bit + tokens) {}
    basic_pipeline_work(const basic_pipeline_work&) = delete;
    basic_pipeline_work& operator=(const basic_pipeline_work&) = delete;

    // Takes the next work. If `has_token` is true, the caller has a token that it no longer needs:
    // the item of the token has ended, or there was no item. This call first puts that token back.
    // Returns: the number of the serial stage that the caller now runs; `source` if the caller now
    // reads the source; `over` if the pipeline is over.
    // Blocks: until there is work, or the pipeline is over.
    int take(bool has_token);

    // Called when the source can be read again.
    void put_source() { put(source_bit); }

    // Called when the source has no more items. The caller puts its token back by take().
    void close_source() noexcept {
        // Order: relaxed; the caller's take() publishes what was done with the source.
        word_.fetch_or(closed_bit, std::memory_order_relaxed);
    }

    // Called when the next item of the serial stage waits.
    void put_stage(unsigned stage) { put(first_stage << stage); }

private:
    static constexpr word one_token = 1;
    static constexpr word token_mask = most_tokens;
    static constexpr word one_sleeper = word{1} << 24;
    static constexpr word sleeper_mask = ((word{1} << 11) - 1) << 24;
    static constexpr word one_searcher = word{1} << 35;
    static constexpr word searcher_mask = ((word{1} << 11) - 1) << 35;
    static constexpr word closed_bit = word{1} << 46;
    static constexpr word source_bit = word{1} << 47;
    static constexpr word first_stage = word{1} << 48;

    // Returns the bit of the work that comes first, or 0 if there is none.
    static constexpr word first_of(word seen) noexcept {
        if (seen >= first_stage) {
            return std::bit_floor(seen);
        }
        return (seen & token_mask) != 0 ? seen & source_bit : 0;
    }
    bool is_over(word seen) const noexcept {
        return (seen & (closed_bit | token_mask)) == (closed_bit | tokens_);
    }
    static constexpr std::ptrdiff_t sleepers_of(word seen) noexcept {
        return static_cast<std::ptrdiff_t>((seen & sleeper_mask) / one_sleeper);
    }

    static constexpr bool needs_wake(word seen) noexcept {
        return (seen & sleeper_mask) != 0 && (seen & searcher_mask) == 0 && first_of(seen) != 0;
    }
    bool is_idle(word seen) const noexcept { return first_of(seen) == 0 && !is_over(seen); }

    void put(word bit) {
        // Order: release [pipeline_work.taken]; the next thread that takes this work sees
        // everything that was done with it. The returned value shows whether there are sleepers.
        const word seen = word_.fetch_or(bit, std::memory_order_release) | bit;
        if (needs_wake(seen)) [[unlikely]] {
            wake_one(seen);
        }
    }

    BIDE_COLD void wake_one(word seen) {
        while (needs_wake(seen)) {
            // Order: relaxed, both; the thread that is woken reads the word again.
            if (word_.compare_exchange_weak(seen, seen - one_sleeper + one_searcher,
                                            std::memory_order_relaxed, std::memory_order_relaxed)) {
                sleep_.release();
                return;
            }
        }
    }

    BIDE_COLD bool search(word seen, bool is_searcher);

    const word tokens_;
    alignas(cache_line_pair) typename Platform::template atomic<word> word_;
    alignas(cache_line_pair) basic_semaphore<Platform> sleep_{0};
};

template <class Platform> int basic_pipeline_work<Platform>::take(bool has_token) {
    bool is_searcher = false;
    // Order: acquire [pipeline_work.taken]; if the pipeline is over, this thread sees everything
    // that happened before the last token was put back. If it is not over, the CAS acquires.
    word seen = word_.load(std::memory_order_acquire);
    for (;;) {
        const word with = has_token ? seen + one_token : seen;
        const word bit = first_of(with);
        if (bit == 0 && !has_token) {
            if (is_over(with)) {
                return over;
            }
            is_searcher = search(seen, is_searcher);
            // Order: acquire [pipeline_work.taken]; like the first load.
            seen = word_.load(std::memory_order_acquire);
            continue;
        }
        const bool ends = bit == 0 && is_over(with);
        word next = with - bit - (bit == source_bit ? one_token : 0);
        next -= is_searcher ? one_searcher : 0;
        // Order: acq_rel [pipeline_work.taken]; sees everything that happened before the work was
        // put into the word. Publishes what this thread did with the item that has ended. Failure:
        // acquire, as the load above.
        if (!word_.compare_exchange_weak(seen, ends ? next & ~sleeper_mask : next,
                                         std::memory_order_acq_rel, std::memory_order_acquire)) {
            continue;
        }
        if (ends && sleepers_of(next) != 0) {
            sleep_.release(sleepers_of(next));
        } else if (needs_wake(next)) {
            wake_one(next);
        }
        if (bit != 0) {
            return bit == source_bit ? source : std::countr_zero(bit / first_stage);
        }
        has_token = false;
        seen = ends ? next & ~sleeper_mask : next;
    }
}

// Waits until there is work, but may return early. Returns true if the caller counts as a searcher.
template <class Platform> bool basic_pipeline_work<Platform>::search(word seen, bool is_searcher) {
    while (!is_searcher) {
        if (!is_idle(seen)) {
            return false;
        }
        // Order: relaxed, both; take() reads again.
        is_searcher = word_.compare_exchange_weak(
            seen, seen + one_searcher, std::memory_order_relaxed, std::memory_order_relaxed);
    }
    const auto has_changed = [this, &seen]() noexcept {
        // Order: relaxed; take() reads again.
        seen = word_.load(std::memory_order_relaxed);
        return !is_idle(seen);
    };
    if (basic_spin<Platform>::spin_apart(has_changed) || basic_spin<Platform>::until(has_changed)) {
        return true;
    }
    while (is_idle(seen)) {
        // Order: relaxed, both; a thread that puts work into the word later sees the sleeper.
        if (word_.compare_exchange_weak(seen, seen - one_searcher + one_sleeper,
                                        std::memory_order_relaxed, std::memory_order_relaxed)) {
            sleep_.acquire(); // the thread that wakes this one makes it a searcher again
            break;
        }
    }
    return true;
}

// The items that wait for a serial stage. The stage takes the items of the places 0, 1, 2, ... in
// order. In an ordered stage, the place of an item is its number. In an unordered stage, the place
// is the number of the item's arrival. The stage is at the place whose item it takes next. A thread
// may arrive with an item of a later place. It then leaves the item in the slot of that place, and
// does not wait. A slot has room for the item, and one word:
//
//   empty    neither the item nor the stage has come
//   filled   the item is in the slot; the stage has not come
//   reached  the stage is at this place; the item has not come
//   (no other value is possible)
//
// One thread brings the item and one brings the stage, each by an exchange of the word. The thread
// whose exchange is the second runs the stage with the item [pipeline_queue.reached]. So exactly
// one thread runs the stage, and no thread waits for the stage.
//
// Proof that a slot is empty when it is used again. There are at least `tokens` slots. So the slot
// of an item P at the place p is not used again before the place p + tokens. Let Q be the item of
// that place. The places from p to that of Q have tokens + 1 items. Let A be the one that was read
// last. At most `tokens` items are in flight. So at the read of A, another one, B, had ended, and
// had passed the stage. Items pass the stage in the order of places, and P's place is the first. So
// P had passed the stage, too. A got its place no later than Q, because places are given in the
// order of reads, or of arrivals [pipeline_queue.arrival]. So when Q arrives, P has left the slot.
template <class Platform, class T> class basic_pipeline_queue {
public:
    struct waiting {
        pipeline_item<T> item;
        std::uint64_t number = 0;
    };

    // Requires: tokens is at least 1.
    // Throws: std::bad_alloc.
    explicit basic_pipeline_queue(std::uint32_t tokens)
        : mask_(std::bit_ceil(std::size_t{tokens}) - 1),
          slots_(std::make_unique<slot[]>(mask_ + 1)) {
        // Order: relaxed; no other thread knows the queue yet.
        slots_[0].state.store(reached, std::memory_order_relaxed);
    }
    basic_pipeline_queue(const basic_pipeline_queue&) = delete;
    basic_pipeline_queue& operator=(const basic_pipeline_queue&) = delete;

    // Returns the next place, by the order of the calls.
    std::uint64_t arrive() noexcept {
        // Order: acq_rel [pipeline_queue.arrival]; sees which slots were emptied before an earlier
        // arrival. This line is both ends of the pair [pipeline_queue.arrival].
        return arrivals_.fetch_add(1, std::memory_order_acq_rel);
    }

    // Returns true if the stage is at the place. The caller, which has the item of the place, must
    // then run the stage with that item.
    bool is_reached(std::uint64_t place) noexcept {
        slot& s = slots_[place & mask_];
        // Order: acquire [pipeline_queue.reached]; sees what the stage did for the previous place.
        if (s.state.load(std::memory_order_acquire) != reached) {
            return false;
        }
        // Order: relaxed; the caller's advance() publishes this store.
        s.state.store(empty, std::memory_order_relaxed);
        return true;
    }

    // Returns the slot of a place. The caller has the item of that place. It must store the item in
    // the slot and then call leave().
    waiting& slot_of(std::uint64_t place) noexcept { return slots_[place & mask_].held; }

    // Leaves the item in the slot. Returns false if the stage has reached the place meanwhile. The
    // caller must then run the stage with the item in the slot.
    bool leave(std::uint64_t place) noexcept {
        slot& s = slots_[place & mask_];
        // Order: acq_rel [pipeline_queue.reached]; publishes the item, or sees what the stage did.
        if (s.state.exchange(filled, std::memory_order_acq_rel) == empty) {
            return true;
        }
        // Order: relaxed; as in is_reached().
        s.state.store(empty, std::memory_order_relaxed);
        return false;
    }

    // Moves the stage to the next place. Returns true if the item of that place is in its slot
    // already. The caller then still owns the stage, and must pass it to a thread that calls next()
    // and runs the stage with that item. Returns false if the item is not there. The thread that
    // brings the item then gets the stage.
    bool advance() noexcept {
        next_ = next_ + 1;
        slot& s = slots_[next_ & mask_];
        // Order: acq_rel [pipeline_queue.reached]; publishes what the stage did, or sees the item.
        if (s.state.exchange(reached, std::memory_order_acq_rel) == empty) {
            return false;
        }
        // Order: relaxed; as in is_reached().
        s.state.store(empty, std::memory_order_relaxed);
        return true;
    }

    // Returns the slot of the place that the stage is at. Requires: the caller owns the stage.
    waiting& next() noexcept { return slots_[next_ & mask_].held; }

private:
    using word = std::uint32_t;

    static constexpr word empty = 0;
    static constexpr word filled = 1;
    static constexpr word reached = 2;

    struct slot {
        typename Platform::template atomic<word> state{empty};
        waiting held; // belongs to the thread with the item, later to the thread with the stage
    };

    const std::size_t mask_;
    const std::unique_ptr<slot[]> slots_;
    // The place that the stage is at. Belongs to the thread that has the stage.
    typename Platform::template var<std::uint64_t> next_{0};
    typename Platform::template atomic<std::uint64_t> arrivals_{0};
};

// How the calls of a stage may overlap.
enum class stage_order : std::uint8_t { parallel, serial, serial_unordered };

// The function of a stage, as the pipeline calls it. A stage may be const.
template <class Stage> using stage_function = decltype((std::declval<Stage&>().call));

// The type of the argument of stage K, if the source gives `Item`.
template <std::size_t K, class Item, class Stage, class... Rest> struct pipeline_input {
    using type = typename pipeline_input<
        K - 1, pipeline_value_t<std::invoke_result_t<stage_function<Stage>, Item&&>>,
        Rest...>::type;
};
template <class Item, class Stage, class... Rest> struct pipeline_input<0, Item, Stage, Rest...> {
    using type = Item;
};

// Replaces the queue in a parallel stage.
struct no_pipeline_queue {
    explicit no_pipeline_queue(std::uint32_t) noexcept {}
};

// `Stages` are instances of pipeline_stage. `Source` is iterator_source or generator_source.
template <class Forker, class Source, class... Stages> class pipeline {
    using platform = typename Forker::platform;
    using work = basic_pipeline_work<platform>;
    using lock = lock_bits<platform, std::uint32_t>;
    using number = std::uint64_t;

    static constexpr std::size_t count = sizeof...(Stages);
    static constexpr number none = (std::numeric_limits<number>::max)();

    template <std::size_t K> using stage_at = std::tuple_element_t<K, std::tuple<Stages...>>;
    template <std::size_t K>
    using input = typename pipeline_input<K, typename Source::item, Stages...>::type;
    // The type of the result of stage K. The result of the last stage is ignored: its type is bool,
    // and a value only shows that no stage has thrown for the item.
    template <std::size_t K>
    using output =
        typename std::conditional_t<K + 1 == count, std::type_identity<bool>,
                                    pipeline_input<K + 1, typename Source::item, Stages...>>::type;

    static constexpr bool is_serial(stage_order order) noexcept {
        return order != stage_order::parallel;
    }
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

    template <std::size_t... Ks>
    static std::tuple<
        std::conditional_t<Stages::order != stage_order::parallel,
                           basic_pipeline_queue<platform, input<Ks>>, no_pipeline_queue>...>
        queues_of(std::index_sequence<Ks...>);
    using queues = decltype(queues_of(std::index_sequence_for<Stages...>()));

public:
    static constexpr std::uint32_t most_tokens = work::most_tokens;
    static constexpr unsigned most_threads = work::most_threads;

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

    // Runs the pipeline on at most `threads` threads, or on fewer if there is no memory to fork.
    // Throws: the exception of the first item, in order, that threw. stopped_error after a stop.
    void run(unsigned threads) {
        forks_.enter([&] {
            detail::fork_each<true>(forks_, 0, forks_.thread() != nullptr ? threads : 1,
                                    [this](std::size_t) { run_here(); });
        });
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        if (was_stopped_) {
            detail::throw_error(errc::stopped);
        }
    }

    // Does the work of one thread, until the pipeline is over.
    void run_here() noexcept {
        bool has_token = false;
        for (;;) {
            const int what = work_.take(has_token);
            if (what == work::over) {
                return;
            }
            has_token = what == work::source ? read() : run_waiting<0>(static_cast<unsigned>(what));
        }
    }

    // Returns true if an item with a number lower than n has thrown.
    bool leaves_out(number n) const noexcept {
        // Order: relaxed; a thread that sees an old value calls a stage in vain.
        return failed_at_.load(std::memory_order_relaxed) < n;
    }

private:
    // Calls f(). If f() throws, returns false, and stores the exception as that of item n, unless
    // an item with a lower number has thrown.
    template <class F> bool attempt(number n, F&& f) noexcept {
        bool has_failed = false;
        detail::call_or(f, [&] {
            has_failed = true;
            std::exception_ptr thrown = std::current_exception(); // destroys the one it replaces
            const typename lock::guard held(lock_);
            if (!leaves_out(n)) {
                std::swap(error_, thrown);
                // Order: relaxed; the number publishes no other data.
                failed_at_.store(n, std::memory_order_relaxed);
            }
        });
        return !has_failed;
    }

    // Reads an item, and takes it through the stages. Returns true if the token is free again,
    // because the item has ended or there is none.
    // Requires: the caller has taken the source and a token.
    bool read() noexcept {
        const number n = next_number_;
        pipeline_item<input<0>> item;
        bool is_read = false;
        attempt(n, [&] { is_read = may_read(n) && source_.read(item); });
        if (!is_read) {
            work_.close_source();
            return true;
        }
        next_number_ = n + 1;
        if (progress_ != nullptr && source_.size() == none) {
            progress_->expect(1);
        }
        work_.put_source();
        return go_on<0>(n, item);
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

    // Takes item n through the stages from stage K on, as far as possible. Returns true if the item
    // has ended.
    template <std::size_t K, class T> bool go_on(number n, pipeline_item<T>& item) noexcept {
        if constexpr (K == count) {
            if (progress_ != nullptr && item.has_value()) {
                progress_->count(1);
            }
            return true;
        } else if constexpr (!is_serial(stage_at<K>::order)) {
            return run_stage<K>(n, item);
        } else {
            auto& queue = std::get<K>(queues_);
            const number place = stage_at<K>::order == stage_order::serial ? n : queue.arrive();
            pipeline_item<T>* at = &item;
            if (!queue.is_reached(place)) {
                auto& held = queue.slot_of(place);
                held.number = n;
                if (!attempt(n, [&] { held.item.take(item); })) {
                    item.reset();
                }
                if (queue.leave(place)) {
                    return false;
                }
                at = &held.item;
            }
            return run_stage<K>(n, *at);
        }
    }

    // Calls stage K with the item. Then, if the stage is serial and its next item waits, puts the
    // stage back, so that another thread can take it. Then takes the result through the next
    // stages.
    template <std::size_t K, class T> bool run_stage(number n, pipeline_item<T>& item) noexcept {
        if (item.has_value() && leaves_out(n)) {
            item.reset();
        }
        pipeline_item<output<K>> out;
        if (item.has_value()) {
            const auto call = [&]() -> decltype(auto) {
                return std::invoke(std::get<K>(stages_).call, item.get());
            };
            attempt(n, [&] {
                if constexpr (K + 1 == count) {
                    static_cast<void>(call());
                    out.emplace([] { return true; });
                } else {
                    out.emplace(call);
                }
            });
            item.reset();
        }
        if constexpr (is_serial(stage_at<K>::order)) {
            if (std::get<K>(queues_).advance()) {
                work_.put_stage(serials_before<K>());
            }
        }
        return go_on<K + 1>(n, out);
    }

    // Runs a serial stage whose next item waits. `serial` is its number among the serial stages
    // from stage K on. Returns true if that item has ended.
    template <std::size_t K> bool run_waiting(unsigned serial) noexcept {
        if constexpr (K == count) {
            return false; // not reached
        } else if constexpr (is_serial(stage_at<K>::order)) {
            if (serial != 0) {
                return run_waiting<K + 1>(serial - 1);
            }
            auto& held = std::get<K>(queues_).next();
            return run_stage<K>(held.number, held.item);
        } else {
            return run_waiting<K + 1>(serial);
        }
    }

    const Forker forks_;
    // Only the thread that has the source uses these members:
    Source& source_;
    typename platform::template var<number> next_number_{0};
    typename platform::template var<bool> was_stopped_{false}; // a stop kept an item unread
    const std::stop_token& stop_;
    fork_progress* const progress_;
    const std::tuple<Stages&...> stages_;
    // The first item, in order, that has thrown, and its exception. Written under the lock.
    typename platform::template atomic<number> failed_at_{none};
    std::exception_ptr error_;
    typename platform::template atomic<std::uint32_t> lock_{0};
    work work_;
    queues queues_;
};

// The sources of a pipeline. One thread at a time reads a source.

template <class T>
concept optional_item = std::same_as<T, std::optional<typename T::value_type>>;

// A function that returns an item, or std::nullopt at the end.
template <class F>
concept item_generator =
    std::invocable<F&> && optional_item<std::remove_cvref_t<std::invoke_result_t<F&>>>;

// An element of a forward range stays valid when the iterator advances. So the result of operator*
// is passed on unchanged, for example as an lvalue reference. An element of a single-pass range
// does not stay valid. So its value is moved or copied.
template <class It, class End> class iterator_source {
public:
    using item =
        std::conditional_t<std::forward_iterator<It>, pipeline_value_t<std::iter_reference_t<It>>,
                           std::iter_value_t<It>>;

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
        to.emplace([this]() -> decltype(auto) { return *at_; });
        has_read_ = true;
        return true;
    }

private:
    // Advances the iterator, if an item was read before. Called just before the next read, for two
    // reasons: (1) ++ may block; (2) until then, the item that was read must stay valid.
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
    /// How calls of the stage may overlap.
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
/// come from different threads, but each call sees what the previous call wrote.
template <class F> auto serial_stage(F&& f) {
    return pipeline_stage<detail::stage_order::serial, std::decay_t<F>>(std::forward<F>(f));
}

/// Makes a stage that is called for one item after the other, in the order in which the items
/// arrive. Calls may come from different threads, but each call sees what the previous call wrote.
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

// Returns true if each stage can be called with the result of the previous stage, and if the items
// of serial stages are movable.
template <class Item, class Stage, class... Rest> consteval bool stages_fit() {
    if constexpr (!std::invocable<stage_function<Stage>, Item&&> ||
                  (Stage::order != stage_order::parallel && !std::move_constructible<Item>)) {
        return false;
    } else if constexpr (sizeof...(Rest) != 0) {
        using result = std::invoke_result_t<stage_function<Stage>, Item&&>;
        if constexpr (std::is_void_v<result>) {
            return false;
        } else {
            return detail::stages_fit<pipeline_value_t<result>, Rest...>();
        }
    } else {
        return true;
    }
}

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

/// Takes each item of the source through all stages, on the calling thread and on idle workers. An
/// item is in flight from its read until its end. At most `tokens` items are in flight at a time,
/// and each serial stage has room for `tokens` items. So the memory of a pipeline is bounded.
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
/// Throws: the exception that a serial run would throw. It belongs to the first item, in the order
/// of the source, for which the source or a stage threw. All earlier items have gone through all
/// stages, and later items through none or some. stopped_error after a stop. std::invalid_argument
/// if `tokens` is 0. std::bad_alloc. Other exceptions are those of join(). Before it throws, all
/// calls have ended and each item is destroyed.
/// Requires: a stage may wait until a later item has reached some point only if enough workers are
/// free to take the item there.
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
        detail::stages_fit<typename decltype(items)::item, std::remove_reference_t<Stages>...>(),
        "each stage must be callable with what the source or the stage before returns; "
        "what a serial stage gets must be movable");
    detail::run_pipeline(on, tokens, std::move(items), stages...);
}

}} // namespace bide::BIDE_ABI

#endif
