# sh test.sh <bide-lock> <scratch directory> <slot kinds: "file", or "file sqlite"> <part>
#
# Runs bide-lock alone and against itself. FIFOs order the events: a command under the lock writes
# to one FIFO when it runs, and reads from another one until it may end. If a test waits for a
# change of the record, a loop reads the record until the change is there.

set -eu
LC_ALL=C
TSAN_OPTIONS="${TSAN_OPTIONS-} atexit_sleep_ms=0" # otherwise each run of bide-lock takes a second
export LC_ALL TSAN_OPTIONS

# Runs without a terminal, and with a time limit.
if [ "${LOCK_TEST_INSIDE-}" != yes ]; then
    for tool in mkfifo timeout setsid; do
        command -v $tool > /dev/null || { echo "lock_test: skipped, there is no $tool"; exit 0; }
    done
    LOCK_TEST_INSIDE=yes exec setsid -w timeout -k 5 840 sh "$0" "$@"
fi

lock=$1
work=$2
source=$(cd "$(dirname "$0")" && pwd)
kinds=$3
part=$4
rm -rf "$work"
mkdir -p "$work"
cd "$work"

case_name=
children=
finish() {
    status=$?
    trap - EXIT
    if [ $status != 0 ]; then
        echo "lock_test: $case_name: failed ($status)"
        for child in $children; do kill -TERM "$child" 2> /dev/null || :; done
        # Commands that wait for let_go would keep the output open, and ctest waiting.
        [ ! -p go ] || printf '\n\n\n\n' >&5
    fi
    exit $status
}
trap finish EXIT
trap 'exit 124' TERM

fail() {
    echo "$*"
    exit 1
}

# Each case has new FIFOs and a new lock named n.
count=0
begin() {
    case_name="$1 ($kind)"
    echo "lock_test: $case_name"
    children=
    count=$((count + 1))
    mkdir "$work/$count"
    cd "$work/$count"
    case $kind in
    file) BIDE_LOCK_SLOT=file:. ;;
    sqlite) BIDE_LOCK_SLOT=sqlite:locks.db ;;
    esac
    export BIDE_LOCK_SLOT
    mkfifo held go more
    # This shell has both ends open, so that no process finds the other end closed.
    exec 4<> held 5<> go
}

# expect STATUS COMMAND...: runs the command, with its output in ./out and ./err.
expect() {
    wanted=$1
    shift
    status=0
    "$@" > out 2> err || status=$?
    [ $status = "$wanted" ] || { cat out err; fail "status $status instead of $wanted: $*"; }
}

says() { # FILE TEXT
    grep -F -q -e "$2" "$1" || { cat "$1"; fail "$1 does not say: $2"; }
}

# refused STATUS TEXT ARGUMENTS...: bide-lock ends with the status, and says the text.
refused() {
    text=$2
    status=$1
    shift 2
    expect $status "$lock" "$@"
    says err "$text"
}

prints() { # TEXT
    [ "$(cat out)" = "$1" ] || { cat out; fail "it does not print $1"; }
}

quiet() {
    [ ! -s out ] && [ ! -s err ] || { cat out err; fail "not quiet"; }
}

until_true() {
    tries=0
    while ! "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 1500 ] || { "$lock" inspect n; fail "never: $*"; }
        sleep 0.02
    done
}

# Whether bide-lock runs as this process and catches signals.
catches_signals() {
    grep -q '^Name:.bide-lock' /proc/$1/status && grep -q '^SigCgt:.*[1-9a-f]' /proc/$1/status
}

# in_background OPTIONS... -- COMMAND: runs bide-lock as $child, with its output in ./bg.
in_background() {
    : > bg # not what an earlier one wrote: the new one opens the file when it runs
    { "$lock" "$@" > bg 2>&1 & } < /dev/null
    child=$!
    children="$children $child"
}

# ends STATUS PID
ends() {
    status=0
    wait "$2" || status=$?
    [ $status = "$1" ] || { cat bg; fail "status $status instead of $1"; }
}

# ends_by SIGNAL STATUS: $child gets the signal, and ends with the status.
ends_by() {
    kill -$1 $child
    ends $2 $child
}

# Start it before the processes that write into ./more. gone succeeds when all of them have ended.
reader() {
    cat more &
    reader=$!
    children="$children $reader"
}
gone() { wait $reader; }

