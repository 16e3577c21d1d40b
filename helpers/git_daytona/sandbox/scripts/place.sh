# Unpacks files that git is to ignore, and removes the archive. Arguments: marker of our lines;
# project directory; folder with the archive's parts; the files' names; patterns for them, both a
# line each.
cd -- "$2" || exit 125
add() { # a file of lines; lines: those that it lacks
  printf '%s\n' "$2" | while IFS= read -r line; do
    grep -qxF -e "$line" "$1" 2>/dev/null || printf '%s\n' "$line" >>"$1" || exit
  done
}
mkdir -p .git/info && add .git/info/exclude "$5" && add .git/info/daytona-copied "$4" &&
  cat "$3"/part.* | tar -xpof - && echo "$1 done"
rm -rf -- "$3"
