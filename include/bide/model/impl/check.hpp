// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_CHECK_HPP
#define BIDE_MODEL_IMPL_CHECK_HPP

#include <bide/model/impl/branches.hpp>
#include <bide/model/impl/report.hpp>
#include <bide/model/impl/schedules.hpp>

#include <mutex>
#include <ostream>
#include <set>
#include <thread>

#if defined(__linux__) && BIDE_FIBER_HAS_SWITCH
#define BIDE_MODEL_CATCHES_CRASHES 1
#include <execinfo.h>
#include <sys/time.h>
#include <ucontext.h>
#else
#define BIDE_MODEL_CATCHES_CRASHES 0
#endif

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace {

using namespace detail;

std::unique_ptr<search> search_for(const options& o) {
    switch (o.how) {
    case options::method::exhaustive: return std::make_unique<exhaustive>(o.count_duplicates);
    case options::method::enumerate: return std::make_unique<depth_first>(depth_first::no_bound);
    case options::method::bounded: return std::make_unique<depth_first>(o.preemptions);
    case options::method::pct: return std::make_unique<pct>(o.depth, o.runs, o.seed);
    }
    return nullptr;
}

const char* text(failure f) {
    constexpr std::array<const char*, 15> texts = {"no failure",
                                                   "an assertion does not hold",
                                                   "data race",
                                                   "lifetime",
                                                   "lost wakeup",
                                                   "livelock",
                                                   "deadlock",
                                                   "leak",
                                                   "terminated",
                                                   "not linearizable",
                                                   "not modelled",
                                                   "too large",
                                                   "not repeated",
                                                   "no execution is complete",
                                                   "no two threads share an object"};
    return texts[static_cast<std::size_t>(f)];
}

const char* text(options::method m) {
    constexpr std::array<const char*, 4> texts = {"all graphs", "all schedules", "bounded",
                                                  "random"};
    return texts[static_cast<std::size_t>(m)];
}

// BIDE_MODEL_JOBS has precedence over the options.
unsigned wanted_jobs(const options& o) {
    const char* const text = std::getenv("BIDE_MODEL_JOBS");
    const unsigned jobs =
        text == nullptr ? o.jobs : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    constexpr unsigned most = 4; // for each processor; limits a wrong value, such as -1
    return jobs != 0 ? std::min(jobs, most * processors) : processors;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

constexpr double forever = std::numeric_limits<double>::infinity();
constexpr const char* too_long = "more than most_seconds";

// Reports the progress of a long exploration on stderr. The environment variable
// BIDE_MODEL_PROGRESS is the number of seconds between two lines. If it is not set, nothing is
// written.
class progress {
    using clock = std::chrono::steady_clock;

public:
    using seconds = std::chrono::duration<double>;

    // Writes a line if it is time. `executions` is the number of executions so far.
    void say(std::uint64_t executions, const search& s) {
        if (every_ <= 0) {
            return;
        }
        const auto now = clock::now();
        if (seconds(now - last_).count() < every_) {
            return;
        }
        last_ = now;
        const double took = seconds(now - begin_).count();
        const double part = s.explored;
        std::fprintf(stderr, "%llu executions, %.0f a second, %.1f MB of branches",
                     static_cast<unsigned long long>(executions),
                     static_cast<double>(executions) / took,
                     static_cast<double>(s.branch_bytes) / 1e6);
        if (part > 0 && s.branch_bytes > 0) {
            std::fprintf(stderr, ", about %.3g %% done, %.0f s left", 100 * part,
                         took * (1 - part) / part);
        }
        std::fputs("\n", stderr);
    }

private:
    const char* const wanted_ = std::getenv("BIDE_MODEL_PROGRESS");
    const double every_ = wanted_ == nullptr ? 0 : std::atof(wanted_);
    const clock::time_point begin_ = clock::now();
    clock::time_point last_ = begin_;
};

// ---- Crashes

#if BIDE_MODEL_CATCHES_CRASHES

// While an object of this class exists, a crash of a body, for instance by assert(), is a failure
// of the execution. The program continues, and reports the failure like any other. The signal
// handler changes the saved registers of the crashed thread, so that the thread continues in
// crashed(), at the upper end of its stack.
//
// A body may also wait or spin for something that the checker does not see. A timer looks for that
// once a second. If no thread has made a step for 30 seconds, that is treated as a crash. The
// environment variable BIDE_MODEL_WATCHDOG is another number of seconds; 0 means for ever.
class crash_guard {
    static constexpr std::array<int, 5> signals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

public:
    crash_guard() noexcept {
        if (depth++ != 0) {
            return; // an exploration that explains a failure of another one
        }
        stack_t stack{};
        stack.ss_sp = handlers_stack;
        stack.ss_size = sizeof handlers_stack;
        ::sigaltstack(&stack, &old_stack);
        struct sigaction mine{};
        mine.sa_sigaction = &handle;
        mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], &mine, &old[i]);
        }
        const char* const given = std::getenv("BIDE_MODEL_WATCHDOG");
        patience = given == nullptr ? 30 : std::atoi(given);
        ::backtrace(frames.data(), 1); // the first call allocates
        mine.sa_sigaction = &look;
        mine.sa_flags |= SA_RESTART;
        ::sigaction(SIGALRM, &mine, &old_alarm);
        const itimerval second{{1, 0}, {1, 0}};
        ::setitimer(ITIMER_REAL, &second, &old_timer);
    }
    crash_guard(const crash_guard&) = delete;
    crash_guard& operator=(const crash_guard&) = delete;
    ~crash_guard() {
        if (--depth == 0) {
            ::setitimer(ITIMER_REAL, &old_timer, nullptr);
            ::sigaction(SIGALRM, &old_alarm, nullptr);
            restore();
            ::sigaltstack(&old_stack, nullptr);
        }
    }

