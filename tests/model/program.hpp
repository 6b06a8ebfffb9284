#ifndef BIDE_TESTS_MODEL_PROGRAM_HPP
#define BIDE_TESTS_MODEL_PROGRAM_HPP

// A small program as data, for the tests of the checker itself: written as text, run as a body.
//
//   x.rel=1 y | y.sc+=1 x.acq || x     two threads, and what is read when they are joined
//
//   x            load                              x=1          store
//   x+=1         fetch_add                         x<>1         exchange
//   x?0:1        compare_exchange_strong, 0 to 1   x~0:1        compare_exchange_weak
//   fence.sc     fence                             x@1          loads, with pauses, until it is 1
//   x.wait=0     futex_wait while it is 0          x.timed=0    the same with a time-out
//   x.wake=1     futex_wake of one                 any          choose(2)
//   p            load of plain data                p=1          store to it
//   x-=1         fetch_sub
//   [1]y=1       y=1, if the thread's last read was 1           [!1]y=1      if it was not 1
//
// The atomics are w, x, y and z, the plain data is p; all begin at 0. An order is .acq, .rel, .ar
// (acq_rel) or .sc, relaxed (.rlx) where there is none; a compare-exchange may have a second one,
// for its failure. The last thread is the body's own, thread 0. A condition that does not hold
// leaves out that operation; a thread that has read nothing has read 0.
//
// An outcome is what was read, in order, a digit each, a / between threads. A futex_wait with a
// time-out reads 0 if it timed out, a compare-exchange that failed for no reason reads f, what was
// left out reads -.

#include <model/check.hpp>

#include <support/standard.hpp>

namespace bide::model {

struct operation {
    enum class kind : std::uint8_t {
        load,
        store,
        add,
        subtract,
        exchange,
        compare_strong,
        compare_weak,
        fence,
        await,
        wait,
        timed_wait,
        wake,
        choose,
    };

    enum class condition : std::uint8_t { none, equal, not_equal };

    kind what = kind::load;
    condition only_if = condition::none;
    std::uint8_t last_read = 0; // of the condition
    char object = 'x';
    std::memory_order with = std::memory_order_relaxed;
    std::memory_order with_failure = std::memory_order_relaxed;
    std::uint8_t value = 0;    // stored, added, waited for, how many to wake
    std::uint8_t expected = 0; // by a compare-exchange

    bool is_plain() const { return object == 'p'; }
    bool is_wanted(std::uint32_t read_before) const {
        return only_if == condition::none ||
               (only_if == condition::equal) == (read_before == last_read);
    }
    bool is_compare() const { return what == kind::compare_strong || what == kind::compare_weak; }
    bool reads() const {
        switch (what) {
        case kind::store:
        case kind::fence:
        case kind::wait:
        case kind::wake: return false;
        default: return true;
        }
    }
};

struct program {
    static constexpr std::size_t max_threads = 4;

    std::vector<std::vector<operation>> threads;
    std::string last; // objects that are read at the end
    // So many threads at the beginning are equal. The order of their reads is no outcome.
    int equal = 0;
    bool once = false; // they are started by run_equal_threads()
};

// What reads of no value are: a compare-exchange that failed for no reason, one that was left out.
inline constexpr std::uint32_t failed_for_no_reason = 15;
inline constexpr std::uint32_t left_out = 14;

// Four bits for each read, the first one highest: of a program that reads 16 times at most.
using reads = std::uint64_t;

// ---- Text

namespace detail {

inline constexpr std::array<std::string_view, 6> order_names{".rlx", ".con", ".acq",
                                                             ".rel", ".ar",  ".sc"};

inline std::string to_text(std::memory_order o) {
    return std::string(order_names[static_cast<std::size_t>(o)]);
}

inline std::string to_text(const operation& op) {
    using kind = operation::kind;
    std::string out;
    if (op.only_if != operation::condition::none) {
        out += op.only_if == operation::condition::equal ? "[" : "[!";
        out += std::to_string(op.last_read) + "]";
    }
    if (op.what == kind::choose) {
        return out + "any";
    }
    out += op.what == kind::fence ? "fence" : std::string(1, op.object);
    if (op.with != std::memory_order_relaxed || op.is_compare()) {
        out += to_text(op.with);
    }
    const std::string value = std::to_string(op.value);
    switch (op.what) {
    case kind::load:
    case kind::fence: return out;
    case kind::store: return out + "=" + value;
    case kind::add: return out + "+=" + value;
    case kind::exchange: return out + "<>" + value;
    case kind::await: return out + "@" + value;
    case kind::wait: return out + ".wait=" + value;
    case kind::timed_wait: return out + ".timed=" + value;
    case kind::wake: return out + ".wake=" + value;
    case kind::subtract: return out + "-=" + value;
    case kind::choose:
    case kind::compare_strong:
    case kind::compare_weak: break;
    }
    return out + to_text(op.with_failure) + (op.what == kind::compare_strong ? "?" : "~") +
           std::to_string(op.expected) + ":" + value;
}

// Reads one operation.
class word_reader {
public:
    explicit word_reader(std::string_view word) : all_(word), rest_(word) {}

