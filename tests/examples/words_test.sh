# sh words_test.sh <words> <scratch directory> <a directory with files>

set -eu
words=$1
work=$2
files=$3
rm -rf "$work"
mkdir -p "$work/tree/below"
cd "$work"

# run STATUS TEXT DIRECTORY: words ends with the status, and prints the text on a line of its own.
run() {
    status=0
    "$words" "$3" > out 2>&1 || status=$?
    [ "$status" = "$1" ] && grep -q "^ *$2\$" out || { cat out; echo "words_test: $*"; exit 1; }
}

# The parallel and the serial count must be the same, or the status is 1.
printf 'one Two two' > tree/a
printf 'three,TWO;three_3 THREE\nthree' > tree/below/b
: > tree/below/empty
run 0 '3  three' tree
run 0 '3  two' tree
run 0 '1  three_3' tree
run 0 '3 files, 4 different words, 0 files not read' tree
run 0 "$(find "$files" -type f | wc -l | tr -d ' ') files, .*" "$files"
run 2 'words: .*no-such-directory.*' no-such-directory
run 2 'words: .*tree/a.*' tree/a

chmod 0 tree/a
cat tree/a > seen 2>&1 || run 1 '2 files, 2 different words, 1 files not read' tree # the superuser can read all
chmod 600 tree/a
echo 'words_test: passed'
