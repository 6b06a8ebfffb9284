// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_MEMORY_HPP
#define BIDE_MODEL_IMPL_MEMORY_HPP

#include <bide/core/config.hpp>
#include <bide/model/detail/heap.hpp>
#include <bide/model/detail/memory.hpp>

#include <algorithm>
#include <cstddef>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

void memory::clear() {
    events.clear();
    clash_ = {};
    object_count_ = message_count_ = plain_count_ = 0;
    for (auto& thread : by_thread_) {
        thread.clear();
    }
    seq_cst_.clear();
}

// ---- Objects

int memory::make_message() {
    if (message_count_ == messages_.size()) {
        messages_.emplace_back();
    }
    message& m = messages_[message_count_];
    m.writer = {};
    m.event = m.taken_by = -1;
    m.repeats = false;
    m.sync = {};
    m.first_read = {};
    m.readers.clear();
    return static_cast<int>(message_count_++);
}

int memory::make_object(bits initial, const view& v, bool queue) {
    if (object_count_ == objects_.size()) {
        objects_.emplace_back();
    }
    const int m = make_message();
    msg(m).value = initial;
    object& o = objects_[object_count_];
    o.alive = true;
    o.queue = queue;
    o.name = nullptr;
    o.made = queue ? event_id{} : v.next();
    o.touched = {};
    o.messages.assign(1, m);
    return static_cast<int>(object_count_++);
}

int memory::make_watched() {
    if (plain_count_ == plains_.size()) {
        plains_.emplace_back();
    }
    plains_[plain_count_] = {true, event_id{}, {}};
    return static_cast<int>(plain_count_++);
}

int memory::make_plain(const view& v) {
    const int made = make_watched();
    plains_[index(made)].written = v.next();
    return made;
}

// An access that a thread makes between two of its steps belongs to the later step. So another
// thread that knows only the earlier step does not know the access.
namespace {

bool known(event_id e, const view& v) { return e.thread == v.thread || v.hb.covers(e); }

// Returns the first thread whose last access `v` does not know.
int unknown(const std::array<step_count, max_threads>& accesses, const view& v) {
    for (int t = 0; t < max_threads; ++t) {
        if (t != v.thread && accesses[index(t)] > v.hb.seen[index(t)]) {
            return t;
        }
    }
    return -1;
}

std::string by(int thread) { return "T" + std::to_string(thread); }

// heap::leave marks this code as a part of the checker. The linker may share the functions of
// std::string with a body that is compiled with -fsanitize=thread. The accesses of these functions
// must not count as accesses of the body here.
std::string race(const char* first, int a, const char* second, int b) {
    const heap::leave guard;
    return std::string("data race: ") + first + by(a) + second + by(b);
}

} // namespace

std::string memory::touch(int o, const view& v) {
    object& x = at(o);
    if (!x.alive) {
        clash_ = {false, o, clash::access::destroy, clash::access::use, x.dropped, v.next()};
        return "access to a destroyed atomic";
    }
    if (!known(x.made, v)) {
        clash_ = {false, o, clash::access::make, clash::access::use, x.made, v.next()};
        return "access to an atomic whose construction by " + by(x.made.thread) +
               " does not happen before";
    }
    x.touched[index(v.thread)] = v.next().index;
    return {};
}

std::string memory::drop(int o, const view& v) {
    object& x = at(o);
    if (const int t = unknown(x.touched, v); t >= 0) {
        const event_id use{static_cast<std::uint8_t>(t), x.touched[index(t)]};
        clash_ = {false, o, clash::access::use, clash::access::destroy, use, v.next()};
        return "an atomic is destroyed, but an access by " + by(t) + " does not happen before";
    }
    x.alive = false;
    x.dropped = v.next();
    return {};
}

