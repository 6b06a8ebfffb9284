// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_TASK_GRAPH_HPP
#define BIDE_PARALLEL_TASK_GRAPH_HPP

/// \file
/// A graph of functions and coroutines that depend on each other. It can run any number of times.
//
// How a graph runs.
//
// A node is a runnable. Each node counts the predecessors that it still waits for:
//
//   n > 0    The node waits for n predecessors. A node without a predecessor, or with conditions
//            alone, has the count 1, which no predecessor decrements.
//   0        The node is started: it is queued, it runs, or its subgraph runs.
//
// A predecessor decrements the count when it has ended. The one that changes the count from 1 to 0
// starts the node. A condition starts the node that it picks by an exchange for
// 0, whatever the count was. When a node has ended, it first sets its count for its next start
// [task_graph.again], and only then looks at its successors, because a successor may lead back to
// it. So a count is correct again as soon as its node has ended, and a run needs no loop over the
// nodes. There are two exceptions, after which the next run sets all counts first: a run that was
// cancelled, and a graph with conditions, because a condition may leave nodes between their first
// and their last predecessor.
//
// If a node is started while it is started, two threads would run it at once. Both the decrement
// and the exchange then read 0, and the program terminates with a message.
//
// A graph counts its nodes that are started. A node that ends passes its place
// in this count to the first successor that it starts, and its thread runs this successor next. So
// in a chain of nodes, no thread changes the count. The node that makes the count zero ends the
// graph. If the graph belongs to a node of another graph, that node then ends; if not, the run
// ends.
//
// A run is a task of the scheduler: the scheduler counts it, refuses it, and waits for it in
// shutdown(). It is also the first member of a task_group's inner part (basic_group). The tasks of
// coroutine nodes are the other members. A cancellation of the group sets the flag of the run, and
// interrupts the waits of the coroutines. Each thread reads the flag before it calls a function.
// After a cancellation, the nodes that are started end without a call, and start no successors.
//
// If a run has a limit, a node needs a place before it is queued. A lock guards the number of used
// places and the list of the nodes that wait for one. When a node ends, its place goes to the
// oldest node in the list. A node returns its place before it lets its successors start, because it
// may not access the run after it has left the count of its graph.

#include <bide/parallel/fork_policy.hpp>
#include <bide/sched/task_group.hpp>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

class task_graph;

namespace detail {

template <class Platform> class basic_graph;
template <class Platform> class basic_graph_run;

// A node. The derived class contains its function.
template <class Platform> struct basic_graph_node : runnable {
    // Calls the function. Returns the node that the calling thread runs next, or nullptr.
    using call_function = basic_graph_node* (*)(basic_graph_node&) noexcept;
    using destroy_function = void (*)(basic_graph_node*) noexcept;

    basic_graph_node(basic_graph<Platform>& in, call_function how, destroy_function end) noexcept
        : graph(in), call(how), destroy(end) {
        run = waker(
            [](void* self) noexcept {
                auto& mine = *static_cast<basic_graph_node*>(self);
                mine.graph.current->execute(mine);
            },
            this);
    }
    basic_graph_node& operator=(basic_graph_node&&) = delete;

    std::uint32_t first_count() const noexcept { return strong == 0 ? 1 : strong; }

    // Counts the end of a predecessor. Returns true if it was the last one.
    bool count_predecessor() noexcept {
        if (strong == 1 && weak == 0) {
            // Order: acquire [task_graph.again]; the node sees what its last call did.
            require_ended(left.load(std::memory_order_acquire));
            // Order: relaxed; only the node and its one predecessor change the count.
            left.store(0, std::memory_order_relaxed);
            return true;
        }
        // Order: acq_rel [task_graph.again]; the last predecessor, and so the node, sees what the
        // others did and what the last call of the node did. Each of them reads this count or one
        // that was derived from it by other predecessors.
        const std::uint32_t before = left.fetch_sub(1, std::memory_order_acq_rel);
        require_ended(before);
        return before == 1;
    }
    // Starts the node because a condition has picked it.
    void pick() noexcept {
        // Order: acquire [task_graph.again]; the node sees what its last call did.
        require_ended(left.exchange(0, std::memory_order_acquire));
    }
    void set_count() noexcept {
        // Order: release [task_graph.again]; the next call of the node sees what this one did.
        left.store(first_count(), std::memory_order_release);
    }

    basic_graph<Platform>& graph;
    const call_function call;
    const destroy_function destroy;
    basic_graph_node** successors = nullptr; // set by check()
    std::uint32_t num_successors = 0;
    std::uint32_t strong = 0; // predecessors that are no conditions
    std::uint32_t weak = 0;   // conditions
    typename Platform::template atomic<std::uint32_t> left{1};
    std::uint32_t number = 0;  // in the order of the additions
    std::uint32_t scratch = 0; // of check()
    bool is_condition = false;
    const basic_graph<Platform>* inner = nullptr; // the subgraph, if the node has one

protected:
    ~basic_graph_node() = default;

private:
    void require_ended(std::uint32_t count) const noexcept {
        if (count == 0) {
            fatal("task_graph", &graph, "a node was started again before it had ended");
        }
    }
};

// The memory of the nodes of a graph: blocks, which are filled one after the other.
class graph_memory {
public:
    // Throws: std::bad_alloc.
    void* take(std::size_t size, std::size_t alignment) {
        for (;; ++filled_, used_ = 0) {
            if (filled_ == blocks_.size()) {
                const std::size_t wanted = (std::max)(block_size, size + alignment);
                blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(wanted), wanted});
            }
            const block& now = blocks_[filled_];
            void* at = now.bytes.get() + used_;
            std::size_t room = now.size - used_;
            if (std::align(alignment, size, at, room) != nullptr) {
                used_ = now.size - room + size;
                return at;
            }
        }
    }
    // Makes all memory free again, and keeps the blocks.
    void clear() noexcept { filled_ = used_ = 0; }

