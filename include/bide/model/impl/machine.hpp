// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_MACHINE_HPP
#define BIDE_MODEL_IMPL_MACHINE_HPP

// The engine of a simulated machine (model/machine.hpp).

#include <bide/core/platform.hpp>
#include <bide/model/impl/fiber.hpp>
#include <bide/model/machine.hpp>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model {
struct machine::state {
    using fiber = detail::fiber;
    using picoseconds = std::int64_t;

    static constexpr unsigned most_processors = 256;

    using processor_set = std::bitset<most_processors>;

    struct memory_line {
        int owner = -1; // it alone has the line
        int last = -1;  // the last owner
        // For each processor that has lost the line: when the line leaves it.
        std::unordered_map<unsigned, picoseconds> leaves;
        processor_set sharers, seen;
        bool is_changed = false; // by its owner
        picoseconds busy = 0;    // until this time, the line serves other requests
        picoseconds arrives = 0; // when a line that was fetched ahead arrives
        int ahead_of = -1;       // the processor that has fetched the line ahead, and not used it
        picoseconds waited = 0;
        std::uint64_t moves = 0, accesses = 0;
    };

    struct thread {
        fiber context;
        std::function<void()> body;
        picoseconds now = 0;
        picoseconds stored = 0; // when its last store is done
        picoseconds began = 0;  // when its time slice began
        unsigned on = 0;
        bool is_pinned = false, is_over = false, in_time = true;
        std::uint64_t waits = 0; // counts events, so that an outdated one is detected
        const void* sleeps_on = nullptr;
        std::uintptr_t last_at = 0;
        std::uintptr_t last_miss = 0; // the number of the line that was last waited for
        memory_line* last_line = nullptr;
        std::unordered_map<const void*, std::pair<void*, void (*)(void*)>> locals;
    };

    struct run_place {
        thread* running = nullptr;
        std::deque<thread*> ready;
    };

    // At the time `at`, the thread goes on, or its sleep ends by a time-out. If the thread has gone
    // on before, the event is ignored.
    struct event {
        picoseconds at;
        std::uint64_t order;
        thread* of;
        std::uint64_t wait;
        bool is_late;
    };
    struct later {
        bool operator()(const event& a, const event& b) const {
            return a.at != b.at ? a.at > b.at : a.order > b.order;
        }
    };

    static inline machine* current = nullptr;

    // The clock of the native platform, from which deadlines are computed.
    struct clock final : bide::detail::simulated_machine {
        state* of = nullptr;
        std::int64_t now() noexcept override { return of->me != nullptr ? of->me->now / 1000 : 0; }
        std::uint64_t random() noexcept override { return of->random; }
        bool has_processors() const noexcept override { return true; }
        sleep_end sleep(condition, const void*, std::int64_t) noexcept override {
            return sleep_end::idle; // the platform of the thread sleeps
        }
        void add_timer(timer&) noexcept override {
            bide::detail::fatal("model::machine", of, "a simulated thread uses the native timers");
        }
    } native;

    machine_numbers of;
    std::uint64_t random;
    double jitter;
    std::vector<std::unique_ptr<thread>> threads;
    std::vector<run_place> processors;
    std::priority_queue<event, std::vector<event>, later> events;
    std::unordered_map<std::uintptr_t, std::unique_ptr<memory_line>> lines;
    std::map<std::uintptr_t, std::pair<std::size_t, std::string>> names;
    std::unordered_map<const void*, std::deque<thread*>> sleepers;
    fiber outside;
    thread* me = nullptr;
    std::uint64_t order = 0, steps = 0;
    std::size_t left = 0;
    picoseconds used = 0, end = 0;
    bool is_stuck = false;

