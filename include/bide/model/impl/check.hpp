// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_CHECK_HPP
#define BIDE_MODEL_IMPL_CHECK_HPP

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/exhaustive.hpp>
#include <bide/model/detail/schedules.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace bide::inline BIDE_ABI::model {

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

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

constexpr double forever = std::numeric_limits<double>::infinity();
constexpr const char* too_long = "more than most_seconds";

// The whole of an exploration.
struct exploration {
    const options& how;
    const body& run;
    std::vector<weakening>* seen = nullptr;
    const weakening* mutant = nullptr;
    std::set<std::string>* outcomes = nullptr;
    double most_seconds = forever; // of the processor

    verdict with(search& s) const {
        verdict v;
        execution x(how, run, s);
        x.seen_orders = seen;
        x.mutant = mutant;
        const auto begin = std::chrono::steady_clock::now();
        const double started = cpu_seconds();
        while (v.what == failure::none && s.begin()) {
            x.run();
            x.pruned() ? ++v.pruned : ++v.executions;
            if (outcomes != nullptr && !x.pruned()) {
                outcomes->insert(x.outcomes.begin(), x.outcomes.end());
            }
            if (x.what() != failure::none) {
                v.what = x.what();
                v.message = x.message();
                v.trace = x.trace();
                v.path = x.path();
            } else if (v.executions + v.pruned >= how.max_executions) {
                v.what = failure::too_large;
                v.message = "more than max_executions";
            } else if (most_seconds < forever && cpu_seconds() - started > most_seconds) {
                v.what = failure::too_large;
                v.message = too_long;
            }
        }
        if (v.what == failure::none && v.executions == 0) {
            v.what = failure::empty;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        v.seconds = took.count();
        v.duplicates = s.duplicates();
        return v;
    }
    verdict operator()() const { return with(*search_for(how)); }
};

void print(std::string_view name, const options& o, const verdict& v) {
    std::printf("%-62.*s %-13s %9llu executions %9llu pruned %8.2f s  %s\n",
                static_cast<int>(name.size()), name.data(), text(o.how),
                static_cast<unsigned long long>(v.executions),
                static_cast<unsigned long long>(v.pruned), v.seconds, text(v.what));
    std::fflush(stdout);
}

[[noreturn]] void end_program(const verdict& /*found*/) { std::exit(1); }

failure_handler handler = &end_program;

// Prints it, with the trace where it is not what was expected.
void report(std::string_view name, const options& o, const verdict& v, failure expected) {
    print(name, o, v);
    if (v.what != expected) {
        std::printf("%s\n%sto see this one alone: BIDE_MODEL_REPLAY='%.*s|%s'\n", v.message.c_str(),
                    v.trace.c_str(), static_cast<int>(name.size()), name.data(), v.path.c_str());
        std::fflush(stdout);
    }
    if (v.what != expected) {
        handler(v);
    }
}

// BIDE_MODEL_REPLAY=name|path: nothing else is explored.
bool replayed(std::string_view name, const options& o, const body& run) {
    const char* const given = std::getenv("BIDE_MODEL_REPLAY");
    if (given == nullptr) {
        return false;
    }
    const std::string wanted = given;
    const auto bar = wanted.rfind('|');
    if (bar != std::string::npos && wanted.substr(0, bar) == name) {
        const verdict v = replay(wanted.substr(bar + 1), o, run);
        print(name, o, v);
        std::printf("%s\n%s", v.message.c_str(), v.trace.c_str());
        if (v.what != failure::none) {
            handler(v);
        }
    }
    return true;
}

} // namespace

std::ostream& operator<<(std::ostream& out, failure f) { return out << text(f); }

failure_handler on_failure(failure_handler wanted) noexcept {
    const failure_handler before = handler;
    handler = wanted != nullptr ? wanted : &end_program;
    return before == &end_program ? nullptr : before;
}

verdict explore(const options& o, const body& run) { return exploration{o, run}(); }

