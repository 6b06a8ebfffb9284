// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_VERDICT_HPP
#define BIDE_MODEL_IMPL_VERDICT_HPP

// Prints the results of an exploration, and explains a failure.

#include <bide/model/impl/check.hpp>
#include <bide/model/impl/drawing.hpp>
#include <bide/model/impl/json.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace {

void print(const std::string& name, const options& o, const verdict& v) {
    std::printf("%-62s %-13s %9llu executions %9llu pruned %8.2f s  %s\n", name.c_str(),
                text(o.how), static_cast<unsigned long long>(v.executions),
                static_cast<unsigned long long>(v.pruned), v.seconds, text(v.what));
    std::printf("    assumed: %s\n", v.assumed.c_str());
    std::fflush(stdout);
}

// Returns true if `f` is a failure of an execution, and not only of the exploration.
bool is_fault(failure f) { return f != failure::none && f < failure::too_large; }

failure_handler handler = nullptr;

void handle(const verdict& found) {
    if (handler == nullptr) {
        std::exit(1);
    }
    handler(found);
}

// If the environment variable names a file, writes what make() returns to that file.
void write_to(const char* variable, const char* what, const std::function<std::string()>& make) {
    if (const char* const file = std::getenv(variable); file != nullptr) {
        std::ofstream out(file);
        out << make() << std::flush;
        out ? std::printf("%s: %s\n", what, file)
            : std::printf("%s: the file %s cannot be written\n", variable, file);
    }
}

// Prints what failed and why. With BIDE_MODEL_DOT=file, also writes the graph to that file, and
// with BIDE_MODEL_JSON=file the steps.
void explain(const options& o, const verdict& v, const body& run) {
    std::printf("%s\n\n%s", v.message.c_str(), v.report.c_str());
    if (!v.path.empty()) {
        write_to("BIDE_MODEL_DOT", "its graph, for dot -Tsvg", [&] { return to_dot(v, o, run); });
        write_to("BIDE_MODEL_JSON", "its steps, as JSON", [&] { return to_json(v, o, run); });
    }
}

// Looks, in a limited exploration, for a sequentially consistent execution with the kind of failure
// that `v` has. If there is one, returns its verdict, because it is easier to follow. Otherwise
// returns `v`.
verdict plainest(const verdict& v, const options& o, const body& run) {
    constexpr std::uint64_t times = 100;
    constexpr std::uint64_t at_least = 10'000;
    if (v.path.empty() || v.what == failure::race || v.what == failure::not_repeated) {
        return v;
    }
    options bounded = o;
    bounded.max_executions = std::max(at_least, times * total(v));
    const verdict found =
        exploration{.how = bounded, .run = run, .most_seconds = 2, .only_consistent = true}();
    return found.what == v.what ? found : v;
}

// Prints a verdict. If it is not the expected one, explains it.
void report(const std::string& name, const options& o, const verdict& first, failure expected,
            const body& run) {
    print(name, o, first);
    if (first.what == expected) {
        return;
    }
    const verdict v = plainest(first, o, run);
    explain(o, v, run);
    std::printf("%s", stronger_orders(v, o, run).c_str());
    if (!v.path.empty()) {
        std::printf("to see this one alone: BIDE_MODEL_REPLAY='%s|%s'\n", name.c_str(),
                    v.path.c_str());
    }
    std::fflush(stdout);
    handle(v);
}

// At the end of the program: fails if BIDE_MODEL_REPLAY names no exploration of it.
bool has_replayed = false;

void require_replayed() {
    if (!has_replayed) {
        std::printf("BIDE_MODEL_REPLAY names no exploration of this program: %s\n",
                    std::getenv("BIDE_MODEL_REPLAY"));
        std::fflush(nullptr);
        std::_Exit(1);
    }
}

// BIDE_MODEL_REPLAY=name|path: runs only the execution of that path.
bool replayed(const std::string& name, const options& o, const body& run) {
    const char* const given = std::getenv("BIDE_MODEL_REPLAY");
    if (given == nullptr) {
        return false;
    }
    [[maybe_unused]] static const int is_registered = std::atexit(&require_replayed);
    const std::string_view wanted = given;
    const auto bar = wanted.rfind('|');
    if (bar != wanted.npos && wanted.substr(0, bar) == name) {
        has_replayed = true;
        const verdict v = replay(std::string(wanted.substr(bar + 1)), o, run);
        print(name, o, v);
        if (v.what != failure::none) {
            explain(o, v, run);
            handle(v);
        }
    } else {
        std::printf("%-62s not explored: BIDE_MODEL_REPLAY %s\n", name.c_str(),
                    bar == wanted.npos ? "is no name|path" : "has another name");
    }
    return true;
}

} // namespace

failure_handler on_failure(failure_handler wanted) noexcept {
    return std::exchange(handler, wanted);
}