# The command of a holder: it reports its token and lane, and waits for permission to end.
hold='echo $BIDE_FENCE $BIDE_LANE > held; read go < go'
held() { read -r fence lane <&4; }
hold_by() { # OPTIONS... -- COMMAND: a holder in the background, as $child
    in_background "$@"
    held
}
hold_with_reader() { # OPTIONS... -- COMMAND: a holder whose processes write into ./more
    in_background "$@"
    reader
    held
}
loses_lock() { # $child is made to release the lock that it holds
    expect 0 "$lock" release --force "$fence" n
    ends 75 $child
}
hold_lock() { # OPTIONS...: a holder that let_go ends, as $holder and $child
    hold_by "$@" n -- sh -c "$hold"
    holder=$child
}
let_go() { # [STATUS [PID]]: $child, or the process, ends with the status
    echo >&5
    [ $# = 0 ] || ends "$1" "${2-$child}"
}

shows() { # TEXT
    expect 0 "$lock" inspect n
    says out "$1"
}
waiters() { "$lock" inspect n > seen && [ "$(grep -c '^waiter ' seen)" = "$1" ]; }

# ---- for each kind of slot: the part contention_KIND

contention_cases() {

begin "reports when the bide-lock around it holds the lock"
in_background n -- "$lock" n -- true
until_true grep -q "n: held by the bide-lock that runs this command (fence " bg
ends_by TERM 143
in_background n -- "$lock" other -- "$lock" n -- true
until_true grep -q "n: held by the bide-lock that runs this command (fence " bg
ends_by TERM 143
expect 1 "$lock" n -- "$lock" -n n -- true
quiet
expect 0 "$lock" n -- "$lock" other -- sh -c 'echo "$BIDE_LOCK_HELD" | grep -E -q "^[0-9]+ n/[0-9]+ other$"'
quiet
expect 0 "$lock" -s n -- "$lock" -s n -- true
quiet
expect 0 env BIDE_LOCK_HELD='1 n/x n/ n/2' "$lock" n -- true
quiet
hold_lock
expect 1 env BIDE_LOCK_HELD='1 n' "$lock" -w 0.1 n -- true # the lock around it has this name in another slot
quiet
let_go 0

begin "returns the command's status"
expect 0 "$lock" n -- true
quiet
expect 7 "$lock" n -- sh -c 'exit 7'
expect 137 "$lock" n -- sh -c 'kill -KILL $$'
quiet
expect 143 "$lock" n -- sh -c 'kill -TERM $$'
echo input > in
expect 0 "$lock" n -- cat < in
cmp out in

begin "tells the command what it holds, with an increasing token"
last=0
for run in 1 2 3; do
    expect 0 "$lock" n -- sh -c 'echo $BIDE_FENCE $BIDE_LANE $BIDE_LOCK_NAME'
    read -r fence lane name < out
    [ "$fence" -gt $last ] && [ "$lane" = 0 ] && [ "$name" = n ] || fail "$run: $(cat out)"
    last=$fence
done

begin "lets one command run at a time"
echo 0 > counter
increments='for i in 1 2 3; do
    "$0" n -- sh -c "mkdir inside && read -r c < counter && echo \$((c + 1)) > counter &&
        rmdir inside"
done'
pids=
for one in 1 2 3 4; do
    sh -e -c "$increments" "$lock" > out.$one 2>&1 &
    pids="$pids $!"
done
for pid in $pids; do wait $pid || { cat out.*; fail "two at once"; }; done
[ "$(cat counter)" = 12 ] || fail "$(cat counter) instead of 12"

begin "grants the lock in the order of arrival"
hold_lock
pids=
for one in 1 2 3; do
    in_background n -- sh -c "echo $one >> order"
    pids="$pids $child"
    until_true waiters $one
done
let_go
for pid in $holder $pids; do ends 0 $pid; done
[ "$(tr -d '\n' < order)" = 123 ] || fail "in the order $(cat order)"

begin "fails at once or after a timeout, and leaves no entry"
hold_lock
expect 1 "$lock" -n n -- touch ran
quiet
expect 1 "$lock" -w 0 n -- touch ran
expect 1 "$lock" --timeout=30ms n -- touch ran
quiet
expect 42 "$lock" -n -E 42 n -- touch ran
refused 9 "bide-lock: n: not acquired after " -w.03s -E9 --verbose n -- touch ran
waiters 0 || fail "it still waits: $(cat seen)"
let_go 0
expect 0 "$lock" -w 60 n -- true
[ ! -e ran ] || fail "it ran without the lock"

begin "takes a free lock however long a sync takes"
cat > slow.c << 'END'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
int fdatasync(int f) { usleep(150000); return syscall(SYS_fdatasync, f); }
int fsync(int f) { usleep(150000); return syscall(SYS_fsync, f); }
END
if [ "$(uname)" = Linux ] && cc -shared -fPIC -o slow.so slow.c 2> err &&
    LD_PRELOAD=$PWD/slow.so sh -c : 2>> err && [ ! -s err ]; then
    slowly() { LD_PRELOAD=$PWD/slow.so "$@"; }
    expect 0 slowly "$lock" -n n -- true
    expect 0 slowly "$lock" -w 0.01 n -- true
    hold_lock
    expect 1 slowly "$lock" -n n -- true
    quiet
    let_go 0
    pids=
    for one in 1 2 3 4; do # at least one of them runs, and the others know why they do not
        LD_PRELOAD=$PWD/slow.so "$lock" -n m -- sh -c 'echo ran >> ran; sleep 1' 2> err.$one &
        pids="$pids $!"
    done
    for pid in $pids; do
        status=0
        wait $pid || status=$?
        case $status in 0 | 1) ;; *) cat err.*; fail "status $status" ;; esac
    done
    [ -s ran ] || fail "none of them ran"
else
    echo "not checked: a slow disk, as there is no C compiler, or nothing can be preloaded"
fi

begin "has as many holders as permits, each in its lane"
for number in 0 1; do
    hold_lock --permits 2
    [ "$lane" = $number ] || fail "lane $lane instead of $number"
done
expect 1 "$lock" --permits 2 -n n -- true
refused 78 "bide-lock: n: " --permits 3 -w 60 n -- true
let_go
let_go
for pid in $children; do ends 0 $pid; done
expect 0 "$lock" --permits 2 --weight 2 -w 60 n -- true

begin "shares the lock among holders that use -s"
hold_lock -s
expect 0 "$lock" -s -w 60 n -- true
expect 1 "$lock" -x -n n -- true
refused 78 "use -x" -w 60 n -- true
let_go 0
hold_lock -x
expect 1 "$lock" -s -n n -- true
let_go 0

