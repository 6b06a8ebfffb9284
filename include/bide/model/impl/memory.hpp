// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_MEMORY_HPP
#define BIDE_MODEL_IMPL_MEMORY_HPP

// The memory model of C++20 ([intro.races], [atomics.order]). It decides which stores a load may
// read from, and where in an object's modification order a store may be placed. Each store makes a
// message, which loads can read.
//
//   happens-before      Vector clocks. The message of a release store has the clock of its thread.
//                       The message of a read-modify-write also has the clock of the message that
//                       was read (the release sequence). An acquire load joins the clock of the
//                       message that it reads.
//   coherence           If a step wrote or read a store, and happens before a load of that object,
//                       the load reads no older store. If the step happens before another store,
//                       that store is placed later in the modification order.
//   seq_cst             See the class seq_cst_order.
//   fences              The message of a relaxed store has the clock of the last release fence of
//                       its thread. An acquire fence joins the clocks of all messages that earlier
//                       loads of its thread have read.
//   race, lifetime      Accesses that happens-before does not order are errors.
//
// A step is added after all steps on which it depends by program order or reads-from. So the
// checker can build every execution whose dependencies have no cycle, with any modification order.

#include <bide/model/impl/places.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// ---- Events, and vector clocks that order them

using bits = ops::bits;
using ops::order;
using ops::site;

using ops::max_threads;

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

// A vector clock: for each thread, how many of its events come before the owner of the clock.
struct clock {
    std::array<step_count, max_threads> seen{};

    void join(const clock& other) noexcept {
        vector mine = as_vector();
        const vector theirs = other.as_vector();
        mine = mine < theirs ? theirs : mine;
        std::memcpy(&seen, &mine, sizeof mine);
    }
    bool covers(event_id e) const noexcept { return e.is_initial() || seen[e.thread] >= e.index; }
    // Adds the event.
    void add(event_id e) noexcept {
        constexpr vector threads{0, 1, 2, 3, 4, 5, 6, 7};
        vector mine = as_vector();
        mine = threads == e.thread ? mine - mine + e.index : mine;
        std::memcpy(&seen, &mine, sizeof mine);
    }

private:
    // Clocks are copied often, as vectors. A processor loads a vector slowly if its numbers were
    // just stored one by one. So join() and add() store all numbers of a clock as one vector.
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
        start, // of the thread `value`
        join,  // of the thread `value`
        local, // another step of a thread: end, wake-up
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

inline bool is_access(const event& e) noexcept {
    return e.what == event::kind::read || e.what == event::kind::write;
}

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
        bool leads = false; // a node that was added earlier comes after it
        clock until;        // for each thread, how many nodes come before it; includes itself

        // Returns the number of the node within its thread, counted from 1.
        step_count number() const noexcept { return until.seen[id.thread]; }
    };

    // A set of nodes, stored as the number of its first node in each thread.
    struct firsts {
        static constexpr step_count none = std::numeric_limits<step_count>::max();
        std::array<step_count, max_threads> numbers{none, none, none, none, none, none, none, none};
        bool any = false;

        void add(const node& n) noexcept {
            step_count& first = numbers[n.id.thread];
            first = std::min(first, n.number());
            any = true;
        }
        bool meets(const clock& until) const noexcept {
            bool met = false;
            for (std::size_t t = 0; t < max_threads; ++t) {
                met = met || numbers[t] <= until.seen[t];
            }
            return met;
        }
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
        fences_.clear();
    }
    bool empty() const noexcept { return nodes_.empty(); }
    const std::vector<node>& nodes() const noexcept { return nodes_; }
    const clock& until(int n) const noexcept { return nodes_[index(n)].until; }
    const std::vector<int>& fences() const noexcept { return fences_; }
    // Returns the nodes of a thread, in the order of the thread.
    const std::vector<int>& of_thread(int t) const noexcept { return of_thread_[index(t)]; }

    int add(event_id id, bool fence) {
        auto& mine = of_thread_[id.thread];
        node& n = nodes_.emplace_back();
        n.id = id;
        if (!mine.empty()) {
            n.until = nodes_[index(mine.back())].until;
        }
        mine.push_back(static_cast<int>(nodes_.size()) - 1);
        n.until.seen[id.thread] = static_cast<step_count>(mine.size());
        if (fence) {
            fences_.push_back(mine.back());
        }
        return mine.back();
    }
    // Changes the identifier of node `n`. A read-modify-write is one node, which first has the
    // identifier of its first half, and then that of its second half.
    void move(int n, event_id to) { nodes_[index(n)].id = to; }
    // Takes back the last add(), which was not that of a fence.
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
            x.leads = x.leads || e.after.any;
            earlier.join(x.until);
        }
        if (e.after.any) {
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
    std::vector<int> fences_;
};