private:
    static void handle(int signal, siginfo_t* info, void* context) {
        execution* const x = execution::current();
        if (x == nullptr || heap::inside < 0) {
            // The crash is not in a body. Restores the previous handlers. The instruction then runs
            // and crashes again, and a previous handler is called.
            restore();
            if (signal == SIGABRT) {
                ::raise(signal);
            }
            return;
        }
        fiber& stack = x->self().stack;
        frame_count = 0;
        cause =
            signal == SIGABRT                       ? "abort() was called, perhaps by assert()"
            : signal == SIGFPE                      ? "SIGFPE, perhaps a division by zero"
            : signal != SIGSEGV && signal != SIGBUS ? "an illegal instruction"
            : stack.guards(info->si_addr)
                ? "a thread's stack overflows: there are 256 KiB"
                : "an access to an address that is none, perhaps read from freed memory (0xdd...)";
        fail_in(stack, context);
    }

    // Looks whether the running thread makes steps.
    static void look(int, siginfo_t*, void* context) {
        execution* const x = execution::current();
        if (x == nullptr || heap::inside < 0 || x->steps_made() != seen_steps) {
            seen_steps = x == nullptr ? 0 : x->steps_made();
            seconds = 0;
            return;
        }
        if (++seconds != patience) {
            return;
        }
        frame_count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
        cause = "no step is made: the thread waits or spins for what the checker does not see";
        fail_in(x->self().stack, context);
    }

    // Lets the thread continue in crashed().
    static void fail_in(const fiber& stack, void* context) {
        auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
        const auto top = reinterpret_cast<std::uintptr_t>(stack.end());
        const auto next = reinterpret_cast<std::uintptr_t>(&crashed);
#if defined(__x86_64__)
        registers.gregs[REG_RSP] = static_cast<greg_t>(top - 8); // the alignment after a call
        registers.gregs[REG_RIP] = static_cast<greg_t>(next);
#else
        registers.sp = top;
        registers.pc = next;
#endif
    }

    [[noreturn]] static void crashed() {
        const bool is_stuck = frame_count != 0;
        std::string text = cause;
        if (is_stuck) {
            const heap::leave guard;
            std::string lines;
            for (int i = 0; i < frame_count; ++i) {
                const int place = places().add(code_places::none, frames[index(i)]);
                const std::string line = detail::text(places().user_line_of(place));
                lines += line.empty() || lines.ends_with(line) ? "" : " < " + line;
            }
            text += lines.empty() ? "" : ", at" + lines.substr(2);
        }
        execution::current()->fail_now(is_stuck ? failure::livelock : failure::terminated, text);
    }

    static void restore() noexcept {
        for (std::size_t i = 0; i < signals.size(); ++i) {
            ::sigaction(signals[i], &old[i], nullptr);
        }
    }

    static inline int depth = 0; // the number of these objects
    static inline const char* cause = "";
    static inline int patience = 0; // in seconds
    static inline int seconds = 0;  // without a step
    static inline std::uint64_t seen_steps = 0;
    static inline std::array<void*, 64> frames; // of the thread that makes no step
    static inline int frame_count = 0;
    static inline struct sigaction old_alarm;
    static inline itimerval old_timer;
    alignas(16) static inline std::byte handlers_stack[64 * 1024];
    static inline std::array<struct sigaction, signals.size()> old;
    static inline stack_t old_stack;
};