private:
    static constexpr std::size_t block_size = 4'000; // with the header of the heap, one page

    struct block {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t size;
    };
    std::vector<block> blocks_;
    std::size_t filled_ = 0; // blocks
    std::size_t used_ = 0;   // bytes of the next block
};

// The nodes of a graph, and the state of its run. Only the owner of the graph changes it, while it
// does not run.
template <class Platform> class basic_graph {
    using node = basic_graph_node<Platform>;
    using run_type = basic_graph_run<Platform>;
    struct destroy_node {
        void operator()(node* n) const noexcept { n->destroy(n); }
    };
    struct edge {
        node* from;
        node* to;
    };

public:
    basic_graph() = default;
    basic_graph& operator=(basic_graph&&) = delete;
    ~basic_graph() { require_idle("destroyed while it runs"); }

    const auto& nodes() const noexcept { return nodes_; }
    const auto& edges() const noexcept { return edges_; }
    bool has_conditions() const noexcept { return has_conditions_; }

    void require_idle(const char* misuse) const noexcept {
        // Order: relaxed; this only checks a precondition.
        if (runs_.load(std::memory_order_relaxed)) {
            fatal("task_graph", this, misuse);
        }
    }

    // Adds a node that is constructed from this graph and `args`.
    template <class Node, class... Args> Node& add(std::string_view name, Args&&... args) {
        require_idle("changed while it runs");
        if (!name.empty()) {
            names_.resize(nodes_.size());
            names_.emplace_back(name);
        }
        is_checked_ = false;
        void* const place = memory_.take(sizeof(Node), alignof(Node));
        auto& made = *::new (place) Node(*this, std::forward<Args>(args)...);
        std::unique_ptr<node, destroy_node> mine(&made);
        made.number = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back(std::move(mine));
        has_conditions_ = has_conditions_ || made.is_condition;
        return made;
    }
    void precede(node& from, node& to) {
        require_idle("changed while it runs");
        if (&to.graph != this) {
            BIDE_THROW(std::invalid_argument("bide::task_graph: an edge between two graphs"));
        }
        edges_.push_back({&from, &to});
        ++from.num_successors;
        ++(from.is_condition ? to.weak : to.strong);
        is_checked_ = false;
    }
    void clear() noexcept {
        require_idle("changed while it runs");
        edges_.clear();
        nodes_.clear();
        names_.clear();
        memory_.clear();
        has_conditions_ = false;
        is_checked_ = false;
    }

    // Returns the name of a node, or an empty text.
    std::string given_name(const node& n) const {
        return n.number < names_.size() ? names_[n.number] : std::string();
    }
    // Returns the name of a node, or its number.
    std::string name_of(const node& n) const {
        const std::string name = given_name(n);
        return name.empty() ? '#' + std::to_string(n.number) : name;
    }

    // Finds the nodes that a run starts with, and sets all counts.
    // Throws: std::invalid_argument, if the graph cannot run.
    void check();

    // Called when a run begins, and when it has ended.
    void begin(run_type& of, node* parent) noexcept {
        // Order: relaxed; this only detects a misuse.
        if (runs_.exchange(true, std::memory_order_relaxed)) {
            fatal("task_graph", this, "run while it runs");
        }
        if (has_stale_counts_) {
            set_counts();
        }
        current = &of;
        parent_ = parent;
        // Order: relaxed; the nodes are posted later.
        active_.store(starts_.size(), std::memory_order_relaxed);
    }
    void end() noexcept {
        has_stale_counts_ = has_conditions_ || current->was_cancelled();
        // Order: relaxed; the end of the run publishes what the nodes did.
        runs_.store(false, std::memory_order_relaxed);
    }

    const std::vector<node*>& starts() const noexcept { return starts_; }
    node* parent() const noexcept { return parent_; }

    // Counts a node that the caller is about to start. The caller is a node that has not left.
    void enter() noexcept {
        // Order: relaxed; the caller leaves later.
        active_.fetch_add(1, std::memory_order_relaxed);
    }
    // Counts a node that has ended. Returns true if the graph has ended. If the result is false,
    // the caller does not access the graph or the run any more.
    bool leave() noexcept {
        // Order: acq_rel; what follows the end of the graph sees what all nodes did: the last one
        // reads a count that all others have changed.
        return active_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    run_type* current = nullptr; // valid during a run

private:
    void set_counts() noexcept {
        for (const auto& n : nodes_) {
            n->set_count();
        }
    }
    void set_successors();
    std::string cycle_among_unvisited() const;

    graph_memory memory_;
    std::vector<std::unique_ptr<node, destroy_node>> nodes_;
    std::vector<std::string> names_; // may be shorter than nodes_
    std::vector<edge> edges_;
    std::vector<node*> successors_; // of all nodes
    std::vector<node*> starts_;
    node* parent_ = nullptr; // the node of another graph to which this graph belongs
    bool has_conditions_ = false;
    bool is_checked_ = true;
    bool has_stale_counts_ = false;
    typename Platform::template atomic<bool> runs_{false};
    typename Platform::template atomic<std::size_t> active_{0};
};

template <class Platform> void basic_graph<Platform>::check() {
    require_idle("run while it runs");
    if (is_checked_) {
        return;
    }
    set_successors();
    // Visits the nodes in an order of their strong edges. `scratch` is the number of predecessors
    // that were not visited. A node that is not visited is on a cycle or behind one.
    run_list ready;
    starts_.clear();
    for (const auto& n : nodes_) {
        n->scratch = n->strong;
        if (n->strong == 0) {
            ready.push(*n);
            if (n->weak == 0) {
                starts_.push_back(n.get());
            }
        }
    }
    std::size_t visited = 0;
    while (runnable* const next = ready.pop()) {
        ++visited;
        const node& n = *static_cast<node*>(next);
        for (std::uint32_t i = 0; !n.is_condition && i != n.num_successors; ++i) {
            if (--n.successors[i]->scratch == 0) {
                ready.push(*n.successors[i]);
            }
        }
    }
    if (visited != nodes_.size()) {
        BIDE_THROW(std::invalid_argument("bide::task_graph: a cycle: " + cycle_among_unvisited()));
    }
    if (starts_.empty() && !nodes_.empty()) {
        BIDE_THROW(std::invalid_argument(
            "bide::task_graph: no node to start with: each has a predecessor"));
    }
    set_counts();
    is_checked_ = true;
}

// Sorts the edges by their first nodes, so that the successors of a node are neighbours in memory.
template <class Platform> void basic_graph<Platform>::set_successors() {
    successors_.resize(edges_.size());
    node** at = successors_.data();
    for (const auto& n : nodes_) {
        n->successors = at;
        n->scratch = 0;
        at += n->num_successors;
    }
    for (const edge& e : edges_) {
        e.from->successors[e.from->scratch++] = e.to;
    }
}

// Returns the names of the nodes of a cycle, in the order of its edges. Each node that check() has
// not visited has a strong predecessor that it has not visited either.
template <class Platform> std::string basic_graph<Platform>::cycle_among_unvisited() const {
    std::vector<const node*> before(nodes_.size());
    const node* at = nullptr;
    for (const edge& e : edges_) {
        if (e.from->scratch != 0 && !e.from->is_condition) {
            before[e.to->number] = e.from;
            at = e.to;
        }
    }
    for (std::size_t i = 0; i != nodes_.size(); ++i) { // so many steps back end on a cycle
        at = before[at->number];
    }
    std::string names = name_of(*at);
    const node* const last = at;
    do {
        at = before[at->number];
        names = name_of(*at) + " -> " + names;
    } while (at != last);
    return names;
}

// A run of a graph. Its header is the task by which the scheduler counts it.
template <class Platform> class basic_graph_run : public basic_task_header<Platform> {
    using header = basic_task_header<Platform>;
    using node = basic_graph_node<Platform>;
    using graph_type = basic_graph<Platform>;
    using lock = lock_bits<Platform, std::uint32_t>;

public:
    static constexpr std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();

    // Requires: the graph was checked. The caller posts the task, and destroys the run when the end
    // of all members of the group has come.
    basic_graph_run(typename header::home_type& home, graph_type& of, std::size_t limit,
                    fork_progress* progress) noexcept
        : header(home, false), graph_(of), limit_(limit), progress_(progress) {
        this->to_run().run =
            waker([](void* self) noexcept { static_cast<basic_graph_run*>(self)->begin(); }, this);
        graph_.begin(*this, nullptr);
        group_.begin(member_);
    }
    basic_graph_run& operator=(basic_graph_run&&) = delete;

    basic_group<Platform>& group() noexcept { return group_; }

    // Throws, after the end of the run: the first exception; stopped_error, if a node did not run
    // because of a cancellation.
    void rethrow_if_failed() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        if (has_skipped()) {
            throw_error(errc::stopped);
        }
    }
    // Returns true, after the end of the run, if a node did not run.
    bool has_skipped() const noexcept {
        // Order: relaxed; the end of the run orders this load after the stores.
        return skipped_.load(std::memory_order_relaxed);
    }

    // Called when a node has failed. `error` is empty if its task never ran.
    BIDE_COLD void fail(std::exception_ptr error) noexcept {
        skip();
        const bool is_stop = !error || (this->was_cancelled() && is_stopped_error(error));
        // Order: relaxed; the end of the run publishes the exception.
        if (!is_stop && !failed_.exchange(true, std::memory_order_relaxed)) {
            error_ = std::move(error);
        }
        this->cancel(cancel_reason::sibling); // another cancellation may not have come so far
        group_.cancel(cancel_reason::sibling);
    }

    // Runs a node that was posted.
    void execute(node& n) noexcept {
        if (this->home().is_closing()) {
            group_.cancel(cancel_reason::shutdown);
        }
        execute_from(&n);
    }

    // Called when the function of the node, and its subgraph, have ended. `choice` is the value of
    // a condition. Returns the node that the calling thread runs next, or nullptr. If the result is
    // nullptr, the caller does not access the run any more.
    node* node_ended(node& n, std::size_t choice) noexcept {
        count_progress();
        return leave(&n, choice);
    }

    // Called when the function of the node has returned. Runs the subgraph `inner`, and then ends
    // the node. Requires: `inner` was checked.
    node* run_inner(node& n, graph_type& inner) noexcept {
        if (inner.nodes().empty()) {
            return node_ended(n, 0);
        }
        if (this->was_cancelled()) [[unlikely]] {
            skip();
            return node_ended(n, 0);
        }
        inner.begin(*this, &n);
        const bool has_limit = limit_ != no_limit;
        node* const waited = has_limit ? pass_place() : nullptr;
        node* const first = start_all(inner);
        return has_limit ? waited : first;
    }

protected:
    ~basic_graph_run() { graph_.end(); }

private:
    // After so many nodes, a thread posts the next one, so that other tasks run in between.
    static constexpr unsigned most_in_a_row = 64;

    // The members of a spawned task.
    std::coroutine_handle<> start() noexcept final { return {}; } // not used: begin() replaces it
    void never_start() noexcept final { skip(); }
    void settle() noexcept final {}
    void discard_outcome() noexcept final {}
    void destroy() noexcept final { member_.end({}, false); } // the last access

    void begin() noexcept {
        if (graph_.nodes().empty()) {
            return this->end();
        }
        if (this->was_cancelled()) {
            skip();
            return this->end();
        }
        execute_from(start_all(graph_));
    }

    void execute_from(node* n) noexcept {
        for (unsigned left = most_in_a_row; n != nullptr; --left) {
            if (left == 0) {
                this->home().post_to_others(*n);
                return;
            }
            if (this->was_cancelled()) [[unlikely]] {
                skip();
                n = leave(n, 0);
                continue;
            }
            if (progress_ != nullptr && n->graph.has_conditions()) {
                progress_->expect(1);
            }
            n = n->call(*n);
        }
    }

    // Ends a node, as node_ended() does, without counting it as progress.
    node* leave(node* n, std::size_t choice) noexcept {
        node* next = limit_ == no_limit ? nullptr : pass_place();
        for (;;) {
            graph_type& in = n->graph;
            n->set_count();
            if (this->was_cancelled()) [[unlikely]] {
                if (n->num_successors != 0) {
                    skip();
                }
            } else if (n->is_condition) {
                if (choice < n->num_successors) {
                    n->successors[choice]->pick();
                    next = start_after(*n->successors[choice], next);
                }
            } else {
                for (std::uint32_t i = 0; i != n->num_successors; ++i) {
                    if (n->successors[i]->count_predecessor()) {
                        next = start_after(*n->successors[i], next);
                    }
                }
            }
            if (next != nullptr && limit_ == no_limit) {
                return next; // it has the place of `n` in the count of the graph
            }
            if (!in.leave()) {
                return next;
            }
            n = in.parent();
            if (n == nullptr) {
                this->end(); // the last access
                return nullptr;
            }
            in.end();
            count_progress();
        }
    }
    void count_progress() noexcept {
        if (progress_ != nullptr) {
            progress_->count(1);
        }
    }

    // Starts the nodes that a graph begins with. If there is no limit, returns the first of them,
    // which the caller runs.
    node* start_all(graph_type& in) noexcept {
        if (progress_ != nullptr && !in.has_conditions()) {
            progress_->expect(in.nodes().size());
        }
        // When the last node is started, the run may be over.
        node* const* at = in.starts().data();
        node* const* const end = at + in.starts().size();
        node* const first = limit_ == no_limit ? *at++ : nullptr;
        while (at != end) {
            post(**at++);
        }
        return first;
    }

    // Starts a node whose predecessor has not left yet. If there is no limit, the thread of the
    // predecessor runs the first such node. So returns the node, if `next` is nullptr.
    node* start_after(node& n, node* next) noexcept {
        if (next == nullptr && limit_ == no_limit) {
            return &n;
        }
        n.graph.enter();
        post(n);
        return next;
    }

    // Posts a node, or lets it wait for a place.
    void post(node& n) noexcept {
        if (limit_ != no_limit) {
            const typename lock::guard section(lock_);
            if (used_ == limit_) {
                waiting_.push(n);
                return;
            }
            used_ = used_ + 1;
        }
        this->home().post_to_others(n);
    }
    // Passes the place of the caller's node to the node that has waited longest, and returns that
    // node.
    node* pass_place() noexcept {
        const typename lock::guard section(lock_);
        runnable* const next = waiting_.pop();
        used_ = used_ - (next == nullptr ? 1U : 0U);
        return static_cast<node*>(next);
    }

    void skip() noexcept {
        // Order: relaxed; the end of the run publishes it.
        skipped_.store(true, std::memory_order_relaxed);
    }

    graph_type& graph_;
    const std::size_t limit_;
    fork_progress* const progress_;
    basic_group<Platform> group_;
    basic_group_member<Platform> member_{group_, *this};
    typename Platform::template atomic<bool> skipped_{false}; // a node did not run
    typename Platform::template atomic<bool> failed_{false};
    std::exception_ptr error_; // of the first node that failed
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Guarded by the lock; used only if there is a limit:
    typename Platform::template var<std::size_t> used_{0};
    run_list waiting_;
};