// Checks an access to a plain object by happens-before, and notes it.
std::string memory::access_plain(clash::access how, int p, const view& v) {
    const bool writes = how == clash::access::write;
    if (p == outside) {
        return "a var that was not made by the body";
    }
    if (!is_plain(p)) {
        if (p >= 0 && p < plains()) {
            clash_ = {true, p, clash::access::destroy, how, plains_[index(p)].written, v.next()};
        }
        return writes ? "write to a destroyed var" : "read of a destroyed var";
    }
    plain& x = plains_[index(p)];
    if (!known(x.written, v)) {
        clash_ = {true, p, clash::access::write, how, x.written, v.next()};
        return race(writes ? "writes by " : "a read by ", v.thread,
                    writes ? " and " : " and a write by ", x.written.thread);
    }
    if (!writes) {
        x.read[index(v.thread)] = v.next().index;
        return {};
    }
    if (const int t = unknown(x.read, v); t >= 0) {
        const event_id read{static_cast<std::uint8_t>(t), x.read[index(t)]};
        clash_ = {true, p, clash::access::read, how, read, v.next()};
        return race("a write by ", v.thread, " and a read by ", t);
    }
    x.written = v.next();
    return {};
}

std::string memory::read_plain(int p, const view& v) {
    return access_plain(clash::access::read, p, v);
}

std::string memory::write_plain(int p, const view& v) {
    return access_plain(clash::access::write, p, v);
}

std::string memory::drop_plain(int p, const view& v) {
    if (p == outside) {
        return {};
    }
    std::string wrong = write_plain(p, v);
    if (!wrong.empty()) {
        clash_.later = clash::access::destroy;
    }
    if (is_plain(p)) {
        plains_[index(p)].alive = false;
    }
    return wrong.empty() ? wrong : "at its destruction: " + wrong;
}

// ---- What may be done next

std::size_t memory::position(int o, int m) const {
    const auto& mo = at(o).messages;
    return index(static_cast<int>(std::find(mo.begin(), mo.end(), m) - mo.begin()));
}

void memory::readable(int o, const clock& seen, std::vector<int>& out) const {
    out.clear();
    const auto& mo = at(o).messages;
    for (std::size_t i = mo.size(); i-- > 0;) {
        const message& m = msg(mo[i]);
        out.push_back(mo[i]);
        bool floor = m.event >= 0 && seen.covers(m.writer);
        for (std::size_t t = 0; t < max_threads && !floor; ++t) {
            floor = m.first_read[t] != 0 && seen.seen[t] >= m.first_read[t];
        }
        if (floor) {
            return;
        }
    }
}

void memory::places(int o, const clock& seen, std::vector<int>& out) const {
    readable(o, seen, out);
    std::erase_if(out, [&](int m) { return msg(m).taken_by >= 0; });
}

// ---- Doing it

event& memory::add(event::kind what, view& v, site s) {
    event& e = events.emplace_back();
    e.id = v.next();
    e.what = what;
    e.where = s;
    v.steps = e.id.index;
    v.hb.seen[index(v.thread)] = e.id.index;
    v.causes.seen[index(v.thread)] = e.id.index;
    by_thread_[index(v.thread)].push_back(static_cast<int>(events.size()) - 1);
    return e;
}

event& memory::read(int o, int m, order with, bool exclusive, bool quiet, view& v, site s) {
    const clock old = v.hb;
    event& e = add(event::kind::read, v, s);
    message& from = msg(m);
    if (!quiet) {
        v.unfenced.join(from.sync);
        if (is_acquire(with)) {
            v.hb.join(from.sync);
        }
    }
    if (from.event >= 0) {
        v.causes.join(events[index(from.event)].causes);
    }
    e.with = with;
    e.exclusive = exclusive;
    e.object = o;
    e.message = m;
    e.value = from.value;
    e.hb = v.hb;
    e.causes = v.causes;
    const bool ordered = with == order::seq_cst && !quiet;
    if (ordered || (!seq_cst_.empty() && !at(o).queue)) {
        edges added;
        if (ordered) {
            added.node = e.node = seq_cst_.add(e.id, false);
            strongly_before(v.thread, old, added);
        }
        access_edges(access::read, o, position(o, m), v.hb, added);
        seq_cst_.commit(added);
    }
    auto& first = from.first_read[index(v.thread)];
    first = first == 0 ? e.id.index : first;
    from.readers.push_back(index_of(e.id));
    return e;
}

