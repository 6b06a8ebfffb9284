// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_MEMORY_HPP
#define BIDE_MODEL_DETAIL_MEMORY_HPP

// The memory model: which stores a load may read from, and where in an object's modification order
// a store may be placed, by the rules of C++20 ([intro.races], [atomics.order]):
//
//   happens-before      vector clocks; a message carries the clock that an acquire of it joins
//                       (its release sequence: the store and the read-modify-writes upon it)
//   coherence           a load reads no store older than one that was written or read by a step
//                       which happens before it; a store is placed after that one
//   seq_cst             seq_cst.hpp
//   fences              a relaxed store carries the clock of the last release fence; what relaxed
//                       loads saw is joined by the next acquire fence
//   race, lifetime      accesses that are not ordered by happens-before
//
// A step is added when all steps that it depends on (program order, reads-from) were added. So
// every execution without a cycle of these dependencies can be built, with any modification order.

#include <bide/core/config.hpp>
#include <bide/model/detail/graph.hpp>
#include <bide/model/detail/seq_cst.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// The events that a thread knows.
struct view {
    clock hb;       // they happen before its next step
    clock causes;   // its next step depends on them by program order and reads-from
    clock unfenced; // the next acquire fence adds them to `hb`
    clock released; // `hb` at its last release fence
    step_count steps = 0;
    int thread = 0;

    event_id next() const noexcept {
        return {static_cast<std::uint8_t>(thread), static_cast<step_count>(steps + 1)};
    }
};

struct message {
    event_id writer;
    int event = -1; // -1: the initial value
    bits value = 0;
    clock sync;
    std::array<step_count, max_threads> first_read{}; // the step of each thread that read it first
    std::vector<int> readers;                         // the events that have read it
    int taken_by = -1;                                // the exclusive write placed behind it
    bool repeats = false; // made by a read-modify-write that did not change the value
};

struct object {
    bool alive = false;
    bool queue = false; // a futex queue of the kernel: no happens-before, no lifetime
    const char* name = nullptr;
    event_id made;
    event_id dropped; // valid if it is not alive
    std::array<step_count, max_threads> touched{};
    std::vector<int> messages; // in modification order
};

struct plain {
    bool alive = false;
    event_id written;
    std::array<step_count, max_threads> read{};
};

// Two accesses that are not ordered, or an access to a destroyed object. Each access is a step of
// its thread, or lies directly before that step.
struct clash {
    enum class access : std::uint8_t { read, write, make, destroy, use };
    bool plain = false;
    int object = -1; // -1: there is no clash
    access earlier = access::use;
    access later = access::use;
    event_id first;
    event_id second;
};

class memory {
public:
    std::vector<event> events; // in the order in which they were added

    void clear();

    // ---- Objects

    int make_object(bits initial, const view& v, bool queue);
    int make_plain(const view& v);
    // Makes a plain object that was constructed before the body began.
    int make_watched();
    object& at(int o) { return objects_[static_cast<std::size_t>(o)]; }
    const object& at(int o) const { return objects_[static_cast<std::size_t>(o)]; }
    message& msg(int m) { return messages_[static_cast<std::size_t>(m)]; }
    const message& msg(int m) const { return messages_[static_cast<std::size_t>(m)]; }
    const event& of(event_id id) const {
        return events[static_cast<std::size_t>(by_thread_[id.thread][id.index - 1])];
    }
    // Returns the messages of object `o` behind `m`, in modification order.
    std::span<const int> behind(int o, int m) const {
        const auto& all = at(o).messages;
        return {std::find(all.begin(), all.end(), m) + 1, all.end()};
    }
    int index_of(event_id id) const { return by_thread_[id.thread][id.index - 1]; }
    // Returns the message of object `o` that the event has written; -1 if the event is not a write
    // of `o`, or does not exist.
    int written_by(event_id id, int o) const {
        if (id.is_initial()) {
            return at(o).messages.front();
        }
        if (id.thread >= max_threads || id.index > by_thread_[id.thread].size()) {
            return -1;
        }
        const event& e = of(id);
        return e.what == event::kind::write && e.object == o ? e.message : -1;
    }
    // Returns false for other numbers, as freed memory has them.
    bool is_object(int o) const noexcept { return o >= 0 && o < static_cast<int>(object_count_); }
    bool is_plain(int p) const noexcept {
        return p >= 0 && p < static_cast<int>(plain_count_) &&
               plains_[static_cast<std::size_t>(p)].alive;
    }
    // The last clash that one of the functions from touch() to drop_plain() has found.
    const clash& found() const noexcept { return clash_; }
    int plains() const noexcept { return static_cast<int>(plain_count_); }
    int objects() const noexcept { return static_cast<int>(object_count_); }

    // Each returns the error of the access or destruction; "" if there is none.
    std::string touch(int o, const view& v);
    std::string drop(int o, const view& v);
    std::string read_plain(int p, const view& v);
    std::string write_plain(int p, const view& v);
    std::string drop_plain(int p, const view& v);

    // ---- The possible next steps

    // Sets `out` to the messages of object `o` that a reader may read, newest first. The reader
    // knows the events of `known`. So it reads no message older than those that they read or wrote.
    void readable(int o, const clock& known, std::vector<int>& out) const;
    // Sets `out` to the messages behind which a store may be placed, newest first.
    void places(int o, const clock& known, std::vector<int>& out) const;

    // may_read() returns true if the order S of C++20 allows a read of `m` after which the reader's
    // clock is `hb`. may_write() returns true if S allows a write behind `m`. `node` is the first
    // half of a read-modify-write, or -1.
    bool may_read(int o, int m, order with, const view& v, const clock& hb) {
        return may(access::read, o, m, with, v, hb, -1);
    }
    bool may_write(int o, int m, order with, const view& v, int node) {
        return may(access::write, o, m, with, v, v.hb, node);
    }

    // ---- Steps. Each function adds an event and returns it.

    // If `quiet` is true, the kernel makes the access, and it synchronises nothing.
    event& read(int o, int m, order with, bool exclusive, bool quiet, view& v, site s);
    event& write(int o, int after, bits value, order with, int exclusive_from, bool quiet, view& v,
                 site s);
    event& fence(order with, view& v, site s);
    event& other(event::kind what, view& v, site s, const char* text);

private:
    using edges = seq_cst_order::edges;
    enum class access : std::uint8_t { read, write };

    bool may(access kind, int o, int m, order with, const view& v, const clock& hb, int node);

    event& add(event::kind what, view& v, site s);
    int make_message();
    std::size_t position(int o, int m) const;

    void before(const event& e, clock& out) const;
    void after(const event& e, seq_cst_order::firsts& out) const;
    void fences_before(const clock& hb, clock& out) const;
    void strongly_before(int thread, const clock& hb, edges& out) const;
    void access_edges(access kind, int o, std::size_t position, const clock& hb, edges& out) const;
    void fence_edges(const clock& hb, edges& out) const;

    clash clash_;
    std::vector<object> objects_;
    std::size_t object_count_ = 0;
    std::vector<message> messages_;
    std::size_t message_count_ = 0;
    std::vector<plain> plains_;
    std::size_t plain_count_ = 0;
    std::array<std::vector<int>, max_threads> by_thread_;
    seq_cst_order seq_cst_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
