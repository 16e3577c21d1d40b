# Reports the refs as they are. Arguments: project directory, marker of our lines, most refs.
cd "$1" || exit
git -c safe.directory='*' for-each-ref --count="$3" --format="$2 ref %(objectname) %(refname)" \
  refs/heads refs/daytona && echo "$2 end ok"
