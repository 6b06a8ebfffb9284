// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_MEMORY_HPP
#define BIDE_MODEL_DETAIL_MEMORY_HPP

// The memory model of C++20 ([intro.races], [atomics.order]). It decides which stores a load may
// read from, and where in an object's modification order a store may be placed. Each store makes a
// message, which loads can read.
//
//   happens-before      Vector clocks. The message of a release store has the clock of its thread.
//                       The message of a read-modify-write also has the clock of the message that
//                       was read (the release sequence). An acquire load joins the clock of the
//                       message that it reads.
//   coherence           If a step wrote or read a store, and happens before a load of that object,
//                       the load reads no older store. If it happens before another store, that
//                       store is placed later in the modification order.
//   seq_cst             See the class seq_cst_order.
//   fences              The message of a relaxed store has the clock of the last release fence of
//                       its thread. An acquire fence joins the clocks of all messages that earlier
//                       loads of its thread have read.
//   race, lifetime      Accesses that happens-before does not order are errors.
//
// A step is added after all steps on which it depends by program order or reads-from. So the
// checker can build every execution whose dependencies have no cycle, with any modification order.

#include <bide/core/config.hpp>
#include <bide/model/detail/ops.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// ---- Events, and vector clocks that order them

using bits = ops::bits;
using ops::order;
using ops::site;

inline constexpr int max_threads = 8;

// The number of an object that was not constructed in an execution.
inline constexpr int outside = ops::outside;

inline std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }

// Counts the steps of a thread. It has 16 bits, so that a clock fits into one vector register.
using step_count = std::uint16_t;
inline constexpr int most_steps = 60'000;

// Identifies an event by its thread and by the number of the step in that thread, counted from 1.
// The event has the same identifier in every execution in which the thread makes that step.
struct event_id {
    std::uint8_t thread = initial_thread;
    step_count index = 0;

    static constexpr std::uint8_t initial_thread = 255; // writes the initial values of objects

    bool is_initial() const noexcept { return thread == initial_thread; }
    friend bool operator==(const event_id&, const event_id&) = default;
};

// A vector clock: for each thread, the number of its events that come before.
struct clock {
    std::array<step_count, max_threads> seen{};

    void join(const clock& other) noexcept {
        vector mine = as_vector();
        const vector theirs = other.as_vector();
        mine = mine < theirs ? theirs : mine;
        std::memcpy(&seen, &mine, sizeof mine);
    }
    bool covers(event_id e) const noexcept { return e.is_initial() || seen[e.thread] >= e.index; }

private:
    // Clocks are copied often. A copy is slow if the numbers were stored one by one before. So
    // join() stores all numbers of a clock as one vector.
    using vector [[gnu::vector_size(max_threads * sizeof(step_count))]] = step_count;
    vector as_vector() const noexcept {
        vector all;
        std::memcpy(&all, &seen, sizeof all);
        return all;
    }
};

struct event {
    enum class kind : std::uint8_t {
        read,  // of an atomic or queue object; with `exclusive`, a write of the same step follows
        write, // with `exclusive`, the second half of a read-modify-write
        fence,
        choice,
        local, // another step of a thread: start, end, join, wake-up
    };

    event_id id;
    kind what = kind::local;
    order with = order::relaxed;
    bool exclusive = false;
    int object = -1;
    int message = -1; // the message that a read has read, or that a write has made
    bits value = 0;
    int pick = 0;
    int node = -1;           // in the seq_cst order
    std::uint32_t stamp = 0; // the order of addition; a revisit keeps it (exhaustive.hpp)
    clock hb;                // the events that happen before it, and itself
    clock causes;            // as `hb`, by program order and all reads-from edges
    site where{};
    const char* text = ""; // for traces
};

const char* text(order o);

inline bool same_place(site a, site b) noexcept {
    return a.line == b.line && a.file != nullptr && b.file != nullptr &&
           std::strcmp(a.file, b.file) == 0;
}