    operation read() {
        using kind = operation::kind;
        operation op;
        if (take("[")) {
            using condition = operation::condition;
            op.only_if = take("!") ? condition::not_equal : condition::equal;
            op.last_read = number();
            need(take("]"));
        }
        if (take("any")) {
            op.what = kind::choose;
        } else if (take("fence")) {
            op.what = kind::fence;
            op.with = order().value_or(std::memory_order_relaxed);
        } else {
            op.object = rest_.empty() ? '?' : rest_[0];
            need(std::string_view("wxyzp").find(op.object) != std::string_view::npos);
            rest_.remove_prefix(1);
            op.with = order().value_or(std::memory_order_relaxed);
            const auto second = order();
            op.what = take_kind();
            if (op.is_compare()) {
                op.with_failure = second.value_or(failure_of(op.with));
                op.expected = number();
                need(take(":"));
            }
            if (op.what != kind::load) {
                op.value = number();
            }
        }
        need(rest_.empty());
        return op;
    }

private:
    operation::kind take_kind() {
        using kind = operation::kind;
        struct spelling {
            std::string_view text;
            kind what;
        };
        for (const spelling& s :
             {spelling{"+=", kind::add}, spelling{"-=", kind::subtract},
              spelling{"<>", kind::exchange}, spelling{"=", kind::store},
              spelling{"@", kind::await}, spelling{"?", kind::compare_strong},
              spelling{"~", kind::compare_weak}, spelling{".wait=", kind::wait},
              spelling{".timed=", kind::timed_wait}, spelling{".wake=", kind::wake}}) {
            if (take(s.text)) {
                return s.what;
            }
        }
        return kind::load;
    }

    bool take(std::string_view text) {
        const bool is_next = rest_.substr(0, text.size()) == text;
        rest_.remove_prefix(is_next ? text.size() : 0);
        return is_next;
    }
    std::optional<std::memory_order> order() {
        for (std::size_t o = 0; o < order_names.size(); ++o) {
            if (take(order_names[o])) {
                return static_cast<std::memory_order>(o);
            }
        }
        return {};
    }
    std::uint8_t number() {
        need(!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9');
        const auto n = static_cast<std::uint8_t>(rest_[0] - '0');
        rest_.remove_prefix(1);
        return n;
    }
    void need(bool holds) const {
        if (!holds) {
            throw std::invalid_argument("no operation: " + std::string(all_));
        }
    }

    std::string_view all_;
    std::string_view rest_;
};

} // namespace detail

inline std::string to_text(const program& p) {
    std::string out;
    for (const auto& thread : p.threads) {
        out += out.empty() ? "" : " | ";
        for (std::size_t i = 0; i < thread.size(); ++i) {
            out += (i == 0 ? "" : " ") + detail::to_text(thread[i]);
        }
    }
    out += p.last.empty() ? "" : " ||";
    for (const char object : p.last) {
        out += std::string(" ") + object;
    }
    return out;
}

// Throws: std::invalid_argument.
inline program to_program(std::string_view text) {
    program p;
    p.threads.emplace_back();
    bool at_end = false;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(word.size() + (word.size() < text.size() ? 1 : 0));
        if (word == "|") {
            p.threads.emplace_back();
        } else if (word == "||") {
            at_end = true;
        } else if (at_end) {
            p.last += word;
        } else if (!word.empty()) {
            p.threads.back().push_back(detail::word_reader(word).read());
        }
    }
    if (p.threads.size() > program::max_threads) {
        throw std::invalid_argument("more than 4 threads");
    }
    return p;
}

inline std::string to_text(const program& p, reads seen) {
    std::string out;
    std::size_t count = p.last.size();
    for (const auto& thread : p.threads) {
        for (const operation& op : thread) {
            count += op.reads() ? 1 : 0;
        }
    }
    const auto next = [&] { return "0123456789abcd-f"[(seen >> (4 * --count)) & 15]; };
    for (const auto& thread : p.threads) {
        const std::size_t before = out.size();
        for (const operation& op : thread) {
            if (op.reads()) {
                out += out.size() == before && before != 0 ? "/" : "";
                out += next();
            }
        }
    }
    out += p.last.empty() || out.empty() ? "" : "/";
    for (std::size_t i = 0; i < p.last.size(); ++i) {
        out += next();
    }
    return out;
}

// ---- Running it

namespace detail {

class running_program {
public:
    explicit running_program(const program& p) : program_(p) {}

