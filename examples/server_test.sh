#!/bin/sh
# Runs the example server as a client would: server_test.sh SERVER FOLDER. Exits 3, as the server does, if there is no
# compiler and nothing is cached.
set -u
server=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder"
mkfifo "$folder/in"
export KERNELWRIGHT_CACHE_DIR="$folder/cache"

fail() {
  echo "server_test: $1; it printed:"
  cat "$folder/out" "$folder/err"
  exit 1
}

# Waits until the server's output has a line that matches $1.
wait_for() {
  tries=0
  until grep -q -e "$1" "$folder/out"; do
    if ! kill -0 "$pid" 2>/dev/null; then
      wait "$pid"
      status=$?
      [ "$status" -eq 3 ] && cat "$folder/err" && exit 3
      fail "it ended with status $status before it printed '$1'"
    fi
    tries=$((tries + 1))
    [ "$tries" -lt 900 ] || fail "it did not print '$1'"
    sleep 0.1
  done
}

expect() {
  grep -q -e "$1" "$folder/out" || fail "no line matches '$1'"
}

"$server" <"$folder/in" >"$folder/out" 2>"$folder/err" &
pid=$!
exec 3>"$folder/in"

# The portable kernels serve while the requested ones compile. Prompts of one batch do not see each other.
printf 'abcabcab\nab ac ab a\nthe cat sat on the ma\n' >&3
wait_for '^the cat sat on the ma -> t (1.00) by the fallback$'
expect '^abcabcab -> c (1.00) by the fallback$'
expect '^ab ac ab a -> b (0.67) by the fallback$'
wait_for '^sealed$'
expect '^promoted: '

# The requested kernels give the same answers.
printf 'abcabcab\nab ac ab a\nthe cat sat on the ma\n\n' >&3
wait_for '^refused: '
wait_for '^the cat sat on the ma -> t (1.00)$'
expect '^abcabcab -> c (1.00)$'
expect '^ab ac ab a -> b (0.67)$'
printf '/metrics\n' >&3
wait_for '^kernelwright_launch_seconds_count [1-9]'
expect '^kernelwright_sealed 1$'
expect '^kernelwright_kernels{state="ready"} 2$'
expect '^kernelwright_fallback_launches_total [1-9]'

# SIGTERM while the input is open: the server ends by itself, with status 0.
kill -TERM "$pid"
wait "$pid" || fail "it ended with status $? after SIGTERM"
exec 3>&-
[ "$(tail -n 1 "$folder/out")" = drained ] || fail "it was not drained after SIGTERM"

# At the end of the input, the server first answers the pending requests, in batches, with kernels from the cache.
count=0
while [ "$count" -lt 40 ]; do
  echo 'one two one t'
  count=$((count + 1))
done >"$folder/requests"
head -c 20000 /dev/zero | tr '\0' a >>"$folder/requests"
echo >>"$folder/requests"
printf 'the last line has no en' >>"$folder/requests"
"$server" <"$folder/requests" >"$folder/out" 2>"$folder/err" || fail "it ended with status $? after the end of its input"
[ "$(grep -c '^one two one t -> w (1.00)$' "$folder/out")" -eq 40 ] || fail 'it did not answer 40 requests'
[ "$(grep -c '^refused: ' "$folder/out")" -eq 1 ] || fail 'it did not refuse a line that is too long'
expect '^the last line has no en -> . (0.50)$'
[ "$(tail -n 1 "$folder/out")" = drained ] || fail 'it was not drained'
! grep -q '^compile: ' "$folder/err" || fail 'it compiled what is cached'
echo "right"
