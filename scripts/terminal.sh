# The output of the scripts: one line per stage with its seconds, other output in a log, colours only on a terminal.
# Sourced.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' plain=$'\e[0m'
else
  bold='' dim='' red='' green='' yellow='' plain=''
fi

title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
note() { printf '  %s%s%s\n' "$dim" "$*" "$plain"; }
warn() { printf '  %s%s%s\n' "$yellow" "$*" "$plain" >&2; }
die() {
  printf '%s%s%s\n' "$red" "$*" "$plain" >&2
  exit 1
}

# stage_done <name> <seconds> [detail]: prints the line of a finished stage.
stage_done() { printf '  %s✓%s %-11s %s%4d s%s%s\n' "$green" "$plain" "$1" "$dim" "$2" "$plain" "${3:+  $3}"; }

stage_failed() { printf '  %s✗%s %-11s %s%4d s%s\n' "$red" "$plain" "$1" "$dim" "$2" "$plain"; }

# stage <name> <log> <command...>: runs the command with its output in <log>. A failure shows the log's end and its path,
# and returns the command's status.
stage() {
  local name=$1 log=$2 began=$SECONDS status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  [ -z "$bold" ] || printf '  %s… %s%s\r' "$dim" "$name" "$plain"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -eq 0 ]; then
    stage_done "$name" $((SECONDS - began))
    return 0
  fi
  stage_failed "$name" $((SECONDS - began)) >&2
  tail -n 40 "$log" | sed 's/^/    /' >&2
  printf '    %sThe whole log: %s%s\n' "$bold" "$log" "$plain" >&2
  return "$status"
}
