#!/bin/sh
# probes_test.sh PROGRAM WORK
#
# The notes of a program with BIDE_USDT name its probes. gdb stops at each, and finds its arguments there.
set -u
program=$1
work=$2
here=$(dirname "$0")

skip() {
    echo "probes_test: skipped, $1"
    exit 0
}
fail() {
    echo "probes_test: $1"
    exit 1
}

mkdir -p "$work" || exit 1
LC_ALL=C readelf --notes "$program" >"$work/notes" || fail "readelf has failed"
awk '/Provider: / { ours = $2 == "bide" } /Name: / && ours { print $2 }' "$work/notes" |
    sort -u >"$work/names"
sed -n 's/^    "\([a-z_]*\)": .*/\1/p' "$here/probes.py" | sort >"$work/wanted"
diff -u "$work/wanted" "$work/names" || fail "the notes name other probes"
"$program" || fail "the program has failed"

unset DEBUGINFOD_URLS
command -v gdb >/dev/null || skip "gdb was not found, and the notes are right"
gdb -nx -batch -ex 'python print("has", "Python")' 2>&1 | grep -q "has Python" ||
    skip "this gdb has no Python"
rm -f "$work/answers"
ANSWERS="$work/answers" gdb -nx -batch -ex "source $here/probes.py" "$program" >"$work/log" 2>&1
if grep -qiE 'ptrace.*not permitted|could not trace' "$work/log"; then
    skip "no program can be traced here"
fi
if [ ! -f "$work/answers" ]; then
    cat "$work/log"
    fail "gdb has failed"
fi
diff -u "$here/probes.transcript" "$work/answers" || fail "the probes came otherwise than in probes.transcript"
echo "probes_test: passed"