// ---- The memory

// The events that a thread knows.
struct view {
    clock hb{};       // they happen before its next step
    clock causes{};   // its next step depends on them by program order and reads-from
    clock unfenced{}; // the next acquire fence adds them to `hb`
    clock released{}; // `hb` at its last release fence
    step_count steps = 0;
    int thread = 0;

    event_id last() const noexcept { return {static_cast<std::uint8_t>(thread), steps}; }
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
    // The exclusive write placed behind it. In a list of freed blocks: the read that took the block.
    int taken_by = -1;
    bool repeats = false; // made by a read-modify-write that did not change the value
};

struct object {
    bool alive = false;
    bool queue = false; // a futex queue of the kernel: no happens-before, no lifetime
    // The freed blocks of one size (ops.hpp). It is a queue in which a read takes any write that no
    // other read has taken, or the initial value, and does synchronise. Its writes have no order.
    bool free_list = false;
    std::uint8_t users = 0; // a bit for each thread that has made or accessed it
    const char* name = nullptr;
    event_id made;
    event_id dropped; // valid if it is not alive
    int dropped_at = code_places::none;
    std::array<step_count, max_threads> touched{};
    std::vector<int> messages; // in modification order
};

struct plain {
    bool alive = false;
    bool is_memory = false; // a byte, and no model::var
    std::uint8_t users = 0; // a bit for each thread that has accessed it
    event_id written;
    std::array<step_count, max_threads> read{};
    int written_at = code_places::none; // where it was written last
    std::array<int, max_threads> read_at{};
};

// The next step of a thread, as the thread describes it before the step. A request lies on the
// stack of its thread, and find_loop() (execution.hpp) compares stacks. So a request has no
// padding.
struct request {
    enum class kind : int {
        none,
        read,
        write,
        fence,
        choice, // one of `picks` numbers
        spawn,
        end,
        join,  // waits for the end of thread `other`
        sleep, // waits until a wake has taken this thread out of the queue `object`
        pause, // waits until an object that the thread has read changes
        never, // the execution is abandoned
    };
    kind what = kind::none;
    int object = -1;
    order with = order::relaxed;
    order with_failure = order::relaxed; // if `compare` does not read `expected`
    bool exclusive = false;              // read: the first half of a read-modify-write
    bool compare = false;                // it is exclusive only if it reads `expected`
    bool quiet = false;                  // an access by the kernel: it synchronises nothing
    bool inside = false;                 // a later part of one step of the machine
    // For an exclusive write: the message that the first half of the read-modify-write has read.
    // For a sleep: the message whose write has added this thread to the queue.
    int from = -1;
    int picks = 0;
    int other = -1;
    bits expected = 0;
    bits value = 0;
    const clock* known = nullptr; // for a read: the reader knows these events, too
    site where{};
    const char* text = "";
};

inline bool is_access(const request& r) noexcept {
    return r.what == request::kind::read || r.what == request::kind::write;
}

// One possible outcome of a step.
struct outcome {
    int message = -1;       // a read reads it; a write is placed behind it
    int pick = 0;           // of a choice
    bool exclusive = false; // of a read: the write of the same read-modify-write follows
    order with = order::relaxed;
};

