// The checker against itself: random small programs, each explored in two ways that have little in
// common. Enumerating every schedule and every choice is slow and simple; it must find what the
// exhaustive search finds. Each program has a seed of its own, so that BIDE_TEST_SEED=<seed> and
// BIDE_MODEL_PROGRAMS=1 repeat it; its text can be made a line of judge/litmus.txt.

#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using model::operation;
using model::options;
using model::program;
using model::reads;
using kind = operation::kind;
using method = options::method;
using order = std::memory_order;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* const given = std::getenv(name);
    return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

class generator {
public:
    explicit generator(std::uint64_t seed) : random_(seed) { palette_ = below(4); }

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
    std::uint8_t from(std::uint8_t first, std::uint8_t last) {
        return static_cast<std::uint8_t>(first + below(std::size_t{last} - first + 1));
    }
    bool one_in(std::size_t n) { return below(n) == 0; }
    template <class T> T any(std::initializer_list<T> all) {
        return all.begin()[below(all.size())];
    }

    operation make(kind what, char object, std::uint8_t value = 0) {
        operation op;
        op.what = what;
        op.object = object;
        op.value = value;
        op.expected = static_cast<std::uint8_t>(below(3));
        op.with = order_of(what);
        op.with_failure = op.is_compare() ? order_of(kind::load) : order::relaxed;
        return op;
    }
    operation make(kind what) {
        const char object = any({'x', 'y'});
        return make(what, object, what == kind::add ? 1 : from(1, 3));
    }

    // Threads of at most so many operations each, drawn from `kinds`.
    program make(std::initializer_list<kind> kinds, std::size_t threads, std::size_t operations) {
        program p;
        p.last = "xy";
        for (std::size_t t = 0; t < threads; ++t) {
            p.threads.emplace_back();
            for (std::size_t i = one_in(4) ? 1 : 0; i < operations; ++i) {
                p.threads.back().push_back(make(any(kinds)));
            }
        }
        return p;
    }
    // The same of any size that can be enumerated.
    program make(std::initializer_list<kind> kinds) {
        switch (below(8)) {
        case 0: return make(kinds, 2, 2);
        case 1: return make(kinds, 3, 1);
        case 2: return make(kinds, 3, 2);
        case 3:
        case 4: return make(kinds, 2, 4);
        default: return make(kinds, 2, 3);
        }
    }
    // And where more is put into it.
    program make_small(std::initializer_list<kind> kinds) {
        return one_in(6) ? make(kinds, 3, 1) : make(kinds, 2, 1 + below(2));
    }

    // Puts it somewhere.
    void put(std::vector<operation>& thread, const std::vector<operation>& what) {
        const auto at = static_cast<std::ptrdiff_t>(below(thread.size() + 1));
        thread.insert(thread.begin() + at, what.begin(), what.end());
    }
    void put(program& p, const operation& what) { put(p.threads[below(p.threads.size())], {what}); }

private:
    order order_of(kind what) {
        if (what == kind::wait || what == kind::timed_wait || what == kind::wake ||
            what == kind::choose) {
            return order::relaxed;
        }
        if (what == kind::fence) {
            return palette_ == 1 ? order::seq_cst
                                 : any({order::acquire, order::release, order::acq_rel,
                                        order::seq_cst, order::seq_cst});
        }
        switch (palette_) {
        case 0: return order::relaxed;
        case 1: return any({order::relaxed, order::seq_cst});
        case 2: return one_in(5) ? order::relaxed : strongest(what);
        default: break;
        }
        switch (what) {
        case kind::load:
        case kind::await: return any({order::relaxed, order::acquire, order::seq_cst});
        case kind::store: return any({order::relaxed, order::release, order::seq_cst});
        default:
            return any(
                {order::relaxed, order::acquire, order::release, order::acq_rel, order::seq_cst});
        }
    }
    order strongest(kind what) {
        switch (what) {
        case kind::load:
        case kind::await: return any({order::acquire, order::seq_cst});
        case kind::store: return any({order::release, order::seq_cst});
        default: return any({order::acq_rel, order::seq_cst});
        }
    }

    std::mt19937_64 random_;
    std::size_t palette_; // of orders, of this program
};

struct test {
    program run;
    options how;
};

constexpr std::initializer_list<kind> accesses{
    kind::load, kind::load,     kind::load,           kind::store, kind::store, kind::store,
    kind::add,  kind::exchange, kind::compare_strong, kind::fence, kind::fence,
};

// Atomics and fences: no failure is possible.
test atomics(generator& g) { return {g.make(accesses), {}}; }

