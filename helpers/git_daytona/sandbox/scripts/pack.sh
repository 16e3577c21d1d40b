# Packs a file or directory into parts of a tar archive, and prints its kind and the parts' names.
# Arguments: marker of our lines, project directory, source, folder for the parts, bytes of a part,
# the most bytes of all.

# What killed copies left.
find /tmp -maxdepth 1 -name '.git-daytona-*' -mmin +60 -exec rm -rf {} + 2>/dev/null
cd -- "$2" 2>/dev/null || cd || exit 125
if [ -d "$3" ]; then
  cd -- "$3" && name=$(pwd -P) && name=${name##*/} && [ -n "$name" ] && cd .. || exit 125
  kind=directory
elif [ -f "$3" ]; then
  source=$(readlink -f -- "$3") && cd -- "${source%/*}/" && name=${source##*/} || exit 125
  kind=file
else echo "$1 missing"; exit 0; fi
umask 077
mkdir -- "$4" && { tar -cf - -- "$name"; echo "$?" >"$4/status"; } | head -c "$6" |
  split -b "$5" -a 4 - "$4/part."
parts=0
for part in "$4"/part.*; do parts=$((parts + 1)); done
if [ "$((parts * $5))" -ge "$6" ]; then echo "$1 large"; exit 0; fi
[ "$(cat "$4/status")" -le 1 ] || exit 125
echo "$1 $kind"
for part in "$4"/part.*; do echo "$1 part ${part##*/}"; done