event& memory::write(int o, int behind, bits value, order with, int exclusive_from, bool quiet,
                     view& v, site s) {
    const clock old = v.hb;
    const event_id last{static_cast<std::uint8_t>(v.thread), v.steps};
    const int node = exclusive_from >= 0 ? of(last).node : -1; // of the first half
    const std::size_t place = position(o, behind);
    const int id = make_message();
    event& e = add(event::kind::write, v, s);
    message& m = msg(id);
    m.writer = e.id;
    m.event = index_of(e.id);
    m.value = value;
    m.sync = is_release(with) ? v.hb : quiet ? clock{} : v.released;
    e.with = with;
    e.object = o;
    e.message = id;
    e.value = value;
    e.hb = v.hb;
    e.causes = v.causes;
    if (exclusive_from >= 0) {
        message& from = msg(exclusive_from);
        m.sync.join(from.sync);
        from.taken_by = m.event;
        m.repeats = value == from.value && !quiet;
        e.exclusive = true;
    }
    const bool ordered = with == order::seq_cst && !quiet;
    if (ordered || (!seq_cst_.empty() && !at(o).queue)) {
        edges added;
        if (exclusive_from >= 0 && node >= 0) {
            added.node = e.node = node;
            seq_cst_.move(node, e.id);
        } else if (ordered) {
            added.node = e.node = seq_cst_.add(e.id, false);
            strongly_before(v.thread, old, added);
        }
        access_edges(access::write, o, place, v.hb, added);
        seq_cst_.commit(added);
    }
    auto& mo = at(o).messages;
    mo.insert(mo.begin() + static_cast<std::ptrdiff_t>(place) + 1, id);
    return e;
}

event& memory::fence(order with, view& v, site s) {
    const clock old = v.hb;
    event& e = add(event::kind::fence, v, s);
    if (is_acquire(with)) {
        v.hb.join(v.unfenced);
    }
    if (is_release(with)) {
        v.released = v.hb;
    }
    e.with = with;
    e.hb = v.hb;
    e.causes = v.causes;
    if (with == order::seq_cst) {
        edges added;
        added.node = e.node = seq_cst_.add(e.id, true);
        strongly_before(v.thread, old, added);
        fence_edges(v.hb, added);
        seq_cst_.commit(added);
    }
    return e;
}

event& memory::other(event::kind what, view& v, site s, const char* text) {
    event& e = add(what, v, s);
    e.text = text;
    e.hb = v.hb;
    e.causes = v.causes;
    return e;
}

// ---- The order S

void memory::fences_before(const clock& hb, clock& out) const {
    if (!seq_cst_.has_fences()) {
        return;
    }
    for (const seq_cst_order::node& n : seq_cst_.nodes()) {
        if (n.fence && hb.covers(n.id)) {
            out.join(n.until);
        }
    }
}

// Adds to `out` the operation `e` itself, and the fences that happen before `e`. If `e` is
// coherence-ordered before another operation, all these nodes come before that operation in S.
void memory::before(const event& e, clock& out) const {
    if (e.node >= 0) {
        out.join(seq_cst_.until(e.node));
    }
    fences_before(e.hb, out);
}

// Adds to `out` the operation `e` itself, and the fences that come after `e` by happens-before. If
// another operation is coherence-ordered before `e`, it comes before all these nodes in S.
void memory::after(const event& e, seq_cst_order::firsts& out) const {
    if (e.node >= 0) {
        out.add(seq_cst_.nodes()[index(e.node)]);
    }
    if (!seq_cst_.has_fences()) {
        return;
    }
    for (const seq_cst_order::node& n : seq_cst_.nodes()) {
        if (n.fence && !(n.id == e.id) && of(n.id).hb.covers(e.id)) {
            out.add(n);
        }
    }
}

