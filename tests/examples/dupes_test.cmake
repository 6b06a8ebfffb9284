# cmake -DDUPES=<program> -DWORK=<scratch directory> [-DSANITIZE=<as BIDE_SANITIZE>]
#       -P dupes_test.cmake
#
# Runs dupes on trees whose duplicates are known, and compares its findings with those of sha256sum.

foreach(tool IN ITEMS sh awk find xargs stat sha256sum)
    find_program(${tool}_path ${tool})
    if(NOT ${tool}_path)
        message("dupes_test: skipped, there is no ${tool}")
        return()
    endif()
endforeach()
execute_process(COMMAND ${stat_path} -c %i / RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
if(NOT status EQUAL 0)
    message("dupes_test: skipped, stat does not know -c")
    return()
endif()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

# What the cases share. `canonical` makes one line of each group, "size|name|name...", whichever way
# the groups are ordered: its input is "group<TAB>size<TAB>name".
file(WRITE ${WORK}/functions.sh [==[
set -eu
LC_ALL=C
export LC_ALL
tab=$(printf '\t')

fail() {
    echo "$*"
    exit 1
}

# expect STATUS COMMAND...: runs it, with its output in ./out and ./err.
expect() {
    status=0
    wanted=$1
    shift
    "$@" > out 2> err || status=$?
    [ "$status" = "$wanted" ] || { cat out err; fail "status $status instead of $wanted: $*"; }
}

says() { # FILE TEXT
    grep -F -e "$2" "$1" > seen || { cat "$1"; fail "$1 does not say: $2"; }
}

# until_true COMMAND...: waits until it succeeds, but not for ever.
until_true() {
    tries=0
    while ! "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat out err; fail "never: $*"; }
        sleep 0.1
    done
}

# Interrupts $running, which then ends and says so.
interrupt() {
    kill -INT $running
    status=0
    wait $running || status=$?
    [ $status = 130 ] || { cat out err; fail "status $status instead of 130"; }
    says out 'stopped early'
}

canonical() {
    sort -t "$tab" -k 1,1 -k 3 | awk -F '\t' '
        $1 != group { if (NR > 1) print line; group = $1; line = $2 }
        { line = line "|" $3 }
        END { if (NR) print line }' | sort
}

# agree DIRECTORY: ./out is what find and sha256sum find there. Hard links are one file under
# several names: they stand in the group of their file, and are no group by themselves.
agree() {
    find "$1" -type f -print0 > names
    xargs -0 sha256sum < names > sums
    xargs -0 stat -c '%d:%i %s' < names | paste -d ' ' - sums | awk '
        {
            id[NR] = $1; size[NR] = $2
            line = substr($0, length($1) + length($2) + 3)
            sub(/^\\/, "", line) # says that the name is escaped
            hash[NR] = substr(line, 1, 64); name[NR] = substr(line, 67)
            if (!(id[NR] in known)) {
                known[id[NR]]; copies[hash[NR]]++; files++; bytes += $2
                if (copies[hash[NR]] == 2) groups++
                if (copies[hash[NR]] >= 2) { duplicates++; wasted += $2 }
            }
        }
        END {
            printf "" > "expected.raw"
            for (i = 1; i <= NR; i++)
                if (copies[hash[i]] > 1)
                    printf "%s\t%s\t%s\n", hash[i], size[i], name[i] > "expected.raw"
            printf "files       %.0f\nbytes       %.0f\n", files, bytes
            printf "duplicates  %.0f in %.0f groups\n", duplicates, groups
            printf "wasted      %.0f bytes\n", wasted
        }' > expected.summary
    canonical < expected.raw > expected.groups
    awk '
        function check() { if (left) { print "a group of another length"; exit 1 } }
        /^[0-9]+ files of [0-9]+ bytes, [0-9]+ wasted$/ {
            check(); group++; left = $1; size = $4
            if ($6 != size * ($1 - 1) || (group > 1 && $6 > before)) { print "wrong: " $0; exit 1 }
            before = $6
        }
        /^  - / { left-- }
        /^  [-=] / { printf "%s\t%s\t%s\n", group, size, substr($0, 5) }
        END { check() }' out > found.raw || fail "$(tail -n 1 found.raw)"
    canonical < found.raw > found.groups
    grep -E '^(files|bytes|duplicates|wasted) ' out > found.summary
    diff expected.groups found.groups || fail "other groups than sha256sum finds"
    diff expected.summary found.summary || fail "another summary than sha256sum gives"
}
]==])

set(passed 0)
function(case name script)
    execute_process(
        COMMAND ${sh_path} -c ". ./functions.sh\n${script}"
        WORKING_DIRECTORY ${WORK}
        RESULT_VARIABLE status
        OUTPUT_VARIABLE output
        ERROR_VARIABLE output
        TIMEOUT 150 # or it waits for ever
    )
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "dupes: ${name}: failed (${status})\n${output}")
    endif()
    message(STATUS "dupes: ${name}: passed\n${output}")