// Some of them only after a read of a certain value: what a thread does depends on what it has seen.
test branches(generator& g) {
    test t = atomics(g);
    for (auto& thread : t.run.threads) {
        for (std::size_t i = 1; i < thread.size(); ++i) {
            if (g.one_in(2)) {
                thread[i].only_if = g.any({operation::condition::equal, operation::condition::equal,
                                           operation::condition::not_equal});
                thread[i].last_read = g.from(0, 2);
            }
        }
    }
    return t;
}

// What fails for no reason, and other choices.
test choices(generator& g) {
    test t{g.make({kind::load, kind::store, kind::add, kind::compare_strong, kind::compare_weak,
                   kind::compare_weak, kind::choose}),
           {}};
    t.how.weak_failures = g.from(0, 2);
    return t;
}

// Sleepers on x, which a thread wakes, or none.
test sleepers(generator& g) {
    test t{g.make_small({kind::load, kind::store, kind::store, kind::add, kind::fence, kind::wake}),
           {}};
    for (std::size_t i = 1 + g.below(2); i > 0; --i) {
        const kind what = g.one_in(3) ? kind::timed_wait : kind::wait;
        g.put(t.run, g.make(what, 'x', g.from(0, 2)));
    }
    auto& last = t.run.threads[g.below(t.run.threads.size())];
    last.push_back(g.make(kind::wake, 'x', g.from(1, 2)));
    t.how.spurious = g.one_in(4) ? 1 : 0;
    t.how.timeouts = g.from(0, 1);
    return t;
}

// One that sleeps on x again and again while the other one changes it.
test repeated_sleepers(generator& g) {
    std::vector<operation> waker;
    std::vector<operation> sleeper;
    for (std::size_t i = 2; i > 0; --i) {
        waker.push_back(g.make(g.any({kind::store, kind::store, kind::add}), 'x'));
        waker.back().value = g.from(0, 2);
        sleeper.push_back(g.make(g.any({kind::load, kind::wait, kind::wait}), 'x'));
        sleeper.back().value = g.from(0, 2);
        sleeper.back().object = g.any({'x', 'x', 'y'});
    }
    waker.push_back(g.make(kind::wake, 'x', 1));
    operation other = g.make(g.any({kind::store, kind::load, kind::fence}), 'y', 1);
    other.object = g.any({'x', 'y'});
    g.put(waker, {other});
    sleeper.push_back(g.make(g.any({kind::load, kind::add}), 'x', 1));
    return {{{waker, sleeper}, "xy"}, {}};
}

// Sleepers on z, which is set once, with a wake of all behind it: no thread sleeps for ever.
test woken(generator& g) {
    test t{g.make({kind::load, kind::store, kind::add, kind::exchange, kind::fence}, 2, 1), {}};
    g.put(t.run.threads[0], {g.make(kind::store, 'z', 1), g.make(kind::wake, 'z', 9)});
    g.put(t.run.threads[1], {g.make(g.one_in(3) ? kind::timed_wait : kind::wait, 'z')});
    if (g.one_in(5)) {
        t.run.threads.push_back({g.make(kind::wait, 'z')});
    }
    t.how.spurious = g.one_in(3) ? 1 : 0;
    t.how.timeouts = g.from(0, 1);
    return t;
}

// Spinning until something is there, perhaps in vain.
test spinners(generator& g) {
    test t{g.make_small({kind::load, kind::store, kind::store, kind::add, kind::fence}), {}};
    const std::uint8_t value = g.from(1, 2);
    g.put(t.run.threads[0], {g.make(kind::await, 'x', value)});
    g.put(t.run.threads[1], {g.make(kind::store, 'x', value)});
    return t;
}

// Plain data behind a flag.
test plain_data(generator& g) {
    test t{g.make({kind::load, kind::store, kind::add, kind::exchange, kind::fence}, 2, g.below(3)),
           {}};
    if (g.one_in(3)) {
        t.run.threads.push_back({g.make(g.any({kind::load, kind::add, kind::store}), 'z', 1)});
    }
    operation data = g.make(kind::load, 'p', 1);
    data.with = order::relaxed;
    operation first = data;
    first.what = kind::store;
    g.put(t.run.threads[0], {first, g.make(g.any({kind::store, kind::add}), 'z', 1)});
    g.put(t.run.threads[1], {g.make(kind::await, 'z', 1), data});
    return t;
}

// The first threads are equal. With three of them, each has two operations at most.
test equals(generator& g) {
    test t = g.any({atomics, branches, sleepers, spinners})(g);
    t.how.may_share_nothing = true;
    auto& threads = t.run.threads;
    if (threads.front().size() < 3 && g.one_in(2)) {
        threads.insert(threads.begin(), threads.front());
    }
    threads.insert(threads.begin(), threads.front());
    threads.resize(std::min(threads.size(), program::max_threads));
    const auto same = [&](const std::vector<operation>& o) {
        return model::to_text({{o}, {}}) == model::to_text({{threads.front()}, {}});
    };
    t.run.equal = static_cast<int>(std::find_if_not(threads.begin(), threads.end() - 1, same) -
                                   threads.begin());
    return t;
}

