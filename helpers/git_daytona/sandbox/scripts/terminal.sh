# Prints the directory that a terminal is to begin in, "-" for the home directory; and, if there is a
# command, a script for it, which says the mark and removes itself. Arguments: mark; directory; the
# one to take where that is missing; the command; the script's name.
for place in "$2" "$3" -; do [ ! -d "$place" ] || break; done
echo "$place"
[ -n "$4" ] || exit 0
file=$HOME/.cache/git-daytona-exec/$5
quoted=$(printf '%s\n' "$4" | sed "s/'/'\\\\''/g")
umask 077
mkdir -p "${file%/*}" &&
  printf '%s\n' 'rm -f -- "$0"' "printf %s $1" "c='unset c; $quoted'" 'export c' \
    "exec sh -c 'eval \"\$c\"'" \
    >"$file" && echo "$file"
