# sh glib_loop_test.sh <glib_loop>

set -eu
out=$("$1")
for line in 'download 1: 50 %' 'download 1: 100 %' 'download 2: 50 %' 'download 2: 100 %' \
    'told: a task that fails' 'all done'; do
    printf '%s\n' "$out" | grep -Fqx "$line" || { printf '%s\n' "$out"; echo "not said: $line"; exit 1; }
done
[ "$(printf '%s\n' "$out" | wc -l)" = 6 ] || { printf '%s\n' "$out"; exit 1; }
echo 'glib_loop_test: passed'