// Outcomes, in place: a body's memory is counted.
class outcome_set {
public:
    outcome_set() : slots_(std::size_t{1} << bits) {}

    void insert(reads r) noexcept {
        const reads key = r + 1; // 0: an empty slot
        std::size_t at = static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> (64 - bits));
        while (slots_[at] != 0 && slots_[at] != key) {
            at = (at + 1) % slots_.size();
        }
        if (slots_[at] == 0 && ++count_ == slots_.size()) {
            std::abort(); // the programs are too large
        }
        slots_[at] = key;
    }
    // In order. Empties it.
    std::vector<reads> take() {
        std::vector<reads> out;
        for (reads& key : slots_) {
            if (key != 0) {
                out.push_back(key - 1);
            }
            key = 0;
        }
        count_ = 0;
        std::sort(out.begin(), out.end());
        return out;
    }

private:
    static constexpr int bits = 14;
    std::vector<reads> slots_;
    std::size_t count_ = 0;
};

struct result {
    model::verdict verdict;
    std::vector<reads> outcomes;

    bool fails() const { return verdict.what != failure::none; }
};

result explore(const test& t, method how) {
    static outcome_set seen;
    options o = t.how;
    o.how = how;
    o.count_duplicates = true;
    result r;
    r.verdict = model::explore(o, [&] { seen.insert(model::run(t.run)); });
    r.outcomes = seen.take();
    return r;
}

// As text: what the first one has, and the second has not.
std::string only(const test& t, const result& in, const result& not_in) {
    std::vector<reads> left;
    std::set_difference(in.outcomes.begin(), in.outcomes.end(), not_in.outcomes.begin(),
                        not_in.outcomes.end(), std::back_inserter(left));
    std::string out;
    for (const reads r : left) {
        out += model::to_text(t.run, r) + " ";
    }
    return out;
}

std::ostream& operator<<(std::ostream& out, const test& t) {
    return out << model::to_text(t.run) << "  (spurious " << t.how.spurious << ", timeouts "
               << t.how.timeouts << ", weak failures " << t.how.weak_failures << ")";
}

using maker = test (*)(generator&);

template <class Compare>
void for_each_program(maker make, std::uint64_t count, std::uint64_t first, Compare compare) {
    first = from_environment("BIDE_TEST_SEED", first);
    count = from_environment("BIDE_MODEL_PROGRAMS", count);
    for (std::uint64_t seed = first; seed != first + count; ++seed) {
        generator g(seed);
        const test t = make(g);
        INFO("BIDE_TEST_SEED=" << seed << " BIDE_MODEL_PROGRAMS=1: " << t);
        const std::string text = model::to_text(t.run);
        REQUIRE(model::to_text(model::to_program(text)) == text);
        const result all = explore(t, method::exhaustive);
        REQUIRE(all.verdict.what != failure::too_large);
        REQUIRE(all.verdict.duplicates == 0);
        compare(t, all);
    }
}

// Every schedule.
void compare_with_all(maker make, std::uint64_t count, std::uint64_t first) {
    for_each_program(make, count, first, [&](const test& t, const result& all) {
        const result other = explore(t, method::enumerate);
        REQUIRE(other.verdict.what != failure::too_large);
        REQUIRE(all.fails() == other.fails());
        if (!all.fails()) {
            CHECK(only(t, all, other) == "");
            REQUIRE(only(t, other, all) == "");
        }
    });
}

// Some schedules.
void compare_with_some(maker make, std::uint64_t count, std::uint64_t first) {
    for_each_program(make, count, first, [&](const test& t, const result& all) {
        for (const method how : {method::pct, method::bounded}) {
            test some = t;
            some.how.runs = 200;
            some.how.preemptions = 1;
            some.how.max_executions = 1'000;
            const result other = explore(some, how);
            const failure what = other.verdict.what;
            if (!all.fails()) {
                REQUIRE((what == failure::none || what == failure::too_large));
                REQUIRE(only(t, other, all) == "");
            }
        }
    });
}

// Larger ones, for compare_with_some().
test large_atomics(generator& g) {
    return {g.one_in(2) ? g.make(accesses, 2, 4) : g.make(accesses, 3, 3), {}};
}

// Three threads may order their steps through a third object.
test three_objects(generator& g) {
    test t{g.make(accesses, 3, g.from(2, 3)), {}};
    t.run.last = "xyz";
    for (auto& thread : t.run.threads) {
        for (operation& op : thread) {
            op.object = g.any({'x', 'y', 'z'});
        }
    }
    return t;
}