// Returns the outcome of a read of a message with the value `value`.
inline outcome outcome_of(const request& r, int message, bits value) noexcept {
    const bool matches = !r.compare || value == r.expected;
    return {.message = message,
            .exclusive = r.exclusive && matches,
            .with = matches ? r.with : r.with_failure};
}

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
    // The places of accesses to plain data.
    int first_at = code_places::none;
    int second_at = code_places::none;
    bool is_memory = false; // a byte, and no model::var
};

// Returns true if the thread of `v` knows the access `e`. An access that a thread makes between two
// of its steps belongs to the later step. So another thread that knows only the earlier step does
// not know the access.
inline bool known(event_id e, const view& v) { return e.thread == v.thread || v.hb.covers(e); }

// Returns the first thread whose last access `v` does not know.
inline int unknown(const std::array<step_count, max_threads>& accesses, const view& v) {
    unsigned threads = 0; // without a branch, as this is called for each access to plain data
    for (unsigned t = 0; t < max_threads; ++t) {
        threads |= static_cast<unsigned>(accesses[t] > v.hb.seen[t]) << t;
    }
    threads &= ~(1u << v.thread);
    return threads == 0 ? -1 : std::countr_zero(threads);
}

constexpr std::string_view thread_name(int thread) {
    return std::string_view("T0T1T2T3T4T5T6T7").substr(2 * static_cast<std::size_t>(thread), 2);
}
inline std::string thread_text(int thread) { return std::string(thread_name(thread)); }

class memory {
public:
    std::vector<event> events; // in the order in which they were added

    void clear() {
        events.clear();
        shares_ = false;
        clash_ = {};
        plains_.clear();
        object_count_ = message_count_ = 0;
        for (auto& thread : by_thread_) {
            thread.clear();
        }
        seq_cst_.clear();
        equals_ = {};
    }

    // ---- Equal threads (exhaustive.hpp)

