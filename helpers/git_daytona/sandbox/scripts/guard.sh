# Runs a script in the sandbox at most once, and gives its output and status to whoever asks with
# the same id: a request whose connection dropped is sent again, and the command behind it may be
# running or done already. Arguments: id, script, arguments of the script…
runs=$HOME/.cache/git-daytona
run=$runs/$1
script=$2
status=
full=
shift 2
umask 077
[ -d "$runs" ] || mkdir -p "$runs" 2>/dev/null
if mkdir "$run" 2>/dev/null; then
  # The output goes to a file, so that a server left in the background does not keep the call open;
  # input is closed, so that nothing eats the rest of what the toolbox feeds to the shell.
  umask 022
  sh -c "$script" sh "$@" >"$run/output" 2>&1 </dev/null
  status=$?
  # Then what the script printed is lost, too, or some of it.
  echo "$status" 2>/dev/null >"$run/status" ||
    full="cannot write to $runs in the sandbox; is its disk full?"
  # Now and then what is left of earlier runs is removed: ids are random.
  case $run in
    *0) find "$runs" -mindepth 1 -maxdepth 1 -mmin +120 -exec rm -rf {} + 2>/dev/null ;;
  esac
elif [ ! -d "$run" ]; then
  echo "cannot write to $runs in the sandbox; is its disk full?"
  exit 125
fi
if [ -z "$status" ]; then
  # Not -e: it is there a moment before it says anything.
  while [ ! -s "$run/status" ]; do sleep 0.1; done
  read -r status <"$run/status"
fi
if [ -n "$full" ]; then
  echo "$full"
  status=125
fi
[ -s "$run/output" ] || exit "$status"
# Of an output that no answer could hold its beginning and its end are given.
size=$(wc -c <"$run/output")
half=2097152
if [ "$size" -gt $((2 * half)) ]; then
  head -c "$half" "$run/output"
  printf '\n[%s bytes of output left out here]\n' "$((size - 2 * half))"
  tail -c "$half" "$run/output"
else
  cat "$run/output"
fi
exit "$status"
