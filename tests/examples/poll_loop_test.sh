# sh poll_loop_test.sh <poll_loop> <scratch directory>

set -eu
LC_ALL=C
export LC_ALL
program=$1
rm -rf "$2"
mkdir -p "$2"
cd "$2"

fail() {
    echo "poll_loop_test: $1"
    exit 1
}

# One, two, ... words in each line, more lines than the channels hold.
awk 'BEGIN { for (i = 1; i <= 300; i++) { for (j = 0; j < i % 7; j++) printf "w%d ", j; print "" } }' > in
awk '{ print NF, $0; n += NF } END { print n, "words" }' in > expected
"$program" < in > out
cmp expected out || fail 'another output from a file'
cat in | "$program" > out
cmp expected out || fail 'another output from a pipe'
: | "$program" > out
[ "$(cat out)" = '0 words' ] || fail 'another output from nothing'
echo 'poll_loop_test: passed'