begin "terminates the command when the lock is taken away"
hold_by --lease 6s n -- sh -c '
    trap "echo terminated; exit 0" TERM
    echo $BIDE_FENCE 0 > held
    sleep 99 & wait'
expect 0 "$lock" release --all n
ends 75 $child
says bg "bide-lock: n: the lock was lost (fence "
says bg "terminated"

begin "grants the lock after a crash when the lease has expired"
hold_lock --lease 2s
ends_by KILL 137
expect 0 "$lock" -w 60 n -- sh -c 'echo $BIDE_FENCE'
[ "$(cat out)" -gt "$fence" ] || fail "the token does not grow"
}

# ---- for one kind of slot, one part each

ending_cases() {

begin "does not grant the lock after a crash before the lease has expired"
hold_with_reader --lease 1h n -- sh -c 'exec 3> more; echo $BIDE_FENCE 0 > held; exec sleep 99'
ends_by KILL 137
if [ "$(uname)" = Linux ]; then gone; else kill $reader; fi
expect 1 "$lock" -n n -- true
expect 0 "$lock" release --all n
expect 0 "$lock" -w 60 n -- true

begin "kills processes that do not end, and their children"
hold_with_reader --lease 6s --kill-after 100ms -v n -- sh -c '
    trap "" TERM
    { exec 3> more; echo $BIDE_FENCE 0 > held; exec sleep 99; } &
    while :; do sleep 99; done'
expect 0 "$lock" release --force "$fence" -v n
says err "bide-lock: n: released fence $fence"
ends 75 $child
says bg "killing the command"
gone

begin "gives background processes the same time to end as the command"
hold_with_reader --lease 6s --kill-after 100ms n -- sh -c '
    sh -c "trap \"\" TERM; exec 3> more; echo \$BIDE_FENCE 0 > held; exec sleep 99" &
    wait'
loses_lock
gone

begin "ends the command even if its messages are not read"
mkfifo deaf
exec 6<> deaf
for how in full broken; do
    { "$lock" --lease 6s --kill-after 100ms -v n -- sh -c '
        trap "" TERM
        echo $BIDE_FENCE 0 > held
        exec sleep 99' > bg 2> deaf 6>&- & } < /dev/null
    child=$!
    children="$children $child"
    held
    case $how in
    full) dd if=/dev/zero of=deaf bs=4096 oflag=nonblock 2> /dev/null || : ;;
    broken) exec 6>&- ;;
    esac
    loses_lock
done

begin "leaves the queue at a signal"
hold_lock
for signal in TERM:143 HUP:129; do
    in_background n -- touch ran
    until_true waiters 1
    kill -${signal%:*} $child
    ends ${signal#*:} $child
    waiters 0 || fail "it still waits: $(cat seen)"
done
let_go 0 $holder
[ ! -e ran ] || fail "it ran"

begin "ignores what its caller ignores"
trap '' HUP
in_background n -- sh -c "$hold; kill -HUP \$\$; exit 5"
trap - HUP
held
kill -HUP $child
let_go 5

begin "passes signals to every process of the command, and waits for it"
hold_with_reader n -- sh -c '
    trap "echo hangup; exit 9" HUP
    { exec 3> more; echo $BIDE_FENCE 0 > held; exec sleep 99; } &
    wait'
ends_by HUP 9
says bg hangup
gone
hold_by n -- sh -c 'echo $BIDE_FENCE 0 > held; exec sleep 99'
ends_by TERM 143
expect 0 "$lock" -w 60 n -- true
if [ -r /proc/self/status ]; then
    in_background n -- sh -c 'echo $$ 0 > held; kill -STOP $$'
    held # its process, instead of the fence
    until_true grep -q '^State:.T' /proc/$fence/status
    ends_by TERM 143 # a stopped command ends, too
fi

begin "names the command that it could not run"
refused 127 "bide-lock: ./no-such-command: No such file" n -- ./no-such-command
touch plain
refused 126 "bide-lock: ./plain: Permission denied" n -- ./plain
expect 0 "$lock" -w 60 n -- true

begin "ends in time even if the lock file is locked"
if command -v flock > /dev/null; then
    expect 0 "$lock" -w 60 n -- true
    { flock n.bide.lock sh -c 'echo 0 0 > held; read go < go' & } < /dev/null
    holder=$!
    children="$children $holder"
    held
    started=$(date +%s)
    # It does not know that the lock is held: a disk may be slow, for up to 10 s.
    expect 69 "$lock" -n n -- touch ran
    says err "another process has held its lock"
    expect 69 "$lock" -E 7 -w .1 --lease 30s n -- touch ran
    # The test does not know if bide-lock waits already: the signal may come before or after. But the shell
    # would lose it before it has become bide-lock.
    in_background n -- touch ran
    until_true catches_signals $child
    ends_by TERM 143
    took=$(($(date +%s) - started))
    [ $took -lt 30 ] || fail "it took $took s"
    let_go
    wait $holder
    [ ! -e ran ] || fail "it ran without the lock"
else
    echo "not checked: there is no flock(1)"
fi
}

