# Takes a pack in parts, and pushes what it holds to the project's repository as a push over ssh
# does. Arguments: marker of our lines, project directory, folder with the parts, object format,
# command of git's server, refspec.
mark=$1 folder=$3 apart=$3/git
cd -- "$2" || exit 125
g() { git -c safe.directory='*' -c core.hooksPath=/dev/null -c gc.auto=0 "$@"; }
# In a repository of its own first: what does not fit leaves nothing in the project's.
format=
[ "$4" = sha1 ] || format=--object-format=$4
mkdir -p -- "$folder" && g init -q --bare --template= $format "$apart" || exit 125
(cd -- "$(g rev-parse --git-path objects)" && pwd -P) >"$apart/objects/info/alternates" || exit 125
if [ -e "$folder/part.0000" ]; then
  cat "$folder"/part.* | g --git-dir="$apart" index-pack --stdin >/dev/null || exit 125
fi
g --git-dir="$apart" push --porcelain --receive-pack="$5" "$PWD" "$6" 2>&1
echo "$mark status $?"
rm -rf -- "$folder"
