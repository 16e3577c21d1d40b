# Runs a command apart from the call that started it, see attach.sh. Arguments: id; directory; the
# one to take where that is missing; seconds that it may take; "apart", or "merged" if its output and
# its errors are to be one; "whole" or "more", for its input; the first of that, as base64; the
# command.
run=$HOME/.cache/git-daytona-exec/$1
directory=$2 instead=$3 seconds=$4 streams=$5 input=$6 first=$7 command=$8
most=67108864 # bytes that nobody has read yet, at which the command has to wait
exec 2>/dev/null
read -r line <"/proc/$$/stat"
set -- ${line##*) }
shift 19
echo "$$ $1" >"$run/runner"
cd -- "$directory" || cd -- "$instead" || cd || exit
printf %s "$first" | base64 -d >"$run/in.0"

feed() { # the pieces of the input (feed.sh), as they come
  piece=0
  while :; do
    if [ -e "$run/in.$piece" ]; then
      cat "$run/in.$piece" || return # nobody reads any more
      rm -f "$run/in.$piece"
      piece=$((piece + 1))
      echo "$piece" >"$run/fed"
    elif [ -e "$run/in.end" ]; then return
    else sleep 0.1
    fi
  done
}
tell() { kill -s "$1" -- "-$child" || kill -s "$1" "$child"; }
end() {
  tell TERM
  tell CONT
  tries=0
  while kill -s 0 -- "-$child" && [ "$tries" -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
  tell KILL
}
watch() {
  read -r now _ </proc/uptime
  until=$((${now%.*} + seconds)) held=
  while :; do
    sleep 0.5
    read -r child <"$run/child" || continue
    read -r now _ </proc/uptime
    if [ "${now%.*}" -ge "$until" ]; then
      echo time >"$run/reason"
      end
      return
    fi
    known=0
    read -r known <"$run/known"
    ahead=$(($(wc -c <"$run/out") + $(wc -c <"$run/err") - known))
    if [ -z "$held" ] && [ "$ahead" -gt "$most" ]; then
      held=yes
      tell STOP
    elif [ -n "$held" ] && [ "$ahead" -lt $((most / 4)) ]; then
      held=
      tell CONT
    fi
  done
}

errors=$run/err
if [ "$streams" = merged ]; then errors=$run/out; fi
if [ "$input" = more ]; then
  input=$run/pipe
  mkfifo "$input"
  feed >"$input" &
  feeder=$!
else input=$run/in.0
fi
watch >/dev/null &
watcher=$!
apart=$(command -v setsid)
environment='~/.cache/git-daytona-setup/environment' # set-up.sh
case $run in */setup-*) environment=/dev/null ;; esac # itself, which writes it
# In a variable: no argument list has the command's text, which pkill looks for.
c='echo "$$" >"$r/child"; [ ! -e "$r/cancel" ] || exit 130; unset c r; '
c="$c[ ! -r $environment ] || . $environment; $command"
(
  r=$run
  export c r
  exec <"$input" >>"$run/out" 2>>"$errors"
  exec $apart sh -c 'eval "$c"'
)
status=$? reason=exit
if [ -s "$run/reason" ]; then
  wait "$watcher"
  read -r reason <"$run/reason"
else kill "$watcher"
fi
kill $feeder
echo "$status $reason" >"$run/status.new" && mv "$run/status.new" "$run/status"