verdict replay(const std::string& path, const options& o, const body& run) {
    one_path s(path);
    return exploration{o, run}.with(s);
}

namespace {

// One step down; what does not apply to the operation behaves like relaxed there.
std::vector<order> weaker(order o) {
    switch (o) {
    case order::seq_cst: return {order::acq_rel};
    case order::acq_rel: return {order::acquire, order::release};
    case order::acquire:
    case order::consume:
    case order::release: return {order::relaxed};
    default: return {};
    }
}

// The mutants that a model has killed, in this program or in one before: a line each in the file that
// BIDE_MODEL_KILLED names. They are not explored again.
class killed_mutants {
public:
    killed_mutants() {
        if (path_ != nullptr) {
            std::ifstream before(path_);
            for (std::string line; std::getline(before, line);) {
                all_.insert(line);
            }
        }
    }

    bool has(const std::string& mutant) const { return all_.contains(mutant); }
    void add(const std::string& mutant) {
        all_.insert(mutant);
        if (path_ != nullptr) {
            std::ofstream(path_, std::ios::app) << mutant + '\n' << std::flush;
        }
    }

private:
    const char* const path_ = std::getenv("BIDE_MODEL_KILLED");
    std::set<std::string> all_;
};

// A line for each mutant that was not killed before: killed or survived, where, the orders, the model.
void mutate(std::string_view name, const options& o, const body& run,
            const std::vector<weakening>& seen) {
    static killed_mutants killed;
    const char* const within =
        std::getenv("BIDE_MODEL_WITHIN"); // the models' own orders are left out
    for (const weakening& w : seen) {
        if (within != nullptr && !std::string_view(w.where.file).starts_with(within)) {
            continue;
        }
        for (const order to : weaker(w.from)) {
            const std::string id = std::string(w.where.file) + ':' + std::to_string(w.where.line) +
                                   (w.slot == 1 ? " (failure) " : " ") + detail::text(w.from) +
                                   "->" + detail::text(to);
            if (killed.has(id)) {
                continue;
            }
            weakening mutant = w;
            mutant.to = to;
            exploration e{o, run};
            e.mutant = &mutant;
            const verdict v = e();
            const bool found = v.what != failure::none && v.what != failure::too_large &&
                               v.what != failure::not_repeated && v.what != failure::empty;
            if (found) {
                killed.add(id);
            }
            std::printf("mutant %s %s by \"%.*s\" (%s)\n", found ? "killed" : "survived",
                        id.c_str(), static_cast<int>(name.size()), name.data(), text(v.what));
        }
    }
    std::fflush(stdout);
}

} // namespace

void check(std::string_view name, const options& o, const body& run) {
    if (replayed(name, o, run)) {
        return;
    }
    const char* const longest = std::getenv("BIDE_MODEL_MUTANTS"); // seconds
    std::vector<weakening> seen;
    exploration e{o, run};
    if (longest != nullptr) {
        e.seen = &seen;
        e.most_seconds = std::atof(longest);
    }
    const verdict v = e();
    if (v.what == failure::too_large && v.message == too_long) {
        return; // another run has more time
    }
    report(name, o, v, failure::none);
    if (v.what == failure::none && longest != nullptr) {
        mutate(name, o, run, seen);
    }
}

verdict find(std::string_view name, failure expected, const options& o, const body& run) {
    if (replayed(name, o, run)) {
        return {};
    }
    const verdict v = explore(o, run);
    report(name, o, v, expected);
    return v;
}

std::string outcomes(const options& o, const body& run) {
    std::set<std::string> all;
    exploration e{o, run};
    e.outcomes = &all;
    const verdict v = e();
    if (v.what != failure::none) {
        std::printf("%s\n%s", v.message.c_str(), v.trace.c_str());
        handler(v);
    }
    std::string out;
    for (const std::string& s : all) {
        out += (out.empty() ? "" : " ") + s;
    }
    return out;
}

} // namespace bide::inline BIDE_ABI::model

#endif