using graph = basic_graph<native_platform>;
using graph_node = basic_graph_node<native_platform>;

// A run on a task_runner.
class graph_run final : public basic_graph_run<native_platform> {
    struct cancel_group {
        detail::group& of;
        void operator()() const noexcept { of.cancel(cancel_reason::requested); }
    };

public:
    // Begins the run. Requires: the graph was checked.
    graph_run(task_home& home, detail::graph& of, const std::stop_token& stop, std::size_t limit,
              fork_progress* progress)
        : basic_graph_run(home, of, limit, progress), home_(home),
          on_stop_(stop, cancel_group{group()}) {
        home.start(*this);
    }
    // Cancels the run if it has not ended. Blocks: until it has ended.
    ~graph_run() {
        if (!group().of_all().has_come()) {
            group().cancel(cancel_reason::parent);
            wait();
        }
    }

    void wait() noexcept { detail::block_until(group().of_all(), home_); }
    async_op<void> async_wait() noexcept { return group().of_all().async_wait(); }
    task_home& where() noexcept { return home_; }

private:
    task_home& home_;
    const std::stop_callback<cancel_group> on_stop_;
};

inline graph_run& run_of(graph_node& n) noexcept {
    return static_cast<graph_run&>(*n.graph.current);
}

template <class F, bool IsCondition> class graph_function;
class graph_module;

