// bide-lock runs a command while it holds a lock that machines can share: like flock(1), with a
// queue and fencing tokens. It shows how a program uses bide's durable locks:
//
//   waiting    a signal or a timeout ends the wait, whatever the store does; no entry stays in the
//              queue
//   holding    on one machine, a descriptor that the command inherits holds the lock. Otherwise a
//              guard renews a lease in the background. If the lock is lost, bide-lock terminates
//              the command before the lease expires: see `margin` below
//   ending     a keeper process is the ancestor of every process that the command starts, and ends
//              all of them if the lock is lost or bide-lock is killed
//   electing   `elect` is the same in a loop: a leader that lost the lock waits for it again
//   fencing    the resource that the command writes to can refuse a token that is smaller than the
//              largest it has seen; that protects it even if a machine was suspended
#include "descriptor.hpp"

#include <bide/durable/locks.hpp>
#include <bide/durable/options.hpp>
#include <bide/version.hpp>

namespace {

using namespace lock_parts;
using bide::durable_guard;
using guard_or_error = bide::result<durable_guard, std::error_code>;

bide::durable_options durable_options_of(const options& o) {
    bide::durable_options all;
    all.lease = o.lease;
    all.margin = o.grace() + o.lease / 20; // so that SIGKILL comes before the lease expires
    all.process_bound = false;             // the command may outlive bide-lock
    all.adopt_permits = true;
    all.holder_id = o.holder;
    return all;
}

bool can_inherit(const options& o) { return !o.is_leased && is_local(o); }

guard_or_error try_to_acquire(const options& o, bide::durable_semaphore& lock,
                              bide::acquire_request wanted) {
    wanted.inheritable = can_inherit(o);
    guard_or_error got = lock.acquire(wanted);
    if (!wanted.inheritable || got || got.error() != std::errc::operation_not_supported)
        return got;
    if (o.action == does::keep || !o.forks)
        return got;             // no process stays that renews a lease
    wanted.inheritable = false; // this system has no such descriptors: use a lease
    return lock.acquire(std::move(wanted));
}

// Waits for the lock on a thread of its own, and for signals on this one.
durable_guard acquire(const options& o, bide::durable_semaphore& lock, inbox& events) {
    const new_files made(o);
    const auto begin = steady::now();
    int caught = 0;
    std::optional<steady::time_point> end;
    if (o.timeout && *o.timeout < std::chrono::hours(24 * 365)) {
        // On this machine the first try may take as long: a free lock is taken, though a disk is slow.
        const auto first =
            is_local(o) ? durable_options_of(o).retry_time : options::milliseconds(0);
        end = begin + std::max(*o.timeout, first) + 2 * give_up_after;
    }
    std::stop_source stop;
    bide::acquire_request wanted;
    wanted.weight = o.weight;
    wanted.at_least = o.at_least;
    wanted.note = o.note;
    wanted.labels = o.labels;
    if (o.verbose)
        wanted.on_position = [&o](std::int64_t ahead) {
            complain(o.name + ": waiting, " + std::to_string(ahead) + " ahead");
        };
    wanted.stop = stop.get_token();
    if (o.timeout)
        wanted.timeout = *o.timeout;
    auto got = in_time(
        events,
        [&o, &lock, wanted] {
            if (wanted.timeout.count() > 0)
                tell_of_nesting(o, lock);
            return try_to_acquire(o, lock, wanted);
        },
        [&end] { return end; },
        [&](int signal) {
            if (signal == caught)
                die_of(signal); // the second signal: do not wait any longer
            caught = signal;
            const auto soon = steady::now() + give_up_after;
            end = end ? std::min(*end, soon) : soon;
            stop.request_stop();
        });
    made.own();
    const std::chrono::duration<double> seconds = steady::now() - begin;
    const std::string after = " after " + std::to_string(seconds.count()) + " s";
    if (caught != 0) {
        if (got && *got) // the lock was granted at the last moment
            in_time(
                events, [&got] { return (*got)->release().has_value(); },
                [until = steady::now() + give_up_after] { return std::optional(until); },
                [](int) {});
        die_of(caught);
    }
    if (!got)
        throw failure{EX_UNAVAILABLE, o.name + ": no answer in time (" + shown(o.slot) + ")"};
    if (!*got && got->error() == bide::errc::timeout) {
        if (o.verbose)
            complain(o.name + ": not acquired" + after);
        throw failure{static_cast<int>(o.conflict_status), {}};
    }
    if (!*got) {
        const std::error_code error = got->error();
        const int status = error == bide::durable_errc::queue_full
                               ? static_cast<int>(o.conflict_status)
                               : status_of(error);
        const bool differs = error == bide::durable_errc::permits_mismatch;
        throw failure{status, words_of(o, lock, error) +
                                  (differs ? "; beside holders with -s, use -x" : "")};
    }
    if (o.verbose)
        complain(o.name + ": acquired" + after + ", fence " + std::to_string((*got)->fence()) +
                 ", lane " + std::to_string((*got)->lane()));
    return std::move(**got);
}

[[noreturn]] void throw_not_executable(const options& o, int why) {
    throw failure{why == ENOENT ? 127 : 126,
                  printable(o.command[0]) + ": " + std::generic_category().message(why)};
}

std::unique_ptr<child> start(const options& o, const durable_guard& held,
                             const inheritance& inherited) {
    environment with;
    with.set("BIDE_LOCK_NAME", o.name);
    with.set("BIDE_FENCE", std::to_string(held.fence()));
    with.set("BIDE_LANE", std::to_string(held.lane()));
    with.set(held_variable, held_with(o, held.fence()));
    with.remove("BIDE_LOCK_FD"); // it belongs to a lock around this one
    for (const std::string& secret : secret_variables(o))
        with.remove(secret);
    child::setting how;
    how.arguments = o.command;
    how.hold = held.descriptor();
    how.grace_ms = o.grace().count();
    if (how.hold < 0)
        how.good_ms = std::max<std::int64_t>((held.remaining() + o.lease / 40).count(), 1);
    if (how.hold >= 0 && !o.closes) {
        const int spare = inherited.spare_number();
        how.hold_as = spare >= 0 ? spare : how.hold;
        with.set("BIDE_LOCK_FD", std::to_string(how.hold_as));
    }
    const auto entries = with.entries();
    how.environment = const_cast<char**>(entries.data());
    if (!o.forks) // returns only if it fails
        throw_not_executable(o, child::replace(how, inherited));
    try {
        return std::make_unique<child>(how, inherited);
    } catch (const child::not_executable& error) {
        throw_not_executable(o, error.why);
    }
}

struct outcome {
    bool is_lost = false; // the lock was lost, and no process of the command is left
    int ended_by = 0;     // the signal that ended the wait for processes in the background
};

// Runs until the command has ended; if the lock is a lease, also until its background processes
// have ended. Passes signals on, and ends every process of the command if the lock is lost. Throws
// nothing: the lock must not be released while the command runs.
class supervision {
public:
    supervision(const options& o, const durable_guard& held, child& command, inbox& events) noexcept
        : o_(o), held_(held), command_(command), events_(events),
          is_leased_(held.descriptor() < 0) {}

