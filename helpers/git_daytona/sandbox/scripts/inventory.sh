# Goes between look.sh and report.sh when the sandbox is about to be deleted, and runs at the end of
# the report: looks for what would be gone with the sandbox, and is in nothing that a sync brings
# back. One rule: every object that can be reached from any ref, any entry of a reflog, and HEAD and
# index of any worktree, and every file of the project's worktrees that differs from these and is not
# ignored. It is put under refs/daytona/inventory, from which a fetch takes it, but for what
# $known, object ids that are known where it goes to, hold.
#
# Of what does not travel it reports each: ignored files, repositories with work of their own, and
# what cannot be read.
inventory=take_inventory
most_worktrees=100
most_tags=200
most_commits=20000
most_named=8 # which get a ref of their own

take_inventory() {
  unset GIT_INDEX_FILE
  # As a transfer sees it: it sends what is there, not what that is replaced by.
  export GIT_NO_REPLACE_OBJECTS=1
  cd -P "$project" || give_up "cannot enter $project in the sandbox"
  work=$dir/daytona-inventory
  rm -rf "$work"
  mkdir "$work" || give_up "cannot write to $dir in the sandbox"
  common=$(common_dir)
  g for-each-ref --format='delete %(refname)' refs/daytona/inventory | g update-ref --stdin
  : >"$work/revisions"
  : >"$work/names"
  say_ignored '' # of the project's own files the report names what is left
  unreadable "$common" -name objects -prune -o | while IFS= read -r name; do say unread "$name"; done
  place=$(g config core.worktree) && place=$(cd "$dir" && cd "$place" 2>/dev/null && pwd -P) &&
    [ "$place" != "$(pwd -P)" ] && say unread "$place, where core.worktree leads"
  for place in "$dir" "$common"/worktrees/*; do
    [ ! -e "$place/rebase-apply/applying" ] ||
      say unread "what 'git am' has not applied yet, in $place/rebase-apply"
  done
  take_worktrees
  for modules in "$common/modules" "$common"/worktrees/*/modules; do
    [ ! -d "$modules" ] || say_modules "$modules"
  done
  take_objects || say unread "the repository: git cannot list what it holds"
  rm -rf "$work"
  say inventory ok
}

# -- files -----------------------------------------------------------------------------------------

# Reports what stays of a worktree, the current directory. Only a complaint of git's makes it worth
# to look for what cannot be read.
files_left() { # what goes before the names
  say_ignored "$1"
  GIT_OPTIONAL_LOCKS=0 g status --porcelain --untracked-files=all 2>&1 >/dev/null | grep -q . ||
    return 0
  unreadable . -path ./.git -prune -o | while IFS= read -r name; do
    g check-ignore -q -- "$name" || say unread "$1$name"
  done
}
say_ignored() { # what goes before the names
  g ls-files -o -i --exclude-standard --directory | head -n 21 |
    while read -r name; do say ignored "$1$name"; done
}
unreadable() { # where, what not: a line for each
  find "$@" \( -type d -o -type f \) -exec sh -c 'for path; do
    [ -r "$path" ] && { [ ! -d "$path" ] || [ -x "$path" ]; } || printf "%s\0" "${path#./}"
  done' sh {} + 2>/dev/null | tr '\0\n' '\n\1' | head -n 1000
}

# Submodules whose files are gone have their repositories still. Each has a path for its name, mostly
# its own.
say_modules() { # folder
  looked=0
  find "$1" -name objects -type d -prune | while IFS= read -r name; do
    looked=$((looked + 1))
    place=${name%/objects}
    at="--git-dir=$place --work-tree=."
    files=$(cd "$place" && cd "$(g config core.worktree)" 2>/dev/null && pwd -P)
    ! travels "${files#"$project"/}/" || continue
    [ "$looked" -le 100 ] && [ -z "$( { only_there
        [ ! -f "$place/index" ] || g diff-index --cached HEAD
      } 2>&1)" ] || say nested "${place#"$1/"}/"
  done
}