// A circle of threads, each of which accesses the object that it shares with the thread before it, and then
// the one that it shares with the next. Orders and fences decide which outcomes it has.
test circles(generator& g) {
    test t;
    const std::size_t count = g.any<std::size_t>({2, 3, 3});
    const char objects[] = {'x', 'y', 'z'};
    for (std::size_t n = 0; n < count; ++n) {
        auto& thread = t.run.threads.emplace_back();
        for (std::size_t step = 0; step < 2; ++step) {
            const kind what = g.any({kind::load, kind::load, kind::load, kind::store, kind::store,
                                     kind::store, kind::add, kind::exchange});
            thread.push_back(
                g.make(what, objects[(n + step) % count], static_cast<std::uint8_t>(step + 1)));
        }
        if (g.one_in(2)) {
            thread.insert(thread.begin() + 1, g.make(kind::fence));
        }
        t.run.last += objects[n];
    }
    return t;
}

// `times` as many programs, with seeds from `first`.
void fuzz_values(unsigned times, std::uint64_t first) {
    compare_with_all(atomics, 1'500 * times, first);
    compare_with_all(branches, 500 * times, first);
    compare_with_all(choices, 500 * times, first);
}

void fuzz_equals(unsigned times, std::uint64_t first) {
    for_each_program(equals, 500 * times, first, [](const test& t, const result& all) {
        test reduced = t;
        reduced.run.once = true;
        const result some = explore(reduced, method::exhaustive);
        REQUIRE(some.verdict.duplicates == 0);
        REQUIRE(some.fails() == all.fails());
        if (!all.fails()) {
            CHECK(only(t, some, all) == "");
            REQUIRE(only(t, all, some) == "");
            REQUIRE(some.verdict.executions <= all.verdict.executions);
        }
    });
}

void fuzz_sleepers(unsigned times, std::uint64_t first) {
    compare_with_all(sleepers, 1'000 * times, first);
    compare_with_all(repeated_sleepers, 1'000 * times, first);
    compare_with_all(woken, 200 * times, first);
}

void fuzz_spins_and_races(unsigned times, std::uint64_t first) {
    compare_with_all(spinners, 1'000 * times, first);
    compare_with_all(plain_data, 500 * times, first);
}

void fuzz_schedules(unsigned times, std::uint64_t first) {
    compare_with_some(large_atomics, 500 * times, first);
    compare_with_some(three_objects, 500 * times, first);
    compare_with_some(circles, 500 * times, first);
    compare_with_some(repeated_sleepers, 500 * times, first);
}

TEST_CASE("fuzz: of atomics and fences every outcome is found, once, and no other") {
    fuzz_values(1, 1);
}

TEST_CASE("fuzz: of equal threads every outcome is found, for some order of them") {
    fuzz_equals(1, 1);
}

TEST_CASE("fuzz: a lost wakeup is found where there is one") { fuzz_sleepers(1, 1); }

TEST_CASE("fuzz: a spin or a race that need not end well is found") { fuzz_spins_and_races(1, 1); }

TEST_CASE("fuzz: some of the schedules find some of the outcomes and no other") {
    fuzz_schedules(1, 1);
}

TEST_CASE("fuzz: ten times as many programs agree as well", "[.long]") {
    constexpr std::uint64_t first = 1'000'000;
    fuzz_values(10, first);
    fuzz_equals(10, first);
    fuzz_sleepers(10, first);
    fuzz_spins_and_races(10, first);
    fuzz_schedules(10, first);
}

// Whether memory orders decide what its outcomes are. If they do not, the outcomes are the same with seq_cst
// everywhere and with relaxed operations and no fences.
bool orders_matter(const test& t) {
    test strong = t;
    test weak = t;
    for (auto& thread : strong.run.threads) {
        for (operation& op : thread) {
            op.with = op.with_failure = order::seq_cst;
        }
    }
    for (auto& thread : weak.run.threads) {
        std::erase_if(thread, [](const operation& op) { return op.what == kind::fence; });
        for (operation& op : thread) {
            op.with = op.with_failure = order::relaxed;
        }
    }
    return explore(strong, method::exhaustive).outcomes !=
           explore(weak, method::exhaustive).outcomes;
}

// For judge/judge.py.
TEST_CASE("fuzz: random programs as text, if their orders matter", "[.print]") {
    const std::uint64_t first = from_environment("BIDE_TEST_SEED", 1);
    const std::uint64_t count = from_environment("BIDE_MODEL_PROGRAMS", 1'000);
    constexpr maker makers[] = {atomics, branches, large_atomics, three_objects};
    for (std::uint64_t seed = first; seed != first + count; ++seed) {
        for (const auto& [name, make] :
             {std::pair("program", makers[seed % 4]), {"circle", circles}}) {
            generator g(seed);
            const test t = make(g);
            if (orders_matter(t)) {
                std::printf("%s: %s\n", name, model::to_text(t.run).c_str());
            }
        }
    }
}

} // namespace