    outcome run() noexcept {
        events_.wake();        // a key may have been typed before the command started
        bool is_there = false; // true: the command itself gets typed signals
        const std::stop_callback on_loss(held_.lost(), [this] { events_.wake(); });
        while (!is_over_) {
            if (held_.lost().stop_requested())
                lose();
            // The keeper ends the command if this process is stopped for too long.
            std::optional<steady::time_point> again;
            if (is_leased_ && !all_.is_lost) {
                command_.good_for((held_.remaining() + o_.lease / 40).count());
                again = steady::now() + std::clamp(o_.lease / 6, options::milliseconds(10),
                                                   options::milliseconds(longest_note_ms / 2));
            }
            const auto e = events_.next(again, command_.socket());
            if (!e)
                continue;
            is_there = is_there || (e->signal == 0 && !e->is_file);
            if (e->is_file)
                hear_keeper();
            else if (e->signal != 0 && e->signal != SIGCHLD)
                take(*e, is_there);
        }
        command_.wait_for_keeper();
        return all_;
    }

private:
    void lose() noexcept {
        if (std::exchange(all_.is_lost, true))
            return;
        command_.finish();
        complain(o_.name + ": the lock was lost (fence " + std::to_string(held_.fence()) +
                 "): terminating the command");
    }
    void take(const event& e, bool is_there) noexcept {
        if (command_.has_ended()) { // background processes may ignore typed signals
            all_.ended_by = e.signal;
            command_.finish();
        } else if (!(e.is_typed && is_there)) {
            command_.send(e.signal);
        }
    }
    void hear_keeper() noexcept {
        const auto n = command_.listen();
        if (!n)
            return;
        switch (n->what) {
        case note::kind::ended:
            if (!all_.is_lost && (o_.closes || !is_leased_)) {
                command_.leave();
                is_over_ = true;
            } else if (o_.verbose) {
                complain(o_.name + ": the command has ended; waiting for its background processes");
            }
            break;
        case note::kind::expired: lose(); break;
        case note::kind::killing:
            if (o_.verbose)
                complain(o_.name + ": killing the command");
            break;
        case note::kind::refused:
            complain(o_.name + ": not permitted to kill " + std::to_string(n->value) +
                     " processes of the command");
            break;
        case note::kind::gone: is_over_ = true; break;
        default: break;
        }
    }

