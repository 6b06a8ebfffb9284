// bide-lock runs a command while it holds a lock that machines can share: flock(1) with a queue, a
// lease and fencing tokens. It shows how bide's durable locks are used by a program that has to be
// right about them:
//
//   waiting    stops at a signal, and then leaves no place in the queue behind
//   holding    a guard renews the lease in the background. It says when the lock is lost all the
//              same, and the command is then terminated, before others come as far as that can be
//              known: see `margin` below
//   crashing   the lock belongs to the command rather than to bide-lock. A bide-lock that is killed
//              leaves the command some time to end, so the lock is not free at once, as one that is
//              bound to a process would be, but when the lease is over
//   fencing    what the command writes to can refuse a number that is smaller than the largest it
//              has seen: then not even a machine that was suspended can do harm
#include "lock_admin.hpp"
#include "lock_child.hpp"
#include "lock_options.hpp"
#include "lock_signals.hpp"
#include "lock_slots.hpp"

#include <bide/core/result.hpp>
#include <bide/durable/durable_semaphore.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace lock_parts;
using bide::durable_guard;
using guard_or_error = bide::result<durable_guard, std::error_code>;

bide::durable_options durable_options_of(const options& o) {
    bide::durable_options all;
    all.lease = o.lease;
    all.margin = o.grace() + o.lease / 20; // so that SIGKILL comes before others do
    all.process_bound = false;             // the command may outlive us, see child::become()
    all.holder_id = o.holder;
    return all;
}

// A waiting acquire() puts up with a store that fails for a while: servers are started again. What
// the first look finds to be plainly wrong, a directory that is not there say, is told at once.
guard_or_error look_and_wait(bide::durable_semaphore& lock, bide::acquire_request wanted) {
    guard_or_error now = lock.try_acquire(wanted.weight);
    if (now || wanted.timeout <= std::chrono::nanoseconds::zero())
        return now;
    const bool may_pass =
        now.error() == bide::errc::timeout || status_of(now.error()) == EX_UNAVAILABLE;
    return may_pass ? lock.acquire(std::move(wanted)) : std::move(now);
}

// Waits for the lock on a thread of its own, and for signals on this one.
durable_guard acquire(const options& o, bide::durable_semaphore& lock, inbox& events) {
    const auto begin = steady::now();
    int caught = 0;
    std::optional<guard_or_error> got;
    std::exception_ptr trouble;
    {
        bide::acquire_request wanted;
        wanted.weight = o.weight;
        if (o.timeout)
            wanted.timeout = *o.timeout;
        std::jthread waits([&](std::stop_token stop) {
            wanted.stop = std::move(stop);
            try {
                got.emplace(look_and_wait(lock, wanted));
            } catch (...) { // no memory, or no thread to renew it
                trouble = std::current_exception();
            }
            events.wake();
        });
        while (const int signal = events.next()->signal) {
            if (signal == SIGCHLD)
                continue;
            if (signal == caught)
                die_of(signal); // for the second time: it takes too long
            caught = signal;
            waits.request_stop();
        }
    }
    const std::chrono::duration<double> seconds = steady::now() - begin;
    const std::string after = " after " + std::to_string(seconds.count()) + " s";
    if (caught != 0) {
        got.reset(); // it may have come at the last moment
        die_of(caught);
    }
    if (trouble)
        std::rethrow_exception(trouble);
    if (!*got) {
        const std::error_code error = got->error();
        if (error == bide::errc::timeout) {
            if (o.verbose)
                complain(o.name + ": not to be had" + after);
            throw failure{static_cast<int>(o.conflict_status), {}};
        }
        const int status = error == bide::durable_errc::queue_full
                               ? static_cast<int>(o.conflict_status)
                               : status_of(error);
        throw failure{status, o.name + ": " + error.message()};
    }
    if (o.verbose)
        complain(o.name + ": acquired" + after + ", fence " + std::to_string((*got)->fence()) +
                 ", lane " + std::to_string((*got)->lane()));
    return std::move(**got);
}

child start(const options& o, const durable_guard& held, const inheritance& inherited) {
    environment with;
    with.set("BIDE_LOCK_NAME", o.name);
    with.set("BIDE_FENCE", std::to_string(held.fence()));
    with.set("BIDE_LANE", std::to_string(held.lane()));
    try {
        return {o.command, with.entries().data(), inherited};
    } catch (const child::not_executable& error) {
        const std::string why = std::generic_category().message(error.why);
        throw failure{error.why == ENOENT ? 127 : 126, std::string(o.command[0]) + ": " + why};
    }
}

