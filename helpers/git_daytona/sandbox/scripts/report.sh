# Commits what is pending in the sandbox's repository and reports what is there. Arguments: project
# directory, commit message, what it is for, and the author's name and address: "adopt" makes refs/daytona/restore the history of a
# work tree that has lost its own, "new" commits where there is no history at all, "push" asks what a
# push depends on, "aside" comes in the middle of a turn: the agent's index, HEAD and branches, and its
# locks, stay as they are.
#
# Works on an index of its own, so that a merge, rebase, cherry-pick, revert or bisect of the agent,
# a conflict, or a git command that is running just now, is not disturbed: its state is then captured
# beside it, in refs/daytona/pending.
project=$1
message=$2
purpose=${3:-}
author_name=${4:-}
author_email=${5:-}

# A project that was moved has still all that was not synced, and nobody has deleted its files.
missing() { # what
  [ -z "$submodule" ] || { say missing "$1"; exit 0; }
  for place in "$project"/* "$project"/.[!.]*; do
    case ${place##*/} in '*' | '.[!.]*' | .git) ;; *) say missing "$1"; exit 0 ;; esac
  done
  at=
  moved=$(find "${project%/*}" /tmp -xdev -maxdepth 4 -name .git -type d -prune 2>/dev/null |
    head -n 50 | while IFS= read -r place; do
      [ "$place" != "$project/.git" ] || continue
      ! g --git-dir="$place" rev-parse -q --verify refs/daytona/head >/dev/null 2>&1 || {
        printf %s "${place%/.git}"
        break
      }
    done)
  if [ -n "$moved" ]; then say moved "$moved"; else say missing "$1"; fi
  exit 0
}
[ -e "$project" ] || [ -L "$project" ] || missing project
[ -z "$submodule" ] || [ ! -L "$project" ] || missing repository
cd -P "$project" || give_up "cannot enter $project in the sandbox"
is_there || missing repository
dir=$PWD/.git
common=$dir
if [ ! -d .git ]; then
  check
  dir=$(g rev-parse --absolute-git-dir)
  common=$(cd "$(g rev-parse --git-common-dir)" && pwd -P)
fi
list_refs() {
  g for-each-ref --count=2001 --format='%(objectname) %(refname)' \
    refs/heads refs/daytona refs/stash
}

case $purpose in
  push)
    [ "$(g config --type=bool core.bare)" != true ] || # it would move the branch, not the files
      give_up "core.bare is set in the sandbox's repository, so its files would not follow a push"
    for name in $(lacking); do say filter "$name"; done
    ;;
  adopt)
    # HEAD comes last: until then nothing has changed that matters.
    check
    ours=$(g rev-parse -q --verify 'refs/daytona/restore^{commit}') &&
      GIT_INDEX_FILE=$dir/daytona-index.$$ g read-tree "$ours" &&
      mv "$dir/daytona-index.$$" "$dir/index" &&
      g symbolic-ref HEAD refs/heads/opencode &&
      printf 'update HEAD %s\ndelete refs/daytona/restore\n' "$ours" | g update-ref --stdin ||
      give_up "the sandbox's files could not get their history back"
    # Of a project that is gone as a whole nothing was deleted by intent.
    if [ "$(g ls-files | wc -l)" = "$(g ls-files -d | wc -l)" ]; then
      g $(relaxed) checkout-index -a -q -u
    fi
    ;;
esac

git_runs() {
  for process in /proc/[0-9]*; do
    { read -r name <"$process/comm"; } 2>/dev/null || continue
    case $name in git | git-*) return 0 ;; esac
  done
  return 1
}
# While no git runs, what it keeps for the moment was left behind by a killed one: of a push whose
# connection broke what had come of it (it removes nothing while a signal ends it), a lock that lasts,
# and what a report of ours has left.
for stale in "$common"/objects/tmp_objdir-incoming-*; do
  [ ! -d "$stale" ] || git_runs || rm -rf "$stale"