    const options& o_;
    const durable_guard& held_;
    child& command_;
    inbox& events_;
    const bool is_leased_;
    bool is_over_ = false;
    outcome all_;
};

// True if the record still has the holder, or if it cannot be read.
bool is_there(bide::durable_semaphore& lock, const durable_guard& held) {
    const auto seen = lock.inspect();
    if (!seen || !*seen)
        return true;
    const auto& holders = (*seen)->live.holders;
    return std::any_of(holders.begin(), holders.end(),
                       [&](const auto& h) { return h.fence == held.fence(); });
}

// Releases the lock. True: the lock was lost before.
bool release(const options& o, bide::durable_semaphore& lock, durable_guard& held, inbox& events,
             bool hands_over, std::chrono::milliseconds limit) {
    using answer = bide::result<bool, std::error_code>; // the result of hand_over()
    const auto end = steady::now() + limit;
    const auto released = in_time(
        events,
        [&lock, &held, hands_over]() -> answer {
            if (hands_over) {
                if (!is_there(lock, held))
                    return bide::unexpected{make_error_code(bide::durable_errc::lock_lost)};
                auto left = held.hand_over();
                // The descriptor is closed before the record changes. So the next holder may have
                // seen that, and changed the record first.
                return left || left.error() != bide::durable_errc::lock_lost ? left : answer(false);
            }
            if (auto done = held.release(); !done)
                return bide::unexpected{done.error()};
            return false;
        },
        [end] { return std::optional(end); }, [](int) {});
    const std::string then = hands_over ? "; held until the command's processes have ended"
                                        : "; not released: the lock is free when its lease expires";
    if (!released)
        complain(o.name + ": no answer in time (" + shown(o.slot) + ")" + then);
    else if (!*released && released->error() == bide::durable_errc::lock_lost)
        return true;
    else if (!*released)
        complain(words_of(o, lock, released->error()) + then);
    else if (o.verbose)
        complain(o.name + (**released ? ": still held by the background processes" : ": released"));
    return false;
}

// Runs the command once. None: the lock was lost, and the command was terminated.
std::optional<int> run_once(const options& o, bide::durable_semaphore& lock, inbox& events,
                            const inheritance& inherited) {
    auto& held = *new durable_guard(acquire(o, lock, events)); // lives as long as a call may use it
    const bool inherits = held.descriptor() >= 0 && !o.closes;
    std::unique_ptr<child> command;
    try {
        command = start(o, held, inherited);
    } catch (...) {
        release(o, lock, held, events, false, call_limit);
        throw;
    }
    outcome all = supervision(o, held, *command, events).run();
    const auto limit = all.is_lost ? std::chrono::milliseconds(1'000) : call_limit;
    if (release(o, lock, held, events, inherits && !all.is_lost, limit) && !all.is_lost) {
        complain(o.name + ": the lock was lost shortly before the command ended");
        all.is_lost = o.action == does::run;
    }
    if (all.is_lost)
        return std::nullopt;
    if (!command->has_ended())
        throw failure{EX_OSERR, o.name + ": the keeper was killed; the command was terminated"};
    switch (const int signal = all.ended_by != 0 ? all.ended_by : command->signal()) {
    case 0: return command->status();
    case SIGHUP:
    case SIGINT:
    case SIGQUIT:
    case SIGTERM: die_of(signal);
    default: return 128 + signal; // the command crashed; bide-lock did not
    }
}

int run(const options& o, bide::durable_semaphore& lock, inbox& events,
        const inheritance& inherited) {
    for (const int signal : {SIGPIPE, SIGTTOU}) // a message must neither end nor stop bide-lock
        ::signal(signal, SIG_IGN);
    if (o.action == does::run)
        return run_once(o, lock, events, inherited).value_or(EX_TEMPFAIL);
    for (;;) { // an election
        try {
            if (const auto status = run_once(o, lock, events, inherited))
                return *status;
        } catch (const failure& error) {
            if (error.status != EX_UNAVAILABLE)
                throw;
            complain(error.what + "; standing for election again");
        }
        for (const auto again = steady::now() + std::chrono::seconds(1);;) {
            const auto e = events.next(again);
            if (!e)
                break;
            if (e->signal != 0 && e->signal != SIGCHLD)
                die_of(e->signal);
        }
    }
}

int run_action(const options& o, inbox& events, const inheritance& inherited) {
    if (o.action == does::list)
        return list(o, events);
    // A call that hangs may use it until the process ends.
    auto& lock = *new bide::durable_semaphore(open_slot(o), o.permits, durable_options_of(o));
    const administration by{o, lock, events};
    descriptor_lock descriptor(by);
    switch (o.action) {
    case does::inspect: return inspect(by);
    case does::watch: return watch(by);
    case does::release: return release(by);
    case does::resize: return resize(by);
    case does::repair: return repair(by);
    case does::keep:
        return o.unlocks ? descriptor.release()
                         : descriptor.take([&] { return acquire(o, lock, events); });
    default: return o.observes ? watch(by) : run(o, lock, events, inherited);
    }
}

int run_all(int argc, char** argv) {
    try {
        const inheritance inherited;
        const options o = parser(argc, argv).parse();
        if (o.help)
            return print_help(), 0;
        if (o.version)
            return std::printf("bide-lock %d.%d.%d\n", BIDE_VERSION_MAJOR, BIDE_VERSION_MINOR,
                               BIDE_VERSION_PATCH),
                   0;
        if (o.action == does::completion)
            return print_completion(o.name);
        return run_action(*new options(o), *new inbox, inherited);
    } catch (const failure& error) {
        if (!error.what.empty() || speaks_json)
            complain(error.what.empty() ? "not acquired" : error.what, error.status);
        return error.status;
    } catch (const std::system_error& error) {
        const bool is_slot = error.code() == std::errc::invalid_argument;
        const int status = is_slot ? EX_USAGE
                           : error.code().category() == bide::durable_category()
                               ? status_of(error.code())
                               : EX_OSERR;
        complain(shown(error.what()), status);
        return status;
    } catch (const std::bad_alloc&) {
        complain("out of memory", EX_OSERR);
        return EX_OSERR;
    }
}

// If one of these is closed, the lock's file could get its number, and messages would go into it.
void keep_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR | O_CLOEXEC) != stream)
            std::_Exit(EX_OSERR);
}

} // namespace

int main(int argc, char** argv) {
    keep_standard_streams();
    int status = run_all(argc, argv);
    const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!is_written && status == 0)
        status = EX_IOERR;
    std::_Exit(status); // does not wait for calls that hang
}
