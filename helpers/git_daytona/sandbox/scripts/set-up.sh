# Runs a project's set-up in the current directory, as runner.sh starts it. Arguments: the
# name of this run; the hash of the set-up; "again" to forget what has run; a script that sets its variables; then of each command its stage,
# "once" or "start", its name among those that run at the same time, and its line.
# What has run once leaves a mark: a later run goes on where this one ended.
folder=$HOME/.cache/git-daytona-setup
for old in "$HOME"/.cache/git-daytona-exec/setup-*; do
  [ "${old##*/}" = "$1" ] || rm -rf "$old"
done
shift
done=$folder/$1
[ "$2" != again ] || rm -rf "$done"
(umask 077 && mkdir -p "$done" && printf %s "$3" >"$folder/new" &&
  mv "$folder/new" "$folder/environment") || exit
# Our own commands read it; this is for login shells: terminals, ssh.
line='[ ! -r ~/.cache/git-daytona-setup/environment ] || . ~/.cache/git-daytona-setup/environment'
for profile in ~/.profile ~/.bash_profile; do
  { [ "$profile" != ~/.profile ] && [ ! -e "$profile" ]; } ||
    grep -qxF -e "$line" "$profile" 2>/dev/null || printf '%s\n' "$line" >>"$profile"
done
. "$folder/environment"
shift 3
while [ "$#" -gt 0 ]; do
  stage=$1 when=$2 started= status=0
  if [ "$when" = once ] && [ -e "$done/$stage" ]; then started=before; fi
  while [ "${1:-}" = "$stage" ]; do
    if [ "$started" != before ]; then
      echo "== $stage${3:+ ($3)}"
      (eval "$4") </dev/null &
      started="$started $!"
    fi
    shift 4
  done
  [ "$started" != before ] || continue
  for child in $started; do wait "$child" || status=$?; done
  if [ "$status" -ne 0 ]; then
    echo "== $stage failed (exit status $status)"
    exit "$status"
  fi
  [ "$when" != once ] || : >"$done/$stage"
done
