# Prints what a path is. Arguments: marker of our lines, project directory, path.

# What killed copies left.
find /tmp -maxdepth 1 -name '.git-daytona-*' -mmin +60 -exec rm -rf {} + 2>/dev/null
cd -- "$2" 2>/dev/null || cd || exit 125
if [ -d "$3" ]; then echo "$1 directory"
elif [ -e "$3" ]; then echo "$1 file"
else echo "$1 missing"; fi
