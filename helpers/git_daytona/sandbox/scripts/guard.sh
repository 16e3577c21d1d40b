# Runs a script in the sandbox at most once, and gives its output and status to whoever asks with
# the same id: a request whose connection dropped is sent again, and the command behind it may be
# running or done already. The first line is the id; "ID cut short" if the command was ended from
# outside (with the sandbox, say). Arguments: id, script (with its arguments).
runs=$HOME/.cache/git-daytona
run=$runs/$1
script=$2
status= short= full=
# A process is told by its number and the moment it began: numbers are used again.
born=
look() { # process id
  read -r born <"/proc/$1/stat" || return
  set -- ${born##*) }
  shift 19
  born=$1
}
waited=0
ended() { # whoever ran it, without having said how it went, or who it was (in five seconds)
  waited=$((waited + 1))
  if [ ! -s "$run/runner" ]; then
    [ "$waited" -gt 50 ]
    return
  fi
  read -r runner begun <"$run/runner" || return
  born=
  look "$runner" 2>/dev/null
  ! { [ "$born" = "$begun" ] && kill -s 0 "$runner" 2>/dev/null; } && [ ! -s "$run/status" ]
}
umask 077
[ -d "$runs" ] || mkdir -p "$runs" 2>/dev/null
if mkdir "$run" 2>/dev/null; then
  # The output goes to a file, so that a server left in the background does not keep the call open;
  # the script comes by a pipe, and stands in no argument list.
  umask 022
  look $$ 2>/dev/null
  echo "$$ $born" >"$run/runner"
  printf '%s\n' "$script" | sh >"$run/output" 2>&1
  status=$?
  # Then what the script printed is lost, too, or some of it.
  echo "$status" 2>/dev/null >"$run/status" ||
    full="cannot write to $runs in the sandbox; is its disk full?"
  # Now and then what is left of earlier runs is removed: ids are random.
  case $run in
    *0) find "$runs" -mindepth 1 -maxdepth 1 -mmin +120 -exec rm -rf {} + 2>/dev/null ;;
  esac
elif [ ! -d "$run" ]; then
  echo "${run##*/}"
  echo "cannot write to $runs in the sandbox; is its disk full?"
  exit 125
fi
if [ -z "$status" ]; then
  # Not -e: it is there a moment before it says anything.
  while [ ! -s "$run/status" ]; do
    if ended; then
      status=125 short=' cut short'
      break
    fi
    sleep 0.1
  done
  [ -n "$status" ] || read -r status <"$run/status"
fi
echo "${run##*/}$short"
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
