// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_STEPS_HPP
#define BIDE_MODEL_IMPL_STEPS_HPP

// One step of an execution: finds the possible outcomes, and makes the step.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// ---- A step

// Returns true if the second half of a read-modify-write writes the value that is there already.
bool execution::repeats(const request& r) const {
    return r.exclusive && !r.quiet && memory_.msg(r.from).value == r.value;
}

// Detects a loop that waits. Such a loop comes to the same read again, with the same registers and
// the same stack. In between it only reads the same values as before, or writes values that are
// there already. It would do so until a value that it reads changes. So it is treated as if it had
// called pause(). A loop that counts its rounds is not detected, because the count differs.
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

// Returns true if the thread's last read of the object found the same: no other value was written
// in between.
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

// Lets a thread continue because a path says so. The loop was detected only because writes of
// another thread to its stack came in between.
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
            outcome o;
            o.message = m;
            out.push_back(o);
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
