// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_EXECUTION_HPP
#define BIDE_MODEL_IMPL_EXECUTION_HPP

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/heap.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

thread_local execution* running = nullptr; // the execution whose body runs now

// Returns the text of the exception that is being handled, if it has one.
std::string exception_text() {
    std::string out;
#if BIDE_EXCEPTIONS
    if (const std::exception_ptr one = std::current_exception()) {
        try {
            std::rethrow_exception(one);
        } catch (const std::exception& e) {
            out = e.what();
        } catch (...) {
            out = "of a type that is no std::exception";
        }
    }
#endif
    return out;
}

[[noreturn]] void on_terminate() {
    if (running != nullptr) {
        const std::string thrown = exception_text();
        running->fail_now(failure::terminated,
                          "std::terminate was called" +
                              (thrown.empty() ? thrown : ", by an exception: " + thrown));
    }
    std::abort();
}

} // namespace

execution* execution::current() noexcept { return running; }

execution& execution::needed() noexcept {
    if (running == nullptr) {
        std::fputs("model: an operation of the model outside of a body, or on a std::thread; the "
                   "threads of a body are model::thread\n",
                   stderr);
        std::abort();
    }
    return *running;
}

execution::execution(const options& o, const body& run, search& how, thread_names& names)
    : options_(o), body_(run), search_(how), names_(names) {}

execution::~execution() = default;

// ---- The run

void execution::run() {
    heap::reset();
    memory_.clear();
    queues_.clear();
    picks_.clear();
    outcomes.clear();
    halted_ = pruned_ = false;
    failure_ = failure::none;
    message_.clear();
    service = nullptr;
    static std::uint64_t executions = 0;
    number = ++executions;
    for (const auto& t : threads_) {
        t->started = false;
    }
    if (threads_.empty()) {
        threads_.push_back(std::make_unique<model_thread>());
    }
    const auto before = std::set_terminate(&on_terminate);
    thread(0).run = &body_;
    thread(0).is_daemon = false;
    thread(0).knows = {};
    thread(0).now = 0;
    start(0);
    next_ = undecided;
    while (!halted_) {
        int t = std::exchange(next_, undecided);
        t = t == undecided ? search_.thread(*this) : t;
        if (t < 0) {
            if (!std::exchange(halted_, true)) {
                finish();
            }
            break;
        }
        perform(t);
        const request::kind did = thread(t).wants.what;
        if (!halted_ && did == request::kind::spawn) {
            start(thread(t).wants.other);
        }
        if (!halted_ && did != request::kind::end && did != request::kind::never) {
            resume(t);
        }
    }
    std::set_terminate(before);
}

void execution::start(int t) {
    model_thread& x = thread(t);
    x.knows.thread = t;
    x.wants = {};
    x.started = true;
    x.finished = x.timed = false;
    x.spawned = 0;
    x.locals.clear();
    x.looked.clear();
    x.newer.clear();
    x.looks.clear();
    x.looks_again = false;
    x.spurious_left = options_.spurious;
    x.timeouts_left = options_.timeouts;
    x.weak_failures_left = options_.weak_failures;
    x.clock_jumps_left = options_.clock_jumps;
    x.stack.restart(&thread_main, this);
    ++starting_;
    resume(t);
    --starting_;
}

void execution::resume(int t) {
    const int before = std::exchange(running_, t);
    running = this;
    heap::enter(t);
    main_.switch_to(thread(t).stack);
    heap::enter(-1);
    running = nullptr;
    running_ = before;
    if (next_ == undecided) { // otherwise steps_here() has called find_loop()
        find_loop(thread(t));
    }
}

void execution::thread_main(void* self) {
    auto& x = *static_cast<execution*>(self);
    const int t = x.running_;
    const auto* const run = x.self().run;
#if BIDE_EXCEPTIONS
    try {
        (*run)();
    } catch (const std::exception& e) {
        x.fail_now(failure::terminated, std::string("an exception: ") + e.what());
    } catch (...) {
        x.fail_now(failure::terminated, "an exception");
    }
#else
    (*run)();
#endif
    if (t != 0) {
        delete run;
    }
    x.step({.what = request::kind::end, .text = "end"});
    std::abort();
}