#else

struct crash_guard {
    crash_guard() noexcept {}
};

#endif

// ---- Explorations

// Returns what an exploration with these options assumes.
std::string assumptions(const options& o, const verdict& v) {
    std::string out;
    const auto add = [&](bool is_assumed, const std::string& what) {
        out += !is_assumed ? "" : (out.empty() ? "" : "; ") + what;
    };
    add(o.how == options::method::bounded,
        "at most " + std::to_string(o.preemptions) + " preemptions");
    add(o.how == options::method::pct, "random schedules: no proof");
    add(o.spurious == 0, "no spurious wake-ups");
    add(o.timeouts == 0, "no time-outs");
    add(o.weak_failures == 0 || ops::has_no_weak_exchange,
        "no spurious failures of compare_exchange_weak");
    add(o.clock_jumps == 0, "a clock that stands still");
    add(o.reused_addresses == 0, "no address twice from new");
    add(heap::on_freed == nullptr, "plain data without var is not watched");
    add(ops::unmodified == nullptr, "std::atomic, std::mutex and std::thread are not seen");
    add(heap::on_freed != nullptr, "code compiled without -fsanitize=thread is not seen");
    add(true, "no load buffering");
    add(v.what != failure::none, "not explored after this failure");
    add(v.pruned != 0, std::to_string(v.pruned) + " executions begun and not completed: a thread "
                                                  "waits there for what comes in another one");
    return out;
}

// Explores a body. The members say how.
struct exploration {
    const options& how;
    const body& run;
    std::vector<weakening>* seen = nullptr;
    std::span<const weakening> changes{};
    std::set<std::string>* outcomes = nullptr;
    double most_seconds = forever; // processor time
    bool report = true;            // the verdict gets the report of the failure
    bool only_consistent = false;  // failures without a sequentially consistent order are ignored
    std::function<void(execution&)> failed{}; // is called with the execution that failed

    // Calls goes_on() after each execution. If goes_on() returns false, the exploration ends.
    verdict with(search& s, const std::function<bool(const verdict&)>& goes_on = {}) const {
        if (execution* const outer = execution::current(); outer != nullptr) {
            outer->fail_now(failure::terminated, "a body explores another one");
        }
        // All bodies share one heap, so only one thread of the program explores at a time. The
        // mutex is recursive, because an exploration starts others to explain its failure.
        static std::recursive_mutex one_at_a_time;
        const std::lock_guard lock(one_at_a_time);
        verdict v;
        bool is_left = false;
        bool shares = how.may_share_nothing || ops::unmodified != nullptr;
        [[maybe_unused]] const crash_guard guard;
        execution x(how, run, s);
        x.seen_orders = seen;
        x.changes = changes;
        const auto begin = std::chrono::steady_clock::now();
        const double started = cpu_seconds();
        const auto too_large = [&](const char* why) {
            v.what = failure::too_large;
            v.message = why;
        };
        progress said;
        while (v.what == failure::none && !is_left && s.begin()) {
            x.run();
            x.pruned() ? ++v.pruned : ++v.executions;
            shares = shares || x.mem().shares();
            if (total(v) % 256 == 0) {
                said.say(total(v), s);
            }
            if (outcomes != nullptr && !x.pruned()) {
                outcomes->insert(x.outcomes.begin(), x.outcomes.end());
            }
            if (x.what() != failure::none && !(only_consistent && orders_matter(x))) {
                v.what = x.what();
                v.message = x.message();
                v.path = x.path();
                if (report) {
                    v.trace = trace_of(x);
                    v.report = report_of(x);
                }
                if (failed) {
                    failed(x);
                }
            } else if (total(v) >= how.max_executions) {
                too_large("more than max_executions");
            } else if (s.branch_bytes > how.max_memory) {
                too_large("the branches still to be taken need more than max_memory");
            } else if (most_seconds < forever && cpu_seconds() - started > most_seconds) {
                too_large(too_long);
            } else {
                is_left = goes_on && !goes_on(v);
            }
        }
        if (v.what == failure::none && v.executions == 0 && !is_left) {
            v.what = failure::empty;
        }
        if (v.what == failure::none && !goes_on && !shares && x.threads() > 1) {
            v.what = failure::nothing_shared;
            v.message = "no two threads use an object of the checker together: atomics and plain "
                        "data of other types are not seen (bide_add_model(... UNMODIFIED) sees "
                        "them); or set options::may_share_nothing";
        }
        v.seconds = progress::seconds(std::chrono::steady_clock::now() - begin).count();
        v.duplicates = s.duplicates;
        v.assumed = assumptions(how, v);
        return v;
    }

