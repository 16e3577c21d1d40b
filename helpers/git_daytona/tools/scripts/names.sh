# names: the files below the current directory, NUL-separated and relative to it. Not what git ignores, and nothing of .git.
g() { git -c safe.directory='*' -c core.fsmonitor=false "$@" 2>/dev/null; }
names() {
  if [ "$(g rev-parse --is-inside-work-tree)" = true ] && ! g check-ignore -q .; then
    g ls-files -z -c --exclude-standard
    # A repository within this one is listed by its name only, with a slash at the end.
    g ls-files -z -o --exclude-standard | grep -zv '/$'
    g ls-files -z -o --exclude-standard | grep -z '/$' |
      xargs -0 -r -I '{}' find './{}' -xdev -name .git -prune -o -type f -print0 2>/dev/null
  else
    find . -xdev -name .git -prune -o -type f -print0 2>/dev/null
  fi
}
# newest: of the names on standard input those of regular files, each once, as "SECONDS MODE NAME", the newest first.
newest() {
  if stat --printf= / 2>/dev/null; then sort -zu | xargs -0 -r stat --printf='%.9Y %f %n\0' -- 2>/dev/null
  else sort -zu | xargs -0 -r stat -c '%Y %f %n' -- 2>/dev/null | tr '\n' '\0'
  fi | grep -zE '^[^ ]+ 8[0-9a-f]{3} ' | sort -zrn
}
first() { tr '\0\n' '\n\0' | head -n "$1" | tr '\0\n' '\n\0'; } # the first N of NUL-separated names