// Until the command has ended: hands on signals, and ends it when the lock is lost. True: it was
// lost. (A command that was stopped has to go on in order to be terminated.) Nothing is thrown: the
// lock is not to be released while the command runs.
bool supervise(const options& o, const durable_guard& held, child& command,
               inbox& events) noexcept {
    events.wake();         // what was typed before that was, perhaps, before the command was there
    bool is_there = false; // and gets itself what is typed
    const std::stop_callback on_loss(held.lost(), [&events] { events.wake(); });
    std::optional<steady::time_point> kill_at;
    bool lost = false;
    const auto kill_in_time = [&] {
        if (!kill_at || steady::now() < *kill_at)
            return;
        command.send(SIGKILL);
        kill_at.reset();
        if (o.verbose)
            complain(o.name + ": killing the command");
    };
    while (!command.has_ended()) {
        if (!lost && held.lost().stop_requested()) {
            lost = true;
            command.send(SIGTERM);
            command.send(SIGCONT);
            kill_at = steady::now() + o.grace();
            complain(o.name + ": the lock was lost (fence " + std::to_string(held.fence()) +
                     "): terminating the command");
        }
        kill_in_time();
        const auto e = events.next(kill_at);
        is_there = is_there || (e && e->signal == 0);
        if (e && e->signal != 0 && e->signal != SIGCHLD && !(e->is_typed && is_there))
            command.send(e->signal);
    }
    // What the command had started gets the same time. It is nobody's child here, so nobody tells
    // when it has gone.
    while (kill_at && command.has_company()) {
        events.next(std::min(*kill_at, steady::now() + std::chrono::milliseconds(20)));
        kill_in_time();
    }
    return lost;
}

int run(const options& o, bide::durable_semaphore& lock, inbox& events,
        const inheritance& inherited) {
    for (const int signal : {SIGPIPE, SIGTTOU}) // to say something must neither end nor stop us
        ::signal(signal, SIG_IGN);
    durable_guard held = acquire(o, lock, events);
    child command = start(o, held, inherited);
    bool lost = supervise(o, held, command, events);
    const auto released = held.release();
    if (released) {
        if (o.verbose)
            complain(o.name + ": released");
    } else if (released.error() != bide::durable_errc::lock_lost) {
        complain(o.name + ": not released, so it is free when its lease is over: " +
                 released.error().message());
    } else if (!lost) {
        complain(o.name + ": the lock was lost, shortly before the command ended");
        lost = true;
    }
    if (lost)
        return EX_TEMPFAIL;
    switch (const int signal = command.signal()) {
    case 0: return command.status();
    case SIGHUP:
    case SIGINT:
    case SIGQUIT:
    case SIGTERM: die_of(signal);
    default: return 128 + signal; // the command has crashed, not we
    }
}

// Were one of these closed, the lock's file could become it, and be printed into.
void keep_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR | O_CLOEXEC) != stream)
            std::_Exit(EX_OSERR);
}

} // namespace

int main(int argc, char** argv) {
    keep_standard_streams();
    try {
        const inheritance inherited;
        const auto o = parser(std::span(argv, static_cast<std::size_t>(argc)).subspan(1)).parse();
        if (!o)
            return EX_USAGE;
        if (o->help)
            return std::fputs(usage, stdout), 0;
        inbox events; // it outlives the lock's threads
        bide::durable_semaphore lock(open_slot(*o), o->permits, durable_options_of(*o));
        if (o->action == "inspect")
            return inspect(*o, lock);
        if (o->action == "release")
            return release(*o, lock);
        if (o->action == "repair")
            return repair(*o, lock);
        return run(*o, lock, events, inherited);
    } catch (const failure& error) {
        if (!error.what.empty())
            complain(error.what);
        return error.status;
    } catch (const std::system_error& error) {
        complain(error.what());
        if (error.code() == std::errc::invalid_argument)
            return EX_USAGE; // a slot's name, say
        return error.code().category() == bide::durable_category() ? status_of(error.code())
                                                                   : EX_OSERR;
    } catch (const std::bad_alloc&) {
        complain("out of memory");
        return EX_OSERR;
    }
}
