# Says what lies at each path, and what is in it. Arguments: most bytes of a file to send, path…
most=$1
shift
for name; do describe "$name" "$most"; done
echo end
