# Starts a command apart from this call (runner.sh), or joins one that runs, and prints what it has
# written since. Arguments: id; how many bytes of its output and of its errors are known; the least
# and the most time to wait for news, in hundredths of a second; the most bytes of each that are
# sent; the runner, or nothing to join.
# Prints a line, and the news as two lines of base64. The line: id; "running", "ended", "cut" (ended
# from outside, with the sandbox, say), "missing" or "full" (no room to start it); how many pieces of
# its input are taken; exit status; why it ended; the sizes of output and errors.
id=$1 out=$2 err=$3 least=$4 most=$5 send=$6 runner=$7
runs=$HOME/.cache/git-daytona-exec
run=$runs/$id
status=0 reason=- fed=0 outputs=0 errors=0 lost=
sizes() {
  outputs=$(($(wc -c <"$run/out"))) errors=$(($(wc -c <"$run/err")))
}
piece() { # file, offset
  tail -c "+$(($2 + 1))" "$run/$1" | head -c "$send" | base64 | tr -d '\n'
  echo
}
say() {
  echo "$id $1 $fed $status $reason $outputs $errors"
  piece out "$out"
  piece err "$err"
  exit 0
}
# Whether nobody runs it any more. A process is told by its number and the moment it began.
gone() {
  read -r number begun <"$run/runner" || return
  kill -s 0 "$number" && read -r line <"/proc/$number/stat" || return 0
  set -- ${line##*) }
  shift 19
  [ "$1" != "$begun" ]
}
tidy() { # what has ended long ago, and what cannot run any more; but for a set-up's log
  find "$runs" -mindepth 2 -maxdepth 2 -name status ! -path '*/setup-*' -mmin +10 |
    while read -r file; do rm -rf "${file%/*}"; done
  find "$runs" -mindepth 1 -maxdepth 1 ! -name 'setup-*' -mmin +1500 -exec rm -rf {} +
}
exec 2>/dev/null
if [ -n "$runner" ]; then
  (umask 077 && mkdir -p "$runs")
  if (umask 077 && mkdir "$run") && : >"$run/out" >"$run/err" && echo yes >"$run/room"; then
    # Not in the background of a shell: SIGINT would be ignored there for good.
    if setsid -f true; then printf '%s\n' "$runner" | setsid -f sh >/dev/null
    else printf '%s\n' "$runner" | sh >/dev/null &
    fi
    tidy >/dev/null &
  elif [ -e "$run/cancel" ] && [ ! -s "$run/room" ]; then
    status=130
    say ended
  elif [ ! -s "$run/room" ]; then say full
  fi
elif [ ! -d "$run" ]; then say missing
fi

spent=0
while :; do
  # in this order: the status is written last
  ! gone || lost=yes
  if [ -s "$run/status" ]; then
    read -r status reason <"$run/status"
    sizes
    say ended
  fi
  sizes
  if [ -n "$lost" ] || { [ "$spent" -ge "$most" ] && [ ! -s "$run/runner" ]; }; then say cut; fi
  news=$((outputs - out + errors - err))
  if [ "$spent" -ge "$most" ] || { [ "$spent" -ge "$least" ] && [ "$news" -gt 0 ]; }; then break; fi
  if [ "$spent" -lt 10 ]; then pause=2
  else pause=10
  fi
  sleep "0.$(printf %02d "$pause")"
  spent=$((spent + pause))
done
read -r fed <"$run/fed" || fed=0
echo $((out + err)) >"$run/known"
# What is known need not take the disk's room any more.
if [ "$out" -gt 16777216 ]; then fallocate -p -o 0 -l "$out" "$run/out"; fi
say running