straying_cases() {

begin "ends every process of the command, also outside its group"
if [ "$(uname)" = Linux ]; then
# The process is not in the command's group, ignores SIGTERM, and its parent has ended.
stray='setsid sh -c "trap \"\" TERM; exec 3> more; echo \$BIDE_FENCE \$\$ > held
    while :; do sleep 99; done" & '
for then in 'sleep 99 & wait' 'while :; do sleep 99; done'; do
    hold_with_reader --kill-after 100ms n -- sh -c "($stray) ; $then" # the lane is its pid
    ends_by KILL 137
    gone
    expect 0 "$lock" -w 60 n -- true

    hold_with_reader --lease 6s --kill-after 100ms n -- sh -c "($stray) ; $then"
    loses_lock
    if kill -0 "$lane" 2> /dev/null; then fail "bide-lock ended before its command"; fi
    gone

    hold_with_reader --lease 4s --kill-after 100ms n -- sh -c "($stray) ; $then"
    kill -STOP $child # so that it does not renew
    gone
    ends_by CONT 75

    hold_with_reader --kill-after 100ms n -- sh -c "echo \$PPID > keeper; ($stray) ; $then"
    kill -KILL "$(cat keeper)"
    ends 71 $child
    if kill -0 "$lane" 2> /dev/null; then fail "bide-lock ended before its command"; fi
    says bg "bide-lock: n: the keeper was killed"
    gone
    expect 0 "$lock" -w 60 n -- true
done

begin "passes signals to processes that left the command's group"
hold_with_reader n -- sh -c 'trap : HUP
    setsid sh -c "trap \"echo hangup > hung; exit\" HUP
        exec 3> more; echo \$BIDE_FENCE 0 > held; while :; do sleep 0.05; done" &
    wait; wait; exit 4'
kill -HUP $child
gone
ends 4 $child
says hung hangup

begin "holds the lock as long as a process of the command has the descriptor"
hold_with_reader n -- sh -c '
    setsid sh -c "exec 3> more; echo \$BIDE_FENCE 0 > held; read go < go" & exit 3'
ends 3 $child
expect 1 "$lock" -n n -- true
let_go
gone
expect 0 "$lock" -w 60 n -- true

begin "keeps the lock of a killed bide-lock until the command has ended"
hold_with_reader --kill-after 15s n -- sh -c 'trap "echo > terminated" TERM
    exec 3> more
    echo $BIDE_FENCE 0 > held
    while [ ! -e end ]; do sleep 0.05; done'
ends_by KILL 137
until_true test -e terminated
expect 1 "$lock" -n n -- true
touch end
gone
expect 0 "$lock" -w 60 n -- true

begin "waits for background processes if it renews a lease"
background='sh -c "exec 3> more; echo \$BIDE_FENCE 0 > held; read go < go" & exit 3'
hold_with_reader --lease 30s n -- sh -c "$background"
expect 1 "$lock" -n n -- true
let_go
gone
ends 3 $child
hold_with_reader -v --lease 30s n -- sh -c "$background"
until_true grep -q "waiting for its background processes" bg
kill -TERM $child
gone
ends 143 $child
# A time that has no place in 32 bits.
hold_by -v --lease 100d --kill-after 30d n -- sh -c '
    { trap "echo term 0 > held; read go < go; echo ended; exit 0" TERM; echo $BIDE_FENCE 0 > held
      while :; do sleep 0.1; done; } &'
until_true grep -q "waiting for its background processes" bg
kill -TERM $child
held
[ "$fence" = term ] || fail "$fence"
let_go 143
says bg ended
for how in '--lease 30s' '--lease=30s --permits=1' ''; do
    hold_with_reader $how --close n -- sh -c "$background"
    ends 3 $child
    expect 0 "$lock" -w 60 n -- true
    let_go
    gone
done
else
    echo "not checked: processes outside the command's group, as this is not Linux"
fi
}

administration_cases() {

begin "shows holders and waiters"
shows "n: never used"
expect 0 "$lock" inspect --json n
says out null
hold_lock --holder 'web 1'
in_background --holder 'web 2' n -- true
until_true waiters 1
shows "n: 0 of 1 permits free, 1 waiting"
for line in 'holder  fence=[0-9]+ lane=0 weight=1 left=[0-9.]+s host=[^ ]+ id=web 1' \
    'waiter  place=1 weight=1 left=[0-9.]+s host=[^ ]+ id=web 2'; do
    grep -E -q "^$line\$" out || { cat out; fail "no such line: $line"; }
done
expect 0 "$lock" inspect --json n
for field in '"v":1' '"permits":1' '"holderId":"web 1"' '"holderId":"web 2"' \
    '"name":"n"' '"free":0' '"expired":[]' '"now":'; do
    says out "$field"
done
let_go 0 $holder
ends 0 $child

begin "takes the lock away from one holder, and records the user"
hold_lock --lease 10m
refused 1 "bide-lock: n: no holder has fence 77" release --force 77 n
expect 0 "$lock" release --force "$fence" --by ops --reason 'host lost' n
shows "note    ops: force_release $fence: host lost"
expect 0 "$lock" -w 60 n -- true
let_go 75
says bg "shortly before the command ended"
refused 1 "n: there is no holder" release --all n

begin "repairs an unreadable record only on request, and continues with larger tokens"
expect 0 "$lock" repair --min-fence 50 --by ops --reason 'file lost' n
expect 0 "$lock" n -- sh -c 'echo $BIDE_FENCE'
[ "$(cat out)" -ge 50 ] || fail "token $(cat out)"
shows "note    ops: repair: file lost"
refused 1 "bide-lock: n: the record can be read" repair --min-fence 90 n
tr '\000-\377' 'x' < n.bide > damaged
for kind in $kinds; do
    [ $kind = file ] || command -v sqlite3 > /dev/null || continue
    [ $kind = file ] || BIDE_LOCK_SLOT=sqlite:locks.db
    expect 0 "$lock" n -- sh -c 'echo $BIDE_FENCE'
    before=$(cat out)
    case $kind in
    file) cat damaged > n.bide ;;
    sqlite) sqlite3 locks.db "update bide_lock set value = x'00'" ;;
    esac
    refused 65 "bide-lock: n: the stored record is corrupt" -w 60 n -- true
    refused 65 "bide-lock repair n" inspect n
    expect 0 "$lock" repair --by ops --reason disk n
    expect 0 "$lock" -w 60 n -- sh -c 'echo $BIDE_FENCE'
    [ "$(cat out)" -gt "$before" ] || fail "token $(cat out) after $before"