// Calls the function of a node, with its subgraph if it takes one.
template <class F> decltype(auto) call_node(F& function, task_graph& inner) {
    if constexpr (std::invocable<F&, task_graph&>) {
        return function(inner);
    } else {
        static_cast<void>(inner);
        return function();
    }
}

template <class F>
concept graph_callable = std::invocable<F&, task_graph&> || std::invocable<F&>;

template <class T> struct node_value {
    using type = T;
};
template <class T> struct node_value<task<T>> {
    using type = T;
};

// A function without parameters that returns a number or a task of a number.
template <class F>
concept graph_condition =
    std::invocable<F&> && std::integral<typename node_value<std::invoke_result_t<F&>>::type>;

} // namespace detail

/// The options of a run of a task_graph.
struct graph_options {
    /// If a stop is requested, no more nodes start, the waits of coroutine nodes are stopped, and
    /// the run throws stopped_error when the started nodes have ended.
    std::stop_token stop = {};

    /// The largest number of nodes that run at a time. A node that waits for its coroutine counts,
    /// a node that waits for its subgraph does not. By default, there is no limit.
    std::size_t limit = detail::graph_run::no_limit;

    /// Counts the nodes. The total is the number of nodes, and grows when a subgraph begins. In a
    /// graph with conditions, the total grows when a node starts. If it is nullptr, the nodes are
    /// not counted.
    fork_progress* progress = nullptr;
};

