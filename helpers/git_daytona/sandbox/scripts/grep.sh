# Lines that match, of the newest files first. Arguments: path; pattern; the same for grep -E;
# expression of file names, or nothing; how many. Prints "directory", "file" or "missing", or
# "pattern" for an invalid one; the path, or what is wrong with the pattern; the matches as NAME,
# control-A, NUMBER:LINE; and "end".
expand "$1"
pattern=$2 plain=$3 include=$4 most=$5
if command -v rg >/dev/null 2>&1; then
  rule=$pattern
  test_rule() { rg --no-config -e "$rule" - </dev/null; }
  which() { xargs -0 -r rg --no-config --no-messages -l0 -e "$rule" --; }
  show() {
    xargs -0 -r rg --no-config --no-messages --color=never --no-heading -j1 -nH0 \
      -m "$most" -e "$rule" --
  }
elif grep -Z a </dev/null || [ $? = 1 ]; then
  if printf a | grep -qP a; then dialect=-P rule=$pattern; else dialect=-E rule=$plain; fi
  test_rule() { grep "$dialect" -e "$rule" </dev/null; }
  which() { xargs -0 -r grep -lZI "$dialect" -e "$rule" --; }
  show() { xargs -0 -r grep -nHZI "$dialect" -m "$most" -e "$rule" --; }
else # busybox
  rule=$plain
  test_rule() { grep -E -e "$rule" </dev/null; }
  which() { xargs -0 -r grep -lE -e "$rule" -- | tr '\n' '\0'; }
  show() { # one file at a time, its name set before each line
    export rule most
    xargs -0 -r -n 1 sh -c '
      grep -nE -m "$most" -e "$rule" -- "$1" |
        while IFS= read -r row; do printf "%s\0%s\n" "$1" "$row"; done' sh
  }
fi
kind=missing
if [ -d "$path" ] && cd "$path"; then kind=directory
elif [ -f "$path" ] && cd "${path%/*}/"; then kind=file
fi
complaint=$(test_rule 2>&1)
if [ $? -gt 1 ]; then
  echo pattern
  printf %s "$complaint" | one_line
  echo end
  exit 0
fi
echo $kind
printf %s "$path" | one_line
if [ $kind != missing ]; then
  if [ $kind = file ]; then printf '%s\0' "${path##*/}"
  else names | if [ -n "$include" ]; then grep -zaE -e "$include"; else cat; fi
  fi | which | newest "$most" | show |
    # busybox's cut ends lines at NUL, too
    head -n "$most" | tr '\0' '\001' | LC_ALL=C cut -b 1-6000 | one_line
fi
echo end