bits execution::step(const request& r) {
    model_thread& t = self();
    do {
        t.wants = r;
        if (steps_here(t)) {
            return t.result;
        }
        t.stack.switch_to(main_);
    } while (std::exchange(t.looks_again, false));
    return t.result;
}

// Lets the search choose the next thread. If it chooses `t` again, makes the step of `t` without a
// switch of stacks, and returns true. This is the most frequent case. Otherwise returns false, and
// the thread must switch to the checker.
bool execution::steps_here(model_thread& t) {
    if (starting_ > 0) {
        return false; // the thread that has started this one has not announced its next step
    }
    switch (t.wants.what) {
    case request::kind::read:
        if (t.look_before() != nullptr) {
            return false; // find_loop() needs the stack of a suspended thread
        }
        break;
    case request::kind::write:
    case request::kind::fence:
    case request::kind::choice: break;
    default: return false;
    }
    const heap::leave guard;
    find_loop(t);
    next_ = search_.thread(*this);
    if (halted_ || next_ != running_) {
        return false;
    }
    next_ = undecided;
    perform(running_);
    return !halted_ && t.wants.what != request::kind::never;
}

int execution::choose(int picks, site where, const char* text) {
    return static_cast<int>(step({.what = request::kind::choice,
                                  .inside = true,
                                  .picks = picks,
                                  .where = where,
                                  .text = text}));
}

void execution::leave_out() { step({.what = request::kind::never}); }

void execution::fail(failure what, std::string message, site where) {
    if (failure_ == failure::none) {
        failure_ = what;
        failed_at_ = where;
        failed_by_ = running != nullptr ? running_ : -1;
        message_ = std::move(message);
        if (where.file != nullptr) {
            message_ += " (" + std::string(where.file) + ":" + std::to_string(where.line) + ")";
        }
    }
    halted_ = true;
}

void execution::fail_now(failure what, std::string message, site where) {
    heap::enter(-1);
    fail(what, std::string(message.c_str()), where); // a copy: the text belongs to the execution
    for (;;) {
        self().stack.switch_to(main_);
    }
}

int execution::spawn(std::function<void()> run, bool is_daemon) {
    const auto* const mine = new std::function<void()>(std::move(run)); // memory of the body
    const int parent = running_;
    heap::enter(-1);
    const int t = names_.number(parent, self().spawned++);
    if (t >= max_threads) {
        fail_now(failure::too_large, "more than 8 threads, over all executions");
    }
    while (threads() <= t) {
        threads_.push_back(std::make_unique<model_thread>());
    }
    heap::enter(parent);
    thread(t).run = mine;
    thread(t).is_daemon = is_daemon;
    step(
        {.what = request::kind::spawn, .other = t, .text = is_daemon ? "starts daemon" : "starts"});
    return t;
}

int execution::queue_of(const void* address) {
    const heap::leave guard;
    const auto [at, fresh] = queues_.try_emplace(address, -1);
    if (fresh) {
        at->second = memory_.make_object(0, self().knows, true);
    }
    return at->second;
}

order execution::weakened(order o, int slot, site where) {
    if (where.is_given) {
        return o;
    }
    const auto same = [&](const weakening& w) {
        return w.slot == slot && w.from == o && same_place(w.where, where);
    };
    if (seen_orders != nullptr && std::none_of(seen_orders->begin(), seen_orders->end(), same)) {
        const heap::leave guard;
        seen_orders->push_back({where, slot, o, o});
    }
    for (const weakening* w = mutant; w != nullptr; w = w->next) {
        if (w->where.file == nullptr || same(*w)) {
            return w->to;
        }
    }
    return o;
}

// ---- Which threads can go on