/// A graph of functions and coroutines, called nodes. A node starts when all its predecessors have
/// ended. Nodes that do not depend on each other run in parallel. A graph can run any number of
/// times. If its nodes are plain functions, each run but the first allocates nothing. Only the
/// queue of a worker grows for a while, if hundreds of its nodes are ready at a time.
///
/// \code
/// bide::task_graph graph;
/// auto compile = graph.add("compile", [] { ... });
/// auto fetch = graph.add("fetch", [&]() -> bide::task<> { co_await download(); });
/// auto link = graph.add("link", [] { ... });
/// link.succeed(compile, fetch);
/// graph.run(workers); // or, in a coroutine: co_await graph.async_run(workers);
/// \endcode
///
/// The function of a node is called once for each time that the node starts. It belongs to the
/// graph, and exists until clear() or the destructor. It is one of these:
/// - a function without parameters. Its value is ignored.
/// - a coroutine: a function that returns a task. The node ends when the task has ended. The task
///   has the deadline, the values and the tag of the task that runs the graph.
/// - either of them with a parameter `task_graph&`: it adds nodes to that graph, the subgraph of
///   the node. When the function or its task has ended, the subgraph runs, and then the node ends.
///   The subgraph is cleared before each call.
///
/// Conditions: a condition (add_condition()) starts one of its successors, whatever that successor
/// waits for. So a condition can start an earlier node again. Edges from conditions are weak: a
/// node does not wait for them. A node with conditions as its only predecessors starts when one of
/// them picks it.
///
/// Failures: if a node throws, no more nodes start, and the tasks of coroutine nodes are cancelled.
/// When all started nodes have ended, the run throws the first exception.
///
/// Threads: nodes run on the threads of the runner, one after the other on one thread if they form
/// a chain. In a function that is no coroutine, this_task refers to no task.
///
/// Thread safety: none. A graph is built and run by one thread at a time. If it is changed, run
/// again or destroyed while it runs, or if a node is started again before it has ended, the program
/// terminates with a message.
class task_graph {
public:
    class node;