std::string to_dot(const verdict& found, const options& o, const body& run) {
    std::string out;
    const auto draw = [&](execution& x) { out = drawing(x).print(); };
    exploration{.how = o, .run = run, .report = false, .failed = draw}.of_path(found.path);
    return out;
}

std::string to_json(const verdict& found, const options& o, const body& run) {
    std::string out;
    const auto describe = [&](execution& x) { out = json_report(x).print(text(x.what())); };
    exploration{.how = o, .run = run, .report = false, .failed = describe}.of_path(found.path);
    return out;
}

namespace {

// Finds the memory orders that are too weak, by exploring the body again with stronger orders. If
// an exploration finds no failure, it proves that the stronger orders suffice.
class order_search {
public:
    // `x` is the failed execution, and `seen` are the orders that it has used.
    order_search(execution& x, const std::vector<weakening>& seen, const options& how,
                 const body& run, double end)
        : how_(how), run_(run), end_(end) {
        how_.how = options::method::exhaustive;
        // The root folder of the library is found from the path of this header.
        constexpr std::string_view here = "model/impl/verdict.hpp";
        std::string_view root = __FILE__;
        root.remove_suffix(std::min(here.size(), root.size()));
        std::ptrdiff_t users = 0;
        for (const weakening& w : seen) {
            candidate c{w};
            for (const event& e : x.mem().events) {
                if (same_place(resolved(e.where), w.where) || same_place(e.where, w.where)) {
                    c.reads =
                        c.reads || e.what == event::kind::read || e.what == event::kind::fence;
                    c.writes = c.writes || (w.slot == 0 && (e.what == event::kind::write ||
                                                            e.what == event::kind::fence));
                }
            }
            // The user's orders are tried before those in headers of the library.
            const bool is_own = std::string_view(w.where.file).starts_with(root);
            all_.insert(is_own ? all_.end() : all_.begin() + users++, c);
        }
    }

    // Returns a sentence that names the stronger orders with which no execution fails. Returns an
    // empty text if the explorations did not decide that.
    std::string print() {
        weakening everywhere;
        everywhere.to = order::seq_cst;
        if (const failure f = with({everywhere}); f != failure::none) {
            return is_fault(f) ? "With seq_cst everywhere, an execution still fails: it is not for "
                                 "want of an order.\n"
                               : "";
        }
        const std::string one = one_is_enough();
        return one.empty() ? several_are_needed() : one;
    }

private:
    struct candidate {
        weakening change;
        bool reads = false;
        bool writes = false;

        // Returns the stronger orders below seq_cst, the weakest first.
        std::vector<order> steps() const {
            std::vector<order> out;
            const order now = change.from;
            if (now == order::relaxed && reads) {
                out.push_back(order::acquire);
            }
            if (now == order::relaxed && writes) {
                out.push_back(order::release);
            }
            if (now != order::seq_cst && now != order::acq_rel && reads && writes) {
                out.push_back(order::acq_rel);
            }
            return out;
        }
    };

    failure with(const std::vector<weakening>& changes) const {
        return exploration{.how = how_,
                           .run = run_,
                           .changes = changes,
                           .most_seconds = std::max(0.0, end_ - cpu_seconds()),
                           .report = false}()
            .what;
    }

    std::string one_is_enough() const {
        constexpr int most = 3;
        std::string out;
        int found = 0;
        for (const candidate& c : all_) {
            for (const order to : c.steps()) {
                weakening change = c.change;
                change.to = to;
                if (found < most && with({change}) == failure::none) {
                    out += line_of(change);
                    ++found;
                    break; // stronger orders suffice, too
                }
            }
        }
        return found == 0
                   ? out
                   : (found == 1 ? "With this stronger order, no execution fails:\n"
                                 : "With any one of these stronger orders, no execution fails:\n") +
                         out;
    }

    // Begins with seq_cst for all orders. Then weakens each order as far as no execution fails.
    std::string several_are_needed() {
        std::vector<weakening> chain;
        for (const candidate& c : all_) {
            if (c.change.from != order::seq_cst) {
                chain.push_back(c.change);
                chain.back().to = order::seq_cst;
            }
        }
        if (with(chain) != failure::none) {
            return {};
        }
        for (std::size_t i = all_.size(); i-- > 0;) {
            const auto at = std::find_if(chain.begin(), chain.end(), [&](const weakening& w) {
                return is_same_order(w, all_[i].change);
            });
            if (at == chain.end()) {
                continue;
            }
            std::vector<weakening> less = chain;
            less.erase(less.begin() + (at - chain.begin()));
            if (with(less) == failure::none) {
                chain = less;
                continue;
            }
            for (const order to : all_[i].steps()) {
                less = chain;
                less[static_cast<std::size_t>(at - chain.begin())].to = to;
                if (with(less) == failure::none) {
                    chain = less;
                    break;
                }
            }
        }
        std::string out = "With these stronger orders together, no execution fails:\n";
        for (const weakening& w : chain) {
            out += line_of(w);
        }
        return out;
    }