// Returns true if an object has a newer value than the paused thread has read from it. If the
// search explores schedules, the thread can then continue.
bool execution::may_look_again(const model_thread& t) const {
    return std::any_of(t.looked.begin(), t.looked.end(), [&](const auto& l) {
        const auto newer = memory_.behind(l.first, l.second);
        return std::any_of(newer.begin(), newer.end(),
                           [&](int m) { return !memory_.msg(m).repeats; });
    });
}

// Returns the message whose write removed the thread from the queue; -1 if there is none yet.
int execution::woken_by(const model_thread& t) const {
    const auto& all = memory_.at(t.wants.object).messages;
    const auto mine = std::find(all.begin(), all.end(), t.wants.from);
    for (auto m = mine; m != all.end(); ++m) {
        if (!contains(memory_.msg(*m).value, t.knows.thread)) {
            return *m;
        }
    }
    return -1;
}

bool execution::enabled(int n) {
    const model_thread& t = thread(n);
    if (!t.started || t.finished) {
        return false;
    }
    switch (t.wants.what) {
    case request::kind::join: return thread(t.wants.other).finished;
    case request::kind::sleep: return woken_by(t) >= 0;
    case request::kind::pause: return !search_.is_graph_search() && may_look_again(t);
    case request::kind::never: return false;
    default: return true;
    }
}

// ---- The end

void execution::finish() {
    bool all = true;
    bool asleep = false;
    bool daemons = false;
    bool daemon_times_out = false; // a daemon would continue after its time-out
    std::size_t own = 0;
    for (const auto& t : threads_) {
        if (!t->started) {
            continue;
        }
        own += t->locals.size();
        daemons = daemons || t->is_daemon;
        const auto what = t->wants.what;
        const bool times_out = what == request::kind::sleep && t->timed && options_.timeouts > 0;
        if (t->finished || (t->is_daemon && what == request::kind::sleep)) {
            daemon_times_out = daemon_times_out || (!t->finished && times_out);
            continue;
        }
        all = false;
        asleep = asleep || what == request::kind::sleep;
        pruned_ = pruned_ || times_out || what == request::kind::never ||
                  (what == request::kind::pause && may_look_again(*t));
    }
    pruned_ = pruned_ || (!all && daemon_times_out);
    search_.end(*this, all);
    if (all) {
        if (heap::broken()) {
            fail(failure::lifetime, "memory was freed twice");
        } else if (!daemons && heap::live() > own) {
            fail(failure::leak, std::to_string(heap::live() - own) + " pieces of memory are left");
        }
    } else if (!pruned_) {
        fail(asleep ? failure::lost_wakeup : failure::livelock, describe_blocked());
    }
}

std::string execution::describe_blocked() {
    std::string out;
    for (int n = 0; n < threads(); ++n) {
        const model_thread& t = thread(n);
        if (!t.started || t.finished || (t.is_daemon && t.wants.what == request::kind::sleep)) {
            continue;
        }
        out += out.empty() ? "" : ", ";
        out += (t.is_daemon ? "the daemon T" : "T") + std::to_string(n);
        switch (t.wants.what) {
        case request::kind::sleep: out += " sleeps for ever"; break;
        case request::kind::pause: out += " spins for ever"; break;
        case request::kind::join: out += " waits for T" + std::to_string(t.wants.other); break;
        default: out += " is stuck";
        }
    }
    return out;
}

// ---- A step

// Returns true if the second half of a read-modify-write writes the value that is there already.
bool execution::repeats(const request& r) const {
    return r.exclusive && !r.quiet && memory_.msg(r.from).value == r.value;
}

// Detects a loop in which a thread waits for another thread. Such a loop reaches the same read
// again, with the same registers and the same stack. Since the previous round, the thread has only
// read the same values as before, or written values that were there already. The loop would repeat
// until a value that it reads changes. So the thread is treated as if it had called pause(). A loop
// that counts its rounds is not detected, because the stack differs in each round.
void execution::find_loop(model_thread& t) {
    const request& r = t.wants;
    switch (r.what) {
    case request::kind::read: {
        if (r.quiet || r.inside) {
            break;
        }
        look* const before = t.look_before();
        if (before == nullptr) {
            t.looks.push_back({r.where, r.object, r.expected, 0});
            return;
        }
        const std::uint64_t state = t.stack.state();
        if (state != 0 && before->state == state) {
            t.looks_again = true;
            t.wants.what = request::kind::pause;
            t.looks.clear();
        } else {
            before->state = state;
        }
        return;
    }
    case request::kind::fence: return;
    case request::kind::write:
        if (repeats(r)) {
            return;
        }
        break;
    default: break;
    }
    t.looks.clear();
}