    reads run() {
        std::array<std::optional<thread>, program::max_threads> others;
        const std::size_t own = program_.threads.size() - 1;
        const std::size_t first = program_.once ? static_cast<std::size_t>(program_.equal) : 0;
        for (std::size_t t = first; t < own + (program_.once ? 1 : 0); ++t) {
            others[t].emplace([this, t] { run(t); });
        }
        if (program_.once) {
            std::size_t next = 0;
            run_equal_threads(program_.equal, [&] { run(next++); });
        } else {
            run(own);
        }
        reads all = 0;
        for (std::size_t t = 0; t <= own; ++t) {
            if (others[t]) {
                others[t]->join();
            }
        }
        std::sort(seen_.begin(), seen_.begin() + program_.equal,
                  [](const result& a, const result& b) { return a.values < b.values; });
        for (std::size_t t = 0; t <= own; ++t) {
            all = (all << (4 * seen_[t].count)) | seen_[t].values;
        }
        for (const char object : program_.last) {
            all = (all << 4) | at(object).load(std::memory_order_relaxed);
        }
        return all;
    }

private:
    using word = std::uint32_t;
    struct result {
        reads values = 0;
        std::size_t count = 0;
    };

    model::atomic<word>& at(char object) {
        return atomics_[static_cast<std::size_t>(object - 'w')];
    }

    void run(std::size_t t) {
        word last = 0;
        for (const operation& op : program_.threads[t]) {
            const bool wanted = op.is_wanted(last);
            const word value = wanted ? perform(op) : left_out;
            if (op.reads()) {
                last = wanted ? value : last;
                seen_[t].values = (seen_[t].values << 4) | (value & 15);
                ++seen_[t].count;
            }
        }
    }

    word perform(const operation& op) {
        using kind = operation::kind;
        if (op.what == kind::choose) {
            return static_cast<word>(choose(2));
        }
        if (op.what == kind::fence) {
            fence(op.with);
            return 0;
        }
        if (op.is_plain()) {
            return op.what == kind::load ? static_cast<word>(plain_) : (plain_ = op.value, 0);
        }
        return perform(op, at(op.object));
    }

    static word perform(const operation& op, model::atomic<word>& a) {
        using kind = operation::kind;
        constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
        word expected = op.expected;
        switch (op.what) {
        case kind::load: return a.load(op.with);
        case kind::store: a.store(op.value, op.with); break;
        case kind::add: return a.fetch_add(op.value, op.with);
        case kind::subtract: return a.fetch_sub(op.value, op.with);
        case kind::exchange: return a.exchange(op.value, op.with);
        case kind::compare_strong:
            a.compare_exchange_strong(expected, op.value, op.with, op.with_failure);
            return expected;
        case kind::compare_weak: {
            const bool done = a.compare_exchange_weak(expected, op.value, op.with, op.with_failure);
            return done || expected != op.expected ? expected : failed_for_no_reason;
        }
        case kind::await:
            while (a.load(op.with) != op.value) {
                platform::pause();
            }
            return op.value;
        case kind::wait: platform::futex_wait<word>(a, op.value, never); break;
        case kind::timed_wait: return platform::futex_wait<word>(a, op.value, 1'000'000) ? 1 : 0;
        case kind::wake: platform::futex_wake(&a, op.value); break;
        case kind::fence:
        case kind::choose: break;
        }
        return 0;
    }

    const program& program_;
    std::array<model::atomic<word>, 4> atomics_; // w, x, y, z
    model::var<word> plain_;
    std::array<result, program::max_threads> seen_{};
};

} // namespace detail

// To be called by a body.
inline reads run(const program& p) { return detail::running_program(p).run(); }

} // namespace bide::model

#endif
