# names: the files below the current directory, NUL-separated and relative to it. Not what git
# ignores, and nothing of .git.
g() { git -c safe.directory='*' -c core.fsmonitor=false "$@"; }
names() {
  if [ "$(g rev-parse --is-inside-work-tree)" = true ] && ! g check-ignore -q .; then
    g ls-files -z -c --exclude-standard
    # A repository within this one is listed by its name only, with a slash at the end.
    g ls-files -z -o --exclude-standard | grep -zav '/$'
    g ls-files -z -o --exclude-standard | grep -za '/$' |
      xargs -0 -r -I '{}' find './{}' -xdev -name .git -prune -o -type f -print0
  else
    find . -xdev -name .git -prune -o -type f -print0
  fi
}
# newest: of the names on standard input those of regular files, each once, the newest N first.
newest() {
  if stat --printf= /; then sort -zu | xargs -0 -r stat --printf='%.9Y %f %n\0' --
  else sort -zu | xargs -0 -r stat -c '%Y %f %n' -- | tr '\n' '\0' # busybox
  fi | grep -zaE '^[^ ]+ 8[0-9a-f]{3} ' | sort -zrn | first "$1" 'cut -d " " -f 3-'
}
first() { # N: the first so many of NUL-separated names; each through a filter, if there is one
  tr '\0\n' '\n\0' | head -n "$1" | eval "${2:-cat}" | tr '\0\n' '\n\0'
}