done
for stale in "$dir"/daytona-index.*; do
  process=${stale#"$dir"/daytona-index.}
  [ ! -e "$stale" ] || [ -d "/proc/${process%%.*}" ] || rm -f "$stale"
done
break_locks() {
  set --
  for lock in "$dir"/*.lock "$common"/*.lock "$common"/reftable/*.lock \
    "$common"/refs/daytona/*.lock "$common/${branch:-HEAD}.lock"; do
    [ ! -e "$lock" ] || set -- "$@" "$lock"
  done
  tries=0
  while [ "$#" -gt 0 ] && ! git_runs; do
    tries=$((tries + 1))
    for lock; do
      shift
      if [ "$tries" -gt 20 ] && rm "$lock" 2>/dev/null; then
        lock=${lock#"$dir"/}
        say note "a stale ${lock#"$common"/} was removed"
      elif [ -e "$lock" ]; then set -- "$@" "$lock"
      fi
    done
    [ "$tries" -le 20 ] || return
    sleep 0.1
  done
}

# Beside git's work: with many processes it takes as long.
listening | while read -r port; do say port "$port"; done &

# git status takes no lock and no copy of the index, and shows most of what follows needs.
#   dirty: there is something to commit; inner: repositories inside this one may be among it;
#   staged: the index holds what neither HEAD nor the files have; complaint: something could not be
#   looked at
dirty= inner= staged= head= branch= conflict= complaint= answered=yes
# A repository may also have been recorded here: it still does not travel. And git status does not
# look at files with a mark.
g ls-files -s -v | grep -aq '^[a-zS]\|^. 160000' &
recorded=$!
listing=$(GIT_OPTIONAL_LOCKS=0 g -c core.untrackedCache=false status --porcelain=v2 --branch \
  --untracked-files=all --ignore-submodules=none --no-renames 2>&1) || answered=
while read -r kind key value; do
  case "$kind $key" in
    '# branch.oid') head=$value ;;
    '# branch.head') [ "$value" = '(detached)' ] || branch=refs/heads/$value ;;
    ' ' | '# '*) ;;
    *)
      dirty=yes
      case $kind in 1 | '?') ;; u) conflict=yes ;; *) complaint=yes ;; esac
      case "$kind $key" in '1 '[!.][!.]) staged=yes ;; esac
      case $key$value in */ | */'"') inner=yes ;; esac
      ;;
  esac
done <<END
$listing
END
if wait "$recorded"; then dirty=yes inner=yes staged=yes; fi
if [ -z "$answered" ]; then
  check
  dirty=yes inner=yes staged=yes head= branch=$(g symbolic-ref -q HEAD)
  conflict=$(g ls-files -u | head -n 1)
fi
case $head in
  '' | *[!0-9a-f]*)
    dirty=yes
    head=$(g rev-parse -q --verify 'HEAD^{commit}') || {
      unborn || refuse "HEAD is no commit that can be read"
      [ "$purpose" = new ] || [ -n "$(g for-each-ref --count=1 refs/heads)" ] ||
        missing repository
    }
    ;;
esac
[ "$purpose" = aside ] || break_locks

# git is asked: where these are depends on its ref storage.
operation=
if [ -d "$dir/rebase-merge" ] || [ -d "$dir/rebase-apply" ]; then operation=rebase
else
  while read -r oid what; do
    [ "$what" = missing ] || operation=${operation:-$what}
  done <<END
$(printf '%s\n' 'MERGE_HEAD merge' 'CHERRY_PICK_HEAD cherry-pick' 'REVERT_HEAD revert' |
    g cat-file --batch-check='%(objectname) %(rest)')
END
  [ ! -e "$dir/BISECT_LOG" ] || operation=${operation:-bisect}
  operation=${operation:-${conflict:+conflict}}
fi

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
if [ -z "$dirty$operation" ] && [ ! -d "$common/lfs/objects" ] && report_unchanged; then
  $inventory
  wait
  say end ok
  exit 0
fi

sparse= author= email=
while read -r key value; do
  case $key in
    user.name) author=$value ;;
    user.email) email=$value ;;
    core.sparsecheckout) case $value in false | no | off | 0) sparse= ;; *) sparse=--sparse ;; esac ;;
  esac
