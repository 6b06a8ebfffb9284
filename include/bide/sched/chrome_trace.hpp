// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_CHROME_TRACE_HPP
#define BIDE_SCHED_CHROME_TRACE_HPP

#include <bide/core/lock_bits.hpp>
#include <bide/io/detail/growing_table.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/sched/scheduler_options.hpp>

#include <algorithm>
#include <string>

namespace bide { inline namespace BIDE_ABI {

/// Records what the workers of one scheduler, or one run_loop, do. Writes the records as a Chrome
/// trace, the JSON that ui.perfetto.dev, chrome://tracing and other viewers show. Each worker has a
/// row, which shows the runs of tasks by their names, the sleeps and the steals. The tag of a task
/// is the argument "tag" of its runs. If a task blocked its thread and another thread ran the
/// worker meanwhile, the run of the blocked task is shown in a row below. The same holds for a task
/// that blocked and ran other tasks of its run_loop meanwhile. A worker that records an event does
/// not wait for other workers.
/// \code
/// bide::chrome_trace trace("trace.json");
/// bide::scheduler s({.trace = &trace});
/// \endcode
class chrome_trace final : public trace_sink {
public:
    /// Records the first `max_events` events of each worker. An event takes 32 bytes. If `path` is
    /// not empty, the destructor writes the trace to that file.
    explicit chrome_trace(std::string path = {},
                          std::size_t max_events = std::size_t{1} << 18) noexcept
        : path_(std::move(path)), max_events_(static_cast<std::uint32_t>(
                                      (std::min)(max_events, std::size_t{~std::uint32_t{0}}))),
          start_(platform::now()) {}

    /// Writes the trace to the path of the constructor, if there is one. Reports no error.
    ~chrome_trace() override {
        if (!path_.empty()) {
            write(path_.c_str());
        }
    }

    /// Writes the events so far. Returns false if not all of them could be written.
    /// Requires: the tasks' names are still valid; string literals always are.
    /// Thread safety: any thread may call it at any time.
    bool write(std::FILE* to) noexcept {
        output out{to, "\n"};
        std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", to);
        logs_.each([this, &out](worker_log& l) noexcept { write_log(out, l); });
        std::fprintf(to, "\n],\"otherData\":{\"dropped\":%llu}}\n",
                     detail::integer_cast<unsigned long long>(dropped()));
        return std::fflush(to) == 0 && std::ferror(to) == 0;
    }
    /// \overload
    bool write(const char* path) noexcept {
        std::FILE* const to = std::fopen(path, "w");
        if (to == nullptr) {
            return false;
        }
        const bool written = write(to);
        return std::fclose(to) == 0 && written;
    }

    /// Returns the number of events that were not recorded: all events after the first max_events
    /// of a worker, and all events for which there was no memory.
    std::uint64_t dropped() noexcept {
        // Order: relaxed; a count.
        std::uint64_t all = unrecorded_.load(std::memory_order_relaxed);
        logs_.each([&all](worker_log& l) noexcept {
            const lock::guard section(l.word);
            all += l.dropped;
        });
        return all;
    }

    /// Records a run. See trace_sink.
    void ran(unsigned worker, const char* task, task_tag tag, std::int64_t begin,
             std::int64_t end) noexcept override {
        record(worker,
               {begin, end, task, 0, event_kind::run, detail::tag_access::number_of(tag), 0});
    }
    /// Records a sleep. See trace_sink.
    void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept override {
        record(worker, {begin, end, nullptr, 0, event_kind::park, 0, 0});
    }
    /// Records a steal. See trace_sink.
    void stole(unsigned worker, unsigned count, std::int64_t at) noexcept override {
        record(worker, {at, at, nullptr, count, event_kind::theft, 0, 0});
    }

private:
    using platform = native_platform;
    using lock = lock_bits<platform, std::uint32_t>;

    enum class event_kind : std::uint8_t { run, park, theft };
    struct event {
        std::int64_t begin;
        std::int64_t end;
        const char* name;
        std::uint32_t count;
        event_kind kind;
        std::uint8_t tag; // the number of the tag, so that `event` is a trivial type
        std::uint16_t row;
    };

    static constexpr unsigned max_rows = 14; // the last row takes all further events

    struct alignas(cache_line_pair) worker_log {
        platform::atomic<std::uint32_t> word{0}; // the lock
        // Under the lock. Events are only added.
        unsigned worker = 0;
        unsigned rows = 0;
        std::uint32_t kept = 0;
        std::uint64_t dropped = 0;
        std::int64_t row_ends[max_rows] = {}; // the end of each row's latest event
        detail::growing_table<event, platform> events;
    };