done
kind=file

begin "changes the number of permits"
refused 1 "n: never used" resize --permits 2 n
expect 0 "$lock" n -- true
expect 0 "$lock" resize --permits 3 --by ops --reason more n
shows "n: 3 of 3 permits free"
says out "note    ops: resize 3: more"
hold_lock --permits 3 --weight 2
in_background --weight 2 --permits 2 n -- touch waited # it follows the number
until_true waiters 1
expect 0 "$lock" resize --permits 4 n
ends 0 $child
[ -e waited ] || fail "the waiter did not follow"
child=$holder
refused 78 "bide-lock: n: " --permits 5 --weight 5 -w 60 n -- touch ran
expect 0 "$lock" resize --permits 3 n
refused 78 "n: not resized: holders have 2 of 3 permits" resize --permits 1 n
shows "n: 1 of 3 permits free"
expect 0 "$lock" resize --permits 2 n
let_go 0
expect 0 "$lock" -w 60 --permits 5 n -- "$lock" inspect n # the administrator's number stays
says out "n: 1 of 2 permits free"
refused 78 "bide-lock: n: " -w 60 -x n -- touch ran
expect 0 "$lock" resize --permits 1 n
expect 0 "$lock" -w 60 --permits 5 m -- "$lock" inspect m # its own number, as nobody has set it
says out "m: 4 of 5 permits free"
expect 0 "$lock" -w 60 -x m -- "$lock" inspect m
says out "m: 0 of 1024 permits free"
expect 0 "$lock" resize -x n
shows "n: 1024 of 1024 permits free"
[ ! -e ran ] || fail "it ran with other permits"

begin "keeps others out for a minimum time, and describes the holder"
hold_lock --at-least 1h --note 'disk check' --label team=db --label shift=2
expect 0 "$lock" inspect n
for text in 'note=disk check' team=db shift=2; do says out "        $text"; done
expect 0 "$lock" inspect --json n
says out '"note":"disk check"'
let_go 0
expect 1 "$lock" -n n -- true
shows "resting fence=$fence"
expect 0 "$lock" release --all n
expect 0 "$lock" -w 60 n -- true
expect 64 "$lock" --label team n -- true

begin "lists the locks of a slot"
for kind in $kinds; do
    [ $kind = sqlite ] && BIDE_LOCK_SLOT=sqlite:locks.db
    for name in one two other; do expect 0 "$lock" $name -- true; done
    hold_by two -- sh -c "$hold"
    expect 0 "$lock" list
    [ "$(sed 's/ by=.*//' out | tr '\t\n' ' /')" = "one free/other free/two held 1/1 waiting=0/" ] ||
        fail "$(cat out)"
    expect 0 "$lock" list --json 'o*'
    [ "$(grep -o '"name":"[a-z]*"' out | tr -d '\n')" = '"name":"one""name":"other"' ] ||
        fail "$(cat out)"
    let_go
    ends 0 $child
done
kind=file
BIDE_LOCK_SLOT=file:.
cp two.bide damaged
tr '\000-\377' 'x' < damaged > two.bide
mkfifo pipe.bide
expect 0 "$lock" list
says out "two	unreadable: "
says out "pipe	unreadable: $PWD/./pipe.bide: is a pipe (FIFO)"
rm pipe.bide
if [ "$kinds" != file ]; then
    expect 0 "$lock" --slot sqlite:broken.db n -- true
    dd if=two.bide of=broken.db bs=4096 seek=1 conv=notrunc 2> dd.err || fail "$(cat dd.err)"
    expect 65 "$lock" --slot sqlite:broken.db list # not an incomplete list
fi
if command -v sqlite3 > /dev/null && [ "$kinds" != file ]; then
    sqlite3 foreign.db "create table bide_lock (key text); insert into bide_lock values (null)"
    expect 0 "$lock" --slot sqlite:foreign.db list
    quiet
else
    echo "not checked: a table with rows without a name, as there is no sqlite3"
fi
expect 66 "$lock" --slot file:none list
expect 64 "$lock" --relaxed --slot redis:h:1 list

begin "watches holders and waiters"
"$lock" watch n > seen.watch 2>&1 &
watcher=$!
"$lock" watch --json n > seen.json 2>&1 &
children="$children $watcher $!"
json_watcher=$!
until_true grep -q "never used" seen.watch
until_true grep -q null seen.json
hold_lock --holder me
until_true grep -q "^n: held 1/1 waiting=0 by=me" seen.watch
until_true grep -q '"holderId":"me"' seen.json
let_go 0
until_true grep -q "^n: free" seen.watch
"$lock" watch n | head -n 1 > out # it ends with its reader, although nothing changes
prints "n: free"
kill -INT $json_watcher 2> /dev/null
kill -TERM $watcher $json_watcher
ends 143 $watcher
ends 143 $json_watcher # a shell's background processes ignore SIGINT

