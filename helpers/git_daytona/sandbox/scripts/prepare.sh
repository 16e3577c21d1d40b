# Makes the sandbox's repository ready to be pushed to. Arguments: project directory, marker of our
# lines, object format. May be run again: a repository that is there stays as it is.
project=$1
mark=$2
say() { printf '%s %s %s\n' "$mark" "$1" "$2"; }
if ! command -v git >/dev/null 2>&1; then say error "git is not installed in the sandbox"; exit 0; fi
for name in $(git rev-parse --local-env-vars); do unset "$name"; done
if ! mkdir -p "$project" || ! cd "$project"; then say error "cannot make $project in the sandbox"; exit 0; fi
# safe.directory: the SSH side may be another user than the toolbox. Only command scope and the
# user's own files may set it.
g() { git -c safe.directory='*' "$@"; }
if [ "$(g rev-parse --show-toplevel 2>/dev/null)" != "$(pwd -P)" ]; then
  format=
  [ "$3" = sha1 ] || format=--object-format=$3
  if ! complaint=$(g init -q $format . 2>&1); then say error "git init failed in the sandbox: $complaint"; exit 0; fi
fi
if ! g rev-parse -q --verify HEAD >/dev/null; then
  g symbolic-ref HEAD refs/heads/opencode
fi
# For the agent's own commits; a name that the image configured stays.
g config user.name >/dev/null || g config user.name OpenCode
g config user.email >/dev/null || g config user.email opencode@localhost
say head "$(g rev-parse -q --verify HEAD || echo -)"
say end ok
