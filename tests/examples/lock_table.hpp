#ifndef BIDE_TESTS_EXAMPLES_LOCK_TABLE_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_TABLE_HPP

// The table of bide-lock's actions and options: the parser, --help, the man page and the completions
// of shells are made from it.

#include "lock_parser.hpp"

#include <cstdint>
#include <span>

namespace lock_parts {

inline std::span<const action_row> actions() {
    static constexpr action_row all[] = {
        {nullptr, does::run, "[options] NAME -- command [argument...]"},
        {nullptr, does::run, "[options] PATH command [argument...]"},
        {"elect", does::elect, "[options] elect NAME -- command | elect --observe NAME"},
        {nullptr, does::keep, "[options] DESCRIPTOR | --unlock DESCRIPTOR"},
        {"inspect", does::inspect, "[options] inspect NAME"},
        {"list", does::list, "[options] list [PATTERN]"},
        {"watch", does::watch, "[options] watch NAME"},
        {"release", does::release, "[options] release --force FENCE | --all NAME"},
        {"resize", does::resize, "[options] resize NAME N"},
        {"repair", does::repair, "[options] repair [--min-fence N] NAME"},
        {"completion", does::completion, "completion bash | zsh | fish"},
    };
    return all;
}

inline constexpr row prose(const char* text) { return {"", nullptr, nullptr, 0, text, nullptr}; }
inline constexpr row term(const char* name, const char* text) {
    return {"", nullptr, name, 0, text, nullptr};
}

inline std::span<const row> rows() {
    using p = parser;
    static constexpr row table[] = {
        prose(
            R"(Runs a command while it holds the lock NAME, on one machine or across many. Waiters get the
lock in the order of their arrival. The command's environment has
)"),
        term("BIDE_LOCK_NAME", "the name"),
        term("BIDE_FENCE", "a number larger than that of every earlier holder"),
        term("BIDE_LANE", "a number below N that no other holder has (N: see --permits)"),
        term("BIDE_LOCK_FD", "the descriptor that holds the lock, if there is one"),
        term("BIDE_LOCK_HELD", "\"FENCE NAME\" of this lock and of the locks around it, the "
                               "outermost first, with slashes between them"),
        prose(
            R"(If the command runs another bide-lock for the same lock, that one waits like any other, and says
so on stderr unless it has --nonblock. If the command waits for it in turn, neither ends.

Where the lock is:
)"),
        term("PATH",
             "a NAME with a slash, such as /var/lib/app/nightly: the lock nightly of --slot "
             "file:/var/lib/app, whatever $BIDE_LOCK_SLOT is. The file PATH itself need not "
             "exist and is not touched"),
        {"", "slot", "SLOT", does::all, "one of these:", [](p& a) { a.slot(); }},
        term("  file:DIRECTORY", "in DIRECTORY/NAME.bide, on a local file system that survives a "
                                 "reboot; the directory must exist"),
        term("  sqlite:FILE", "in a table of that database"),
        term("  postgres:CONNINFO", "in a table of that database: postgres:host=db dbname=app, or "
                                    "postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE"),
        term("  [etcd:]URL[,URL...]", "at the key bide-lock/NAME: "
                                      "https://[USER:PASSWORD@]HOST[:PORT], or http://"),
        term("  redis:HOST:PORT",
             "at the key bide-lock/NAME; needs --relaxed. Or "
             "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss:// for TLS. "
             "$REDISCLI_AUTH is the password if the slot has none"),
        {"", "slot-file", "FILE", does::all, "the slot is the first line of FILE",
         [](p& a) { a.slot_file(); }},
        term("$BIDE_LOCK_SLOT", "the slot, if neither option is given"),
        {"", "ca", "FILE", does::all, "the authorities for https:// and rediss://, in PEM",
         [](p& a) { a.o.ca_file = a.text(); }},
        {"", "cert", "FILE", does::all, "a certificate for them",
         [](p& a) { a.o.cert_file = a.text(); }},
        {"", "key", "FILE", does::all, "its key", [](p& a) { a.o.key_file = a.text(); }},
        {"", "relaxed", nullptr, does::all, "accept a store that may lose its record of holders",
         [](p& a) { a.o.relaxed = true; }},
        {"", "mode", "MODE", does::acquire | does::repair,
         "the mode of the files that bide-lock makes for file and sqlite, such as 0660; without "
         "it, "
         "only their owner can use a file lock",
         [](p& a) { a.mode(); }},
        {"", "owner", "USER[:GROUP]", does::acquire | does::repair,
         "the owner of these files, for root; :GROUP for the members of a group",
         [](p& a) { a.owner(); }},
        prose(R"(
Passwords: give them by --slot-file or $BIDE_LOCK_SLOT. A password on the command line can be seen
until bide-lock has overwritten it, which is the first thing it does. Messages show no password. A
$BIDE_LOCK_SLOT with a password, and the $REDISCLI_AUTH or $PGPASSWORD of such a slot, are not
passed to the command.

How to acquire the lock:
)"),
        {"n", "nonblock", nullptr, does::acquire,
         "fail at once if the lock is held or has waiters, or if the store does not answer within "
         "100 ms (use -w 1 for a remote store)",
         [](p& a) { a.o.timeout.emplace(0); }},
        {"", "nb", nullptr, does::acquire, nullptr, [](p& a) { a.o.timeout.emplace(0); }},
        {"w", "timeout", "TIME", does::acquire,
         "fail if the lock was not acquired within this time. Without it, bide-lock waits for "
         "other "
         "holders without a limit, but only 10s for a store that fails",
         [](p& a) { a.o.timeout = a.time(0); }},
        {"", "wait", "TIME", does::acquire, nullptr, [](p& a) { a.o.timeout = a.time(0); }},
        {"E", "conflict-exit-code", "N", does::acquire,
         "the exit status of these failures (default: 1)",
         [](p& a) { a.o.conflict_status = a.number(0, 255); }},
        {"s", "shared", nullptr, does::acquire | does::resize | does::repair,
         "share the lock with other holders that use -s: 1 of 1024 permits",
         [](p& a) { a.readers(1); }},
        {"xe", "exclusive", nullptr, does::acquire | does::resize | does::repair,
         "exclude the holders that use -s: all 1024 permits. Needed if other holders use -s",
         [](p& a) { a.readers(p::most_readers); }},
        {"", "permits", "N", does::acquire | does::resize | does::repair,
         "up to N holders at once (default: 1). If the lock is free, its number becomes N; "
         "otherwise "
         "a different N is an error",
         [](p& a) { a.permits(a.number(1, 1 << 30)); }},
        {"", "weight", "N", does::acquire, "take N of these permits (default: 1)",
         [](p& a) { a.weight(a.number(1, 1 << 30)); }},
        {"", "at-least", "TIME", does::acquire,
         "keep others out for this time after the start, even if the command ends earlier: for a "
         "job "
         "that several machines start at about the same time",
         [](p& a) { a.o.at_least = a.time(0); }},
        {"", "holder", "ID", does::acquire, "the name that inspect shows (host:pid)",
         [](p& a) { a.o.holder = a.text(); }},
        {"", "note", "TEXT", does::acquire, "a text that inspect shows, of at most 256 bytes",
         [](p& a) { a.o.note = a.text(); }},
        {"", "label", "NAME=VALUE", does::acquire,
         "a value that inspect shows, of at most 64 bytes; up to 16 labels",
         [](p& a) { a.label(); }},
        prose(
            R"(If the lock is on a file system that is frozen (fsfreeze), bide-lock gives up in its time, but the
kernel keeps its process until the file system is thawed.

How to hold the lock:
)"),
        {"c", "command", "TEXT", does::run | does::elect, "the command, for $SHELL -c",
         [](p& a) { a.shell_command(); }},
        {"", "lease", "TIME", does::acquire,
         "hold the lock by a lease of this length (default: 30s), also on file and sqlite",
         [](p& a) { a.o.lease = a.time(1), a.o.is_leased = true; }},
        {"", "kill-after", "TIME", does::run | does::elect,
         "from SIGTERM to SIGKILL, when the command must end (default: 10s, but at most a third of "
         "the lease)",
         [](p& a) { a.o.kill_after = a.time(0); }},
        {"o", "close", nullptr, does::run | does::elect,
         "bide-lock holds the lock until the command's first process has ended; the command does "
         "not "
         "inherit the descriptor",
         [](p& a) { a.o.closes = true; }},
        {"F", "no-fork", nullptr, does::run,
         "become the command (file and sqlite): the command holds the lock until all its processes "
         "have ended, and is not terminated if the lock is taken away",
         [](p& a) { a.o.forks = false; }},
        {"v", "verbose", nullptr, does::all, "report on stderr what happens",
         [](p& a) { a.o.verbose = true; }},
        {"", "json", nullptr, does::all,
         "print results as JSON. Messages on stderr are then lines with {\"message\":...}; the "
         "last "
         "one of a failure has {\"error\":...,\"code\":STATUS}",
         [](p& a) { a.o.json = true; }},
        {"h", "help", nullptr, ~0U, "print this text", [](p& a) { a.o.help = true; }},
        {"V", "version", nullptr, ~0U, "print the version", [](p& a) { a.o.version = true; }},
        prose(R"(
How to elect a leader:
)"),
        term("elect NAME -- command", "runs the command while this bide-lock is the leader. If "
                                      "leadership is lost, terminates the command and stands for "
                                      "election again. Ends when the command ends by itself"),
        {"", "observe", nullptr, does::elect,
         "print the leader's \"FENCE ID\", again at each change",
         [](p& a) { a.o.observes = true; }},
        prose(R"(
How to lock a descriptor of a shell (Linux):
  exec 9>> /var/lib/app/nightly.bide.lock
  bide-lock 9
The lock /var/lib/app/nightly stays held after bide-lock has ended, until every process has closed
descriptor 9. The descriptor must be open for writing on the lock's own .bide.lock file; bide-lock
takes no other file, so it never writes into a file of yours. --json prints the fence. A lock that
the descriptor has already stays as it is.
)"),
        {"u", "unlock", nullptr, does::keep, "unlock the descriptor now",
         [](p& a) { a.o.unlocks = true; }},
        prose(R"(
How to administer the lock:
)"),
        term("inspect NAME", "show holders and waiters"),
        term("list [PATTERN]",
             "show the locks of a slot (file, sqlite, postgres) whose names match, "
             "one on a line: name, state, waiters, holders"),
        term("watch NAME", "show holders and waiters until interrupted: on a terminal the present "
                           "state, otherwise a line for each change"),
        {"", "force", "FENCE", does::release,
         "release: take the lock away from this holder. The next waiter gets it at once; the "
         "holder's "
         "command is terminated when its bide-lock notices, after a third of the lease (10s on "
         "file "
         "and sqlite) at most",
         [](p& a) { a.victim(a.number(1, p::most_fence)); }},
        {"", "all", nullptr, does::release, "release: take it away from all holders",
         [](p& a) { a.victim(0); }},
        term("resize NAME N", "change the number of permits (-s, -x: 1024); refused while holders "
                              "have more"),
        term("repair NAME", "make a new record if the stored one cannot be read, or there is none, "
                            "with the lock's --permits. The new record has no holder: first make "
                            "sure that no command is running. Not for redis and etcd"),
        {"", "min-fence", "N", does::repair,
         "repair: the least next BIDE_FENCE (default: from the clock)",
         [](p& a) { a.o.min_fence = a.number(1, p::most_fence - (std::int64_t{1} << 32)); }},
        {"", "by", "NAME", does::administer, "the user that the record keeps (default: user@host)",
         [](p& a) { a.o.by = a.text(); }},
        {"", "reason", "TEXT", does::administer, "the reason that the record keeps",
         [](p& a) { a.o.reason = a.text(); }},
        prose(R"(
TIME is a number and one of ms, s, m, h, d: 500ms, 1.5h; without a unit, of seconds. A NAME has at
most 200 bytes, no slash and no control characters, and does not begin with a dot or a dash.

What holds the lock:
)"),
        term("file, sqlite (on Linux)",
             "A descriptor that every process of the command inherits. The lock is held as long as "
             "one "
             "of these processes has it open: there is no lease that expires, even if bide-lock is "
             "killed. If the command ends and leaves processes in the background, bide-lock ends, "
             "and "
             "these processes still hold the lock. Programs that close their descriptors (sudo and "
             "most daemons) do not hold it. bide-lock holds it for them until the command's first "
             "process has ended."),
        term(
            "postgres, etcd, redis, or --lease",
            "A lease, which bide-lock renews. If the command ends and leaves processes in the "
            "background, bide-lock waits for them and renews (-o: it does not wait). A signal ends "
            "that wait: the processes are terminated. A remote lease ends with the bide-lock that "
            "renewed it."),
        prose(R"(
What is terminated, and when (Linux with /proc):
)"),
        term("The lock was lost.", "Every process of the command gets SIGTERM, then SIGKILL after "
                                   "--kill-after, also those "
                                   "that called setsid or became daemons. bide-lock ends when none "
                                   "is left. It counts a lock "
                                   "as lost early enough for SIGKILL to come within the lease."),
        term("bide-lock is killed, or stopped for longer than its lease.",
             "The same, by a second process of bide-lock's, the keeper (\"bide-keeper\" for ps and "
             "pkill)."),
        term("The keeper is killed.", "The same, by bide-lock."),
        term("Both are killed at once (the whole control group, pkill -9 -f).",
             "Only the command's first process gets SIGTERM. The other processes hold the lock by "
             "the "
             "descriptor, unless they closed it (-o: they have none). A lease expires."),
        prose(
            R"(Processes of another user (by sudo, say) cannot be signalled. A machine that was suspended may
run for a moment after its lease: let the resource that the command writes to check BIDE_FENCE.
Signals that bide-lock gets (HUP, INT, QUIT, TERM) go to every process of the command. On a terminal
the command stays in the caller's process group, so Ctrl-C, Ctrl-Z and input work.

Exit status:
The command's, or 128+n if signal n ended it, or bide-lock while it waited; and
)"),
        term("1", "not acquired: --nonblock, --timeout, or too many waiters; nothing to release, "
                  "resize or repair"),
        term("64", "wrong usage"),
        term("65", "the record cannot be read"),
        term("66", "the slot or the descriptor cannot be used"),
        term("69", "the store does not answer"),
        term("71", "a system call failed"),
        term("73", "the slot cannot be created"),
        term("74", "the slot cannot be read or written"),
        term("75", "the lock was lost while the command ran"),
        term("76", "the store speaks another protocol"),
        term("78", "it is held with another --permits or clock"),
        term("126", "the command cannot be executed"),
        term("127", "the command was not found"),
        prose(R"(
What differs from flock(1):
Waiters get the lock in the order of their arrival. -s excludes -x, but not a holder with neither:
use -x beside -s. The lock of PATH is in PATH.bide and PATH.bide.lock, not on PATH, so PATH may be a
directory. A lost lock ends the command. Without -n or -w, a store that fails ends the wait.
)"),
    };
    return table;
}

} // namespace lock_parts

#endif
