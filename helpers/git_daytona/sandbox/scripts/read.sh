# What a path holds, as far as it will be shown. Arguments: path; first line; lines; bytes of lines;
# bytes of an image or PDF. Says its kind; the path; then for a directory its entries
# (NUL-separated), for a missing one those of its folder, for a file: SIZE LINES; its first 4096
# bytes; its type by them; its lines from the first one on (long ones cut) or, of an image or PDF,
# all of it. And "end".
expand "$1"
entries() { # directory
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -d "$entry" ]; then printf '%s/\0' "${entry##*/}"
    elif [ -e "$entry" ] || [ -L "$entry" ]; then printf '%s\0' "${entry##*/}"
    fi
  done | head -c 1000000 | one_line
}
hexadecimal() { od -An -tx1 | tr -d ' \n'; }
say() { echo "$1"; printf %s "$path" | one_line; }
if [ -d "$path" ] && [ -r "$path" ]; then say directory; entries "${path%/}"
elif [ ! -e "$path" ]; then say missing; entries "${path%/*}"
elif [ ! -r "$path" ]; then say unreadable
elif [ ! -f "$path" ]; then say other
else
  say file
  first=$2 count=$3 send=$4 most=$5
  set -- $(wc -lc <"$path")
  lines=$1 size=$2
  if [ "$size" -gt 0 ] && [ "$(tail -c 1 <"$path" | hexadecimal)" != 0a ]; then
    lines=$((lines + 1))
  fi
  echo $size $lines
  head -c 4096 <"$path" | one_line
  case $(head -c 12 <"$path" | hexadecimal) in
    89504e470d0a1a0a*) mime=image/png ;;
    ffd8ff*) mime=image/jpeg ;;
    47494638*) mime=image/gif ;;
    52494646????????57454250*) mime=image/webp ;;
    255044462d*) mime=application/pdf ;;
    *) mime=text/plain ;;
  esac
  echo $mime
  if [ $mime = text/plain ]; then
    tail -n "+$first" <"$path" | head -n "$count" | LC_ALL=C cut -b 1-8010 |
      head -c "$send" | one_line
  elif [ "$size" -le "$most" ]; then one_line <"$path"
  else echo
  fi
fi
echo end
