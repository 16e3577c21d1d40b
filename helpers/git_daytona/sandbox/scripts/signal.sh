# Sends a signal to a command (runner.sh), or keeps it from starting. Arguments: id; the signal;
# "end" if nobody wants its output: then it is ended in whatever way a few seconds later.
run=$HOME/.cache/git-daytona-exec/$1
exec 2>/dev/null
(umask 077 && mkdir -p "$run")
: >"$run/cancel"
if [ -s "$run/status" ]; then
  [ "$3" != end ] || rm -rf "$run"
  exit 0
fi
read -r child <"$run/child" || exit 0
tell() { kill -s "$1" -- "-$child" || kill -s "$1" "$child"; }
tell "$2"
tell CONT
if [ "$3" = end ]; then
  (sleep 5; [ -s "$run/status" ] || tell KILL; rm -rf "$run") >/dev/null &
fi
exit 0
