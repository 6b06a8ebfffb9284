# sh filter_test.sh <filter> <scratch directory>

set -eu
LC_ALL=C
export LC_ALL

filter=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail() {
    echo "filter_test: $1"
    cat out err
    exit 1
}

# Runs filter with the arguments that follow, and expects the exit status $1.
run() {
    expected=$1
    shift
    status=0
    "$filter" "$@" > out 2> err || status=$?
    [ "$status" = "$expected" ] || fail "filter $*: status $status, not $expected"
}
# Expects that the last run failed for the reason $1, and wrote no picture.
refused() {
    grep -q -e "$1" err || fail "no error says '$1'"
    [ ! -e made ] || fail 'a picture was written'
}

# A picture that it makes; the parallel and the serial run must be the same.
run 0
grep -q 'blur: right, edges: right' out || fail 'the picture that it makes is wrong'

# Three grey pixels: 0, 90 and 255. Each blurred pixel is the mean of three; the border is repeated.
printf 'P5\n# a comment\n3 1\n255\n\000\132\377' > grey
run 0 --blur 1 grey made
printf 'P5\n3 1\n255\n\036\163\310' > expected
cmp made expected || fail 'the blur of three pixels is wrong'
run 0 --blur 0 grey made
printf 'P5\n3 1\n255\n\000\132\377' > expected
cmp made expected || fail 'a blur of radius 0 changes the picture'
run 0 --blur 1000 grey made
run 0 --edges grey made
printf 'P5\n3 1\n255\n\377\377\377' > expected
cmp made expected || fail 'the edges of three pixels are wrong'

# One coloured pixel, with a greatest sample of 1.
printf 'P6 1 1 1\n\001\000\001' > colour
run 0 colour made
printf 'P6\n1 1\n255\n\377\000\377' > expected
cmp made expected || fail 'one coloured pixel is wrong'
rm made

# Bad files: one line that says why, and no result.
printf 'P3\n1 1\n255\n0 0 0\n' > bad
run 1 bad made
refused '^filter: bad: neither'
: > bad
run 1 bad made
refused '^filter: bad: neither'
for header in 'P5' 'P5\n3' 'P5\n3 1\n' 'P5\n3 1\n255' 'P5\nx 1\n255\n' 'P5\n-3 1\n255\n' \
    'P5\n99999999999999999999 1\n255\n' 'P5 # no end'; do
    printf "$header" > bad
    run 1 bad made
    refused '^filter: bad: the header is damaged or incomplete$'
done
for size in '0 1' '1 0' '2147483647 2147483647' '65536 65536'; do
    printf "P6\n$size\n255\n" > bad
    run 1 bad made
    refused 'pixels: empty, or more than 1 GiB$'
done
for greatest in 0 256 65535; do
    printf "P5\n1 1\n$greatest\n\000\000" > bad
    run 1 bad made
    refused "the greatest sample is $greatest, not 1 to 255$"
done
printf 'P5\n3 1\n255\n\000\000' > bad
run 1 bad made
refused 'truncated: 2 of 3 bytes$'
printf 'P5\n1 1\n9\n\012' > bad
run 1 bad made
refused 'a sample is above'
run 1 missing made
refused '^filter: missing: No such file or directory$'
run 1 . made
refused '^filter: \.: Is a directory$'
run 1 grey no-such-directory/made
refused '^filter: no-such-directory/made: cannot be written$'

# What is wrong with the arguments.
for wrong in 'grey' 'grey made more' '--what grey made' '--blur' '--blur x grey made' '--blur -1 grey made' \
    '--blur 1001 grey made' '--edges' '--edges grey'; do
    run 2 $wrong
    refused '^usage: filter'
done
echo 'filter_test: passed'