// Adds the operations of other threads that strongly happen before the new operation of `thread` to
// `out.before`. A path that makes one operation strongly happen before another begins and ends with
// program order. `hb` is the clock of the thread without the synchronisation of the new operation
// itself, so the path ends with program order. The comparison is strict, so the path also begins
// with program order.
void memory::strongly_before(int thread, const clock& hb, edges& out) const {
    for (int t = 0; t < max_threads; ++t) {
        if (t == thread) {
            continue; // add() orders the nodes of one thread
        }
        const auto& theirs = seq_cst_.of_thread(t);
        for (std::size_t n = theirs.size(); n-- > 0;) {
            if (hb.seen[index(t)] > seq_cst_.nodes()[index(theirs[n])].id.index) {
                out.before.join(seq_cst_.until(theirs[n]));
                break;
            }
        }
    }
}

// Adds the edges of an access to `out`. A read of the message at `position` is coherence-ordered
// after the stores up to this position, and after the reads of older stores. It is
// coherence-ordered before the later stores, and before the reads of the later stores. A write that
// is placed behind that message has the same edges, and is also ordered after the reads of the
// message.
void memory::access_edges(access kind, int o, std::size_t position, const clock& hb,
                          edges& out) const {
    const auto& mo = at(o).messages;
    for (std::size_t i = out.node < 0 ? position + 1 : 0; i < mo.size(); ++i) {
        const message& m = msg(mo[i]);
        const auto add = [&](int number) {
            const event& e = events[index(number)];
            if (i > position) {
                after(e, out.after);
            } else if (e.node < 0 ||
                       e.node != out.node) { // it is not the first half of the same operation
                before(e, out.before);
            }
        };
        if (m.event >= 0) {
            add(m.event);
        }
        if (i != position || kind == access::write) {
            for (const int r : m.readers) {
                add(r);
            }
        }
    }
    fences_before(hb, out.fences);
}

// Adds the edges of a new fence to `out`. If an operation A is coherence-ordered before an
// operation B, and B happens before the fence, then A comes before the fence in S.
void memory::fence_edges(const clock& hb, edges& out) const {
    for (std::size_t o = 0; o < object_count_; ++o) {
        const auto& mo = objects_[o].messages;
        std::size_t writes = 0; // stores before this position precede a known operation
        std::size_t reads = 0;  // reads of messages before this position do so, too
        for (std::size_t i = 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            if (m.event >= 0 && hb.covers(m.writer)) {
                writes = std::max(writes, i);
                reads = std::max(reads, i);
            }
            for (std::size_t t = 0; t < max_threads; ++t) {
                if (m.first_read[t] != 0 && hb.seen[t] >= m.first_read[t]) {
                    writes = std::max(writes, i + 1);
                    reads = std::max(reads, i);
                }
            }
        }
        for (std::size_t i = 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            if (i < writes && m.event >= 0) {
                before(events[index(m.event)], out.before);
            }
            if (i < reads) {
                for (const int r : m.readers) {
                    before(events[index(r)], out.before);
                }
            }
        }
    }
}

bool memory::may(access kind, int o, int m, order with, const view& v, const clock& hb, int node) {
    if (seq_cst_.empty() || at(o).queue) {
        return true;
    }
    edges added;
    added.node = node;
    const bool temporary = with == order::seq_cst && node < 0;
    if (temporary) {
        added.node = seq_cst_.add(v.next(), false);
        strongly_before(v.thread, v.hb, added);
    }
    access_edges(kind, o, position(o, m), hb, added);
    const bool allowed = seq_cst_.allows(added);
    if (temporary) {
        seq_cst_.drop_last();
    }
    return allowed;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