endfunction()
set(ENV{DUPES} ${DUPES})

# A hash of 128 bits collides only on purpose: MurmurHash3 can be run backwards. `second` is
# computed so that it hashes, after its text, like "collision of two" twice: at the start of a
# file, and after 64 KiB of "one\n".
case("builds its tree" [==[
fill() { # NAME SIZE SEED
    yes "$3" | head -c "$2" > "$1"
}
mkdir -p tree/sub/deep 'tree/with space'
for size in 1 15 16 17 33 4096 65535 65536 65537 131072 200000; do
    fill tree/a.$size $size one
    cp tree/a.$size tree/sub/b.$size
    cp tree/a.$size tree/sub/deep/c.$size
    fill tree/other.$size $size two
    cp tree/other.$size tree/sub/other.$size
    { head -c $((size - 1)) tree/a.$size; printf Z; } > tree/other-tail.$size
    { printf Z; tail -c $((size - 1)) tree/a.$size; } > tree/other-head.$size
done
: > tree/empty
: > tree/sub/empty
: > 'tree/with space/empty too'

printf 'collision of twocollision of two' > tree/collision
second='\347\151\256\065\302\153\363\143\017\033\216\303\176\226\351\213'
printf "same hash as two$second" > tree/collision.2
second='\004\173\221\014\102\131\334\100\147\317\036\050\162\112\071\171'
printf "same hash as two$second" > tree/late.2
cat tree/a.65536 tree/collision > tree/late-collision
cat tree/a.65536 tree/late.2 > tree/late-collision.2
cp tree/*collision* tree/sub

newline=$(printf 'new\nline')
for name in ' leading' "it's" 'two "quotes"' 'back\slash' "$newline" '= equals' '- dash' '*' \
    '$HOME;' 'é'; do
    printf 'odd names' > "tree/with space/$name"
done

printf 'the only one of its size, under two names' > tree/two-names
ln tree/two-names tree/sub/two-names
ln tree/a.65536 tree/sub/zz-link
ln tree/sub/b.17 tree/0-link
ln -s a.65536 tree/symlink
ln -s sub tree/symlink-to-directory
ln -s nowhere tree/dangling
mkfifo tree/fifo
]==])

# Leaves expected.summary for a later case.
case("agrees with sha256sum, whether threads or coroutines do the work" [==[
for crew in '2 2 2 2' '1 0 2 1' '0 1 2 1' '0 3 4 2' '16 16 3 5'; do
    set -- $crew
    expect 0 "$DUPES" --threads $1 --coroutines $2 --permits $3 --workers $4 tree
    agree tree
    grep -v '^time ' out > out.$1.$2
    cmp out.2.2 out.$1.$2 || fail "another crew prints something else"
    awk '
        / files of / { equal = wasted == $6; wasted = $6; first = 1 }
        /^  - / && $0 < (first ? (equal ? group : "") : last) { print "out of order: " $0; exit 1 }
        /^  - / { if (first) group = $0; first = 0; last = $0 }' out || fail "not in order"
done
[ -s found.groups ] || fail "no groups at all"
]==])

case("reports what is not a file, and counts it" [==[
expect 0 "$DUPES" tree
says err 'tree/fifo: not a regular file'
says out 'errors      1'
[ "$(wc -l < err)" = 1 ] || fail "more on stderr than the one error"
]==])

case("prints names that a terminal can bear" [==[
mkdir odd
for name in 'bell\007' 'red\033[31m' 'tab\t' 'line\nfeed'; do
    printf x > "odd/$(printf "$name")"
done
expect 0 "$DUPES" odd
for name in 'bell\007' 'red\033[31m' 'tab\011' 'line\nfeed'; do says out "  - odd/$name"; done
]==])

case("counts a file once, however often it is found, and prints only the summary on request" [==[
expect 0 "$DUPES" --summary tree tree tree/sub
grep -E '^(files|bytes|duplicates|wasted) ' out | diff expected.summary - || fail "counted twice"
[ "$(wc -l < out)" = 6 ] || fail "not the six lines of a summary"
]==])

case("prints no progress into a pipe, but on a terminal" [==[
"$DUPES" tree 2>&1 | tr '\r\033' '##' > piped
if grep -q '#' piped; then fail "terminal control in a pipe"; fi
script --version 2>&1 | grep -q util-linux || { echo "not checked: no script(1)"; exit 0; }
script -qec "'$DUPES' --summary tree" /dev/null < /dev/null | tr '\r' '#' > typed
says typed ' MB read, '
says typed 'duplicates  '
]==])

case("tells of its progress on request, and finds the same" [==[
expect 0 "$DUPES" --select tree
agree tree
tail -n 1 err > last
says last "$(awk '$1 == "files" { print $2 }' out) files, "
says last " MB read, $(awk '$1 == "duplicates" { print $2 }' out) duplicates"
]==])

# Nothing comes from stdin any more, so this is told by a tick.
case("tells of its progress while it waits" [==[
mkfifo ticks.fifo
: > err
"$DUPES" --select --stdin --summary < ticks.fifo > out 2> err &
running=$!
exec 3> ticks.fifo
printf 'tree/a.17\0tree/sub/b.17\0' >&3
until_true grep -q '^2 files, 0.0 MB read, 1 duplicates$' err
exec 3>&-
wait $running || fail "status $? instead of 0"
says out 'duplicates  1 in 1 groups'
]==])

# Each file is hashed and compared, and each channel filled.
case("goes round with more files than the channels hold" [==[
mkdir same
(cd same && yes x | head -n 4000 | split -l 1 -a 3 -)
for crew in '1 0' '0 1' '8 8'; do
    set -- $crew
    expect 0 "$DUPES" --summary --threads $1 --coroutines $2 same
    says out 'duplicates  3999 in 1 groups'
done
]==])

case("writes a trace of what its workers did" [==[
expect 0 "$DUPES" --summary --workers 3 --coroutines 4 --trace trace.json tree
grep '^files ' out > files
grep '^files ' expected.summary | diff - files
for name in grouper hasher; do says trace.json "\"name\":\"$name\""; done
if grep -F '"name":"worker 3' trace.json; then fail "more workers than there are"; fi
expect 2 "$DUPES" --trace no-such-directory/trace.json tree
says err 'dupes: no-such-directory/trace.json: No such file'
]==])
file(READ ${WORK}/trace.json trace)
string(JSON events ERROR_VARIABLE error LENGTH "${trace}" traceEvents)
if(error OR events LESS 10)
    message(FATAL_ERROR "dupes: the trace is no JSON, or empty: ${error}")
endif()

case("takes names from stdin, and survives those that are gone" [==[
printf 'gone\0tree/a.17\0tree/sub/b.17\0tree/sub/deep\0' | expect 0 "$DUPES" --stdin
says err 'dupes: gone: No such file'
says out 'errors      1'
says out '3 files of 17 bytes, 34 wasted'
says out '  - tree/sub/b.17'
]==])

# Root reads everything, so root becomes another user here; that may fail for reasons that are not ours.
case("survives what it may not read" [==[
mkdir -p locked/directory
printf secret > locked/one
printf secret > locked/two
printf public > locked/three
printf public > locked/four
chmod 000 locked/one locked/directory
become=
if [ -r locked/one ]; then
    become='setpriv --reuid=65534 --regid=65534 --clear-groups'
    $become test -r locked/two -a -x "$DUPES" 2> seen ||
        { chmod 700 locked/directory; echo "not checked: cannot become another user here"; exit 0; }
fi
expect 0 $become "$DUPES" locked
chmod 700 locked/directory
says err 'dupes: locked/one: Permission denied'
says err 'dupes: locked/directory: Permission denied'
says out 'errors      2'
says out '2 files of 6 bytes, 6 wasted'
says out 'duplicates  1 in 1 groups'
]==])

set(ENV{SANITIZE} "${SANITIZE}")
case("opens no more files than it has permits" [==[
[ "${SANITIZE-}" != address ] || { echo "not checked: the sanitizer opens pipes"; exit 0; }
mkdir many
for name in a b c d e f g h i j k l; do
    dd if=/dev/null of=many/$name bs=1 seek=8000000 2> seen # a hole: nothing to write, much to read
done
# Descriptors 3 to 5: for the directory that is listed, and for two files.
limited='exec 3>&- 4>&- 5>&-; ulimit -n 6; exec "$@"'
for crew in '16 0' '0 16' '8 8'; do
    set -- $crew
    expect 0 sh -c "$limited" sh "$DUPES" --threads $1 --coroutines $2 --permits 2 many
    says out 'errors      0'
    says out '12 files of 8000000 bytes, 88000000 wasted'
done
]==])

case("agrees with sha256sum on the system's headers" [==[
for directory in /usr/include/c++ /usr/include/linux /usr/include; do
    [ -d $directory ] || continue
    expect 0 "$DUPES" $directory
    agree $directory
    sed "s|^|$directory: |" found.summary
    break
done
]==])

case("refuses what makes no sense" [==[
expect 2 "$DUPES" tree no-such-directory
says err 'dupes: no-such-directory: '
expect 2 "$DUPES" tree/a.17
says err 'dupes: tree/a.17: not a directory'
for arguments in --bogus -x --threads '--threads x' '--threads -1' '--threads 1x' \
    '--threads 99999999999' '--permits 1' '--permits 0' '--threads 0 --coroutines 0' \
    '--workers 0' --trace; do
    expect 2 "$DUPES" $arguments
    says err 'usage: dupes'
    [ ! -s out ] || fail "something on stdout"
done
expect 0 "$DUPES" --help
says out 'usage: dupes'
expect 2 "$DUPES" -- --help
says err 'dupes: --help: not a directory'
]==])

# The pipe stays open, so dupes would wait for ever. More is written than a pipe holds: a process that could
# write it all knows that dupes reads, which it does after it has blocked the signal. It looks at
# names in the order in which it reads them, so by then it has looked at each of them.
case("stops when interrupted, and says what it has" [==[
find tree -type f -print0 > big
while [ "$(wc -c < big)" -lt 400000 ]; do
    cat big big > bigger
    mv bigger big
done
mkfifo names.fifo
expect 0 "$DUPES" --summary tree
grep '^files ' out > files
for crew in '2 2' '3 0' '0 3'; do
    set -- $crew
    "$DUPES" --stdin --threads $1 --coroutines $2 < names.fifo > out 2> err &
    running=$!
    exec 3> names.fifo
    cat big >&3
    interrupt
    exec 3>&-
    grep '^files ' out | diff files - || fail "it lost what it had"
    [ ! -s err ] || { cat err; fail "complaints about an interruption"; }
done
]==])

# The first files take long, so the channels are full behind them: all stages wait, or read.
case("stops when interrupted with its hands full" [==[
mkdir long
for name in a b; do
    dd if=/dev/null of=long/$name bs=1 seek=64000000000 2> seen ||
        { echo "not checked: no files of that size here"; exit 0; }
done
{ find long -type f -print0; find same -type f -print0; } > names
for crew in '2 0 2' '0 2 1' '1 1 1'; do
    set -- $crew
    : > err # the old one says that it is time already
    "$DUPES" --select --summary --stdin --threads $1 --coroutines $2 --workers $3 \
        < names > out 2> err &
    running=$!
    until_true grep -q '^[0-9]\{4\} files, [1-9][0-9]*.[0-9] MB read' err
    interrupt
    grep -v ' MB read, ' err && fail "complaints about an interruption"
    awk '{ mb = $3 } END { exit mb >= 64000 }' err || fail "it read a file to its end"
done
rm -r long same
]==])