    /// Constructs an empty graph.
    task_graph() = default;
    task_graph& operator=(task_graph&&) = delete;
    /// Destroys the functions. Requires: the graph does not run.
    ~task_graph() = default;

    /// Adds a node, with or without a name. Names appear in errors and in to_dot().
    /// Returns: a handle of the node.
    /// Throws: std::bad_alloc, and what the move of the function throws.
    template <detail::graph_callable F> node add(F function);
    /// \overload
    template <detail::graph_callable F> node add(std::string_view name, F function);
    /// Adds a node that runs another graph. The other graph must outlive this one.
    node add(std::string_view name, task_graph& other);

    /// Adds a condition: a function without parameters that returns a number, or a task of a
    /// number. When it has ended, it starts its successor with that number. Successors are counted
    /// from 0 in the order in which the edges were added. If there is no such successor, it starts
    /// none.
    /// Throws: as add().
    template <detail::graph_condition F> node add_condition(F function);
    /// \overload
    template <detail::graph_condition F> node add_condition(std::string_view name, F function);

    /// Destroys all nodes.
    void clear() noexcept { graph_.clear(); }

    /// Returns the number of nodes. Subgraphs are not counted.
    std::size_t size() const noexcept { return graph_.nodes().size(); }

    /// Checks that the graph can run. run() and async_run() do so, too, after each change.
    /// Throws: std::invalid_argument, if edges that do not begin at conditions form a cycle: the
    /// message has the names of its nodes. Or if each node has a predecessor, so that none can
    /// start. std::bad_alloc.
    void check() { graph_.check(); }

    /// Runs the graph on a scheduler or a run_loop, and waits for its end.
    /// Blocks: until all nodes that have started have ended. If the calling thread belongs to the
    /// runner, it waits as ~task_group() does.
    /// Throws: what check() throws; std::invalid_argument, if the limit is zero; the exception of
    /// the first node that failed; stopped_error, if a node did not run because of a stop, or
    /// because the runner shuts down.
    void run(task_runner& where, const graph_options& how = {}) {
        require_limit(how);
        graph_.check();
        detail::graph_run now(detail::runner_access::home(where), graph_, how.stop, how.limit,
                              how.progress);
        now.wait();
        now.rethrow_if_failed();
    }

