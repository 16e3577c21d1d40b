# Reports the refs as they are. Arguments: project directory, most refs.
cd "$1" || exit
check
g for-each-ref --count="$2" --format='ref %(objectname) %(refname)%00' refs/heads refs/daytona &&
  say end ok
