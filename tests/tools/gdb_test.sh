#!/bin/sh
# gdb_test.sh PROGRAM WORK PRINTERS
#
# Compares what gdb says about the objects of a program that is stopped, and about its core file, with
# objects.transcript.
set -u
program=$1
work=$2
printers=$3
here=$(dirname "$0")

skip() {
    echo "gdb_test: skipped, $1"
    exit 0
}
fail() {
    echo "gdb_test: $1"
    exit 1
}

unset DEBUGINFOD_URLS
command -v gdb >/dev/null || skip "gdb was not found"
gdb -nx -batch -ex 'python print("has", "Python")' 2>&1 | grep -q "has Python" ||
    skip "this gdb has no Python"
rm -rf "$work"
mkdir -p "$work" || exit 1
export TRANSCRIPT="$here/objects.transcript"

# answers NAME ARGUMENTS...: what gdb says, in $work/NAME.
answers() {
    name=$1
    shift
    ANSWERS="$work/$name" gdb -nx -batch -ex "source $printers" "$@" >"$work/$name.log" 2>&1
    if grep -qiE 'ptrace.*not permitted|could not trace' "$work/$name.log"; then
        skip "no program can be traced here"
    fi
    if [ ! -f "$work/$name" ]; then
        cat "$work/$name.log"
        fail "gdb did not come to the breakpoint"
    fi
    if grep -E 'Traceback|RTTI symbol|Error occurred in Python' "$work/$name.log"; then
        fail "an error of the printers, or a warning"
    fi
    diff -u "$TRANSCRIPT" "$work/$name" || fail "$name: not as in $TRANSCRIPT"
}

answers live -ex 'break -qualified stop_here' -ex run -ex "source $here/session.py" \
    -ex "generate-core-file $work/dump" -ex delete -ex continue "$program"
grep -q 'exited normally' "$work/live.log" || fail "the program did not end well after it"
answers core -ex "source $here/session.py" "$program" "$work/dump"
rm -f "$work/dump"
echo "gdb_test: passed"