begin "elects a leader, again after a loss"
hold_by --lease 6s --kill-after 1s --holder me elect n -- sh -c "$hold; exit 4"
first=$fence
"$lock" elect --observe n > seen.leader 2>&1 &
observer=$!
children="$children $observer"
until_true grep -q "^$first me" seen.leader
expect 0 "$lock" release --force "$first" n
held # the second term
[ "$fence" -gt "$first" ] || fail "token $fence after $first"
until_true grep -q "^$fence me" seen.leader
let_go 4
says bg "terminating the command"
until_true grep -q "^no leader" seen.leader
kill $observer
ends 143 $observer
expect 64 "$lock" elect n
expect 64 "$lock" elect --observe n -- true

begin "speaks JSON"
expect 0 "$lock" --json -v n -- sh -c 'echo "$BIDE_FENCE"'
grep -q '^{"message":"n: acquired after ' err || fail "$(cat err)"
expect 0 "$lock" --json resize n 3
prints '{"name":"n","permits":3}'
hold_lock --permits 3
expect 1 "$lock" --json -n --permits 3 --weight 3 n -- true
[ "$(cat err)" = '{"code":1,"error":"not acquired"}' ] || fail "$(cat err)"
expect 0 "$lock" --json release --all n
prints "{\"name\":\"n\",\"released\":[$fence]}"
let_go 75
expect 1 "$lock" --json repair n
says err '"code":1'
expect 0 "$lock" --json repair new
prints '{"name":"new","repaired":true}'
expect 64 "$lock" --bogus=secret --json
[ "$(cat err)" = '{"code":64,"error":"--bogus: there is no such option\nTry: bide-lock --help"}' ] ||
    fail "$(cat err)"
}

command_line_cases() {

begin "takes a command as flock(1) does"
expect 5 "$lock" ./n sh -c 'exit 5' # a path, and no --
expect 0 "$lock" --slot file:. inspect n
says out "n: 1 of 1 permits free"
mkdir directory
expect 0 "$lock" -x directory/ -c 'echo "$BIDE_LOCK_NAME" "$0"'
says out "directory "
expect 3 env SHELL=/bin/sh "$lock" -c 'exit 3' ./n
expect 0 "$lock" ./n echo -n --json
prints --json
hold_by ./n sh -c "$hold"
expect 9 "$lock" --wait=.01 -E9 n -- true
expect 9 "$lock" --nb -E9 n -- true
expect 9 "$lock" -nE9 ./n true # short options together
let_go 0
expect 64 "$lock" --slot file:. ./n true
refused 64 "a command stands behind --" n true

begin "makes files with a mode and an owner"
expect 0 "$lock" --mode 0660 --owner ":$(id -g)" n -- true
[ "$(ls -l n.bide n.bide.lock | grep -c '^-rw-rw----')" = 2 ] || fail "$(ls -l)"
chmod 0600 n.bide
expect 0 "$lock" --mode 0660 n -- true
ls -l n.bide | grep -q '^-rw-------' || fail "it changed the mode of a file that was there"
expect 64 "$lock" --owner no-such-user n -- true
expect 64 "$lock" --mode 0888 n -- true

begin "tells its options to the man page and to shells"
expect 0 "$lock" --version
grep -E -q '^bide-lock [0-9]+\.[0-9]+\.[0-9]+$' out || fail "$(cat out)"
"$lock" --help > help
awk 'length > 100' help > long
[ ! -s long ] || fail "too long: $(cat long)"
grep -o -E '^  (-., )*--[a-z-]+' help | tr -d ',' | tr -s ' ' '\n' | grep . > every
[ "$(wc -l < every)" -gt 40 ] || fail "$(cat every)"
grep -q '^Examples:' help || fail "no examples"
awk -f "$source/man.awk" help | sed 's/\\-/-/g' > man
for shell in bash fish zsh; do expect 0 "$lock" completion $shell; mv out $shell; done
while read -r option; do
    case $option in --*) fish="-l ${option#--}" ;; *) fish="-s ${option#-}" ;; esac
    for where in "man:^.B .*$option" "bash:[' ]${option}[' ]" "zsh:[' ]${option}[' ]" "fish: $fish "; do
        grep -q -e "${where#*:}" "${where%%:*}" || fail "$option is not in ${where%%:*}"
    done
done < every
if command -v man > /dev/null; then
    MANWIDTH=90 man --warnings -l man > page 2> err && [ ! -s err ] || fail "$(cat err)"
fi
for shell in bash fish zsh; do
    command -v $shell > /dev/null || { echo "not checked: no $shell"; continue; }
    expect 0 $shell -n $shell
done
if command -v bash > /dev/null; then
    for words in 'release --fo:--force' 'completion z:zsh'; do
        expect 0 bash -c ". ./bash; COMP_WORDS=(bide-lock ${words%:*}); COMP_CWORD=2; _bide_lock"'
            echo "${COMPREPLY[@]}"'
        prints "${words#*:}"
    done
fi
expect 64 "$lock" completion csh
if [ -c /dev/full ]; then
    status=0
    "$lock" --help > /dev/full || status=$?
    [ $status = 74 ] || fail "status $status for output that was lost"
fi