# A name's newlines are other bytes meanwhile: there is a line for each.
take_worktrees() {
  { g worktree list --porcelain -z 2>/dev/null || g worktree list --porcelain | tr '\n' '\0'; } |
    tr '\n\0' '\1\n' | sed -n 's/^worktree //p' >"$work/worktrees"
  [ -s "$work/worktrees" ] || say unread "the list of worktrees"
  # One that was moved without git's knowing is found where it is now.
  repositories | head -n "$most_worktrees" | while read -r name; do
    (at= && cd "./$(unquote "$name")" 2>/dev/null && [ "$(common_dir)" = "$common" ] &&
      [ "$(g rev-parse --show-toplevel)" = "$(pwd -P)" ] && pwd -P | tr '\n' '\1' | sed 's/.$//' && echo)
  done >>"$work/worktrees"
  sort -u "$work/worktrees" | head -n "$((most_worktrees + 2))" >"$work/listed"
  [ "$(wc -l <"$work/listed")" -le "$((most_worktrees + 1))" ] ||
    say unread "more than $most_worktrees worktrees"
  while IFS= read -r line; do
    place=$(printf '%s\n' "$line" | tr '\1' '\n')
    [ "$place" = "$(pwd -P)" ] || take_worktree "$place"
  done <"$work/listed"
}

