#include <model/check.hpp>
#include <model/checker/execution.hpp>
#include <model/checker/exhaustive.hpp>
#include <model/checker/schedules.hpp>
#include <support/catch.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>

namespace model {

namespace {

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

// The whole of an exploration.
struct exploration {
    const options& how;
    const body& run;
    std::vector<weakening>* seen = nullptr;
    const weakening* mutant = nullptr;
    std::set<std::string>* outcomes = nullptr;

    verdict with(search& s) const {
        verdict v;
        execution x(how, run, s);
        x.seen_orders = seen;
        x.mutant = mutant;
        const auto begin = std::chrono::steady_clock::now();
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
            }
        }
        if (v.what == failure::none && v.executions == 0) {
            v.what = failure::empty;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        v.seconds = took.count();
        if (const auto* const all = dynamic_cast<exhaustive*>(&s)) {
            v.duplicates = all->duplicates();
        }
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

// Prints it, with the trace where it is not what was expected (not through Catch2, which wraps lines),
// and fails the test case then.
void report(std::string_view name, const options& o, const verdict& v, failure expected) {
    print(name, o, v);
    if (v.what != expected) {
        std::printf("%s\n%sto see this one alone: BIDE_MODEL_REPLAY='%.*s|%s'\n", v.message.c_str(),
                    v.trace.c_str(), static_cast<int>(name.size()), name.data(), v.path.c_str());
        std::fflush(stdout);
    }
    CHECK(v.what == expected);
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
        CHECK(v.what == failure::none);
    }
    return true;
}

} // namespace

std::ostream& operator<<(std::ostream& out, failure f) { return out << text(f); }

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

// A line for each mutant: killed or survived, where, the orders, the model.
void mutate(std::string_view name, const options& o, const body& run) {
    std::vector<weakening> seen;
    exploration look{o, run};
    look.seen = &seen;
    look();
    for (const weakening& w : seen) {
        for (const order to : weaker(w.from)) {
            weakening mutant = w;
            mutant.to = to;
            exploration e{o, run};
            e.mutant = &mutant;
            const verdict v = e();
            const bool killed = v.what != failure::none && v.what != failure::too_large &&
                                v.what != failure::not_repeated && v.what != failure::empty;
            std::printf("mutant %s %s:%d%s %s->%s by \"%.*s\" (%s)\n",
                        killed ? "killed" : "survived", w.where.file, w.where.line,
                        w.slot == 1 ? " (failure)" : "", model::text(w.from), model::text(to),
                        static_cast<int>(name.size()), name.data(), text(v.what));
        }
    }
    std::fflush(stdout);
}

} // namespace

void check(std::string_view name, const options& o, const body& run) {
    if (replayed(name, o, run)) {
        return;
    }
    const verdict v = explore(o, run);
    report(name, o, v, failure::none);
    if (v.what == failure::none && std::getenv("BIDE_MODEL_MUTANTS") != nullptr) {
        mutate(name, o, run);
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
        CHECK(v.what == failure::none);
    }
    std::string out;
    for (const std::string& s : all) {
        out += (out.empty() ? "" : " ") + s;
    }
    return out;
}

} // namespace model
