#ifndef BIDE_SCHED_CHROME_TRACE_HPP
#define BIDE_SCHED_CHROME_TRACE_HPP

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/growing_table.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/sched/trace.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <utility>

namespace bide::inline BIDE_ABI {

// Keeps what the workers of one scheduler do, and writes it as a Chrome trace, the JSON that
// ui.perfetto.dev, chrome://tracing and others show: a row for each worker with its runs, by the
// names of the tasks, its sleeps, and its thefts. A run that was blocked while another thread ran
// its worker stands in a row below. Workers do not wait for each other here.
//
//   bide::chrome_trace trace("trace.json");
//   bide::scheduler s({.trace = &trace});
class chrome_trace final : public trace_sink {
public:
    // Keeps the first so many events of each worker, at 40 bytes each.
    explicit chrome_trace(std::string path = {},
                          std::size_t max_events = std::size_t{1} << 18) noexcept
        : path_(std::move(path)), max_events_(max_events), start_(platform::now()) {}

    // write() to the path, where there is one. Nobody hears whether it could.
    ~chrome_trace() override;

    // Writes what there is so far. Any thread, any time. False: not all of it could be written.
    // Requires: the tasks' names are still there; literals are.
    bool write(std::FILE* to) noexcept;
    bool write(const char* path) noexcept;

    // Events that there was no room or no memory for: those after a worker's first max_events.
    std::uint64_t dropped() noexcept;

    void ran(unsigned worker, const char* task, std::int64_t begin,
             std::int64_t end) noexcept override {
        record(worker, {begin, end, task, 0, what::run, 0});
    }
    void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept override {
        record(worker, {begin, end, nullptr, 0, what::park, 0});
    }
    void stole(unsigned worker, unsigned count, std::int64_t at) noexcept override {
        record(worker, {at, at, nullptr, count, what::theft, 0});
    }

private:
    using platform = native_platform;
    using lock = lock_bits<platform, std::uint32_t>;

    enum class what : std::uint16_t { run, park, theft };
    struct event {
        std::int64_t begin;
        std::int64_t end;
        const char* name;
        std::uint32_t count;
        what kind;
        std::uint16_t row;
    };

    static constexpr std::size_t chunk_events = 255;
    struct chunk {
        event events[chunk_events];
        chunk* next;
    };

    static constexpr unsigned max_rows = 14; // the last one takes what overlaps still

    struct alignas(cache_line_pair) lane {
        lane() noexcept = default;
        lane(const lane&) = delete;
        lane& operator=(const lane&) = delete;
        ~lane();

        platform::atomic<std::uint32_t> word{0}; // the lock's
        // Under the lock; events are only added.
        unsigned worker = 0;
        unsigned rows = 0;
        chunk* first = nullptr;
        chunk* last = nullptr;
        std::size_t kept = 0;
        std::uint64_t dropped = 0;
        std::array<std::int64_t, max_rows> row_ends{}; // of each row's latest event
    };

    struct output {
        std::FILE* to;
        const char* separator;
    };

    void record(unsigned worker, event e) noexcept;
    static bool keep(lane& l, event e, std::size_t most) noexcept;
    static std::uint16_t row_of(lane& l, const event& e) noexcept;
    void write_lane(output& out, lane& l) noexcept;
    void write_event(output& out, const event& e, unsigned worker) noexcept;
    void write_ns(std::FILE* to, const char* key, std::int64_t ns) noexcept;
    static void write_row_name(output& out, unsigned worker, unsigned row) noexcept;

    // The worker's number, for its first row.
    static unsigned tid(unsigned worker, unsigned row) noexcept { return worker + (row << 20); }

