# Commits what is pending in the sandbox's repository and reports what is there. Arguments: project
# directory, marker of our lines, commit message; "adopt" as the fourth takes refs/heads/opencode as
# the history of a work tree whose .git was lost.
#
# Works on an index of its own, so that a merge, rebase, cherry-pick, revert or bisect of the agent,
# or a git command that is running just now, is not disturbed: its state is then captured beside it,
# in refs/daytona/pending.
project=$1
mark=$2
message=$3
say() { printf '%s %s %s\n' "$mark" "$1" "$2"; }
give_up() { say error "$1"; exit 0; }
one_line() { tr '\n\t' '  ' | cut -c1-400; }

command -v git >/dev/null 2>&1 || give_up "git is not installed in the sandbox"
cd "$project" 2>/dev/null || { say missing project; exit 0; }
# git rev-parse --local-env-vars
unset GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT \
  GIT_OBJECT_DIRECTORY GIT_DIR GIT_WORK_TREE GIT_IMPLICIT_WORK_TREE GIT_GRAFT_FILE \
  GIT_INDEX_FILE GIT_NO_REPLACE_OBJECTS GIT_REPLACE_REF_BASE GIT_PREFIX \
  GIT_INTERNAL_SUPER_PREFIX GIT_SHALLOW_FILE GIT_COMMON_DIR
export LC_ALL=C GIT_TERMINAL_PROMPT=0
# Those of git's configuration (git 2.54).
hooks_off=
for event in pre-commit prepare-commit-msg commit-msg post-commit post-index-change \
  reference-transaction; do
  hooks_off="$hooks_off -c hook.$event.enabled=false"
done
g() {
  git $at -c safe.directory='*' -c core.hooksPath=/dev/null -c commit.gpgSign=false \
    -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false -c core.quotePath=true \
    -c core.safecrlf=false -c advice.addEmbeddedRepo=false $hooks_off "$@"
}
list_refs() {
  g for-each-ref --count=2001 --format='%(objectname) %(refname)' \
    refs/heads refs/daytona refs/stash
}
# Looks for the repository as git does. Not at once: where .git is a plain folder, that is it, and
# most turns need no more.
locate() {
  at=
  dir=$(g rev-parse --show-toplevel --absolute-git-dir 2>/dev/null)
  top=${dir%
*}
  dir=${dir##*
}
  [ "$top" = "$(pwd -P)" ] || { say missing repository; exit 0; }
}
dir=.git
at='--git-dir=.git --work-tree=.'
if [ ! -d .git ] || [ -L .git ] || [ -n "${4:-}" ]; then locate; fi
if [ "${4:-}" = adopt ]; then
  g symbolic-ref HEAD refs/heads/opencode && g read-tree HEAD 2>/dev/null
fi

# While no git runs, what it keeps for the moment was left behind by a killed one.
git_runs() {
  for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = git ] && return 0
  done
  return 1
}
# Of a push whose connection broke git leaves what had come of it (it removes nothing while a signal
# ends it).
for stale in "$dir"/objects/tmp_objdir-incoming-*; do
  [ ! -d "$stale" ] || git_runs || rm -rf "$stale"
done

# Beside git's work: with many processes it takes as long. Each line is one write to our output,
# which is a file.
listening | while read -r port; do say port "$port"; done &

operation=
if [ -d "$dir/rebase-merge" ] || [ -d "$dir/rebase-apply" ]; then operation=rebase
elif [ -e "$dir/MERGE_HEAD" ]; then operation=merge
elif [ -e "$dir/CHERRY_PICK_HEAD" ]; then operation=cherry-pick
elif [ -e "$dir/REVERT_HEAD" ]; then operation=revert
elif [ -e "$dir/BISECT_LOG" ]; then operation=bisect
fi

# git status takes no lock and no copy of the index, and shows most of what follows needs.
#   dirty: there is something to commit; inner: repositories inside this one may be among it;
#   staged: the index holds what neither HEAD nor the files have
dirty= inner= staged= head= branch= answered=yes
# A repository may also have been recorded here: it still does not travel. And git status does not
# look at files with a mark.
g ls-files -s -v | grep -aq '^[a-zS]\|^. 160000' &
recorded=$!
listing=$(GIT_OPTIONAL_LOCKS=0 g -c core.untrackedCache=false status --porcelain=v2 --branch \
  --untracked-files=all --ignore-submodules=none --no-renames 2>/dev/null) ||
  dirty=yes inner=yes staged=yes answered=