done <<END
$(g config --get-regexp '^(user\.(name|email)|core\.sparsecheckout)$')
END

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
cp -p "$dir/index" "$index" 2>/dev/null || true >"$index"
cp -p "$index" "$index.before"
export GIT_INDEX_FILE="$index"
# Without an index a file that is ignored, but in HEAD, would count as deleted.
if [ ! -s "$index" ] || { [ -z "$answered" ] && ! g ls-files >/dev/null 2>&1; }; then
  [ ! -s "$index" ] || say note "the index could not be read and was made anew"
  rm -f "$index"
  [ -z "$head" ] || g read-tree "$head"
fi

take_lock() { (set -C; : >"$dir/index.lock") 2>/dev/null && locked=yes; }
lock() { # 0: locked and unchanged; 1: somebody holds it; 2: changed meanwhile
  tries=0
  until take_lock; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || return 1
    sleep 0.1
  done
  if [ -e "$dir/index" ]; then cmp -s "$dir/index" "$index.before"
  else [ ! -s "$index.before" ]
  fi || return 2
}

# Repositories inside this one do not travel: git lists an untracked one as a name with a slash at
# its end, and has recorded one that was added as a mode 160000. In lists of names, one a line,
# newlines of names are exchanged with NUL.
swap() { tr '\0\n' '\n\0'; }
printf ':/\0' >"$index.paths"
if [ -n "$inner" ]; then
  g ls-files -o --exclude-standard -z | swap | grep -a '/$' |
    sed 's/^/:(exclude,literal)/' | swap >>"$index.paths"
  say_nested
fi
# What was copied here to be ignored (place.sh) is not committed, whatever .gitignore says by now,
# unless HEAD has it: then it is a file like all others.
without_copies() {
  [ -s "$dir/info/daytona-copied" ] || return 0
  if [ -n "$head" ]; then g diff-index --cached --diff-filter=A --name-only -z "$head"
  else g ls-files -z
  fi | swap | grep -axFf "$dir/info/daytona-copied" | swap >"$index.copies"
  [ ! -s "$index.copies" ] || g --literal-pathspecs reset -q --pathspec-from-file="$index.copies" \
    --pathspec-file-nul 2>/dev/null
}
without_copies
if [ -n "$staged" ]; then
  staged=$(g write-tree 2>/dev/null)
  unmark "$index.marks"
fi

