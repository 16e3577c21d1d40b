# Changes files, all or none. Arguments per file: "write" or "delete"; path; what must be there ("SIZE CRC", "-" for nothing); file whose
# mode a new one takes, or "-"; "chunks" and how many, then these (base64), or "staged" and a file that holds the content.
# Says "conflict N" (the file N, from 0, is not what it should be), "failed N complaint" or "done".
work=$(mktemp -d) || { echo "failed 0 the sandbox has no room for temporary files"; exit 0; }
trap 'rm -rf "$work"' EXIT
count=0
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
    mv -- "$number" "$work/$count.new" || { echo "failed $count the upload got lost"; exit 0; }
  else
    : >"$work/$count.base64"
    while [ "$number" -gt 0 ]; do printf %s "$1" >>"$work/$count.base64"; shift; number=$((number - 1)); done
    base64 -d <"$work/$count.base64" >"$work/$count.new" || { echo "failed $count the sandbox has no room for temporary files"; exit 0; }
  fi
  if [ "$expected" = - ]; then
    if [ -e "$path" ] || [ -L "$path" ]; then echo "conflict $count"; exit 0; fi
  else
    found=$(cksum <"$path" 2>/dev/null)
    if [ "${found#* } ${found%% *}" != "$expected" ]; then echo "conflict $count"; exit 0; fi
    cp -- "$path" "$work/$count.old" || { echo "failed $count the sandbox has no room for temporary files"; exit 0; }
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
  done 2>/dev/null
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
    echo "failed $at $(printf %s "$complaint" | tr '\n' ' ')"
    exit 0
  fi
  at=$((at + 1))
done
echo done