while read -r kind key value; do
  case "$kind $key" in
    '# branch.oid') head=$value ;;
    '# branch.head') [ "$value" = '(detached)' ] || branch=refs/heads/$value ;;
    '' | '# '*) ;;
    *)
      dirty=yes
      case "$kind $key" in '1 '[!.][!.]) staged=yes ;; esac
      case $key$value in */ | */'"') inner=yes ;; esac
      ;;
  esac
done <<END
$listing
END
case $head in '' | *[!0-9a-f]*) dirty=yes ;; esac
if wait "$recorded"; then dirty=yes inner=yes staged=yes; fi

# A turn that changed nothing is the most frequent one: nothing of what follows would find anything
# to do. Fails where it might.
report_unchanged() {
  stash= noted_head= noted_stash=
  listing=$(list_refs) || return 1
  while read -r oid ref; do
    case $ref in
      refs/daytona/head) noted_head=$oid ;;
      refs/daytona/stash) noted_stash=$oid ;;
      refs/stash) stash=$oid ;;
      refs/heads/*) ;;
      *) return 1 ;;
    esac
  done <<END
$listing
END
  [ "$noted_stash" = "$stash" ] || return 1
  if [ "$noted_head" != "$head" ]; then g update-ref refs/daytona/head "$head" || return 1; fi
  say head "$head"
  say branch "${branch:--}"
  say operation -
  say ref "$head refs/daytona/head"
  while read -r oid ref; do
    case $ref in
      refs/stash | refs/daytona/head) ;;
      *) say ref "$oid $ref" ;;
    esac
  done <<END
$listing
END
}
if [ -z "$dirty$operation${4:-}" ] && [ ! -e "$dir/index.lock" ] &&
  [ ! -d "$dir/lfs/objects" ] && report_unchanged; then
  $inventory
  wait
  say end ok
  exit 0
fi

[ -z "$at" ] || locate

# Everything is added to a copy of the index; git's own lock is taken only for the moment in which
# the copy becomes the index, and only if that has not changed meanwhile. The copies keep the
# index's time (cp -p): by it git tells which files may have changed within the second in which the
# index was written, at the same size (racy-git in git's technical documentation).
index=$dir/daytona-index.$$
locked=
clean_up() {
  rm -f "$index" "$index".*
  [ -z "$locked" ] || rm -f "$dir/index.lock"
}
trap clean_up EXIT
cp -p "$dir/index" "$index" 2>/dev/null || : >"$index"
cp -p "$index" "$index.before"
[ -s "$index" ] || rm -f "$index"
export GIT_INDEX_FILE="$index"

# A lock that is held for long while no git runs is such a thing, too.
take_lock() { (set -C; : >"$dir/index.lock") 2>/dev/null && locked=yes; }
lock() { # 0: locked and unchanged; 1: a git command holds it; 2: changed meanwhile
  tries=0
  until take_lock; do
    tries=$((tries + 1))
    if [ "$tries" -ge 20 ]; then
      git_runs && return 1
      rm -f "$dir/index.lock"
      say note "a stale index.lock was removed"
      take_lock || return 1
      break
    fi
    sleep 0.1
  done
  if [ -e "$dir/index" ]; then cmp -s "$dir/index" "$index.before"
  else [ ! -s "$index.before" ]
  fi || return 2
}

# Repositories inside this one do not travel: git lists an untracked one as a name with a slash at
# its end, and has recorded one that was added as a mode 160000. Names with newlines are exchanged
# with NUL for grep's sake.
printf ':/\0' >"$index.paths"
if [ -n "$inner" ]; then
  g ls-files -o --exclude-standard -z | tr '\0\n' '\n\0' | grep -a '/$' |
    sed 's/^/:(exclude,literal)/' | tr '\n\0' '\0\n' >>"$index.paths"
  say_nested
fi

if [ -n "$staged" ]; then
  staged=$(g write-tree 2>/dev/null)
  unmark "$index.marks"
fi

# No commits yet, or git status failed: it has not told HEAD.
case $head in '' | *[!0-9a-f]*) head=$(g rev-parse -q --verify 'HEAD^{commit}' || true) ;; esac
if ! complaint=$(g add -A --pathspec-from-file="$index.paths" --pathspec-file-nul 2>&1); then
  complaint=$(printf %s "$complaint" | grep -v '^warning' | one_line)
  give_up "git add failed in the sandbox: $complaint"
fi
tree=$(g write-tree 2>&1) ||
  give_up "git write-tree failed in the sandbox: $(printf %s "$tree" | one_line)"
changed=yes
if [ -n "$head" ]; then
  [ "$tree" != "$(g rev-parse "$head^{tree}")" ] || changed=
else
  [ -n "$(g ls-files | head -n 1)" ] || changed=
fi

snapshot() { # parents as "-p OID"…
  GIT_AUTHOR_NAME=OpenCode GIT_AUTHOR_EMAIL=opencode@localhost
  while read -r key value; do
    case $key in
      user.name) GIT_AUTHOR_NAME=${value:-OpenCode} ;;
      user.email) GIT_AUTHOR_EMAIL=${value:-opencode@localhost} ;;
    esac
  done <<END
$(g config --get-regexp '^user\.(name|email)$')
END
  GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
  export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
  printf '%s\n' "$message" | g commit-tree "$tree" "$@"
}

# What is staged, then edited further, is only in the index that is about to be replaced.
keep_staged() {
  case $staged in '' | "$tree" | "$(g rev-parse -q --verify "$head^{tree}")") return ;; esac
  old=$(g rev-parse -q --verify refs/daytona-staged)
  # In a subshell: the tree is another one for it.
  staged=$(tree=$staged; snapshot ${head:+-p "$head"} ${old:+-p "$old"}) &&
    g update-ref refs/daytona-staged "$staged"
}

if [ -z "$operation" ] && [ -n "$changed" ]; then
  lock
  case $? in
    1) operation=git ;;
    2) say busy index; exit 0 ;;
  esac
fi
pending=
if [ -n "$operation" ]; then
  pending=$head
  if [ -n "$changed" ]; then
    old=$(g rev-parse -q --verify refs/daytona/pending || true)
    if [ -n "$old" ] && [ "$(g rev-parse -q --verify "$old^{tree}")" = "$tree" ] &&
      [ "$(g rev-parse -q --verify "$old^1" || true)" = "$head" ]; then
      pending=$old
    else
      merged=$(sed -n 's/^\([0-9a-f]*\)$/-p \1/p' "$dir/MERGE_HEAD" 2>/dev/null)
      pending=$(snapshot ${head:+-p "$head"} $merged) ||
        give_up "git commit-tree failed in the sandbox"
    fi
  fi
elif [ -n "$changed" ]; then
  keep_staged
  commit=$(snapshot ${head:+-p "$head"}) || give_up "git commit-tree failed in the sandbox"
  if [ -n "$head" ]; then # both at once: a process less
    printf 'update HEAD %s %s\nupdate refs/daytona/head %s\n' "$commit" "$head" "$commit" |
      g update-ref -m "git-daytona: sync" --stdin
  else
    g update-ref -m "git-daytona: sync" HEAD "$commit" ""
  fi 2>/dev/null || { say busy head; exit 0; }
  head=$commit
  # The new index becomes the real one, as git itself does it, with the agent's marks.
  remark "$index.marks"
  cp -p "$index" "$dir/index.lock" && mv "$dir/index.lock" "$dir/index" && locked=
fi

[ -n "$answered" ] || branch=$(g symbolic-ref -q HEAD || true)
tip=$head
case $operation in
  rebase)
    branch=$(cat "$dir/rebase-merge/head-name" 2>/dev/null ||
      cat "$dir/rebase-apply/head-name" 2>/dev/null)
    ;;
  bisect) branch=refs/heads/$(cat "$dir/BISECT_START" 2>/dev/null) ;;
esac
case $operation in
  rebase | bisect) tip=$(g rev-parse -q --verify "$branch^{commit}") || { branch=; tip=$head; } ;;
esac

# What a fetch takes besides the branches.
listing=$(list_refs)
noted_head= noted_pending= noted_stash= stash=
while read -r oid ref; do
  case $ref in
    refs/daytona/head) noted_head=$oid ;;
    refs/daytona/pending) noted_pending=$oid ;;
    refs/daytona/stash) noted_stash=$oid ;;
    refs/stash) stash=$oid ;;
  esac
done <<END
$listing
END
hold() { # name, what it is, object id or nothing
  if [ "$2" != "$3" ]; then
    if [ -n "$3" ]; then g update-ref "refs/daytona/$1" "$3"
    else g update-ref -d "refs/daytona/$1" 2>/dev/null
    fi
  fi
  [ -z "$3" ] || say ref "$3 refs/daytona/$1"
}

say head "${tip:--}"
say branch "${branch:--}"
say operation "${operation:--}"
hold head "$noted_head" "$tip"
hold pending "$noted_pending" "$pending"
hold stash "$noted_stash" "$stash"
while read -r oid ref; do
  case $ref in
    '' | refs/stash | refs/daytona/head | refs/daytona/pending | refs/daytona/stash) ;;
    *) say ref "$oid $ref" ;;
  esac
done <<END
$listing
END
if [ -d "$dir/lfs/objects" ]; then
  say lfs "$(find "$dir/lfs/objects" -type f | wc -l)"
fi
$inventory
wait
say end ok
