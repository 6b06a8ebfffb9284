# sh words_test.sh <words> <scratch directory> <a directory with files>

set -eu
LC_ALL=C
export LC_ALL

words=$1
work=$2
files=$3
rm -rf "$work"
mkdir -p "$work/tree/below"
cd "$work"

fail() {
    echo "words_test: $1"
    cat out err
    exit 1
}

# Runs words with the arguments that follow, and expects the exit status $1.
run() {
    expected=$1
    shift
    status=0
    "$words" "$@" > out 2> err || status=$?
    [ "$status" = "$expected" ] || fail "words $*: status $status, not $expected"
}
says() {
    grep -q -e "$2" "$1" || fail "nothing says '$2'"
}

# A small tree whose words are known. The parallel and the serial count must be the same, or the status is 1.
printf 'one Two two' > tree/a
printf 'three,TWO;three_3 THREE\nthree' > tree/below/b
: > tree/below/empty
for workers in 1 2 5; do
    run 0 --workers "$workers" tree
    says out '^ *3  three$'
    says out '^ *3  two$'
    says out '^ *1  three_3$'
    says out '^3 files, 0.0 MB, 4 different words$'
    says out "with $workers workers$"
done
run 0 --top 1 tree
[ "$(grep -c '^ ' out)" = 1 ] || fail '--top 1 does not print one word'

# Real files, with the number of them that find counts.
run 0 --progress "$files"
says out "^$(find "$files" -type f | wc -l | tr -d ' ') files"
says out 'times as fast'
says err '^[0-9]* entries done'

# What is wrong with the arguments.
for wrong in '--top' '--top x' '--workers -1' '--what' 'tree tree'; do
    run 2 $wrong
    says err '^usage: words'
done
run 2 no-such-directory
says err '^words: no-such-directory: No such file'
run 2 tree/a
says err '^words: tree/a: not a directory$'

# A file that cannot be read. The superuser can read all.
chmod 0 tree/a
if ! cat tree/a > /dev/null 2>&1; then
    run 1 tree
    says err '^words: tree/a: Permission denied$'
    says out '^2 files'
fi
chmod 600 tree/a

# Ctrl-C that came before: nothing is read. A signal that is blocked stays pending.
if env --block-signal=INT true 2> /dev/null; then
    status=0
    env --block-signal=INT sh -c 'kill -INT $$; exec "$0" "$1"' "$words" tree > out 2> err ||
        status=$?
    [ "$status" = 130 ] || fail "interrupted: status $status"
    says err '^words: interrupted$'
fi
echo 'words_test: passed'
