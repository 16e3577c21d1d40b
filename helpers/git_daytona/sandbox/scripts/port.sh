# Waits until something listens on a TCP port. Arguments: port, most seconds. Says "open" or
# "closed".
wanted=$(printf ':%04X' "$1")
tries=$(($2 * 5))
while :; do
  # The file proc(5) describes: local address and port in hexadecimal, state 0A for listening.
  if cat /proc/net/tcp /proc/net/tcp6 |
    awk -v port="$wanted" '$4 == "0A" && $2 ~ port "$" { found = 1 } END { exit !found }'; then
    echo open
    exit 0
  fi
  [ "$tries" -gt 0 ] || break
  tries=$((tries - 1))
  sleep 0.2
done
echo closed