    // Thread `next` is equal to thread `t`, which has a lower number and was equal to the last.
    void set_equal(int t, int next) {
        equals_[index(t)].next = next;
        equals_[index(next)].previous = t;
    }
    // Returns the thread before the equal thread `t`, or the one after it; -1 if there is none.
    int equal_before(int t) const { return equals_[index(t)].previous; }
    int equal_after(int t) const { return equals_[index(t)].next; }
    // Returns the event of thread `other` that corresponds to the next event of thread `t`. Returns
    // nullptr if there is none, or if the two threads have not done the same so far.
    const event* counterpart(int t, int other) const {
        const auto& mine = of_thread(t);
        const auto& theirs = of_thread(other);
        if (theirs.size() <= mine.size()) {
            return nullptr;
        }
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const event& a = event_at(mine[i]);
            const event& b = event_at(theirs[i]);
            const bool is_private = a.what == event::kind::read || a.what == event::kind::fence ||
                                    a.what == event::kind::choice;
            if (!is_private || a.what != b.what || a.object != b.object || a.message != b.message ||
                a.pick != b.pick) {
                return nullptr;
            }
        }
        return &event_at(theirs[mine.size()]);
    }

    // The next event of thread `t` depends on its counterpart in the equal thread before, so that no
    // revisit keeps that event alone. Adds the causes of the counterpart to `causes`. If that is the
    // first half of a read-modify-write, adds those of the second half.
    void depend_on_equal(int t, clock& causes) const {
        const event* other = equal_before(t) < 0 ? nullptr : counterpart(t, equal_before(t));
        if (other == nullptr || other->what == event::kind::write) {
            return;
        }
        const auto& theirs = of_thread(other->id.thread);
        const bool is_half = other->what == event::kind::read && other->exclusive;
        for (std::size_t i = other->id.index; is_half && i < theirs.size(); ++i) {
            other = &event_at(theirs[i]);
            if (other->what == event::kind::write) {
                break;
            }
        }
        causes.join(other->causes);
    }

    // ---- Objects

    int make_object(bits initial, const view& v, bool queue) {
        if (object_count_ == objects_.size()) {
            objects_.emplace_back();
        }
        const int m = make_message();
        msg(m).value = initial;
        object& o = objects_[object_count_];
        o.alive = true;
        o.queue = queue;
        o.free_list = false;
        o.name = nullptr;
        o.made = queue ? event_id{} : v.next();
        o.touched = {};
        o.users = 0;
        use(o, v);
        o.messages.assign(1, m);
        return static_cast<int>(object_count_++);
    }
    int make_plain(const view& v) {
        const int made = make_watched();
        plains_[index(made)].written = v.next();
        plains_[index(made)].is_memory = false;
        return made;
    }
    // Makes the plain object of a byte that was allocated again.
    int make_memory(const view& v) {
        const int made = make_plain(v);
        plains_[index(made)].is_memory = true;
        return made;
    }
    // Makes a plain object that was constructed before the body began.
    int make_watched() {
        plain& made = plains_.emplace_back();
        made.alive = made.is_memory = true;
        return plains() - 1;
    }
    object& at(int o) { return objects_[index(o)]; }
    const object& at(int o) const { return objects_[index(o)]; }
    message& msg(int m) { return messages_[index(m)]; }
    const message& msg(int m) const { return messages_[index(m)]; }
    const event& of(event_id id) const { return event_at(by_thread_[id.thread][id.index - 1u]); }
    // Returns the messages of object `o` behind `m`, in modification order.
    std::span<const int> behind(int o, int m) const {
        const auto& all = at(o).messages;
        if (at(o).free_list) {
            return {};
        }
        return {std::find(all.begin(), all.end(), m) + 1, all.end()};
    }
    // Returns the place of message `m` in the modification order of object `o`.
    std::size_t position(int o, int m) const {
        const auto& mo = at(o).messages;
        return static_cast<std::size_t>(std::find(mo.begin(), mo.end(), m) - mo.begin());
    }
    // Returns the write that `e` reads. If `e` is a write, returns the write behind which it was
    // placed.
    event_id source_of(const event& e) const {
        const auto& all = at(e.object).messages;
        if (at(e.object).free_list && e.what == event::kind::write) {
            return {};
        }
        return msg(e.what == event::kind::read
                       ? e.message
                       : *(std::find(all.begin(), all.end(), e.message) - 1))
            .writer;
    }
    const event& event_at(int number) const { return events[index(number)]; }
    // Returns the number of the event `id`, or -1 if it does not exist.
    int number_of(event_id id) const {
        const bool exists =
            id.thread < max_threads && id.index != 0 && id.index <= by_thread_[id.thread].size();
        return exists ? by_thread_[id.thread][id.index - 1u] : -1;
    }
    // Returns the numbers of the events of a thread, in their order.
    const std::vector<int>& of_thread(int t) const { return by_thread_[index(t)]; }
    // Returns the event before the event `id` in its thread. For the first event, returns the event
    // that started the thread, or -1 if there is none.
    int predecessor(event_id id) const {
        if (id.index > 1) {
            return number_of({id.thread, static_cast<step_count>(id.index - 1)});
        }
        const auto at = std::find_if(events.begin(), events.end(), [&](const event& e) {
            return e.what == event::kind::start && e.value == id.thread;
        });
        return at == events.end() ? -1 : static_cast<int>(at - events.begin());
    }
    // Returns the message of object `o` that the event `id` has written. Returns -1 if the event is
    // not a write of `o`, or does not exist.
    int written_by(event_id id, int o) const {
        if (id.is_initial()) {
            return at(o).messages.front();
        }
        const int number = number_of(id);
        if (number < 0) {
            return -1;
        }
        const event& e = event_at(number);
        return e.what == event::kind::write && e.object == o ? e.message : -1;
    }
    // Returns true if `o` is the number of an object. An atomic in freed memory may contain any
    // number.
    bool is_object(int o) const noexcept { return o >= 0 && o < static_cast<int>(object_count_); }
    bool is_plain(int p) const noexcept {
        return p >= 0 && p < plains() && plains_[index(p)].alive;
    }
    // Returns true if no thread of the body has written the plain object.
    bool is_unwritten(int p) const noexcept { return plains_[index(p)].written.is_initial(); }
    // Notes that the thread uses the object.
    template <class Object> void use(Object& o, const view& v) noexcept {
        o.users = static_cast<std::uint8_t>(o.users | 1u << v.thread);
        shares_ = shares_ || (o.users & (o.users - 1)) != 0;
    }
    // Returns true if two threads have used the same object.
    bool shares() const noexcept { return shares_; }
    // The last clash that touch(), drop() or access_plain() has found.
    const clash& found() const noexcept { return clash_; }
    int plains() const noexcept { return static_cast<int>(plains_.size()); }
    int objects() const noexcept { return static_cast<int>(object_count_); }

    // Each returns the error of the access or destruction; nullptr if there is none.
    const std::string* touch(int o, const view& v) {
        object& x = at(o);
        if (!x.alive) {
            return wrong({false, o, clash::access::destroy, clash::access::use, x.dropped, v.next(),
                          x.dropped_at},
                         {"access to a destroyed atomic"});
        }
        if (!known(x.made, v)) {
            return wrong({false, o, clash::access::make, clash::access::use, x.made, v.next()},
                         {"access to an atomic whose construction by ", thread_name(x.made.thread),
                          " does not happen before"});
        }
        x.touched[index(v.thread)] = v.next().index;
        use(x, v);
        return nullptr;
    }
    const std::string* drop(int o, const view& v, int place = code_places::none) {
        object& x = at(o);
        if (const int t = unknown(x.touched, v); t >= 0) {
            const event_id use{static_cast<std::uint8_t>(t), x.touched[index(t)]};
            return wrong({false, o, clash::access::use, clash::access::destroy, use, v.next(),
                          code_places::none, place},
                         {"an atomic is destroyed, but an access by ", thread_name(t),
                          " does not happen before"});
        }
        x.alive = false;
        x.dropped = v.next();
        x.dropped_at = place;
        return nullptr;
    }
    // `how` is read, write or destroy. A destruction is a write, too.
    const std::string* access_plain(clash::access how, int p, const view& v,
                                    int place = code_places::none) {
        const bool writes = how != clash::access::read;
        const bool drops = how == clash::access::destroy;
        const std::string_view when = drops ? "at its destruction: " : "";
        if (p == outside) {
            return drops ? nullptr : wrong({}, {"a var that was not made by the body"});
        }
        if (p < 0 || p >= plains() || !plains_[index(p)].alive) {
            const bool was_made = p >= 0 && p < plains();
            return wrong({true, was_made ? p : -1, clash::access::destroy, how,
                          was_made ? plains_[index(p)].written : event_id{}, v.next(),
                          was_made ? plains_[index(p)].written_at : code_places::none, place},
                         {when, writes ? "write to a destroyed var" : "read of a destroyed var"});
        }
        plain& x = plains_[index(p)];
        use(x, v);
        if (!known(x.written, v)) {
            return wrong(
                {true, p, clash::access::write, how, x.written, v.next(), x.written_at, place},
                {when, "data race: ", writes ? "writes by " : "a read by ", thread_name(v.thread),
                 writes ? " and " : " and a write by ", thread_name(x.written.thread)});
        }
        if (!writes) {
            x.read[index(v.thread)] = v.next().index;
            x.read_at[index(v.thread)] = place;
            return nullptr;
        }
        if (const int t = unknown(x.read, v); t >= 0) {
            const event_id read{static_cast<std::uint8_t>(t), x.read[index(t)]};
            return wrong(
                {true, p, clash::access::read, how, read, v.next(), x.read_at[index(t)], place},
                {when, "data race: a write by ", thread_name(v.thread), " and a read by ",
                 thread_name(t)});
        }
        x.written = v.next();
        x.written_at = place;
        x.alive = !drops;
        return nullptr;
    }

    // Memory may be accessed as plain data and as an atomic, by different instructions. Checks an
    // access as an atomic against the plain ones.
    const std::string* access_as_atomic(bool writes, int p, const view& v, int place) {
        const plain& x = plains_[index(p)];
        const auto how = clash::access::use;
        if (!x.alive) {
            return wrong(
                {true, p, clash::access::destroy, how, x.written, v.next(), x.written_at, place},
                {"an atomic access to memory that was freed by ", thread_name(x.written.thread)});
        }
        if (!known(x.written, v)) {
            return wrong(
                {true, p, clash::access::write, how, x.written, v.next(), x.written_at, place},
                {"data race: an atomic access by ", thread_name(v.thread), " and a plain write by ",
                 thread_name(x.written.thread)});
        }
        if (const int t = unknown(x.read, v); writes && t >= 0) {
            const event_id read{static_cast<std::uint8_t>(t), x.read[index(t)]};
            return wrong(
                {true, p, clash::access::read, how, read, v.next(), x.read_at[index(t)], place},
                {"data race: an atomic write by ", thread_name(v.thread), " and a plain read by ",
                 thread_name(t)});
        }
        return nullptr;
    }
    // Checks a plain access to an atomic against the accesses as an atomic.
    const std::string* access_as_plain(bool writes, int o, const view& v, int place) {
        const object& x = at(o);
        event_id other{};
        for (const int m : x.messages) {
            other = known(msg(m).writer, v) ? other : msg(m).writer;
        }
        if (const int t = unknown(x.touched, v); writes && t >= 0) {
            other = {static_cast<std::uint8_t>(t), x.touched[index(t)]};
        }
        return other.is_initial() ? nullptr
                                  : wrong({false, o, clash::access::use,
                                           writes ? clash::access::write : clash::access::read,
                                           other, v.next(), code_places::none, place},
                                          {"data race: a plain ", writes ? "write by " : "read by ",
                                           thread_name(v.thread), " and an atomic access by ",
                                           thread_name(other.thread)});
    }

    // ---- The possible next steps

    // Sets `out` to the messages of object `o` that a load may read, newest first. `seen` is the
    // clock of the load's thread. If an event in `seen` has read or written a message, the load
    // reads no older message.
    void readable(int o, const clock& seen, std::vector<int>& out) const {
        out.clear();
        const auto& mo = at(o).messages;
        for (std::size_t i = mo.size(); i-- > 0;) {
            const message& m = msg(mo[i]);
            out.push_back(mo[i]);
            bool floor = m.event >= 0 && seen.covers(m.writer);
            for (std::size_t t = 0; t < max_threads; ++t) {
                floor = floor || (m.first_read[t] != 0 && seen.seen[t] >= m.first_read[t]);
            }
            if (floor) {
                return;
            }
        }
    }
    // Sets `out` to the messages behind which a store may be placed, newest first.
    void places(int o, const clock& seen, std::vector<int>& out) const {
        readable(o, seen, out);
        std::erase_if(out, [&](int m) { return msg(m).taken_by >= 0; });
    }

    // Returns true if the order S allows a read of the message `m`, or a write directly behind it.
    // `hb` is the clock of the thread after the access. If the write is the second half of a
    // read-modify-write, `node` is the node of the first half in S; otherwise -1.
    bool allows(event::kind what, int o, int m, order with, const view& v, const clock& hb,
                int node) {
        if (seq_cst_.empty() || at(o).queue) {
            return true;
        }
        const edges added = access_edges(what, o, position(o, m), with, node, v.next(), v.hb, hb);
        const bool allowed = seq_cst_.allows(added);
        if (added.node != node) {
            seq_cst_.drop_last();
        }
        return allowed;
    }

    // ---- Steps. Each function adds an event and returns it.

    event& read(const request& r, const outcome& chosen, view& v) {
        const clock old = v.hb;
        event& e = add(event::kind::read, r, v);
        message& from = msg(chosen.message);
        if (!r.quiet) {
            v.unfenced.join(from.sync);
            if (is_acquire(chosen.with)) {
                v.hb.join(from.sync);
            }
        }
        if (from.event >= 0) {
            v.causes.join(event_at(from.event).causes);
        }
        e.with = chosen.with;
        e.exclusive = chosen.exclusive;
        e.message = chosen.message;
        e.value = from.value;
        e.hb = v.hb;
        e.causes = v.causes;
        add_edges(e, e.message, -1, old);
        auto& first = from.first_read[index(v.thread)];
        first = first == 0 ? e.id.index : first;
        from.readers.push_back(number_of(e.id));
        if (at(e.object).free_list && from.event >= 0) {
            from.taken_by = number_of(e.id);
        }
        return e;
    }
    event& write(const request& r, int behind, view& v) {
        const clock old = v.hb;
        const int node = r.exclusive ? of(v.last()).node : -1; // of the first half
        const int id = make_message();
        event& e = add(event::kind::write, r, v);
        message& m = msg(id);
        m.writer = e.id;
        m.event = number_of(e.id);
        m.value = e.value = r.value;
        m.sync = is_release(r.with) ? v.hb : r.quiet ? clock{} : v.released;
        e.message = id;
        e.exclusive = r.exclusive;
        if (r.exclusive) {
            message& from = msg(r.from);
            m.sync.join(from.sync);
            from.taken_by = m.event;
            m.repeats = r.value == from.value && !r.quiet;
        }
        add_edges(e, behind, node, old);
        auto& mo = at(r.object).messages;
        mo.insert(std::find(mo.begin(), mo.end(), behind) + 1, id);
        return e;
    }
    event& fence(const request& r, view& v) {
        const clock old = v.hb;
        event& e = add(event::kind::fence, r, v);
        if (is_acquire(r.with)) {
            v.hb.join(v.unfenced);
        }
        if (is_release(r.with)) {
            v.released = v.hb;
        }
        e.hb = v.hb;
        if (r.with == order::seq_cst) {
            edges added;
            added.node = e.node = seq_cst_.add(e.id, true);
            strongly_before(v.thread, old, added);
            fence_edges(v.hb, added);
            seq_cst_.commit(added);
        }
        return e;
    }
    event& add(event::kind what, const request& r, view& v) {
        depend_on_equal(v.thread, v.causes);
        event& e = events.emplace_back();
        e.id = v.next();
        e.what = what;
        e.with = r.with;
        e.object = r.object;
        e.where = r.where;
        e.text = r.text;
        v.steps = e.id.index;
        v.hb.add(e.id);
        v.causes.add(e.id);
        e.hb = v.hb;
        e.causes = v.causes;
        by_thread_[index(v.thread)].push_back(static_cast<int>(events.size()) - 1);
        return e;
    }

