#ifndef BIDE_TESTS_EXAMPLES_LOCK_USAGE_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_USAGE_HPP

// What bide-lock --help says.

namespace lock_parts {

inline const char* const usage =
    R"(usage: bide-lock [options] NAME -- command [argument...]
       bide-lock [options] inspect NAME
       bide-lock [options] release --force FENCE | --all NAME
       bide-lock [options] resize --permits N NAME
       bide-lock [options] repair [--min-fence N] NAME
Runs a command while it holds the lock NAME, on one machine or across many. Waiters are served in
the order of their arrival. The command's environment has
  BIDE_LOCK_NAME  the name
  BIDE_FENCE      a number larger than that of every earlier holder
  BIDE_LANE       a number below N that no other holder has
  BIDE_LOCK_FD    the descriptor that holds the lock, if there is one (see "What holds the lock")
  BIDE_LOCK_HELD  "FENCE NAME" of this lock and of those around it, the outermost first, with slashes
                  between them
A bide-lock in the command waits as any other does if the lock that it asks for is held around it. It
says so on stderr, unless it has --nonblock. If the command waits for it in turn, neither ends.

Where the lock is:
  --slot file:DIRECTORY       in DIRECTORY/NAME.bide, on a local file system that survives a reboot;
                              the directory has to exist
  --slot sqlite:FILE          in a table of that database
  --slot postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE
  --slot postgres:CONNINFO    in a table of that database: postgres:host=db dbname=app
  --slot [etcd:]https://[USER:PASSWORD@]HOST[:PORT]    or http://
                              at the key bide-lock/NAME; several URLs are separated by commas
  --slot redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]    or rediss:// for TLS
  --slot redis:HOST:PORT      at the key bide-lock/NAME; needs --relaxed; $REDISCLI_AUTH is the
                              password if the slot has none
  --slot-file FILE            the slot is the first line of FILE
  $BIDE_LOCK_SLOT             the slot, if neither option is given
  --ca FILE, --cert FILE, --key FILE   PEM files for https:// and rediss://: the authorities, a
                              certificate, and its key
  --relaxed                   accepts a store that may forget its holders

Passwords: give them by --slot-file or $BIDE_LOCK_SLOT. A password on the command line can be seen
until bide-lock has overwritten it, which is the first thing it does. Messages show no password. A
$BIDE_LOCK_SLOT with a password, and the $REDISCLI_AUTH or $PGPASSWORD of such a slot, are not
handed on to the command.

How to get it:
  -n, --nonblock              fail at once if it is not free, or if others wait for it; also if the
                              store does not answer within 100 ms (-w 1 for a store far away)
  -w, --timeout TIME          fail if it was not acquired within this time. Without it, bide-lock
                              waits for other holders as long as that takes, but for a store that
                              fails 10s only
  -E, --conflict-exit-code N  the status of these failures (1)
  --permits N                 N holders at once (1); if the lock is free, it takes this number,
                              otherwise another number than the lock's is refused
  --weight N                  take N of these permits (1)
  -s, --shared                share it with other holders that use -s: 1 of 1024 permits
  -x, --exclusive             exclude the holders that use -s: all 1024 permits
  --holder ID                 the name that inspect shows (host:pid)
If the lock is on a file system that is frozen (fsfreeze), bide-lock gives up in its time, but the
kernel keeps its process until the file system is thawed.

How to hold it:
  --lease TIME                hold it by a lease of this length (30s), also on file and sqlite
  --kill-after TIME           from SIGTERM to SIGKILL, when the command has to end (10s, but at most
                              a third of the lease)
  -o, --close                 bide-lock holds the lock until the command's first process has
                              ended; the descriptor is not handed on
  -v, --verbose               report on stderr what happens

How to look after it:
  inspect, --json             show holders and waiters; as JSON
  release --force FENCE       take the lock away from this holder. The next one gets it at once;
                              the holder's command is terminated when its bide-lock notices, after
                              a third of the lease (10s on file and sqlite) at most
  release --all               take it away from all holders
  resize --permits N          change the number of permits (-s, -x: 1024); refused while holders
                              have more
  repair                      make a new record if the stored one cannot be read, or there is none,
                              with the lock's --permits. It knows no holder: first make sure that
                              none is at work. BIDE_FENCE goes on from the clock, or from
                              --min-fence N if that is larger. Not for redis and etcd
  --by NAME, --reason TEXT    what the record keeps of who did this (user@host), and why

TIME is a number and one of ms, s, m, h, d: 500ms, 1.5h; without a unit, of seconds. A NAME has at
most 200 bytes, no slash and no control characters, and does not begin with a dot or a dash.

What holds the lock:
  file, sqlite (on Linux)   A descriptor that every process of the command inherits. The lock is
      held as long as one of these processes has it open: there is no lease to run out, also if
      bide-lock is killed. If the command ends and leaves processes in the background, bide-lock
      ends, and they go on holding it. Programs that close their descriptors hold nothing of their
      own: sudo and most daemons do so. bide-lock holds the lock for them until the command's first
      process has ended.
  postgres, etcd, redis, or --lease   A lease, which bide-lock renews. If the command ends and
      leaves processes in the background, bide-lock waits for them and renews (-o: it does not
      wait). A signal ends that wait: the processes are terminated. A remote lease ends with the
      bide-lock that renewed it.

What is terminated, and when (on Linux, where /proc is mounted):
  The lock was lost.   Every process of the command gets SIGTERM, then SIGKILL after --kill-after,
      also those that called setsid or became daemons. bide-lock ends when none is left. It counts
      a lock as lost early enough for SIGKILL to come within the lease.
  bide-lock is killed, or stopped for longer than its lease.   The same, by a second process of
      bide-lock's, the keeper ("bide-keeper" for ps and pkill).
  The keeper is killed.   The same, by bide-lock.
  Both are killed at once (kill the whole control group, pkill -9 -f).   Only the command's first
      process gets SIGTERM. The rest holds the lock by its descriptor, if it has not closed it (-o:
      it has none); a lease ends.
  Processes of another user (by sudo, say) cannot be signalled. A machine that was suspended may
      go on for a moment after its lease: check BIDE_FENCE in what the command writes to.
Signals that bide-lock gets (HUP, INT, QUIT, TERM) go to every process of the command. On a terminal
the command stays in the caller's process group, so Ctrl-C, Ctrl-Z and input work.

Status: the command's, or 128+n if signal n ended it, or bide-lock while it waited; and
    1  not acquired: --nonblock, --timeout, or too many waiters; nothing to release, resize
       or repair
   64  wrong usage                         73  the slot cannot be created
   65  the record cannot be read           74  the slot cannot be read or written
   66  the slot cannot be used             75  the lock was lost while the command ran
   69  the store does not answer           76  the store speaks another protocol
   71  the system refuses something        78  it is held with another --permits or clock
                                          126  the command cannot be executed
                                          127  there is no such command
)";

} // namespace lock_parts

#endif
