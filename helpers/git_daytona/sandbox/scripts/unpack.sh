# Unpacks parts of a tar archive, and removes them. Arguments: marker of our lines, project
# directory, directory to unpack in, folder with the parts.
cd -- "$2" 2>/dev/null || cd || exit 125
cd -- "$3" || exit 125
cat "$4"/part.* | tar -xof - && echo "$1 done"
rm -rf -- "$4"