    /// Returns a task that runs the graph when it is awaited, and blocks no thread. The graph must
    /// outlive the task.
    /// Blocks: never, with one exception: if the task is destroyed while the graph runs, the
    /// destruction cancels the run and blocks until its end.
    /// Throws: in this call, what check() throws, and std::invalid_argument, if the limit is zero.
    /// When awaited, what run() throws.
    /// Cancellation: as a stop of graph_options::stop.
    template <class = void> // without a call, the compiler makes no code for the frame
    task<> async_run(task_runner& where, graph_options how = {}) {
        require_limit(how);
        graph_.check();
        return run_on(where, std::move(how));
    }

    /// Returns the graph in the DOT language of Graphviz. Conditions are diamonds, and their edges
    /// are dashed and numbered. A subgraph that has run last, or another graph that a node runs, is
    /// a cluster. A node without a name is called by its number.
    /// Throws: std::bad_alloc.
    /// Requires: the graph does not run.
    std::string to_dot() const;

private:
    template <class F, bool IsCondition> friend class detail::graph_function;
    friend class detail::graph_module;

    static void require_limit(const graph_options& how) {
        if (how.limit == 0) {
            BIDE_THROW(std::invalid_argument("bide::task_graph: a limit of 0"));
        }
    }
    template <bool IsCondition, class F> node insert(std::string_view name, F&& function);
    template <class = void> task<> run_on(task_runner& where, graph_options how);
    static void write_dot(std::string& out, const detail::graph& of, const std::string& prefix);

    detail::graph graph_;
};

/// A handle of a node. It is a pointer, and valid until the graph is cleared or destroyed.
class task_graph::node {
public:
    /// Makes other nodes wait for this one.
    /// Throws: std::invalid_argument, if a node belongs to another graph; std::bad_alloc.
    /// Requires: the graph does not run; terminates otherwise.
    template <std::same_as<node>... Nodes> void precede(Nodes... later) const {
        (node_->graph.precede(*node_, *later.node_), ...);
    }
    /// Makes this node wait for other nodes. Throws: as precede().
    template <std::same_as<node>... Nodes> void succeed(Nodes... earlier) const {
        (earlier.precede(*this), ...);
    }

    /// Returns the name. It is empty if the node has none.
    std::string name() const { return node_->graph.given_name(*node_); }

private:
    friend task_graph;

    explicit node(detail::graph_node& of) noexcept : node_(&of) {}

    detail::graph_node* node_;
};

namespace detail {

// The task of a coroutine node. T is the type of a condition's value, or void.
template <class Node, class T> class graph_task : public basic_group_task<T, native_platform> {
public:
    graph_task(task_home& home, bool kept, group& of, Node& its_node) noexcept
        : basic_group_task<T, native_platform>(home, kept, of), node_(its_node) {}

protected:
    ~graph_task() = default;

private:
    void discard_outcome() noexcept final {
        std::size_t choice = 0;
        if (this->never_ran() || this->kept_.error()) {
            run_of(node_).fail(std::move(this->kept_.error()));
        } else if constexpr (!std::is_void_v<T>) {
            choice = static_cast<std::size_t>(this->kept_.value());
        }
        if (graph_node* const next = node_.returned(choice)) {
            this->home().post(*next);
        }
        this->member_.end({}, false); // the last access to the run
    }

    Node& node_;
};

// A node that runs another graph.
class graph_module final : public graph_node {
public:
    graph_module(detail::graph& in, task_graph& other) noexcept
        : graph_node(in, &call_on, &destroy_this), other_(other) {
        inner = &other.graph_;
    }

    static graph_node* run_checked(graph_node& n, task_graph& other) noexcept {
        graph_run& in = run_of(n);
        if (!in.was_cancelled()) {
            BIDE_TRY { other.check(); }
            BIDE_CATCH { in.fail(std::current_exception()); }
        }
        return in.run_inner(n, other.graph_);
    }

private:
    static graph_node* call_on(graph_node& n) noexcept {
        return run_checked(n, static_cast<graph_module&>(n).other_);
    }
    static void destroy_this(graph_node* n) noexcept {
        std::destroy_at(static_cast<graph_module*>(n));
    }