    picoseconds cost(double ns) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const double r = static_cast<double>(random >> 11) / 9007199254740992.0 * 2 - 1;
        return static_cast<picoseconds>(ns * 1e3 * (1 + jitter * r));
    }
    void spend(double ns) {
        const picoseconds by = cost(ns);
        me->now += by;
        used += by;
    }
    void wait_until(picoseconds at) { // the processor stalls
        if (at > me->now) {
            used += at - me->now;
            me->now = at;
        }
    }
    void add_event(thread& t, picoseconds at, bool is_late = false) {
        events.push({at, order++, &t, t.waits, is_late});
    }

    memory_line& line_at(const void* address) {
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(address) / 64;
        if (me->last_at != at) {
            auto& found = lines[at];
            if (found == nullptr) {
                found = std::make_unique<memory_line>();
            }
            me->last_at = at;
            me->last_line = found.get();
        }
        return *me->last_line;
    }

    // ---- Which thread runs

    // If a processor is idle, lets the thread run there from the time `at`. If none is, queues it.
    void make_ready(thread& t, picoseconds at) {
        unsigned best = t.on;
        if (!t.is_pinned && processors[best].running != nullptr) {
            const unsigned first = t.on / of.cores * of.cores;
            for (unsigned i = 0; i < processors.size(); ++i) {
                const unsigned p = (first + i) % static_cast<unsigned>(processors.size());
                if (processors[p].running == nullptr) {
                    best = p;
                    break;
                }
            }
        }
        t.on = best;
        ++t.waits;
        t.now = std::max(t.now, at);
        run_place& p = processors[best];
        if (p.running == nullptr) {
            begin_slice(t);
        } else {
            p.ready.push_back(&t);
        }
    }
    // Lets the thread run on its processor, which is idle, from now on.
    void begin_slice(thread& t) {
        processors[t.on].running = &t;
        t.began = t.now;
        add_event(t, t.now);
    }
    // Takes the running thread off its processor at the time `at`. The next thread then runs there.
    void leave(unsigned on, picoseconds at) {
        run_place& p = processors[on];
        p.running = nullptr;
        thread* next = nullptr;
        if (!p.ready.empty()) {
            next = p.ready.front();
            p.ready.pop_front();
        } else { // an idle processor takes a thread that waits elsewhere
            for (run_place& other : processors) {
                const auto found = std::find_if(other.ready.begin(), other.ready.end(),
                                                [](thread* t) { return !t->is_pinned; });
                if (found != other.ready.end()) {
                    next = *found;
                    other.ready.erase(found);
                    break;
                }
            }
        }
        if (next != nullptr) {
            next->on = on;
            ++next->waits;
            next->now = std::max(next->now, at + cost(of.yield));
            begin_slice(*next);
        }
    }
    // Runs the thread whose event comes first. Returns when the caller goes on.
    void run_next() {
        fiber& from = me != nullptr ? me->context : outside;
        for (;;) {
            if (events.empty() || left == 0) {
                is_stuck = left != 0;
                me = nullptr;
                if (&from != &outside) {
                    from.switch_to(outside);
                }
                return;
            }
            const event e = events.top();
            events.pop();
            thread& t = *e.of;
            if (t.is_over || e.wait != t.waits) {
                continue;
            }
            if (e.is_late) { // its time-out: it is still asleep
                auto& queue = sleepers[t.sleeps_on];
                queue.erase(std::find(queue.begin(), queue.end(), &t));
                t.in_time = false;
                make_ready(t, e.at);
                continue;
            }
            ++t.waits;
            if (me != &t) {
                me = &t;
                if (&t.context != &from) {
                    from.switch_to(t.context);
                }
            }
            return;
        }
    }
    // Called before each step: other threads whose clock is earlier go first.
    void begin_step() {
        ++steps;
        if (me->now - me->began > static_cast<picoseconds>(of.slice * 1e3)) {
            give_way();
        }
        let_earlier_run();
    }
    // Lets the next thread of the processor run, if there is one.
    void give_way() {
        run_place& p = processors[me->on];
        if (!p.ready.empty()) {
            p.ready.push_back(me);
            leave(me->on, me->now);
            run_next();
        }
    }
    void let_earlier_run() {
        if (!events.empty() && events.top().at < me->now) {
            add_event(*me, me->now);
            run_next();
        }
    }

    // ---- Memory

    double distance(const memory_line& l, unsigned p) const {
        const int from = l.owner >= 0 ? l.owner : l.last;
        if (from < 0) {
            return of.hit; // no processor has changed it
        }
        if (static_cast<unsigned>(from) == p) {
            return of.within;
        }
        return static_cast<unsigned>(from) / of.cores == p / of.cores ? of.within : of.between;
    }
    // Returns true if the processor has the line alone, or has it until the next owner gets it.
    bool owns(const memory_line& l, unsigned p) const {
        if (l.owner == static_cast<int>(p)) {
            return true;
        }
        const auto found = l.leaves.find(p);
        return found != l.leaves.end() && me->now < found->second;
    }
    // The request of this processor for the line is served in [start, done). A third of this time
    // passes before the line leaves its owner.
    void move(memory_line& l, picoseconds start, picoseconds done) {
        if (l.owner >= 0) {
            l.last = l.owner;
            l.leaves[static_cast<unsigned>(l.owner)] = start + (done - start) / 3;
        }
        ++l.moves;
    }
    // Waits for a line. Threads whose steps come before that time run first.
    void await(memory_line& l, picoseconds done) {
        l.waited += std::max(done - me->now, picoseconds{0});
        wait_until(done);
        let_earlier_run();
    }

    void read(memory_line& l) {
        const unsigned p = me->on;
        if (owns(l, p) || l.sharers.test(p)) {
            wait_until(l.arrives);
            return spend(of.hit);
        }
        const picoseconds done = share(l);
        fetch_ahead(access::load);
        await(l, done);
    }
    // Makes this processor one of those that have the line. If the owner has changed the line, this
    // processor becomes its owner. Returns the time at which it has the line.
    picoseconds share(memory_line& l) {
        const unsigned p = me->on;
        const picoseconds start = std::max(me->now, l.busy);
        const picoseconds done = start + cost(distance(l, p));
        l.busy = l.owner >= 0 ? done : start + cost(of.shared);
        move(l, start, done);
        if (l.owner >= 0 && std::exchange(l.is_changed, false)) {
            l.owner = static_cast<int>(p);
            return done;
        }
        if (l.owner >= 0) {
            l.sharers.set(static_cast<unsigned>(std::exchange(l.owner, -1)));
        }
        l.sharers.set(p);
        return done;
    }
    // Called when a thread waits for a line, and at its first access to a line that was fetched
    // ahead. If the thread goes through memory line by line, fetches the next line.
    void fetch_ahead(access how) {
        const std::uintptr_t at = me->last_at;
        if (std::exchange(me->last_miss, at) + 1 != at) {
            return;
        }
        const auto next = lines.find(at + 1);
        if (next == lines.end() || next->second->owner < 0 || owns(*next->second, me->on)) {
            return;
        }
        next->second->arrives = how == access::load ? share(*next->second) : own(*next->second);
        next->second->ahead_of = static_cast<int>(me->on);
    }
    // Makes this processor the owner. Returns the time at which it has the line.
    picoseconds own(memory_line& l) {
        const unsigned p = me->on;
        if (owns(l, p)) {
            return std::max(me->now, l.arrives);
        }
        const bool has = l.sharers.test(p);
        const auto others = static_cast<unsigned>(l.sharers.count()) - (has ? 1 : 0);
        const picoseconds start = std::max(me->now, l.busy);
        const double far = has && others == 0 ? 0 : distance(l, p);
        l.busy = start + cost(far + of.sharer * others);
        move(l, start, l.busy);
        l.owner = static_cast<int>(p);
        l.sharers.reset();
        return l.busy;
    }
    // Waits until the stores of the thread are done.
    void drain() {
        if (me->stored > me->now) {
            wait_until(me->stored);
            let_earlier_run();
        }
    }
    void fence(double ns) {
        begin_step();
        drain();
        spend(ns);
    }
    void touch(const void* at, access how) {
        begin_step();
        memory_line& l = line_at(at);
        ++l.accesses;
        l.seen.set(me->on);
        if (l.ahead_of == static_cast<int>(me->on)) {
            l.ahead_of = -1;
            fetch_ahead(how);
        }
        switch (how) {
        case access::load: return read(l);
        case access::store: {
            // The store happens when the line has come, so earlier steps of other threads run
            // first. The thread does not wait: its clock is then set back.
            const picoseconds began = me->now;
            me->stored = std::max(me->stored, own(l));
            l.is_changed = true;
            if (me->stored > began) {
                fetch_ahead(access::store);
                me->now = me->stored;
                let_earlier_run();
                me->now = began;
            }
            return spend(of.hit);
        }
        case access::modify:
            drain();
            await(l, own(l));
            l.is_changed = true;
            return spend(of.hit + of.locked);
        }
    }
};