// Returns true if no other value was written to `object` between the message that the thread read
// last and `message`. If the thread has not read the object before, returns true, too.
bool execution::saw_same(const model_thread& t, int object, int message) const {
    for (const auto& [o, last] : t.looked) {
        if (o == object) {
            const auto& all = memory_.at(object).messages;
            const auto begin = std::find(all.begin(), all.end(), last);
            const auto end = std::find(begin, all.end(), message);
            return end != all.end() && (begin == end || std::all_of(begin + 1, end + 1, [&](int m) {
                                            return memory_.msg(m).repeats;
                                        }));
        }
    }
    return true;
}

// Lets a thread continue that find_loop() has paused. The search repeats recorded steps, and the
// next recorded step is one of this thread. So the recorded execution did not find a loop here. The
// difference comes only from writes of another thread to the stack of this thread.
void execution::undo_pause(int n) {
    model_thread& t = thread(n);
    if (std::exchange(t.looks_again, false)) {
        t.wants.what = request::kind::read;
    }
}

// Makes the step. The thread stays on its stack until it is resumed.
void execution::perform(int n) {
    model_thread& t = thread(n);
    const bool is_access =
        t.wants.what == request::kind::read || t.wants.what == request::kind::write;
    if (is_access && !memory_.at(t.wants.object).queue) {
        if (std::string wrong = memory_.touch(t.wants.object, t.knows); !wrong.empty()) {
            fail(failure::lifetime, std::move(wrong), t.wants.where);
            return;
        }
    }
    const int most = std::min(options_.max_steps, most_steps);
    if (static_cast<int>(memory_.events.size()) >= most) {
        fail(failure::livelock,
             "more than " + std::to_string(most) +
                 " steps; a loop that waits and counts its rounds needs a pause()",
             t.wants.where);
        return;
    }
    outcome chosen;
    if (!search_.knows(*this, n, chosen)) {
        outcomes_of(n, candidates_);
        if (candidates_.empty()) {
            if (search_.stuck(*this, n)) {
                t.wants.what = request::kind::never;
            } else {
                halted_ = pruned_ = true;
            }
            return;
        }
        const int pick = search_.choose(*this, n, candidates_);
        if (pick < 0) {
            halted_ = pruned_ = true;
            return;
        }
        chosen = candidates_[index(pick)];
        picks_.emplace_back(n, pick);
    }
    if (halted_) {
        return;
    }
    const std::size_t events = memory_.events.size();
    apply(t, chosen);
    if (memory_.events.size() != events) {
        search_.done(*this, static_cast<int>(events));
    }
}

void execution::outcomes_of(int n, std::vector<outcome>& out) {
    model_thread& t = thread(n);
    out.clear();
    switch (t.wants.what) {
    case request::kind::read: read_outcomes(t, out); break;
    case request::kind::write: write_outcomes(t, out); break;
    case request::kind::choice:
        for (int i = 0; i < t.wants.picks; ++i) {
            out.push_back({.pick = i});
        }
        break;
    default: out.emplace_back();
    }
}