private:
    using edges = seq_cst_order::edges;

    // Adds the edges of an access in S. `node` is as in allows(), and `old` as in access_edges().
    void add_edges(event& e, int message, int node, const clock& old) {
        if (e.with != order::seq_cst && (seq_cst_.empty() || at(e.object).queue)) {
            return;
        }
        if (node >= 0) {
            seq_cst_.move(node, e.id);
        }
        const edges added = access_edges(e.what, e.object, position(e.object, message), e.with,
                                         node, e.id, old, e.hb);
        e.node = added.node;
        seq_cst_.commit(added);
    }

    int make_message() {
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
    // Adds to `out` the operation `e` itself, and the fences that happen before `e`. If `e` is
    // coherence-ordered before another operation, all these nodes come before that operation in S.
    void before(const event& e, clock& out) const {
        if (e.node >= 0) {
            out.join(seq_cst_.until(e.node));
        }
        fences_before(e.hb, out);
    }
    // Adds to `out` the operation `e` itself, and the fences that come after `e` by happens-before.
    // If another operation is coherence-ordered before `e`, that operation comes before all these
    // nodes in S.
    void after(const event& e, seq_cst_order::firsts& out) const {
        if (e.node >= 0) {
            out.add(seq_cst_.nodes()[index(e.node)]);
        }
        for (const int f : seq_cst_.fences()) {
            const seq_cst_order::node& n = seq_cst_.nodes()[index(f)];
            if (!(n.id == e.id) && of(n.id).hb.covers(e.id)) {
                out.add(n);
            }
        }
    }
    // Returns true if there is such a fence.
    bool fences_before(const clock& hb, clock& out) const {
        bool any = false;
        for (const int f : seq_cst_.fences()) {
            if (hb.covers(seq_cst_.nodes()[index(f)].id)) {
                out.join(seq_cst_.until(f));
                any = true;
            }
        }
        return any;
    }
    // Adds to `out.before` the operations of other threads that strongly happen before the new
    // operation of `thread`. A path of happens-before must lead from such an operation to the new
    // one, and must begin and end with program order. It ends with program order, because `hb` is
    // the clock of the thread without the synchronisation of the new operation. It begins with
    // program order, because the comparison is strict: `hb` must know a step that the thread of the
    // old operation has made after it.
    void strongly_before(int thread, const clock& hb, edges& out) const {
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
    // Returns the edges of the access `id`. If the access is seq_cst, adds a node for it.
    // Exception: if the access is the second half of a read-modify-write, `node` is the node of the
    // first half, and no node is added. `old` and `hb` are the clocks of the thread without and
    // with the synchronisation of this access.
    //
    // A read of the message at `position` is coherence-ordered after the store of that message,
    // after the older stores, and after the reads of older stores. It is coherence-ordered before
    // the later stores, and before the reads of the later stores. A write that is placed behind
    // that message has the same edges, and is also ordered after the reads of the message.
    edges access_edges(event::kind what, int o, std::size_t position, order with, int node,
                       event_id id, const clock& old, const clock& hb) {
        edges out;
        out.node = node;
        if (node < 0 && with == order::seq_cst) {
            out.node = seq_cst_.add(id, false);
            strongly_before(id.thread, old, out);
        }
        const bool follows_fence = fences_before(hb, out.fences);
        if (out.node < 0 && !follows_fence) {
            return out; // nothing comes before the nodes that follow
        }
        const auto& mo = at(o).messages;
        for (std::size_t i = out.node < 0 ? position + 1 : 0; i < mo.size(); ++i) {
            const message& m = msg(mo[i]);
            const auto add = [&](int number) {
                const event& e = event_at(number);
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
            if (i != position || what == event::kind::write) {
                for (const int r : m.readers) {
                    add(r);
                }
            }
        }
        return out;
    }
    // Adds the edges of a new fence to `out`. If an operation A is coherence-ordered before an
    // operation B, and B happens before the fence, then A comes before the fence in S.
    void fence_edges(const clock& hb, edges& out) const {
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
                    before(event_at(m.event), out.before);
                }
                if (i < reads) {
                    for (const int r : m.readers) {
                        before(event_at(r), out.before);
                    }
                }
            }
        }
    }

    // Returns the text that the parts make. If a body is watched (model/watch.hpp), the linker may
    // make the checker use the code of std::string that was compiled for the body. That code
    // reports each access to the checker. While a heap::leave exists, such reports are ignored.
    const std::string* wrong(const clash& c, std::initializer_list<std::string_view> parts) {
        const heap::leave guard;
        clash_ = c;
        clash_.is_memory = c.plain && c.object >= 0 && plains_[index(c.object)].is_memory;
        wrong_.clear();
        for (const std::string_view part : parts) {
            wrong_ += part;
        }
        return &wrong_;
    }

    bool shares_ = false;
    clash clash_;
    std::string wrong_; // the last error
    std::vector<object> objects_;
    std::size_t object_count_ = 0;
    std::vector<message> messages_;
    std::size_t message_count_ = 0;
    std::vector<plain> plains_;
    std::array<std::vector<int>, max_threads> by_thread_;
    seq_cst_order seq_cst_;
    struct neighbours {
        int previous = -1;
        int next = -1;
    };
    std::array<neighbours, max_threads> equals_; // of each thread, among threads that are equal
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
