// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_CHECK_HPP
#define BIDE_MODEL_IMPL_CHECK_HPP

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/impl/cause.hpp>
#include <bide/model/impl/crash.hpp>
#include <bide/model/impl/exhaustive.hpp>
#include <bide/model/impl/jobs.hpp>
#include <bide/model/impl/path.hpp>
#include <bide/model/impl/report.hpp>
#include <bide/model/impl/saved_state.hpp>
#include <bide/model/impl/schedules.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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
    switch (f) {
    case failure::none: return "no failure";
    case failure::assertion: return "an assertion does not hold";
    case failure::race: return "data race";
    case failure::lifetime: return "lifetime";
    case failure::lost_wakeup: return "lost wakeup";
    case failure::livelock: return "livelock";
    case failure::leak: return "leak";
    case failure::terminated: return "terminated";
    case failure::too_large: return "too large";
    case failure::not_repeated: return "not repeated";
    case failure::empty: return "no execution is complete";
    }
    return "?";
}

const char* text(options::method m) {
    switch (m) {
    case options::method::exhaustive: return "all graphs";
    case options::method::enumerate: return "all schedules";
    case options::method::bounded: return "bounded";
    case options::method::pct: return "random";
    }
    return "?";
}

// BIDE_MODEL_JOBS has precedence over the options.
[[maybe_unused]] unsigned wanted_jobs(const options& o) {
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
    using seconds = std::chrono::duration<double>;

public:
    // Called after each execution.
    void count(const search& s) {
        if (every_ > 0 && ++executions_ % 256 == 0) {
            say(executions_, s);
        }
    }

    // Writes a line. `executions` is the number of executions so far.
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
        const double part = s.explored();
        std::fprintf(stderr, "%llu executions, %.0f a second, %.1f MB of branches",
                     static_cast<unsigned long long>(executions),
                     static_cast<double>(executions) / took,
                     static_cast<double>(s.branch_bytes()) / 1e6);
        if (part > 0 && s.branch_bytes() > 0) {
            std::fprintf(stderr, ", about %.3g %% done, %.0f s left", 100 * part,
                         took * (1 - part) / part);
        }
        std::fputs("\n", stderr);
    }

private:
    static double wanted() {
        const char* const text = std::getenv("BIDE_MODEL_PROGRESS");
        return text == nullptr ? 0 : std::atof(text);
    }

    const double every_ = wanted();
    const clock::time_point begin_ = clock::now();
    clock::time_point last_ = begin_;
    std::uint64_t executions_ = 0;
};

// Explores a body. The members say how.
struct exploration {
    const options& how;
    const body& run;
    std::vector<weakening>* seen = nullptr;
    const weakening* mutant = nullptr;
    std::set<std::string>* outcomes = nullptr;
    double most_seconds = forever; // processor time
    bool report = true;            // the verdict gets the report of the failure
    bool only_consistent = false;  // failures without a sequentially consistent order are ignored
    thread_names* names = nullptr; // shared with the other parts of the same exploration
    std::function<void(execution&)> failed{}; // is called with the execution that failed

    // Calls `goes_on` after each execution. If it returns false, the exploration ends.
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
        [[maybe_unused]] const crash_guard guard;
        thread_names own;
        execution x(how, run, s, names != nullptr ? *names : own);
        x.seen_orders = seen;
        x.mutant = mutant;
        const auto begin = std::chrono::steady_clock::now();
        const double started = cpu_seconds();
        progress said;
        while (v.what == failure::none && !is_left && s.begin()) {
            x.run();
            said.count(s);
            x.pruned() ? ++v.pruned : ++v.executions;
            if (outcomes != nullptr && !x.pruned()) {
                outcomes->insert(x.outcomes.begin(), x.outcomes.end());
            }
            if (x.what() != failure::none && !(only_consistent && orders_matter(x))) {
                v.what = x.what();
                v.message = x.message();
                v.path = x.path();
                if (report) {
                    v.trace = x.trace();
                    v.report = report_of(x);
                }
                if (failed) {
                    failed(x);
                }
            } else if (v.executions + v.pruned >= how.max_executions) {
                v.what = failure::too_large;
                v.message = "more than max_executions";
            } else if (s.branch_bytes() > how.max_memory) {
                v.what = failure::too_large;
                v.message = "the branches still to be taken need more than max_memory";
            } else if (most_seconds < forever && cpu_seconds() - started > most_seconds) {
                v.what = failure::too_large;
                v.message = too_long;
            } else {
                is_left = goes_on && !goes_on(v);
            }
        }
        if (v.what == failure::none && v.executions == 0 && !is_left) {
            v.what = failure::empty;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        v.seconds = took.count();
        v.duplicates = s.duplicates();
        return v;
    }

