# Gives LFS objects, one behind the other in parts, and says which. Arguments: marker of our lines,
# project directory, folder for the parts, which has the list as such (digest and size, a line for
# each), bytes of a part, the most bytes of all.
mark=$1 folder=$3 size=$4 most=$5
cd -- "$2" || exit 125
objects=$(git -c safe.directory='*' rev-parse --git-common-dir)/lfs/objects
umask 077
cat "$folder"/part.* >"$folder/list" && rm -f "$folder"/part.* || exit 125
while read -r digest bytes; do
  rest=${digest#??}
  object=$objects/${digest%"$rest"}/${rest%"${rest#??}"}/$digest
  if [ -f "$object" ] && [ "$(wc -c <"$object")" -eq "$bytes" ]; then
    echo "$mark object $digest"
    printf '%s\n' "$object" >&3
  fi
done <"$folder/list" 3>"$folder/found"
while IFS= read -r object; do cat -- "$object"; done <"$folder/found" | head -c "$most" |
  split -b "$size" -a 4 - "$folder/part."
echo "$mark packed"
for part in "$folder"/part.*; do [ ! -f "$part" ] || echo "$mark part ${part##*/}"; done