    task_graph& other_;
};

// A node with a function.
template <class F, bool IsCondition> class graph_function final : public graph_node {
    struct nothing {};
    static constexpr bool has_inner = std::invocable<F&, task_graph&>;
    using value = decltype(detail::call_node(std::declval<F&>(), std::declval<task_graph&>()));
    using kept = std::conditional_t<IsCondition, typename node_value<value>::type, void>;

    // Makes the task of the node.
    struct source {
        graph_function& of;
        value operator()() const { return of.call_function(); }
    };

public:
    graph_function(detail::graph& in, F&& function)
        : graph_node(in, &call_on, &destroy_this), function_(std::move(function)) {
        is_condition = IsCondition;
        if constexpr (has_inner) {
            inner = &inner_.graph_;
        }
    }

    // Called when the function, or its task, has ended.
    graph_node* returned(std::size_t choice) noexcept {
        if constexpr (has_inner) {
            return graph_module::run_checked(*this, inner_);
        } else {
            return run_of(*this).node_ended(*this, choice);
        }
    }

private:
    static graph_node* call_on(graph_node& n) noexcept {
        auto& mine = static_cast<graph_function&>(n);
        std::size_t choice = 0;
        BIDE_TRY {
            if constexpr (is_task<value>) {
                mine.spawn(run_of(n));
                return nullptr;
            } else if constexpr (IsCondition) {
                choice = static_cast<std::size_t>(mine.function_());
            } else {
                static_cast<void>(mine.call_function());
            }
        }
        BIDE_CATCH { run_of(n).fail(std::current_exception()); }
        return mine.returned(choice);
    }
    static void destroy_this(graph_node* n) noexcept {
        std::destroy_at(static_cast<graph_function*>(n));
    }

    decltype(auto) call_function() {
        if constexpr (has_inner) {
            inner_.clear();
            return function_(inner_);
        } else {
            return function_();
        }
    }
    void spawn(graph_run& in) {
        using cell = task_cell<source, graph_task<graph_function, kept>>;
        auto& made = *new cell(in.where(), false, source{*this}, in.group(), *this);
        in.group().begin(made.member());
        in.where().start(made);
    }

    F function_;
    [[no_unique_address]] std::conditional_t<has_inner, task_graph, nothing> inner_;
};

} // namespace detail

template <bool IsCondition, class F>
task_graph::node task_graph::insert(std::string_view name, F&& function) {
    return node(graph_.add<detail::graph_function<F, IsCondition>>(name, std::move(function)));
}

template <detail::graph_callable F> task_graph::node task_graph::add(F function) {
    return insert<false>({}, std::move(function));
}
template <detail::graph_callable F>
task_graph::node task_graph::add(std::string_view name, F function) {
    return insert<false>(name, std::move(function));
}
template <detail::graph_condition F> task_graph::node task_graph::add_condition(F function) {
    return insert<true>({}, std::move(function));
}
template <detail::graph_condition F>
task_graph::node task_graph::add_condition(std::string_view name, F function) {
    return insert<true>(name, std::move(function));
}

inline task_graph::node task_graph::add(std::string_view name, task_graph& other) {
    return node(graph_.add<detail::graph_module>(name, other));
}

template <class> task<> task_graph::run_on(task_runner& where, graph_options how) {
    if (this_task::is_cancelled()) {
        detail::throw_error(errc::stopped);
    }
    detail::graph_run now(detail::runner_access::home(where), graph_, how.stop, how.limit,
                          how.progress);
    static_cast<void>(co_await now.async_wait().as_result());
    now.rethrow_if_failed();
}

inline std::string task_graph::to_dot() const {
    graph_.require_idle("written while it runs");
    std::string out = "digraph {\n";
    write_dot(out, graph_, "n");
    return out += "}\n";
}

// Writes the nodes and edges of a graph. The identifier of a node is the prefix and its number.
inline void task_graph::write_dot(std::string& out, const detail::graph& of,
                                  const std::string& prefix) {
    const auto id = [&prefix](const detail::graph_node& n) {
        return prefix + std::to_string(n.number);
    };
    for (const auto& n : of.nodes()) {
        std::string label;
        for (const char c : of.name_of(*n)) {
            label += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
        }
        out +=
            id(*n) + " [label=\"" + label + (n->is_condition ? "\", shape=diamond];\n" : "\"];\n");
        if (n->inner != nullptr && !n->inner->nodes().empty()) {
            out += "subgraph cluster_" + id(*n) + " {\nlabel=\"" + label + "\";\n";
            write_dot(out, *n->inner, id(*n) + '_');
            out += "}\n";
        }
    }
    std::vector<std::size_t> choices(of.nodes().size());
    for (const auto& [from, to] : of.edges()) {
        out += id(*from) + " -> " + id(*to);
        if (from->is_condition) {
            out += " [style=dashed, label=\"" + std::to_string(choices[from->number]++) + "\"]";
        }
        out += ";\n";
    }
}

}} // namespace bide::BIDE_ABI

#endif
