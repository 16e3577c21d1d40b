# Takes LFS objects, as parts of a tar archive, into the store of git-lfs, and puts them into the
# files that point to them. Arguments: marker of our lines, project directory, folder with the parts.
mark=$1 folder=$3
cd -- "$2" || exit 125
g() { git -c safe.directory='*' -c core.hooksPath=/dev/null "$@"; }
objects=$(g rev-parse --git-common-dir)/lfs/objects
mkdir -p -- "$objects" "$folder/objects" &&
  cat "$folder"/part.* | tar -xof - -C "$folder/objects" || exit 125
find "$folder/objects" -type f -exec sha256sum {} + | while read -r digest name; do
  [ "${name##*/}" = "$digest" ] || rm -f -- "$name"
done
cp -R "$folder/objects/." "$objects/" || exit 125
rm -rf -- "$folder"
[ -n "$(g config filter.lfs.clean)" ] || g lfs install --local --skip-repo >/dev/null
g lfs checkout >/dev/null 2>&1
echo "$mark done"
