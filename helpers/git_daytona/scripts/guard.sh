# Runs a script in the sandbox at most once, and gives its output and status to whoever asks with the same id: the SDK repeats a
# request whose connection dropped, and the command behind it may be running or done already.
# Arguments: id, script, arguments of the script…
runs=$HOME/.cache/git-daytona
run=$runs/$1
script=$2
shift 2
umask 077
mkdir -p "$runs" 2>/dev/null
if mkdir "$run" 2>/dev/null; then
  # The output goes to a file, so that a server left in the background does not keep the call open; input is closed, so that
  # nothing eats the rest of what the toolbox feeds to the shell.
  umask 022
  sh -c "$script" sh "$@" >"$run/output" 2>&1 </dev/null
  echo "$?" >"$run/status.new"
  mv "$run/status.new" "$run/status"
  find "$runs" -mindepth 1 -maxdepth 1 -mmin +120 -exec rm -rf {} + 2>/dev/null
elif [ ! -d "$run" ]; then
  echo "cannot write to $runs in the sandbox; is its disk full?"
  exit 125
fi
while [ ! -e "$run/status" ]; do sleep 0.1; done
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
exit "$(cat "$run/status")"
