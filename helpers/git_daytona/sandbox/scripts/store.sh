# Changes files, all or none. Arguments: most bytes of a file to send; then per file: "write" or
# "delete"; path; what must be there ("SIZE DIGEST", "-" for nothing); the file whose mode a new one
# takes, or "-"; "chunks" and how many, then these (base64), or "staged" and a file that holds the
# content. Says "conflict N" (the file N, from 0, is not what it should be: what it is follows),
# "failed N complaint" or "done"; and "end".
most=$1
shift
leave() { echo "$1"; echo end; exit 0; }
no_room() { leave "failed $count the sandbox has no room for temporary files"; }
count=0
work=$(mktemp -d) || no_room
trap 'rm -rf "$work"' EXIT
conflict() { echo "conflict $count"; describe "$path" "$most"; echo end; exit 0; }
while [ $# -gt 0 ]; do
  eval "action_$count=\$1"
  expand "$2"
  eval "path_$count=\$path"
  expected=$3
  expand "$4"
  eval "like_$count=\$path"
  expand "$2"
  kind=$5 number=$6
  shift 6
  if [ "$kind" = staged ]; then
    mv -- "$number" "$work/$count.new" || leave "failed $count the upload got lost"
  else
    : >"$work/$count.base64"
    while [ "$number" -gt 0 ]; do
      printf %s "$1" >>"$work/$count.base64"
      shift
      number=$((number - 1))
    done
    base64 -d <"$work/$count.base64" >"$work/$count.new" || no_room
  fi
  if [ "$expected" = - ]; then
    if [ -e "$path" ] || [ -L "$path" ]; then conflict; fi
  else
    if [ "$(state "$path")" != "$expected" ]; then conflict; fi
    cp -- "$path" "$work/$count.old" || no_room
  fi
  count=$((count + 1))
done

undo() { # the files before number $1 as they were
  last=$1
  while [ "$last" -ge 0 ]; do
    eval "path=\$path_$last"
    if [ -e "$work/$last.old" ]; then
      [ -e "$path" ] || cp -p -- "$work/$last.old" "$path"
      cat "$work/$last.old" >"$path"
    elif [ -e "$work/$last.made" ]; then rm -f -- "$path"
    fi
    last=$((last - 1))
  done
}

change() { # number
  eval "path=\$path_$1 like=\$like_$1 action=\$action_$1"
  if [ "$action" = delete ]; then rm -f -- "$path"; return; fi
  if [ ! -e "$path" ]; then
    mkdir -p -- "${path%/*}/" || return
    : >"$work/$1.made"
    if [ "$like" != - ]; then cp -p -- "$like" "$path" || return; fi
  fi
  # Into the file that is there: it keeps its mode, owner and links.
  cat "$work/$1.new" >"$path"
}

at=0
while [ "$at" -lt "$count" ]; do
  if ! complaint=$(change "$at" 2>&1); then
    undo "$at"
    leave "failed $at $(printf %s "$complaint" | tr '\n' ' ')"
  fi
  at=$((at + 1))
done
leave done
