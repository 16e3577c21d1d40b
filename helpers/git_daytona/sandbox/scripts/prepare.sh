# Makes the sandbox's repository ready to be pushed to, and says which filters it lacks. Arguments:
# project directory, object format; "restore" as the third leaves HEAD as it is. May be run again: a
# repository that is there stays as it is. With "fresh" it goes, and the files that its git has or
# would have: it came with a snapshot of another session's sandbox. What is ignored stays.
mkdir -p "$1" && cd -P "$1" || give_up "cannot make $1 in the sandbox"
if [ "$3" = fresh ] && is_there; then
  for which in --others --cached; do
    g ls-files -z "$which" --exclude-standard | xargs -0 rm -f -- 2>/dev/null
  done
  rm -rf .git
fi
if ! is_there; then
  # Made aside, so that there is a whole one or none. Defaults of git and of the image do not matter.
  new=.git.daytona-new
  rm -rf "$new"
  format=
  [ "$2" = sha1 ] || format=--object-format=$2
  complaint=$(GIT_DEFAULT_HASH=$2 GIT_DEFAULT_REF_FORMAT=files \
    git -c safe.directory='*' init -q $format "$new" 2>&1 &&
    git --git-dir="$new/.git" symbolic-ref HEAD refs/heads/opencode 2>&1 &&
    { [ ! -d .git ] || rmdir .git; } 2>&1 && mv "$new/.git" .git 2>&1) ||
    give_up "git init failed in the sandbox: $(printf %s "$complaint" | one_line)"
  rmdir "$new"
fi
check
if [ "$3" != restore ] && unborn; then g symbolic-ref HEAD refs/heads/opencode; fi
# For the agent's own commits; a name that the image configured stays.
g config user.name >/dev/null || g config user.name OpenCode
g config user.email >/dev/null || g config user.email opencode@localhost
say head "$(g rev-parse -q --verify HEAD || echo -)"
for name in $(lacking); do say filter "$name"; done
! command -v git-lfs >/dev/null || say git-lfs yes
say end ok