if [ "$(uname)" = Linux ]; then
begin "leaves the lock to a descriptor of its caller"
exec 8>> n.bide.lock
expect 0 "$lock" --json 8
fence=$(grep -o '"fence":[0-9]*' out)
expect 1 "$lock" -n n -- true
expect 0 "$lock" --json -w 60 8 # it has the lock
says out "$fence"
shows "id=$(uname -n):$$"
in_background n -- sh -c "$hold"
until_true waiters 1
expect 1 "$lock" -n 8 9>&- 8>> n.bide.lock # another open file, and a waiter
expect 0 "$lock" -u 8
held
expect 9 "$lock" -E9 -w .1 8
expect 0 "$lock" --unlock 8
waiters 0 || fail "it still waits: $(cat seen)"
let_go 0
( # the subshell keeps it
    expect 0 "$lock" -s 8
    sh -c 'echo 1 0 > held; read go < go' &
    exit 0
) 8> n.bide.lock # truncates it
held
expect 0 "$lock" -s -w 60 n -- true
expect 1 "$lock" -x -n n -- true
let_go
expect 0 "$lock" -x -w 60 n -- true
expect 0 "$lock" 8
exec 8>&-
expect 0 "$lock" -w 60 n -- true

begin "takes only the file of a lock for a descriptor"
echo precious > file.bide.lock
for file in file.bide.lock plain; do
    refused 66 "is not the file of a lock" 8 8>> $file
done
[ "$(cat file.bide.lock)" = precious ] || fail "it wrote into the file"
refused 66 "not open" 8
exec 8>> deleted.bide.lock
rm deleted.bide.lock
refused 66 "its file was deleted" 8
exec 8>&-
touch n.bide.lock
refused 66 "open it for writing: 8>> " 8 8< n.bide.lock
[ ! -e n.bide ] || fail "it made a record"
expect 64 "$lock" --slot file:. 8 8>> n.bide.lock
expect 64 "$lock" -u n -- true

begin "becomes the command"
hold_by -F n -- sh -c "$hold; exit 6"
expect 1 "$lock" -n n -- true
[ "$(tr '\0' ' ' < /proc/$child/cmdline | cut -c 1-5)" = "sh -c" ] || fail "it is not the command"
let_go 6
expect 0 "$lock" -w 60 n -- true
expect 127 "$lock" -F n -- ./no-such-command
expect 0 "$lock" -w 60 n -- true
fi

begin "hides passwords"
hides_password() {
    if grep -q hunter2 out err; then cat out err; fail "it shows the password"; fi
}
mkdir password=hunter2
secret=file:password=hunter2
look='for p in /proc/$PPID /proc/$(sed -n "s/^PPid:.//p" /proc/$PPID/status); do
    tr "\\0" "\n" < $p/cmdline; tr "\\0" "\n" < $p/environ; done
    echo "slot ${BIDE_LOCK_SLOT-none}"'
BIDE_LOCK_SLOT=
if [ "$(uname)" = Linux ]; then
    for how in --slot=$secret "--slot $secret" "-v --slot $secret"; do
        expect 0 "$lock" $how n -- sh -c "$look"
        says out 'file:password=***'
        hides_password
    done
    BIDE_LOCK_SLOT=$secret
    expect 0 "$lock" n -- sh -c "$look"
    says out 'slot none'
    says out 'BIDE_LOCK_SLOT=file:password=***'
    hides_password
fi
echo $secret > slot
expect 0 "$lock" --slot-file slot inspect n
says out "n: "
for bad in $secret/none postgres://u:hunter2@/%zz 'postgres:password=hunter2 nonsense=1' \
    redis://u:hunter2@:99999999/x https://u:hunter2@@:x/ 'etcd:http://u:hunter2@[' \
    nothing://u:hunter2@h "nothing:password='hunter2"; do
    status=0
    "$lock" --relaxed -w 60 --slot "$bad" n -- true > out 2> err || status=$?
    case $status in 64 | 66) ;; *) cat out err; fail "status $status: $bad" ;; esac
    hides_password
done

begin "takes many arguments"
many=$(seq 10000 2> /dev/null || echo 1)
expect 0 "$lock" n -- sh -c 'echo $#' command $many
says out "$(echo "$many" | wc -l | tr -d ' ')"

begin "reports what is wrong with the slot"
refused 66 "there is no such directory" --slot file:no-such-directory n -- true
says err no-such-directory
expect 64 "$lock" --slot file: n -- true
refused 64 "not one of file" --slot files:. n -- true
expect 64 "$lock" --slot redis:localhost:6379 n -- true
for bad in redis:localhost redis:localhost:0 redis:6379; do
    expect 64 "$lock" --relaxed --slot $bad n -- true
done

begin "tells a store that is down from a lock that is held"
# The line of the README for systemd: only a lock that is held is no failure.
readme=$source/../../include/bide/durable/README.md
recipe=$(sed -n 's/^ExecStart=[^ ]*bide-lock //p' "$readme" | sed 's|%d/|./|; s|-- .*|-- true|')
status_of_skip=$(sed -n 's/^SuccessExitStatus=//p' "$readme")
[ -n "$recipe" ] && [ "$status_of_skip" -gt 0 ] || fail "the README has no recipe"
echo file:. > slot
expect 0 "$lock" $recipe
expect $status_of_skip "$lock" $recipe # it rests: --at-least
for down in etcd:http://127.0.0.1:1 redis:127.0.0.1:1 'postgres:host=127.0.0.1 port=1'; do
    echo "$down" > slot
    status=0
    "$lock" --relaxed $recipe > out 2> err || status=$?
    if [ $status = 64 ]; then says err "was built without"; continue; fi
    [ $status = 69 ] || { cat err; fail "status $status of $down"; }
    expect 69 "$lock" --relaxed -n -E 200 --slot-file slot n -- true
    [ -s err ] || fail "it does not say why"
done