machine::machine(const machine_numbers& of, std::uint64_t seed, double jitter)
    : state_(std::make_unique<state>()) {
    state_->of = of;
    state_->random = seed * 0x9e37'79b9'7f4a'7c15u | 1;
    state_->jitter = jitter;
    const std::size_t count = std::size_t{of.sockets} * of.cores;
    state_->processors.resize(count);
    if (count == 0 || count > state::most_processors) {
        BIDE_THROW(std::invalid_argument("bide: a machine has 1 to 256 processors"));
    }
}
machine::~machine() {
    for (const auto& t : state_->threads) {
        for (auto& [key, kept] : t->locals) {
            kept.second(kept.first);
        }
    }
}

void machine::start(std::function<void()> body, std::optional<unsigned> on) {
    state& s = *state_;
    auto& t = *s.threads.emplace_back(std::make_unique<state::thread>());
    t.body = std::move(body);
    t.is_pinned = on.has_value();
    t.on = on.value_or(static_cast<unsigned>(s.threads.size() - 1)) %
           static_cast<unsigned>(s.processors.size());
    t.context.restart(
        [](void* context) {
            auto& all = *static_cast<state*>(context);
            state::thread& mine = *all.me;
            mine.body();
            all.drain();
            mine.is_over = true;
            --all.left;
            all.end = std::max(all.end, mine.now);
            all.leave(mine.on, mine.now);
            all.run_next();
            std::abort();
        },
        &s);
    ++s.left;
    s.make_ready(t, s.me != nullptr ? s.me->now : 0);
}