constexpr bool is_acquire(order o) noexcept {
    return o == order::acquire || o == order::consume || o == order::acq_rel || o == order::seq_cst;
}
constexpr bool is_release(order o) noexcept {
    return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

// ---- The order S

// The single total order S of the seq_cst operations. Only the edges that C++20 requires
// ([atomics.order] p4) are stored. An order S exists as long as these edges have no cycle. S need
// not agree with the order in which the checker runs the steps, nor with happens-before (P0668).
//
// S contains the program order of each thread. So the operations before a given one are, in each
// thread, the first k operations. The operations after it are, in each thread, all operations from
// some operation on. Both sets are stored as one number for each thread, as in a vector clock: in
// node::until and in `firsts`.
class seq_cst_order {
public:
    struct node {
        event_id id;
        bool fence = false;
        bool leads = false; // a node that was added earlier comes after it
        clock until;        // for each thread, how many nodes come before it; includes itself

        // Returns the number of the node within its thread, counted from 1.
        step_count number() const noexcept { return until.seen[id.thread]; }
    };

    // The first node of each thread.
    class firsts {
    public:
        void add(const node& n) noexcept {
            step_count& first = numbers_[n.id.thread];
            first = std::min(first, n.number());
            any_ = true;
        }
        bool any() const noexcept { return any_; }
        bool meets(const clock& until) const noexcept {
            bool met = false;
            for (std::size_t t = 0; t < max_threads; ++t) {
                met = met || numbers_[t] <= until.seen[t];
            }
            return met;
        }

    private:
        static constexpr step_count none = std::numeric_limits<step_count>::max();
        std::array<step_count, max_threads> numbers_{none, none, none, none,
                                                     none, none, none, none};
        bool any_ = false;
    };

    // The edges that one operation adds to S. The nodes that `before` covers come before `node`.
    // Both `node` and the nodes that `fences` covers come before the nodes in `after`.
    struct edges {
        int node = -1; // of the operation; -1: it has none, and `before` is unused
        clock before;
        clock fences;
        firsts after;
    };

    void clear() noexcept {
        nodes_.clear();
        for (auto& mine : of_thread_) {
            mine.clear();
        }
        has_fences_ = false;
    }
    bool empty() const noexcept { return nodes_.empty(); }
    bool has_fences() const noexcept { return has_fences_; }
    const std::vector<node>& nodes() const noexcept { return nodes_; }
    const clock& until(int n) const noexcept { return nodes_[index(n)].until; }
    // Returns the nodes of a thread, in the order of the thread.
    const std::vector<int>& of_thread(int t) const noexcept { return of_thread_[index(t)]; }

    int add(event_id id, bool fence) {
        auto& mine = of_thread_[id.thread];
        node& n = nodes_.emplace_back();
        n.id = id;
        n.fence = fence;
        if (!mine.empty()) {
            n.until = nodes_[index(mine.back())].until;
        }
        mine.push_back(static_cast<int>(nodes_.size()) - 1);
        n.until.seen[id.thread] = static_cast<step_count>(mine.size());
        has_fences_ = has_fences_ || fence;
        return mine.back();
    }
    // A read-modify-write is one operation. Its place in its thread is that of its second half.
    void move(int n, event_id to) { nodes_[index(n)].id = to; }
    // Takes back the last add().
    void drop_last() {
        of_thread_[nodes_.back().id.thread].pop_back();
        nodes_.pop_back();
    }

    // Returns true if the new edges make no cycle. Each new edge leads to `node` or to a node of
    // `after`. So a cycle would need an old path from `node` to a node of `before`, or from a node
    // of `after` to the beginning of a new edge.
    bool allows(const edges& e) const {
        clock begins = e.fences;
        if (e.node >= 0) {
            const node& x = nodes_[index(e.node)];
            if (e.before.seen[x.id.thread] >= x.number()) {
                return false;
            }
            begins.join(e.before);
            begins.join(x.until);
        }
        return !e.after.meets(begins);
    }

    // Requires: allows(e).
    void commit(const edges& e) {
        clock earlier = e.fences;
        if (e.node >= 0) {
            node& x = nodes_[index(e.node)];
            if (x.leads || e.node + 1 != static_cast<int>(nodes_.size())) {
                for (node& n : nodes_) {
                    if (n.until.seen[x.id.thread] >= x.number()) {
                        n.until.join(e.before);
                    }
                }
            }
            x.until.join(e.before);
            x.leads = x.leads || e.after.any();
            earlier.join(x.until);
        }
        if (e.after.any()) {
            for (node& n : nodes_) {
                if (e.after.meets(n.until)) {
                    n.until.join(earlier);
                }
            }
        }
    }

private:
    std::vector<node> nodes_;
    std::array<std::vector<int>, max_threads> of_thread_;
    bool has_fences_ = false;
};

// ---- The memory

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

// A race or a lifetime error: two accesses that happens-before does not order, or an access to a
// destroyed object. `first` and `second` are the steps of the two accesses. An access that is not a
// step itself belongs to the next step of its thread.
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
    // Returns the write behind which the write `e` was placed.
    event_id placed_behind(const event& e) const {
        const auto& all = at(e.object).messages;
        return msg(*(std::find(all.begin(), all.end(), e.message) - 1)).writer;
    }
    int index_of(event_id id) const { return by_thread_[id.thread][id.index - 1]; }
    // Returns the message of object `o` that the event `id` has written. Returns -1 if the event is
    // not a write of `o`, or does not exist.
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
    // Returns true if `o` is the number of an object. An atomic in freed memory may have another
    // number.
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

    // Sets `out` to the messages of object `o` that a load may read, newest first. `known` is the
    // clock of the load's thread. If an event in `known` has read or written a message, the load
    // reads no older message.
    void readable(int o, const clock& known, std::vector<int>& out) const;
    // Sets `out` to the messages behind which a store may be placed, newest first.
    void places(int o, const clock& known, std::vector<int>& out) const;

    // may_read() returns true if the order S allows a read of the message `m`. `hb` is the clock of
    // the reader after that read. may_write() returns true if S allows a write directly behind `m`.
    // If the write is the second half of a read-modify-write, `node` is the node of the first half
    // in S; otherwise -1.
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
    std::string access_plain(clash::access how, int p, const view& v);
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