begin "names the option, the value and the bound"
for words in '--lease 1ms|--lease: needs a time of at least 20ms, not 1ms' \
    "--note $(printf %300s x | tr ' ' y)|--note: needs a text of at most 256 bytes, not 300" \
    "--holder $(printf %300s x | tr ' ' y)|--holder: needs a text of at most 256 bytes, not 300" \
    "--label $(printf %65s x | tr ' ' y)=1|--label: needs a NAME of at most 64 bytes, not 65" \
    '--label a=1 --label a=2|--label: there are two with the NAME a' \
    '--schema a.b|--schema: needs a name' '--schema a|--schema: of a postgres slot'; do
    refused 64 "${words#*|}" ${words%%|*} n -- true
done
refused 64 "--note: needs text in UTF-8" --note "$(printf '\377')" n -- true
refused 64 "bide-lock ./myfile ls" myfile ls
status=0
"$lock" --slot 'postgres:prot=5' n -- true 2> err || status=$?
[ $status = 64 ] || fail "status $status"
grep -q 'invalid connection option "prot"' err || says err "was built without"

begin "refuses invalid options"
wrong() {
    refused 64 "Try: bide-lock --help" "$@"
    [ ! -s out ] || fail "something on stdout"
}
for arguments in '' n -- 'n --' '-- true' 'n m -- true' 'inspect' 'inspect n m' \
    'inspect n -- true' 'lock n' 'release n' 'release --all --force 1 n' 'release --force 0 n' \
    'resize n' 'resize --weight 2 n' '-o inspect n' '--slot-file missing n -- true' \
    '--all n -- true' '-n inspect n' '--bogus n -- true' '-q n -- true' \
    '--permits 0 n -- true' '--permits 1x n -- true' '--permits -1 n -- true' '--permits' \
    '--weight 2 n -- true' '--shared --permits 2 n -- true' '-s -x n -- true' '-nq n -- true' \
    '--json=1 inspect n' '-E 256 n -- true' '-E -1 n -- true' '--lease 0 n -- true' \
    '--lease 1s --kill-after 600ms n -- true' '-w -1 n -- true' '-w 1.2.3 n -- true' \
    '-w . n -- true' '-w 1y n -- true' '-w 99999999999999999999 n -- true' '-w= n -- true' \
    '-w inf n -- true' '--slot -- true'; do
    wrong $arguments
done
wrong --slot-file "$(printf 'a\033\302\233b')" n -- true
says err "cannot read a??b"
for name in '' . .. .hidden ./.hidden a/.. -n "$(printf 'a\tb')" "$(printf 'a\302\233b')" \
    "$(printf %201s x)"; do
    wrong "$name" -- true
done
BIDE_LOCK_SLOT= wrong n -- true
for name in a.lock 'a b' a.bide "$(printf %200s x)" 'é' inspect; do
    expect 0 "$lock" "$name" -- true
done
expect 0 "$lock" --help
says out "usage: bide-lock"

begin "accepts times"
# None of them limits the wait: a slow store would end it. Each name is another lock, which stays held.
for time in 1 0.5 .5 20ms 1.5s 2m 1h 1d; do
    expect 0 "$lock" -w 1d --at-least $time --lease=1h "n$time" -- true
done

begin "passes the inherited files to the command, and none of its own"
if [ -d /proc/self/fd ]; then
    exec 7> seven
    sh -c 'ls /proc/$$/fd' < /dev/null > expected 2> err
    expect 0 "$lock" -o n -- sh -c 'ls /proc/$$/fd' < /dev/null
    diff expected out || fail "other descriptors"
    [ "$(uname)" != Linux ] || {
        expect 0 "$lock" n -- sh -c 'echo $BIDE_LOCK_FD > number; ls /proc/$$/fd' < /dev/null
        grep -v -x "$(cat number)" out | diff expected - || fail "other descriptors"
        expect 0 "$lock" --lease 30s n -- sh -c 'echo ${BIDE_LOCK_FD-none}'
        says out none
    }
    exec 7>&-
fi
"$lock" -v n -- true 2>&-
"$lock" -v n -- true <&- >&- 2>&-
if grep -q 'bide-lock: ' n.bide*; then fail "it printed into its files"; fi
shows "n: 1 of 1 permits free, 0 waiting"

# The terminal's Ctrl-C goes to the command, which may also read from the terminal.
begin "keeps the terminal working"
if script --version 2>&1 | grep -q util-linux; then
    # The process that types is in the background and so gets no Ctrl-C. (exec: otherwise the shell that
    # script starts gets it, too, and its status differs from shell to shell.)
    { echo hello >&5; held; printf '\003' >&5; } &
    children=$!
    SHELL=/bin/sh
    export SHELL
    expect 5 script -qec "exec '$lock' n -- sh -c 'trap \"echo interrupted; exit 5\" INT
        read -r line < /dev/tty; echo \"got \$line\"; echo 1 0 > held; sleep 99 & wait'" typed < go
    says out "got hello"
    says out interrupted

    begin "tells the command that the terminal closed"
    reader
    script -qec "exec '$lock' n -- sh -c 'trap \"exit 5\" HUP
        exec 3> more; echo 1 0 > held; sleep 99 3>&- & wait'" typed < go > out 2>&1 &
    terminal=$!
    children="$children $terminal"
    held
    kill -KILL $terminal
    gone
else
    echo "not checked: no script(1)"
fi
}

kind=file
case $part in
contention_*)
    kind=${part#*_}
    contention_cases
    ;;
*) "${part}_cases" ;;
esac

case_name=
echo "not checked here: servers; the tests of their slots start them"
echo "lock_test: all passed"
