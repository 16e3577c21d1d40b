# Runs the agent's command, its output in a file. Arguments: id of the call; directory; whole
# seconds that it may take; the rest of these as a fraction ("0.5"); bytes of output to send; bytes
# of output at which it is stopped; "wait" or "leave"; the command. Prints first "no-directory", or
# "left PID LOG", or "ended STATUS REASON BYTES LINES ALIVE LOG" (REASON: exit, time, size or
# cancel; ALIVE: yes if something of it still runs), then the end of the output as it is.
expand "$2"
log=$HOME/.local/share/opencode/tool-output/tool_$1
run=$HOME/.cache/git-daytona-bash/$1
whole=$3 rest=$4 send=$5 most=$6 mode=$7 command=$8
cd "$path" || { echo no-directory; exit 0; }
mkdir -p "${log%/*}" "$run"
{
  find "${log%/*}" -name 'tool_*' -mtime +7 -exec rm -f {} +
  find "${run%/*}" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -rf {} +
} >/dev/null &
if ! : >"$log"; then exit 0; fi
if [ -e "$run/cancel" ]; then
  rm -rf "$run"
  echo "ended 143 cancel 0 0 no $log"
  exit 0
fi
shell=$(command -v bash || echo sh)

# A session of its own: what the command starts can be ended together, and outlives this script if
# it is a server. The command is in a variable: no argument list has its text, which pkill looks for.
apart=$(command -v setsid)
environment='~/.cache/git-daytona-setup/environment' # set-up.sh
c="unset c; [ ! -r $environment ] || . $environment; $command" $apart "$shell" -c 'eval "$c"' >"$log" 2>&1 </dev/null &
child=$! watcher=

end_all() {
  kill -s TERM -- "-$child" || kill -s TERM "$child"
  tries=0
  while kill -s 0 -- "-$child" && [ "$tries" -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL -- "-$child" || kill -s KILL "$child"
}
# An abort may come as a signal to this script and all that it started.
trap 'end_all; kill "$watcher"; rm -rf "$run"; exit 143' TERM INT
if [ "$mode" = leave ]; then
  rm -rf "$run"
  sleep 0.3 # a command that fails at once shows that
  echo "left $child $log"
  tail -c "$send" "$log"
  exit 0
fi
echo "$child" >"$run/child"
watch() {
  spent=0
  while [ "$spent" -lt "$whole" ]; do
    sleep 1
    spent=$((spent + 1))
    if [ "$(wc -c <"$log")" -gt "$most" ]; then echo size >"$run/reason"; end_all; return; fi
  done
  sleep "$rest"
  echo time >"$run/reason"
  end_all
}
watch >/dev/null 2>&1 &
watcher=$!
if [ -e "$run/cancel" ]; then end_all; fi
wait "$child"
status=$?
reason=exit
if [ -e "$run/reason" ]; then
  wait "$watcher"
  reason=$(cat "$run/reason")
else kill "$watcher"
fi
if [ -e "$run/cancel" ]; then reason=cancel; fi
rm -rf "$run"
alive=no # a server that it left, say
if kill -s 0 -- "-$child"; then alive=yes; fi
set -- $(wc -lc <"$log")
lines=$1 bytes=$2
echo "ended $status $reason $bytes $lines $alive $log"
tail -c "$send" "$log"
# All of it will be shown, even if each byte is shown as the three of a replacement character.
if [ "$alive" = no ] && [ "$bytes" -le 16000 ] && [ "$lines" -lt 1990 ]; then rm -f "$log"; fi
exit 0