    const std::string path_;
    const std::size_t max_events_;
    const std::int64_t start_;
    detail::growing_table<lane, platform> lanes_; // by worker
    platform::atomic<std::uint64_t> homeless_{0}; // events for which there was no lane
};

// ---- Keeping

inline chrome_trace::lane::~lane() {
    while (first != nullptr) {
        delete std::exchange(first, first->next);
    }
}

inline void chrome_trace::record(unsigned worker, event e) noexcept {
    lane* const l = lanes_.make(worker);
    if (l == nullptr) {
        // Order: relaxed; a count.
        homeless_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    lock::acquire(l->word);
    l->worker = worker;
    if (!keep(*l, e, max_events_)) {
        l->dropped += 1;
    }
    lock::release(l->word);
}

inline bool chrome_trace::keep(lane& l, event e, std::size_t most) noexcept {
    if (l.kept >= most) {
        return false;
    }
    const std::size_t at = l.kept % chunk_events;
    if (at == 0) {
        auto* const more = new (std::nothrow) chunk;
        if (more == nullptr) {
            return false;
        }
        more->next = nullptr;
        (l.first == nullptr ? l.first : l.last->next) = more;
        l.last = more;
    }
    e.row = row_of(l, e);
    l.last->events[at] = e;
    l.kept += 1;
    return true;
}

// Events come when they have ended. One that began before the last one of its row ended is that of
// a thread that came back to a worker which another ran meanwhile.
inline std::uint16_t chrome_trace::row_of(lane& l, const event& e) noexcept {
    unsigned row = 0;
    while (row + 1 < max_rows && l.row_ends[row] > e.begin) {
        ++row;
    }
    l.row_ends[row] = (std::max)(l.row_ends[row], e.end);
    l.rows = (std::max)(l.rows, row + 1);
    return static_cast<std::uint16_t>(row);
}

inline std::uint64_t chrome_trace::dropped() noexcept {
    // Order: relaxed; a count.
    std::uint64_t all = homeless_.load(std::memory_order_relaxed);
    lanes_.each([&all](lane& l) noexcept {
        lock::acquire(l.word);
        all += l.dropped;
        lock::release(l.word);
    });
    return all;
}

// ---- Writing

inline chrome_trace::~chrome_trace() {
    if (!path_.empty()) {
        write(path_.c_str());
    }
}

inline bool chrome_trace::write(const char* path) noexcept {
    std::FILE* const to = std::fopen(path, "w");
    if (to == nullptr) {
        return false;
    }
    const bool written = write(to);
    return std::fclose(to) == 0 && written;
}

inline bool chrome_trace::write(std::FILE* to) noexcept {
    output out{to, "\n"};
    std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", to);
    lanes_.each([this, &out](lane& l) noexcept { write_lane(out, l); });
    std::fprintf(to, "\n],\"otherData\":{\"dropped\":%llu}}\n",
                 static_cast<unsigned long long>(dropped()));
    return std::fflush(to) == 0 && std::ferror(to) == 0;
}

inline void chrome_trace::write_lane(output& out, lane& l) noexcept {
    lock::acquire(l.word);
    const chunk* from = l.first; // what is there now stays as it is
    const std::size_t all = l.kept;
    const unsigned rows = l.rows;
    const unsigned worker = l.worker;
    lock::release(l.word);
    for (unsigned row = 0; row < rows; ++row) {
        write_row_name(out, worker, row);
    }
    for (std::size_t i = 0; i < all; ++i) {
        if (i != 0 && i % chunk_events == 0) {
            from = from->next;
        }
        write_event(out, from->events[i % chunk_events], worker);
    }
}

inline void chrome_trace::write_row_name(output& out, unsigned worker, unsigned row) noexcept {
    const unsigned id = tid(worker, row);
    std::fprintf(out.to,
                 "%s{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\","
                 "\"args\":{\"name\":\"worker %u%s\"}},\n"
                 "{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_sort_index\","
                 "\"args\":{\"sort_index\":%u}}",
                 std::exchange(out.separator, ",\n"), id, worker, row == 0 ? "" : ", blocked", id,
                 worker * max_rows + row);
}

inline void chrome_trace::write_event(output& out, const event& e, unsigned worker) noexcept {
    std::fprintf(out.to, "%s{\"ph\":\"%s\",\"pid\":1,\"tid\":%u,\"name\":",
                 std::exchange(out.separator, ",\n"), e.kind == what::theft ? "i" : "X",
                 tid(worker, e.row));
    switch (e.kind) {
    case what::run:
        detail::write_quoted(out.to, e.name != nullptr ? e.name : "unnamed");
        std::fputs(",\"cat\":\"run\"", out.to);
        break;
    case what::park: std::fputs("\"parked\",\"cat\":\"park\"", out.to); break;
    case what::theft:
        std::fprintf(out.to, "\"stole\",\"cat\":\"steal\",\"s\":\"t\",\"args\":{\"count\":%u}",
                     static_cast<unsigned>(e.count));
        break;
    }
    write_ns(out.to, "ts", e.begin - start_);
    if (e.kind != what::theft) {
        write_ns(out.to, "dur", e.end - e.begin);
    }
    std::fputc('}', out.to);
}

// In microseconds, as the format has it.
inline void chrome_trace::write_ns(std::FILE* to, const char* key, std::int64_t ns) noexcept {
    const auto time = static_cast<unsigned long long>((std::max)(ns, std::int64_t{0}));
    std::fprintf(to, ",\"%s\":%llu.%03llu", key, time / 1000, time % 1000);
}

} // namespace bide::inline BIDE_ABI

#endif
