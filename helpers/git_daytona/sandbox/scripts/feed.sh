# Hands a piece of its input to a command (runner.sh). Arguments: id; the piece's number; the piece,
# as base64; or the file that it is in; "more", or "end" after the last one. Prints the id when it is
# there, or not wanted.
run=$HOME/.cache/git-daytona-exec/$1
if [ ! -d "$run" ] || [ -s "$run/status" ]; then :
elif [ -n "$4" ]; then cat "$4" >"$run/in.new" || exit
else printf %s "$3" | base64 -d >"$run/in.new" || exit
fi
if [ -e "$run/in.new" ]; then
  mv "$run/in.new" "$run/in.$2"
  [ "$5" = more ] || : >"$run/in.end"
fi
[ -z "$4" ] || rm -rf "$4"
echo "$1"
