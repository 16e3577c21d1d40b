# Ends the command of a call, or keeps it from starting. Arguments: id of the call.
run=$HOME/.cache/git-daytona-bash/$1
[ -d "$run" ] || [ ! -e "$HOME/.local/share/opencode/tool-output/tool_$1" ] || exit 0 # over already
mkdir -p "$run"
: >"$run/cancel"
child=$(cat "$run/child") || exit 0
[ -n "$child" ] || exit 0
kill -s TERM -- "-$child" || kill -s TERM "$child"
tries=0
while kill -s 0 -- "-$child" && [ "$tries" -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -s KILL -- "-$child" || kill -s KILL "$child"
exit 0