try() { # git add…: one file that cannot be read does not keep the others away
  g "$@" 2>"$index.complaint"
  status=$?
  [ "$status" -eq 0 ] && [ ! -s "$index.complaint" ] && return
  complaint=yes
  return "$status"
}
add_names() { # a list: what of it makes git give up is found by halves, and left
  tries=$((tries + 1))
  swap <"$1" >"$index.names"
  try --literal-pathspecs add -A --ignore-errors $sparse --pathspec-from-file="$index.names" \
    --pathspec-file-nul
  [ "$status" -gt 1 ] && [ "$tries" -lt 1000 ] || return
  count=$(wc -l <"$1")
  [ "$count" -gt 1 ] || return
  head -n "$((count / 2))" "$1" >"$1.a"
  tail -n "+$((count / 2 + 1))" "$1" >"$1.b"
  add_names "$1.a"
  add_names "$1.b"
}
# The files that are not as the index has them: one that is unlike its filter's output because there
# is no such program is not changed by that.
changed_names() { g $(relaxed) ls-files -z -m -o --exclude-standard; }
files_there() {
  xargs -0 -r sh -c 'for name; do
    case $name in
      */) ;;
      *) if [ -f "$name" ] || [ -L "$name" ]; then printf "%s\0" "$name"; fi ;;
    esac
  done' sh
}
closed_folders() {
  find . -name .git -prune -o -type d -exec sh -c 'for name; do
    if ! [ -r "$name" ] || ! [ -x "$name" ]; then printf "%s\0" "${name#./}"; fi
  done' sh {} + 2>/dev/null | swap | while IFS= read -r name; do
    g check-ignore -q -- "$name" || printf '%s/\n' "$name"
  done
}
# Names what is still not in the index, and why. Of a pipe or a socket there is nothing to keep.
say_left() {
  { changed_names | files_there | swap; closed_folders; } >"$index.left"
  left=$(wc -l <"$index.left")
  say left-count "$left"
  count=0
  while [ "$count" -lt "$left" ] && [ "$count" -lt 20 ]; do
    count=$((count + 1))
    name=$(sed -n "${count}p" "$index.left" | tr '\0' '\n'; echo .)
    name=${name%??}
    reason="it cannot be read"
    if [ -r "$name" ] && [ ! -d "$name" ]; then
      try --literal-pathspecs add -A --ignore-errors $sparse -- "$name"
      reason=$(sed -n 's/^fatal: //p' "$index.complaint" | one_line)
      reason=${reason:-$(head -n 1 "$index.complaint" | sed 's/^error: //' | one_line)}
      # git's own words for that depend on how soon it notices
      filter=$(g check-attr -z filter -- "$name" | tr '\0' '\n' | sed -n '$p')
      ! lacking | grep -qxF -- "$filter" || reason="the program of filter '$filter' is missing"
    fi
    say left "${reason:-it was just changed}	$name"
  done
}
try add -A --ignore-errors $sparse --pathspec-from-file="$index.paths" --pathspec-file-nul
if [ "$status" -gt 1 ]; then
  # Files as new as the index are compared whenever it is written, whatever is added (racy-git); a
  # filter that is missing would end each try.
  past=$(relaxed)
  if [ -n "$past" ]; then
    sleep 1
    g $past update-index -q --refresh
  fi
  # Those that git converts come last, but for those of which it is known that it cannot. (The line
  # "/", which is no name, is there because busybox's grep takes no empty list.)
  changed_names | swap | grep -av '/$' >"$index.all"
  swap <"$index.all" | g check-attr -z --stdin filter working-tree-encoding | swap >"$index.marked"
  sed -n 'N;N;/\nunspecified$/d;s/\n.*//p' "$index.marked" >"$index.converted"
  sed -nE "N;N;s,\nfilter\n($(lacking | tr '\n' '|')/)\$,,p" "$index.marked" >"$index.known"
  echo / | tee -a "$index.known" >>"$index.converted"
  grep -avxFf "$index.converted" "$index.all" >"$index.plain"
  grep -avxFf "$index.known" "$index.converted" >"$index.able"
  tries=0
  add_names "$index.plain"
  add_names "$index.able"
fi
without_copies
tree=$(g write-tree 2>"$index.why") ||
  give_up "git write-tree failed in the sandbox: $(one_line <"$index.why")"
[ -z "$complaint" ] || say_left
changed=yes
if [ -n "$head" ]; then
  [ "$tree" != "$(g rev-parse "$head^{tree}")" ] || changed=
else
  [ -n "$(g ls-files | head -n 1)" ] || changed=
fi

snapshot() { # parents as "-p OID"…
  GIT_COMMITTER_NAME=${author:-OpenCode} GIT_COMMITTER_EMAIL=${email:-opencode@localhost}
  GIT_AUTHOR_NAME=${author_name:-$GIT_COMMITTER_NAME}
  GIT_AUTHOR_EMAIL=${author_email:-$GIT_COMMITTER_EMAIL}
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

beside=$operation
[ "$purpose" != aside ] || beside=$operation$changed
if [ -z "$beside" ] && [ -n "$changed" ]; then
  lock
  case $? in
    1) operation=git beside=git ;;
    2) say busy index; exit 0 ;;
  esac
fi
pending=
if [ -n "$beside" ]; then
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
    else g update-ref -d "refs/daytona/$1"
    fi 2>/dev/null || { say busy refs; exit 0; }
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
if [ -d "$common/lfs/objects" ]; then
  say lfs "$(find "$common/lfs/objects" -type f | wc -l)"
fi
$inventory
wait
# If the agent never commits, no git of its own packs what these commits add. This one does so as
# often, and loses nothing.
set -- "$common"/objects/17/*
if [ -z "$inventory" ] && [ "$purpose" != aside ] && [ "$#" -gt 27 ]; then
  git $at -c safe.directory='*' -c core.hooksPath=/dev/null -c gc.pruneExpire=never \
    -c gc.reflogExpire=never -c gc.reflogExpireUnreachable=never gc --auto --quiet >/dev/null 2>&1
fi
say end ok