    struct output {
        std::FILE* to;
        const char* separator;
    };

    void record(unsigned worker, event e) noexcept {
        worker_log* const l = logs_.make(worker);
        if (l == nullptr) {
            // Order: relaxed; a count.
            unrecorded_.fetch_add(1, std::memory_order_relaxed);
            return;
        }
        const lock::guard section(l->word);
        l->worker = worker;
        if (event* const place = l->kept < max_events_ ? l->events.make(l->kept) : nullptr) {
            e.row = row_of(*l, e);
            *place = e;
            l->kept += 1;
        } else {
            l->dropped += 1;
        }
    }

    // Returns the first row whose latest event ended before `e` began. Events are recorded when
    // they end. If `e` began before the latest event of a row ended, the thread of `e` was blocked
    // while other tasks ran. `e` then gets a row below.
    static std::uint16_t row_of(worker_log& l, const event& e) noexcept {
        unsigned row = 0;
        while (row + 1 < max_rows && l.row_ends[row] > e.begin) {
            ++row;
        }
        l.row_ends[row] = (std::max)(l.row_ends[row], e.end);
        l.rows = (std::max)(l.rows, row + 1);
        return static_cast<std::uint16_t>(row);
    }

    void write_log(output& out, worker_log& l) noexcept {
        lock::acquire(l.word);
        const std::uint32_t all = l.kept; // stored events do not change
        const unsigned rows = l.rows;
        const unsigned worker = l.worker;
        lock::release(l.word);
        for (unsigned row = 0; row < rows; ++row) {
            write_row_name(out, worker, row);
        }
        for (std::uint32_t i = 0; i < all; ++i) {
            write_event(out, *l.events.find(i), worker);
        }
    }

    void write_event(output& out, const event& e, unsigned worker) noexcept {
        std::fprintf(out.to, "%s{\"ph\":\"%s\",\"pid\":1,\"tid\":%u,\"name\":",
                     std::exchange(out.separator, ",\n"), e.kind == event_kind::theft ? "i" : "X",
                     tid(worker, e.row));
        switch (e.kind) {
        case event_kind::run:
            detail::write_quoted(out.to, e.name != nullptr ? e.name : "unnamed");
            std::fputs(",\"cat\":\"run\"", out.to);
            if (e.tag != 0) {
                std::fputs(",\"args\":{\"tag\":", out.to);
                detail::write_quoted(out.to, detail::tag_access::of(e.tag).text());
                std::fputc('}', out.to);
            }
            break;
        case event_kind::park: std::fputs("\"parked\",\"cat\":\"park\"", out.to); break;
        case event_kind::theft:
            std::fprintf(out.to, "\"stole\",\"cat\":\"steal\",\"s\":\"t\",\"args\":{\"count\":%u}",
                         static_cast<unsigned>(e.count));
            break;
        }
        write_ns(out.to, "ts", e.begin - start_);
        if (e.kind != event_kind::theft) {
            write_ns(out.to, "dur", e.end - e.begin);
        }
        std::fputc('}', out.to);
    }

    // Writes a time in microseconds, the unit of the format.
    void write_ns(std::FILE* to, const char* key, std::int64_t ns) noexcept {
        const auto time = static_cast<unsigned long long>((std::max)(ns, std::int64_t{0}));
        std::fprintf(to, ",\"%s\":%llu.%03llu", key, time / 1000, time % 1000);
    }

    static void write_row_name(output& out, unsigned worker, unsigned row) noexcept {
        const unsigned id = tid(worker, row);
        std::fprintf(out.to,
                     "%s{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
                     "\"args\":{\"name\":\"worker %u%s\"}},\n"
                     "{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_sort_index\","
                     "\"args\":{\"sort_index\":%u}}",
                     std::exchange(out.separator, ",\n"), id, worker, row == 0 ? "" : ", blocked",
                     id, worker * max_rows + row);
    }

    // Returns the identifier of a row. The first row of a worker has the worker's number.
    static unsigned tid(unsigned worker, unsigned row) noexcept { return worker + (row << 20); }

    const std::string path_;
    const std::uint32_t max_events_;
    const std::int64_t start_;
    detail::growing_table<worker_log, platform> logs_; // by worker
    platform::atomic<std::uint64_t> unrecorded_{0};    // events for which no log could be made
};

}} // namespace bide::BIDE_ABI

#endif
