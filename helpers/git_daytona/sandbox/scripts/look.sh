# What report.sh and inventory.sh share: both work on a copy of an index, GIT_INDEX_FILE, and with g.
inventory= # a function that the report calls at its end

# Takes the marks assume-unchanged and skip-worktree (git-update-index(1)) from the files that are
# there: git would miss the edits in them. Those of which nothing is there stay as they are: they are
# outside of a sparse checkout.
unmark() { # file for the names
  g ls-files -v -z | tr '\0\n' '\n\0' | grep -a '^[a-zS] ' >"$1" || return 0
  for bit in '[a-z]:assume-unchanged' '[Ss]:skip-worktree'; do
    grep -a "^${bit%%:*} " "$1" | cut -c 3- | tr '\n\0' '\0\n' | there >"$1.${bit#*:}"
    g update-index "--no-${bit#*:}" -z --stdin <"$1.${bit#*:}" 2>/dev/null
  done
}
remark() { # what unmark was given
  for bit in assume-unchanged skip-worktree; do
    [ ! -s "$1.$bit" ] || g update-index "--$bit" -z --stdin <"$1.$bit" 2>/dev/null
  done
}
there() { # of NUL-separated paths those that are there
  xargs -0 -r sh -c 'for path; do
    if [ -e "$path" ] || [ -L "$path" ]; then printf "%s\0" "$path"; fi
  done' sh
}

# What git prints in quotes, as it is. A name that ends with a newline does not come here.
unquote() {
  case $1 in
    '"'*'"') printf -- "$(printf %s "$1" | sed 's/%/%%/g; s/^"//; s/"$//; s/\\"/"/g')" ;;
    *) printf %s "$1" ;;
  esac
}

common_dir() { cd "$(g rev-parse --git-common-dir)" && pwd -P; } # of all worktrees, in a subshell

# Of a repository inside the project what it alone has: a commit that no remote has, or only one that
# is in the sandbox, too; worktrees of its own.
only_there() {
  g rev-list --max-count=1 --all --reflog --not $(
    g config --get-regexp '^remote\..*\.url$' | while read -r key url; do
      case ${url%%/*} in
        file:*) ;;
        *:*) key=${key#remote.} && echo "--remotes=${key%.url}" ;;
      esac
    done
  )
  ls -d "$(g rev-parse --git-common-dir)"/worktrees/* 2>/dev/null
}
# Whether it holds work that goes with neither a sync nor, if there is an inventory, with that: what
# it alone has, or files that differ from its HEAD. What cannot be found out is work.
own_work() ( # path
  ours=$(common_dir) && cd "./$1" 2>/dev/null || exit 0
  unset GIT_INDEX_FILE
  at=
  [ "$(g rev-parse --show-toplevel)" = "$(pwd -P)" ] || exit 0
  if [ "$(common_dir)" = "$ours" ]; then # a worktree of the project's own
    [ -z "$inventory" ] || exit 1
    only_there() { g rev-list --max-count=1 HEAD --not --branches; }
  fi
  { g rev-parse -q --verify 'HEAD^{commit}' >/dev/null || echo unborn
    g ls-files -v | grep -a '^[a-zS]'
    g status --porcelain --untracked-files=all --ignore-submodules=none
    only_there
  } 2>&1 | grep -q .
)
# The repositories of which something is here, quoted by git: untracked ones, and recorded ones, in
# which git sees no files even if they are repositories no more.
repositories() {
  g ls-files -o --exclude-standard | grep '/"\{0,1\}$'
  g ls-files -s | sed -n 's/^160000 [0-9a-f]* [0-9]	//p' | while read -r name; do
    if [ -n "$(ls -A "./$(unquote "$name")" 2>/dev/null)" ]; then
      printf '%s\n' "$name" | sed 's|"$|/"|; t
        s|$|/|'
    fi
  done
}
say_nested() { # what goes before the names
  looked=0
  repositories | while read -r name; do
    looked=$((looked + 1))
    if [ -z "$1" ] && travels "$(unquote "$name")"; then continue
    elif [ "$looked" -gt 100 ] || own_work "$(unquote "$name")"; then say nested "$1$name"
    elif [ -n "$inventory" ]; then
      (at= && cd "./$(unquote "$name")" && [ "$(common_dir)" != "$common" ] && say_ignored "$1$name")
    fi
  done
}
