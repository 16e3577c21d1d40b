# Packs what the sandbox's branches, and what a sync left under refs/daytona, hold beyond the commits
# that the other side has, in parts. Arguments: marker of our lines, project directory, folder for
# the parts, bytes of a part, the most bytes of all, those commits.
mark=$1 folder=$3 size=$4 most=$5
cd -- "$2" || exit 125
shift 5
g() { git -c safe.directory='*' -c core.quotePath=true -c pack.packSizeLimit=0 "$@"; }
wanted() {
  g for-each-ref --format='%(objectname)' refs/heads refs/daytona
  for oid; do echo "$oid"; done | g cat-file --batch-check='^%(objectname)' | grep -v ' missing$'
}
umask 077
mkdir -- "$folder" && { wanted "$@" | g pack-objects --revs --thin --stdout -q --delta-base-offset
  echo "$?" >"$folder/status"; } | head -c "$most" | split -b "$size" -a 4 - "$folder/part."
if [ "$(cat "$folder"/part.* | wc -c)" -ge "$most" ]; then echo "$mark large"; exit 0; fi
[ "$(cat "$folder/status")" = 0 ] || exit 125
echo "$mark packed"
for part in "$folder"/part.*; do echo "$mark part ${part##*/}"; done
