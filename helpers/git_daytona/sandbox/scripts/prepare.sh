# Makes the sandbox's repository ready to be pushed to. Arguments: project directory, marker of our
# lines, object format. May be run again: a repository that is there stays as it is.
project=$1
mark=$2
say() { printf '%s %s %s\n' "$mark" "$1" "$2"; }
give_up() { say error "$1"; exit 0; }
command -v git >/dev/null 2>&1 || give_up "git is not installed in the sandbox"
for name in $(git rev-parse --local-env-vars); do unset "$name"; done
mkdir -p "$project" && cd "$project" || give_up "cannot make $project in the sandbox"
# safe.directory: the SSH side may be another user than the toolbox. Only command scope and the
# user's own files may set it.
g() { git -c safe.directory='*' "$@"; }
if [ "$(g rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ]; then
  format=
  [ "$3" = sha1 ] || format=--object-format=$3
  # What an older git does not know; a newer one, or the image, may have another default.
  export GIT_DEFAULT_HASH=sha1 GIT_DEFAULT_REF_FORMAT=files
  complaint=$(g init -q $format . 2>&1) || give_up "git init failed in the sandbox: $complaint"
fi
if ! g rev-parse -q --verify HEAD >/dev/null; then
  g symbolic-ref HEAD refs/heads/opencode
fi
# For the agent's own commits; a name that the image configured stays.
g config user.name >/dev/null || g config user.name OpenCode
g config user.email >/dev/null || g config user.email opencode@localhost
say head "$(g rev-parse -q --verify HEAD || echo -)"
say end ok
