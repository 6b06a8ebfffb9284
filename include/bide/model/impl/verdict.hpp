// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_VERDICT_HPP
#define BIDE_MODEL_IMPL_VERDICT_HPP

// Prints the results of an exploration, and explains a failure.

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/impl/check.hpp>
#include <bide/model/impl/drawing.hpp>
#include <bide/model/impl/path.hpp>
#include <bide/model/impl/report.hpp>
#include <bide/model/impl/stronger.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace {

void print(std::string_view name, const options& o, const verdict& v) {
    std::printf("%-62.*s %-13s %9llu executions %9llu pruned %8.2f s  %s\n",
                static_cast<int>(name.size()), name.data(), text(o.how),
                static_cast<unsigned long long>(v.executions),
                static_cast<unsigned long long>(v.pruned), v.seconds, text(v.what));
    std::fflush(stdout);
}

[[noreturn]] void end_program(const verdict& /*found*/) { std::exit(1); }

failure_handler handler = &end_program;

// Prints what failed and why. With BIDE_MODEL_DOT=file, also writes the graph to that file.
void explain(const options& o, const verdict& v, const body& run) {
    std::printf("%s\n\n%s", v.message.c_str(), v.report.c_str());
    if (const char* const file = std::getenv("BIDE_MODEL_DOT");
        file != nullptr && !v.path.empty()) {
        std::ofstream out(file);
        out << to_dot(v, o, run) << std::flush;
        std::printf(out ? "its graph, for dot -Tsvg: %s\n"
                        : "BIDE_MODEL_DOT: the file %s cannot be written\n",
                    file);
    }
}

// Looks, in a limited exploration, for a failure of the same kind in a sequentially consistent
// execution. If there is one, returns it, because a reader can follow it more easily. Otherwise
// returns `v`.
verdict plainest(const verdict& v, const options& o, const body& run) {
    constexpr std::uint64_t times = 100;
    constexpr std::uint64_t at_least = 10'000;
    if (v.path.empty() || v.what == failure::race || v.what == failure::not_repeated) {
        return v;
    }
    options bounded = o;
    bounded.max_executions = std::max(at_least, times * (v.executions + v.pruned));
    exploration e{bounded, run};
    e.only_consistent = true;
    e.most_seconds = 2;
    const verdict found = e();
    return found.what == v.what ? found : v;
}

// Prints a verdict. If it is not the expected one, explains it.
void report(std::string_view name, const options& o, const verdict& first, failure expected,
            const body& run) {
    print(name, o, first);
    if (first.what == expected) {
        return;
    }
    const verdict v = plainest(first, o, run);
    explain(o, v, run);
    std::printf("%s", stronger_orders(v, o, run).c_str());
    if (!v.path.empty()) {
        std::printf("to see this one alone: BIDE_MODEL_REPLAY='%.*s|%s'\n",
                    static_cast<int>(name.size()), name.data(), v.path.c_str());
    }
    std::fflush(stdout);
    handler(v);
}

// BIDE_MODEL_REPLAY=name|path: runs only the execution of that path.
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
        if (v.what != failure::none) {
            explain(o, v, run);
            handler(v);
        }
    } else {
        std::printf("%-62.*s not explored: BIDE_MODEL_REPLAY %s\n", static_cast<int>(name.size()),
                    name.data(), bar == std::string::npos ? "is no name|path" : "has another name");
    }
    return true;
}

} // namespace

failure_handler on_failure(failure_handler wanted) noexcept {
    const failure_handler before = handler;
    handler = wanted != nullptr ? wanted : &end_program;
    return before == &end_program ? nullptr : before;
}

std::string to_dot(const verdict& found, const options& o, const body& run) {
    std::string out;
    exploration e{o, run};
    e.report = false;
    e.failed = [&](execution& x) { out = graph_text(x, step_order(x), object_names(x)).print(); };
    one_path s(found.path);
    e.with(s);
    return out;
}

std::string stronger_orders(const verdict& found, const options& o, const body& run,
                            double seconds) {
    std::string out;
    if (found.path.empty() || found.what == failure::not_repeated) {
        return out;
    }
    std::vector<weakening> seen;
    options whole = o;
    whole.how = options::method::exhaustive;
    const double end = cpu_seconds() + seconds;
    const order_search::exploring again = [&](const weakening* changed) {
        exploration e{whole, run};
        e.mutant = changed;
        e.report = false;
        e.most_seconds = std::max(0.0, end - cpu_seconds());
        return e().what;
    };
    exploration e{o, run};
    e.report = false;
    e.seen = &seen;
    e.failed = [&](execution& x) {
        if (x.what() == found.what && orders_matter(x)) {
            out = order_search(x, seen, again).print();
        }
    };
    one_path s(found.path);
    e.with(s);
    return out;
}

namespace {

// Returns the orders that are weaker than `o` by one degree. An order that has no meaning for an
// operation, such as acquire for a store, acts as relaxed.
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

// A mutant is the code with one memory order weakened. A model kills a mutant by finding a failure
// of it. This class has the mutants that were killed, in this program or in an earlier one. They
// are not explored again. The environment variable BIDE_MODEL_KILLED names a file with a line for
// each killed mutant.
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

// Explores each mutant that was not killed before. Prints a line for each of them: "killed" or
// "survived", the source position, the two orders, and the name of the model.
void mutate(std::string_view name, const options& o, const body& run,
            const std::vector<weakening>& seen) {
    static killed_mutants killed;
    const char* const within =
        std::getenv("BIDE_MODEL_WITHIN"); // only orders in files with this prefix are changed
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
            e.report = false;
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
    const verdict v = e.named(name);
    if (v.what == failure::too_large && v.message == too_long) {
        std::printf("%-62.*s not mutated: BIDE_MODEL_MUTANTS=%s seconds are not enough\n",
                    static_cast<int>(name.size()), name.data(), longest);
        return;
    }
    report(name, o, v, failure::none, run);
    if (v.what == failure::none && longest != nullptr) {
        mutate(name, o, run, seen);
    }
}

verdict find(std::string_view name, failure expected, const options& o, const body& run) {
    if (replayed(name, o, run)) {
        return {};
    }
    const verdict v = exploration{o, run}.named(name);
    report(name, o, v, expected, run);
    return v;
}

std::string outcomes(const options& o, const body& run) {
    std::set<std::string> all;
    exploration e{o, run};
    e.outcomes = &all;
    const verdict v = e();
    if (v.what != failure::none) {
        explain(o, v, run);
        handler(v);
    }
    std::string out;
    for (const std::string& s : all) {
        out += (out.empty() ? "" : " ") + s;
    }
    return out;
}

}}} // namespace bide::BIDE_ABI::model

#endif