void execution::read_outcomes(model_thread& t, std::vector<outcome>& out) {
    const request& r = t.wants;
    clock known = t.knows.hb;
    if (r.known != nullptr) {
        known.join(*r.known);
    }
    memory_.readable(r.object, known, scratch_);
    const auto newer = std::find_if(t.newer.begin(), t.newer.end(),
                                    [&](const auto& l) { return l.first == r.object; });
    for (const int m : scratch_) {
        if (newer != t.newer.end() && m == newer->second && !out.empty()) {
            break;
        }
        const detail::message& from = memory_.msg(m);
        outcome o;
        o.message = m;
        const bool matches = !r.compare || from.value == r.expected;
        o.exclusive = r.exclusive && matches;
        o.with = matches ? r.with : r.with_failure;
        o.conflict = o.exclusive && from.taken_by >= 0;
        if (o.conflict && !search_.is_graph_search()) {
            continue;
        }
        clock after = t.knows.hb;
        if (is_acquire(o.with) && !r.quiet) {
            after.join(from.sync);
        }
        if (memory_.may_read(r.object, m, o.with, t.knows, after)) {
            out.push_back(o);
        }
    }
}

void execution::write_outcomes(model_thread& t, std::vector<outcome>& out) {
    const request& r = t.wants;
    scratch_.clear();
    int node = -1;
    if (r.exclusive) {
        if (memory_.msg(r.from).taken_by < 0) {
            scratch_.push_back(r.from);
        }
        node = memory_.of({static_cast<std::uint8_t>(t.knows.thread), t.knows.steps}).node;
    } else {
        memory_.places(r.object, t.knows.hb, scratch_);
    }
    for (const int m : scratch_) {
        if (memory_.may_write(r.object, m, r.with, t.knows, node)) {
            out.push_back({.message = m});
        }
    }
}

void execution::apply(model_thread& t, const outcome& o) {
    const request& r = t.wants;
    const bool is_repeat = r.what == request::kind::write && repeats(r);
    if (r.what == request::kind::write && !is_repeat) {
        t.looked.clear();
        t.newer.clear();
    }
    switch (r.what) {
    case request::kind::read: {
        event& e =
            memory_.read(r.object, o.message, o.with, o.exclusive, r.quiet, t.knows, r.where);
        e.text = r.text;
        t.result = e.value;
        t.message = o.message;
        if (!t.looks.empty() && !saw_same(t, r.object, o.message)) {
            t.looks.clear();
        }
        std::erase_if(t.looked, [&](const auto& l) { return l.first == r.object; });
        std::erase_if(t.newer, [&](const auto& l) { return l.first == r.object; });
        t.looked.emplace_back(r.object, o.message);
        break;
    }
    case request::kind::write: {
        event& e = memory_.write(r.object, o.message, r.value, r.with, r.exclusive ? r.from : -1,
                                 r.quiet, t.knows, r.where);
        e.text = r.text;
        t.message = e.message;
        if (is_repeat) {
            std::erase_if(t.looked, [&](const auto& l) { return l.first == r.object; });
            t.looked.emplace_back(r.object, e.message);
        }
        break;
    }
    case request::kind::fence: memory_.fence(r.with, t.knows, r.where); break;
    case request::kind::choice: {
        event& e = memory_.other(event::kind::choice, t.knows, r.where, r.text);
        e.pick = o.pick;
        t.result = static_cast<bits>(o.pick);
        break;
    }
    case request::kind::spawn: {
        memory_.other(event::kind::local, t.knows, r.where, r.text).value = index(r.other);
        thread(r.other).knows = {};
        thread(r.other).knows.hb = t.knows.hb;
        thread(r.other).knows.causes = t.knows.causes;
        thread(r.other).now = t.now;
        break;
    }
    case request::kind::end:
        memory_.other(event::kind::local, t.knows, r.where, r.text);
        t.finished = true;
        break;
    case request::kind::join: {
        t.knows.hb.join(thread(r.other).knows.hb);
        t.knows.causes.join(thread(r.other).knows.causes);
        memory_.other(event::kind::local, t.knows, r.where, r.text).value = index(r.other);
        break;
    }
    case request::kind::sleep: {
        const detail::message& by = memory_.msg(woken_by(t));
        t.knows.causes.join(memory_.events[index(by.event)].causes);
        memory_.other(event::kind::local, t.knows, r.where, r.text);
        t.timed = false;
        break;
    }
    case request::kind::pause:
        t.newer = t.looked;
        t.looked.clear();
        break;
    case request::kind::never:
    case request::kind::none: break;
    }
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