    verdict operator()() const {
        const bool is_plain = seen == nullptr && changes.empty() && outcomes == nullptr &&
                              most_seconds == forever && !only_consistent && !failed;
        const unsigned jobs = wanted_jobs(how);
        if (jobs > 1 && is_plain && how.how == options::method::exhaustive &&
            !how.count_duplicates) {
            return by(jobs);
        }
        return with(*search_for(how));
    }

    // Runs only the execution of `path`.
    verdict of_path(std::string_view path) const {
        one_path s(path);
        return with(s, [](const verdict&) { return true; });
    }

    // Explores. If BIDE_MODEL_STATE names a folder, continues the exploration `name` that an
    // earlier run of the program did not finish. If this run does not finish it either, saves the
    // remaining branches for the next run.
    verdict named(std::string_view name) const {
        saved_state state(name, how, run);
        if (!state.is_wanted() || how.count_duplicates || how.how != options::method::exhaustive) {
            return (*this)();
        }
        verdict before;
        exhaustive s(false);
        state.load(s, before);
        const auto sum = [&](verdict v) {
            v.executions += before.executions;
            v.pruned += before.pruned;
            return v;
        };
        verdict all = sum(with(s, [&](const verdict& so_far) {
            state.look(s, sum(so_far));
            return true;
        }));
        if (all.what == failure::empty && all.executions != 0) {
            all.what = failure::none;
        }
        all.assumed = assumptions(how, all);
        all.what == failure::too_large ? state.save(s, all) : state.remove();
        return all;
    }

    // Explores by several processes, if the exploration is long.
    verdict by(unsigned jobs) const {
        constexpr std::uint64_t brief = 1'000; // executions that are not worth a fork
        const auto begin = std::chrono::steady_clock::now();
        work_force force;
        shared_counts* const counts = force.counts();
        exhaustive s(false);
        s.names = counts != nullptr ? &counts->names : s.names;
        const verdict first = with(
            s, [&](const verdict& so_far) { return total(so_far) < brief || s.branches() < 2; });
        if (first.what != failure::none || s.branches() == 0) {
            return first;
        }
        if (!force.start(jobs, [this](exhaustive& part, const auto& goes_on) {
                return with(part, goes_on);
            })) {
            return with(*search_for(how));
        }
        progress said;
        const auto sum = [&](verdict v) {
            v.executions = first.executions + counts->executions.load(std::memory_order_relaxed);
            v.pruned = first.pruned + counts->pruned.load(std::memory_order_relaxed);
            return v;
        };
        verdict all = sum(force.run(s, [&] {
            const std::uint64_t done = total(sum({}));
            said.say(done, s);
            return done < how.max_executions;
        }));
        if (all.what == failure::none && total(all) >= how.max_executions) {
            all.what = failure::too_large;
            all.message = "more than max_executions";
        } else if (all.what == failure::none && all.executions == 0) {
            all.what = failure::empty;
        }
        all.assumed = assumptions(how, all);
        all.seconds = progress::seconds(std::chrono::steady_clock::now() - begin).count();
        return all;
    }
};

} // namespace

std::ostream& operator<<(std::ostream& out, failure f) { return out << text(f); }

verdict explore(const options& o, const body& run) { return exploration{o, run}(); }

verdict replay(const std::string& path, const options& o, const body& run) {
    return exploration{o, run}.of_path(path);
}

}}} // namespace bide::BIDE_ABI::model

#endif
