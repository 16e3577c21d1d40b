# Goes before the tools' other scripts. A path of the model begins with / or ~; "~" is the
# sandbox's home.
exec 2>/dev/null # the answer is on standard output alone; the toolbox mixes both
expand() { # path → $path
  case $1 in
    "~") path=$HOME ;;
    "~/"*) path=$HOME/${1#"~/"} ;;
    *) path=$1 ;;
  esac
}
one_line() { base64 | tr -d '\n'; echo; } # anything, as one line of the answer

state() { # of a file: its size and a digest of its content
  digest=$({ sha1sum || md5sum || cksum; } <"$1")
  echo $(($(wc -c <"$1"))) "${digest%% *}"
}
# describe: what lies at a path, and what is in it if that is at most so many bytes. Three lines:
# "file SIZE DIGEST", "directory", "other", "unreadable" or "missing"; the path; the content.
describe() { # path, most bytes
  expand "$1"
  if [ -d "$path" ]; then echo directory
  elif [ -f "$path" ] && [ ! -r "$path" ]; then echo unreadable
  elif [ -f "$path" ]; then
    echo "file $(state "$path")"
  elif [ -e "$path" ] || [ -L "$path" ]; then echo other
  else echo missing
  fi
  printf %s "$path" | one_line
  if [ -f "$path" ] && [ -r "$path" ] && [ "$(wc -c <"$path")" -le "$2" ]; then
    one_line <"$path"
  else echo
  fi
}
