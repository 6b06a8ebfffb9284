#include <model/checker/execution.hpp>
#include <model/checker/heap.hpp>
#include <model/checker/line.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

namespace model {

namespace {

execution* running = nullptr; // whose body's code runs now

[[noreturn]] void on_terminate() {
    if (running != nullptr) {
        running->fail_now(failure::terminated, "std::terminate was called");
    }
    std::abort();
}

} // namespace

execution* execution::current() noexcept { return running; }

execution::execution(const options& o, const body& run, search& how)
    : options_(o), body_(run), search_(how) {}

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
    while (!halted_) {
        const int t = search_.thread(*this);
        if (t >= 0) {
            perform(t);
        } else if (!std::exchange(halted_, true)) {
            finish();
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
    x.spurious_left = options_.spurious;
    x.timeouts_left = options_.timeouts;
    x.weak_failures_left = options_.weak_failures;
    x.clock_jumps_left = options_.clock_jumps;
    x.stack.restart(&thread_main, this);
    resume(t);
}

void execution::resume(int t) {
    const int before = std::exchange(running_, t);
    running = this;
    heap::enter(t);
    main_.switch_to(thread(t).stack);
    heap::enter(-1);
    running = nullptr;
    running_ = before;
}

void execution::thread_main(void* self) {
    auto& x = *static_cast<execution*>(self);
    const int t = x.running_;
    const auto* const run = x.self().run;
    try {
        (*run)();
    } catch (const std::exception& e) {
        x.fail_now(failure::terminated, std::string("an exception: ") + e.what());
    } catch (...) {
        x.fail_now(failure::terminated, "an exception");
    }
    if (t != 0) {
        delete run;
    }
    request r;
    r.what = request::kind::end;
    r.text = "end";
    x.step(r);
    std::abort();
}

bits execution::step(const request& r) {
    model_thread& t = self();
    t.wants = r;
    t.stack.switch_to(main_);
    return t.result;
}

void execution::fail(failure what, std::string message, site where) {
    if (failure_ == failure::none) {
        failure_ = what;
        message_ = std::move(message);
        if (where.file != nullptr) {
            message_ += " (" + std::string(where.file) + ":" + std::to_string(where.line) + ")";
        }
    }
    halted_ = true;
}

void execution::fail_now(failure what, std::string message, site where) {
    heap::enter(-1);
    fail(what, std::string(message.c_str()), where); // a copy that outlives the execution
    for (;;) {
        self().stack.switch_to(main_);
    }
}

int execution::spawn(std::function<void()> run, bool is_daemon) {
    const auto* const mine = new std::function<void()>(std::move(run)); // the body's memory
    const int parent = running_;
    heap::enter(-1);
    const auto [at, fresh] =
        thread_names_.try_emplace({parent, self().spawned++}, static_cast<int>(threads_.size()));
    const int t = at->second;
    if (fresh) {
        threads_.push_back(std::make_unique<model_thread>());
    }
    heap::enter(parent);
    if (t >= max_threads) {
        fail_now(failure::too_large, "more than 8 threads");
    }
    thread(t).run = mine;
    thread(t).is_daemon = is_daemon;
    request r;
    r.what = request::kind::spawn;
    r.other = t;
    r.text = is_daemon ? "starts daemon" : "starts";
    step(r);
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
    const auto same = [&](const weakening& w) {
        return w.slot == slot && w.from == o && w.where.line == where.line &&
               std::strcmp(w.where.file, where.file) == 0;
    };
    if (seen_orders != nullptr && std::none_of(seen_orders->begin(), seen_orders->end(), same)) {
        const heap::leave guard;
        seen_orders->push_back({where, slot, o, o});
    }
    return mutant != nullptr && same(*mutant) ? mutant->to : o;
}

// ---- Which threads can go on

// Something newer than a paused thread has seen is there. In a schedule it goes on then.
bool execution::may_look_again(const model_thread& t) const {
    return std::any_of(t.looked.begin(), t.looked.end(),
                       [&](const auto& l) { return memory_.newest(l.first) != l.second; });
}

// The message in its queue that says that it was taken out; -1: none yet.
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

// ---- A step

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
    if (static_cast<int>(memory_.events.size()) >= options_.max_steps) {
        fail(failure::livelock, "more than " + std::to_string(options_.max_steps) + " steps",
             t.wants.where);
        return;
    }
    if (memory_.seq_cst_overflow()) {
        fail(failure::too_large, "too many seq_cst operations");
        return;
    }
    outcomes_of(n, candidates_);
    if (candidates_.empty()) {
        search_.stuck(*this, n);
        halted_ = pruned_ = true;
        return;
    }
    const int pick = search_.choose(*this, n, candidates_);
    if (pick < 0) {
        halted_ = pruned_ = true;
        return;
    }
    picks_.emplace_back(n, pick);
    const std::size_t events = memory_.events.size();
    apply(t, candidates_[index(pick)]);
    if (memory_.events.size() != events) {
        search_.done(*this, static_cast<int>(events));
    }
    if (t.wants.what == request::kind::spawn) {
        start(t.wants.other);
    }
    if (!halted_ && !t.finished) {
        resume(n);
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
            outcome o;
            o.pick = i;
            out.push_back(o);
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
        const model::message& from = memory_.msg(m);
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
            outcome o;
            o.message = m;
            out.push_back(o);
        }
    }
}

void execution::apply(model_thread& t, const outcome& o) {
    const request& r = t.wants;
    if (r.what == request::kind::write) {
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
        const model::message& by = memory_.msg(woken_by(t));
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

// ---- The end

void execution::finish() {
    bool all = true;
    bool asleep = false;
    bool daemons = false;
    bool daemon_times_out = false; // it will do more than it did
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
        if (!t.started || t.finished || t.is_daemon) {
            continue;
        }
        out += out.empty() ? "" : ", ";
        out += "T" + std::to_string(n);
        switch (t.wants.what) {
        case request::kind::sleep: out += " sleeps for ever"; break;
        case request::kind::pause: out += " spins for ever"; break;
        case request::kind::join: out += " waits for T" + std::to_string(t.wants.other); break;
        default: out += " is stuck";
        }
    }
    return out;
}

} // namespace model
