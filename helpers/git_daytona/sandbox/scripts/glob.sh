# The newest files that match. Arguments: directory; expression (grep -E); how many; "newest", or
# "list" for the first by name; expression of what to leave out, or nothing. Says "directory",
# "file" or "missing"; the path; the names (NUL-separated); and "end".
expand "$1"
kind=missing
if [ -d "$path" ] && cd "$path"; then kind=directory; elif [ -e "$path" ]; then kind=file; fi
echo $kind
printf %s "$path" | one_line
if [ $kind = directory ]; then
  matching() { names | grep -zaE -e "$2" | if [ -n "$5" ]; then grep -zavE -e "$5"; else cat; fi; }
  if [ "$4" = newest ]; then matching "$@" | newest "$3"
  else matching "$@" | sort -zu | first "$3"
  fi | one_line
fi
echo end
