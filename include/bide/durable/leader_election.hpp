// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_LEADER_ELECTION_HPP
#define BIDE_DURABLE_LEADER_ELECTION_HPP

/// \file
/// Elects one leader among all processes and machines that share a slot.
///
/// The record is that of a durable_mutex: the leader is its holder, the candidates are its waiters.
/// For inspect() and admin(), make a durable_mutex on another slot object for the same value. A
/// candidate announces durable_options::holder_id, for example its address.

#include <bide/durable/options.hpp>
#include <bide/task/task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {
struct election;
} // namespace detail

/// The leader, as the record shows it.
struct leader_info {
    std::string name{};     ///< durable_options::holder_id of the leader
    std::int64_t token = 0; ///< the fencing token; every later leader has a larger one
    std::string host{};     ///< the machine of the leader
    std::int64_t pid = 0;   ///< its process; 0 if the grant is not bound to a process
    bool is_self = false;   ///< this election object leads, with this token
};

/// Which change of leadership to wait for.
struct leader_wait {
    std::int64_t known = 0; ///< the token of the leader that the caller knows; 0 for no leader
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max(); ///< how long to wait
    std::stop_token stop{}; ///< ends the wait when a stop is requested
};

/// A term of this candidate.
struct leader_term {
    std::int64_t token = 0; ///< the fencing token of the term

    /// A stop is requested when the work of the term has to end: after resign(), after a stop of
    /// the run, or when the lock is lost. If the lock is lost, the stop is requested before another
    /// candidate leads. For the threads of its callbacks see durable_guard::lost().
    std::stop_token stop{};
};

/// A candidate in an election. Copies are the same candidate.
///
/// \code
/// bide::leader_election election(bide::file_slot("leader.lock"));
/// std::stop_source stop;
/// const auto ended = election.run([](bide::leader_term term) {
///     while (!term.stop.stop_requested()) work(term.token);
/// }, stop.get_token());
/// \endcode
///
/// A crash of the leader ends its term as it ends a grant of a durable_mutex. As with a mutex, let
/// the resource refuse older tokens. In a child of fork(), the object is a new candidate.
/// Thread safety: any thread may call any function at any time.
class leader_election {
public:
    /// Makes a candidate. Candidates are elected in the order of their campaigns.
    /// Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    explicit leader_election(slot_ref slot, durable_options options = {});

    /// Campaigns, calls on_elected, releases the lock, and campaigns again, until a stop is
    /// requested. A store that fails is tried again every durable_options::poll_most;
    /// durable_options::observer is told of its errors. on_elected runs on this thread. The
    /// candidate leads until on_elected has returned, even after a stop, unless it loses the lock.
    /// Terms of one run never overlap, and follow each other without a pause.
    /// Requires: on_elected returns soon after leader_term::stop is stopped.
    /// Returns: nothing after a stop; an error that lasts, see may_pass();
    /// std::errc::operation_in_progress if another run of this candidate is under way;
    /// durable_errc::invalid_argument without on_elected.
    /// Throws: what on_elected throws; the lock is released before.
    /// Blocks: until a stop is requested. The store is called on store threads.
    result<void, std::error_code> run(std::function<void(leader_term)> on_elected,
                                      std::stop_token stop);
    /// Runs as run() does, for a coroutine, which also awaits on_elected.
    /// Cancellation: stops leader_term::stop; returns errc::stopped after on_elected returns.
    task<result<void, std::error_code>> async_run(std::function<task<>(leader_term)> on_elected,
                                                  std::stop_token stop);

    /// Stops leader_term::stop of the present term, or ends the present campaign. Then the run
    /// campaigns again, behind the candidates that wait. Does nothing while no run is under way.
    void resign();

    /// Returns true if this candidate leads. Calls no store.
    bool is_leader() const;
    /// Returns the fencing token of this candidate; 0 if it does not lead.
    std::int64_t token() const;

    // ---- observers, which need not run

    /// Returns the leader; nothing if there is none.
    /// Blocks: waits for the store, which is called on a store thread (see locks.hpp).
    result<std::optional<leader_info>, std::error_code> leader() const;
    /// Returns the leader as leader() does, for a coroutine.
    task<result<std::optional<leader_info>, std::error_code>> async_leader() const;

    /// Waits until the leader differs from the one that the caller knows, and returns the present
    /// leader. Reads the record at intervals of at most durable_options::poll_most. While a run of
    /// this candidate is under way, the call notices changes earlier.
    /// Returns: nothing without a leader; errc::timeout, errc::stopped; the errors of leader().
    /// Blocks: until the leader changes. A read of the store may outlast the timeout, as leader().
    result<std::optional<leader_info>, std::error_code> wait_for_change(leader_wait what) const;
    /// Waits as wait_for_change() does, for a coroutine.
    /// Cancellation: returns errc::stopped.
    task<result<std::optional<leader_info>, std::error_code>>
    async_wait_for_change(leader_wait what) const;

    /// Returns the place of the record and the store's text about its last failure, for people.
    std::string explain() const;

private:
    std::shared_ptr<detail::election> it_;
};

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/leader_election.hpp>
#endif

#endif
