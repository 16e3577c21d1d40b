# Says what lies at each path, and what is in it. Arguments: most bytes of a file to send, path…
# Per path three lines: "file SIZE CRC", "directory", "other", "unreadable" or "missing"; the path; the content (base64).
most=$1
shift
for name; do
  expand "$name"
  if [ -d "$path" ]; then echo directory
  elif [ -f "$path" ] && [ ! -r "$path" ]; then echo unreadable
  elif [ -f "$path" ]; then
    sum=$(cksum <"$path")
    echo "file ${sum#* } ${sum%% *}"
  elif [ -e "$path" ]; then echo other
  else echo missing
  fi
  printf %s "$path" | one_line
  if [ -f "$path" ] && [ -r "$path" ] && [ "$(wc -c <"$path")" -le "$most" ]; then one_line <"$path"; else echo; fi
done
echo end