    // Runs the execution of a path.
    verdict with(one_path& s) const {
        exploration e = *this;
        e.names = &s.names;
        return e.with(static_cast<search&>(s));
    }

    verdict operator()() const {
#if BIDE_MODEL_FORKS
        const bool is_plain = seen == nullptr && mutant == nullptr && outcomes == nullptr &&
                              most_seconds == forever && !only_consistent && !failed;
        const unsigned jobs = wanted_jobs(how);
        if (jobs > 1 && is_plain && how.how == options::method::exhaustive &&
            !how.count_duplicates) {
            return by(jobs);
        }
#endif
        return with(*search_for(how));
    }

    // Explores. If BIDE_MODEL_STATE names a folder, uses the file for `name` in this folder.
    verdict named(std::string_view name) const {
        saved_state state(name, how, run);
        const bool is_saved = state.is_wanted() && seen == nullptr && !how.count_duplicates &&
                              how.how == options::method::exhaustive;
        return is_saved ? with(state) : (*this)();
    }

    // Continues an exploration that an earlier run of the program did not finish. If this run does
    // not finish it either, saves the remaining branches for the next run.
    verdict with(saved_state& state) const {
        verdict before;
        exhaustive s(false);
        thread_names all_names;
        state.load(s, before, all_names);
        const auto sum = [&](verdict v) {
            v.executions += before.executions;
            v.pruned += before.pruned;
            return v;
        };
        exploration e = *this;
        e.names = &all_names;
        verdict all = sum(e.with(s, [&](const verdict& so_far) {
            state.look(s, sum(so_far), all_names);
            return true;
        }));
        if (all.what == failure::empty && all.executions != 0) {
            all.what = failure::none;
        }
        all.what == failure::too_large ? state.save(s, all, all_names) : state.remove();
        return all;
    }

#if BIDE_MODEL_FORKS
    // Explores by several processes, if the exploration is long.
    verdict by(unsigned jobs) const {
        constexpr std::uint64_t brief = 1'000; // executions that are not worth a fork
        const auto begin = std::chrono::steady_clock::now();
        exhaustive s(false);
        const shared_page counts;
        exploration e = *this;
        e.names = counts.is_there() ? &(*counts).names : nullptr;
        verdict v = e.with(s, [&](const verdict& so_far) {
            return so_far.executions + so_far.pruned < brief || s.branches() < 2;
        });
        if (v.what != failure::none || s.branches() == 0) {
            return v;
        }
        work_force force;
        const explores explore = [&e](exhaustive& part, const auto& goes_on) {
            return e.with(part, goes_on);
        };
        for (unsigned i = 0; i < jobs && counts.is_there(); ++i) {
            force.start(*counts, explore);
        }
        if (force.empty()) {
            return with(*search_for(how));
        }
        progress said;
        const auto add = [&](verdict& to) {
            to.executions += (*counts).executions.load(std::memory_order_relaxed);
            to.pruned += (*counts).pruned.load(std::memory_order_relaxed);
        };
        verdict all = v;
        const verdict found = force.run(s, [&] {
            all = v;
            add(all);
            said.say(all.executions + all.pruned, s);
            if (all.executions + all.pruned >= how.max_executions) {
                all.what = failure::too_large;
                all.message = "more than max_executions";
            }
            return all.what == failure::none;
        });
        if (found.what != failure::none) {
            all = found;
            all.executions = v.executions;
            all.pruned = v.pruned;
            add(all);
        } else if (all.what == failure::none) {
            all = v;
            add(all);
            all.what = all.executions == 0 ? failure::empty : failure::none;
        }
        all.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return all;
    }
#endif
};

} // namespace

std::ostream& operator<<(std::ostream& out, failure f) { return out << text(f); }

verdict explore(const options& o, const body& run) { return exploration{o, run}(); }

verdict replay(const std::string& path, const options& o, const body& run) {
    one_path s(path);
    return exploration{o, run}.with(s);
}

}}} // namespace bide::BIDE_ABI::model

#endif