    static std::string line_of(const weakening& w) {
        return std::string("    ") + detail::text(w.to) + " in place of " + detail::text(w.from) +
               (w.slot == 1 ? " on failure" : "") + "  " + detail::text(w.where) + "  " +
               source_text(w.where) + "\n";
    }

    options how_;
    const body& run_;
    const double end_; // of the search, in seconds of processor time
    std::vector<candidate> all_;
};

} // namespace

std::string stronger_orders(const verdict& found, const options& o, const body& run,
                            double seconds) {
    std::string out;
    if (found.path.empty() || found.what == failure::not_repeated) {
        return out;
    }
    std::vector<weakening> seen;
    const double end = cpu_seconds() + seconds;
    const auto strengthen = [&](execution& x) {
        if (x.what() == found.what && (orders_matter(x) || x.what() == failure::not_linearizable)) {
            out = order_search(x, seen, o, run, end).print();
        }
    };
    exploration{.how = o, .run = run, .seen = &seen, .report = false, .failed = strengthen}.of_path(
        found.path);
    return out;
}

namespace {

// Returns the orders that are weaker than `o` by one degree. An order that does not apply to an
// operation, such as acquire for a store, acts as relaxed.
std::vector<order> weaker(order o) {
    switch (o) {
    case order::relaxed: return {};
    case order::seq_cst: return {order::acq_rel};
    case order::acq_rel: return {order::acquire, order::release};
    default: return {order::relaxed};
    }
}

// A mutant is the code with one memory order weakened. If a model finds a failure of a mutant, it
// kills the mutant. Explores each mutant that was not killed before, in this program or in an
// earlier one. Prints a line for each of them: "killed" or "survived", the source position, the two
// orders, and the name of the model. The environment variable BIDE_MODEL_KILLED names a file with a
// line for each killed mutant. If BIDE_MODEL_WITHIN is set, only orders in files with this prefix
// are changed.
void mutate(const std::string& name, const options& o, const body& run,
            const std::vector<weakening>& seen) {
    const char* const file = std::getenv("BIDE_MODEL_KILLED");
    const char* const within = std::getenv("BIDE_MODEL_WITHIN");
    static std::set<std::string> killed;
    if (file != nullptr && killed.empty()) {
        std::ifstream before(file);
        for (std::string line; std::getline(before, line);) {
            killed.insert(line);
        }
    }
    for (const weakening& w : seen) {
        if (within != nullptr && !std::string_view(w.where.file).starts_with(within)) {
            continue;
        }
        for (const order to : weaker(w.from)) {
            const std::string id = std::string(w.where.file) + ':' + std::to_string(w.where.line) +
                                   (w.slot == 1 ? " (failure) " : " ") + detail::text(w.from) +
                                   "->" + detail::text(to);
            if (killed.contains(id)) {
                continue;
            }
            weakening mutant = w;
            mutant.to = to;
            const verdict v =
                exploration{.how = o, .run = run, .changes = {&mutant, 1}, .report = false}();
            const bool found = is_fault(v.what);
            if (found) {
                killed.insert(id);
            }
            if (found && file != nullptr) {
                std::ofstream(file, std::ios::app) << id + '\n' << std::flush;
            }
            std::printf("mutant %s %s by \"%s\" (%s)\n", found ? "killed" : "survived", id.c_str(),
                        name.c_str(), text(v.what));
        }
    }
    std::fflush(stdout);
}

} // namespace

void check(std::string_view name, const options& o, const body& run) {
    const char* const longest = std::getenv("BIDE_MODEL_MUTANTS"); // seconds
    if (longest == nullptr) {
        find(name, failure::none, o, run);
        return;
    }
    const std::string called(name);
    if (replayed(called, o, run)) {
        return;
    }
    std::vector<weakening> seen;
    const verdict v =
        exploration{.how = o, .run = run, .seen = &seen, .most_seconds = std::atof(longest)}();
    if (v.what == failure::too_large && v.message == too_long) {
        std::printf("%-62s not mutated: BIDE_MODEL_MUTANTS=%s seconds are not enough\n",
                    called.c_str(), longest);
        return;
    }
    report(called, o, v, failure::none, run);
    if (v.what == failure::none) {
        mutate(called, o, run, seen);
    }
}

verdict find(std::string_view name, failure expected, const options& o, const body& run) {
    const std::string called(name);
    if (replayed(called, o, run)) {
        return {};
    }
    const verdict v = exploration{o, run}.named(name);
    report(called, o, v, expected, run);
    return v;
}

std::string outcomes(const options& o, const body& run) {
    std::set<std::string> all;
    const verdict v = exploration{.how = o, .run = run, .outcomes = &all}();
    if (v.what != failure::none) {
        explain(o, v, run);
        handle(v);
    }
    std::string out;
    for (const std::string& s : all) {
        out += (out.empty() ? "" : " ") + s;
    }
    return out;
}

}}} // namespace bide::BIDE_ABI::model

#endif
