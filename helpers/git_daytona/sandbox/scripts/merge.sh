# Merges a commit into what is checked out, and says which files it could not join. Arguments: project
# directory, commit, message.
cd "$1" || exit
check
complaint=$(g $(relaxed) merge --no-edit --no-verify -m "$3" "$2" 2>&1)
status=$?
g for-each-ref --format='delete %(refname)' refs/daytona/update | g update-ref --stdin
if [ "$status" -ne 0 ]; then
  conflicted=$(g diff --name-only --diff-filter=U --no-relative | head -n 21)
  [ -n "$conflicted" ] || give_up "git merge failed in the sandbox: $(printf %s "$complaint" | one_line)"
  printf '%s\n' "$conflicted" | while IFS= read -r name; do say conflicted "$name"; done
fi
say head "$(g rev-parse -q --verify HEAD || echo -)"
say end ok