take_worktree() ( # path
  # In the place of a main worktree that there is not.
  [ "$1" != "$common" ] || [ "$(g config --type=bool core.bare)" != true ] || exit 0
  at=
  name=$(printf %s "$1" | one_line)
  above=$1
  while [ ! -e "$above" ] && [ "$above" != "${above%/*}" ]; do above=${above%/*}; done
  if [ "$above" != "$1" ]; then # gone, unless it lies in what cannot be looked into
    [ -x "${above:-/}" ] || say unread "$name"
    exit 0
  fi
  cd "$1" 2>/dev/null && [ "$(g rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ] &&
    [ "$(common_dir)" = "$common" ] || { say unread "$name"; exit 0; }
  files_left "$name/"
  say_nested "$name/"
  export GIT_INDEX_FILE="$work/index"
  cp -p "$(g rev-parse --absolute-git-dir)/index" "$GIT_INDEX_FILE" 2>/dev/null ||
    rm -f "$GIT_INDEX_FILE"
  head=$(g rev-parse -q --verify 'HEAD^{commit}')
  echo "$head HEAD of worktree $name" >>"$work/names"
  g for-each-ref --format='%(objectname)' refs/worktree refs/bisect refs/rewritten \
    >>"$work/revisions"
  staged=$(g write-tree 2>/dev/null) # not if there are conflicts
  unmark "$work/marks"
  { printf ':/\0'
    g ls-files -o --exclude-standard -z | tr '\0\n' '\n\0' | grep -a '/$' |
      sed 's/^/:(exclude,literal)/' | tr '\n\0' '\0\n'
  } >"$work/paths"
  complaint=$(g -c core.sparseCheckout=false add -A --ignore-errors \
    --pathspec-from-file="$work/paths" --pathspec-file-nul 2>&1) ||
    say unread "$name: $(printf %s "$complaint" | grep -v ^warning | one_line)"
  tree=$(g write-tree) || { say unread "$name"; exit 0; }
  before=$(g rev-parse -q --verify "$head^{tree}" || g mktree </dev/null)
  [ "$tree" != "$before" ] || [ "${staged:-$before}" != "$before" ] || exit 0
  case $staged in
    '' | "$tree" | "$before") index= ;;
    *) index=$(echo "$head" | held_commit "$staged" "index of $name") ;;
  esac
  commit=$(printf '%s\n' "$head" "$index" | held_commit "$tree" "uncommitted work in $name") &&
    echo "$commit" >>"$work/revisions" || say unread "$name"
  echo "$commit uncommitted work in worktree $name" >>"$work/names"
)

# -- objects ---------------------------------------------------------------------------------------

# The same content makes the same commit: what was fetched once is known the next time.
held_commit() { # tree, message; its parents are on standard input
  grep . >"$work/after"
  when=$(g rev-list --no-walk --max-count=1 --timestamp --stdin <"$work/after" 2>/dev/null)
  who="git-daytona <git-daytona@localhost> $((${when%% *} + 0)) +0000"
  { printf 'tree %s\n' "$1"
    sed 's/^/parent /' "$work/after"
    printf 'author %s\ncommitter %s\n\n%s\n' "$who" "$who" "$2"
  } | g hash-object -t commit -w --stdin
}
give() { # object id, what holds it
  g update-ref "refs/daytona/inventory/$1" "$1" || { say unread "$1 $2"; return; }
  say ref "$1 refs/daytona/inventory/$1"
  say held "$1 $2"
}
minus() { sort "$1" "$2" "$2" | uniq -u; } # lines of the first file, each there once
walk() { g rev-list --ignore-missing "$@"; }

take_objects() {
  # What a report gives to the fetch, and what is known there.
  { g for-each-ref --format='%(objectname) %(refname)' refs/heads refs/daytona |
      sed -n 's|^\([^ ]*\) refs/heads/.*|\1|p
        s,^\([^ ]*\) refs/daytona/\(head\|pending\|stash\)$,\1,p'
    for oid in $known; do echo "$oid"; done
  } | sort -u >"$work/taken" || return
  # Refs of the kind that only a file is, what a rebase has put aside, and still has to do, and the
  # refs of a worktree that is gone.
  {
    for place in "$dir" "$common"/worktrees/*; do
      for file in "$place"/*_HEAD "$place"/MERGE_AUTOSTASH "$place"/rebase-*/autostash \
        "$place"/rebase-*/orig-head "$place"/rebase-merge/git-rebase-todo; do
        [ ! -f "$file" ] || head -c 1000000 "$file"
      done
    done
    find "$common"/worktrees/*/refs -type f -exec head -c 100 {} + 2>/dev/null
  } | grep -aoE '[0-9a-f]{40}([0-9a-f]{24})?' | sort -u >>"$work/revisions" || return
  sed 's/^/^/' "$work/taken" >>"$work/revisions" || return
  walk --parents --all --reflog --stdin ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD \
    REBASE_HEAD BISECT_HEAD MERGE_AUTOSTASH <"$work/revisions" >"$work/commits" || return
  cut -d ' ' -f 1 "$work/commits" | sort >"$work/new" || return
  cut -d ' ' -s -f 2- "$work/commits" | tr ' ' '\n' | sort -u >"$work/parents" || return
  minus "$work/new" "$work/parents" >"$work/tips" || return
  if [ "$(wc -l <"$work/tips")" -gt "$most_commits" ]; then
    say unread "more than $most_commits commits that no branch holds"
    return
  fi

  # All else: tags, and what neither these commits nor the branches have. First without what HEAD
  # has, which nearly always is all; what history has costs more to list.
  { cat "$work/revisions"
    sed 's/^/^/' "$work/tips"
    echo "^$(g rev-parse -q --verify 'HEAD^{tree}' || g mktree </dev/null)"
  } >"$work/but" || return
  walk --objects --no-object-names --all --reflog --indexed-objects --stdin <"$work/but" \
    >"$work/objects" || return
  g cat-file --batch-check='%(objecttype) %(objectname)' <"$work/objects" >"$work/loose" || return
  sed -n 's/^tag //p' "$work/loose" | sort -u >"$work/tags" || return
  if [ "$(wc -l <"$work/tags")" -gt "$most_tags" ]; then
    say unread "more than $most_tags tags"
    return
  fi
  : >"$work/entries"
  if grep -qv '^tag ' "$work/loose"; then
    sort -u "$work/taken" "$work/tips" |
      walk --objects --no-object-names --stdin | sort -u >"$work/history" || return
    sed -n 's/^blob //p; s/^tree //p' "$work/loose" | sort -u | minus - "$work/history" |
      head -n "$((most_commits + 1))" |
      g cat-file --batch-check='%(objecttype) %(objectname)	%(objectname)' |
      sed 's/^blob/100644 blob/; s/^tree/040000 tree/' >"$work/entries" || return
    if [ "$(wc -l <"$work/entries")" -gt "$most_commits" ]; then
      say unread "more than $most_commits files that no commit has"
      return
    fi
  fi
  give_all
}

give_all() {
  { g for-each-ref --format='%(objectname) %(refname)'
    g for-each-ref --format='%(*objectname) %(refname)' refs/tags
    g log -g --format='%H %gd' refs/stash 2>/dev/null
  } | grep -v ' refs/\(heads\|daytona\)/' >>"$work/names"
  # What has a name comes first.
  cut -d ' ' -f 1 "$work/names" | sort -u >"$work/named" || return
  { sort "$work/named" "$work/tips" | uniq -d
    minus "$work/tips" "$work/named"
  } >"$work/ordered" || return
  head -n "$most_named" "$work/ordered" | cat "$work/tags" - | while read -r oid; do
    name=$(grep -m 1 "^$oid " "$work/names")
    give "$oid" "${name#* }"
  done
  tail -n "+$((most_named + 1))" "$work/ordered" >"$work/more" || return
  [ -s "$work/more" ] || [ -s "$work/entries" ] || return 0
  more=
  [ ! -s "$work/more" ] || more="$(($(wc -l <"$work/more"))) more commits"
  [ ! -s "$work/entries" ] ||
    more="${more:+"$more, "}$(($(wc -l <"$work/entries"))) files that no commit has"
  tree=$(g mktree <"$work/entries") || return
  commit=$(held_commit "$tree" "$more

$(grep -Ff "$work/more" "$work/names" | head -n 1000)" <"$work/more") && give "$commit" "$more"
}