void machine::run() {
    state_->native.of = state_.get();
    machine* const before = std::exchange(state::current, this);
    auto* const clock = bide::detail::simulated_machine::exchange(&state_->native);
    state_->run_next();
    bide::detail::simulated_machine::exchange(clock);
    state::current = before;
    if (state_->is_stuck) {
        BIDE_THROW(std::runtime_error("bide: all simulated threads sleep"));
    }
}

machine* machine::here() noexcept {
    machine* const m = state::current;
    return m != nullptr && m->state_->me != nullptr ? m : nullptr;
}
void machine::touch(const void* at, access how) noexcept { state_->touch(at, how); }
void machine::fence() noexcept { state_->fence(state_->of.locked); }
void machine::barrier() noexcept { state_->fence(state_->of.barrier); }
void machine::pause() noexcept { state_->spend(state_->of.pause); }
void machine::compute(double ns) noexcept { state_->spend(ns); }
std::int64_t machine::now_ns() noexcept {
    state_->spend(state_->of.clock);
    state_->begin_step();
    return state_->me->now / 1000;
}
unsigned machine::processor() const noexcept { return state_->me->on; }
unsigned machine::processors() const noexcept {
    return static_cast<unsigned>(state_->processors.size());
}

void machine::yield() noexcept {
    state_->spend(state_->of.yield);
    state_->give_way();
    state_->begin_step();
}

bool machine::sleep(const void* word, const std::function<bool()>& is_changed,
                    std::int64_t until_ns) {
    state& s = *state_;
    state::thread& mine = *s.me;
    s.spend(s.of.call);
    s.begin_step();
    s.drain();
    s.read(s.line_at(word));
    if (is_changed()) {
        return true;
    }
    if (until_ns <= mine.now / 1000) {
        return false;
    }
    s.sleepers[word].push_back(&mine);
    mine.sleeps_on = word;
    mine.in_time = true;
    if (until_ns != (std::numeric_limits<std::int64_t>::max)()) {
        s.add_event(mine, until_ns * 1000, true);
    }
    s.leave(mine.on, mine.now);
    s.run_next();
    return mine.in_time;
}

void machine::wake(const void* word, int count) noexcept {
    state& s = *state_;
    s.spend(s.of.call);
    s.begin_step();
    s.drain();
    const auto found = s.sleepers.find(word);
    if (found == s.sleepers.end()) {
        return;
    }
    for (; count > 0 && !found->second.empty(); --count) {
        state::thread& t = *found->second.front();
        found->second.pop_front();
        s.spend(s.of.wake);
        s.make_ready(t, s.me->now + s.cost(s.of.wake_delay));
    }
}

void* machine::local(const void* key, void* (*make)(), void (*drop)(void*)) {
    auto& kept = state_->me->locals[key];
    if (kept.first == nullptr) {
        kept = {make(), drop};
    }
    return kept.first;
}

void machine::name(const void* at, std::size_t size, std::string as) {
    state_->names[reinterpret_cast<std::uintptr_t>(at)] = {size, std::move(as)};
}

std::vector<machine::line> machine::hottest(std::size_t most) const {
    std::vector<std::pair<state::picoseconds, std::uintptr_t>> all;
    for (const auto& [at, l] : state_->lines) {
        all.emplace_back(l->waited, at);
    }
    std::sort(all.rbegin(), all.rend());
    all.resize(std::min(most, all.size()));
    std::vector<line> out;
    for (const auto& [waited, at] : all) {
        const state::memory_line& l = *state_->lines.at(at);
        std::string name = "line " + std::to_string(at);
        auto next = state_->names.lower_bound((at + 1) * 64);
        if (next != state_->names.begin()) {
            const auto& [begin, object] = *--next;
            if (begin + object.first > at * 64) {
                name = object.second;
                if (at * 64 > begin) {
                    name += "+" + std::to_string(at * 64 - begin);
                }
            }
        }
        out.push_back({std::move(name), l.accesses, l.moves, static_cast<double>(waited) / 1e3,
                       static_cast<unsigned>(l.seen.count())});
    }
    return out;
}

double machine::elapsed_ns() const noexcept { return static_cast<double>(state_->end) / 1e3; }
double machine::used_ns() const noexcept { return static_cast<double>(state_->used) / 1e3; }
std::uint64_t machine::steps() const noexcept { return state_->steps; }

}}} // namespace bide::BIDE_ABI::model

#endif
