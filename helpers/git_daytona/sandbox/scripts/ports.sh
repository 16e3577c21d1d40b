# listening: prints the TCP ports, in hexadecimal, that processes of this sandbox's user listen on.
# A socket counts if a process that we may look into holds it: a sandbox may see sockets that are
# not its own (a shared network, Daytona's daemon).
listening() {
  set --
  for table in /proc/net/tcp /proc/net/tcp6; do [ ! -r "$table" ] || set -- "$@" "$table"; done
  # First the links (`… -> socket:[123]`), then the tables.
  ls -ln /proc/[0-9]*/fd 2>/dev/null | awk '
    $NF ~ /^socket:\[[0-9]+\]$/ { ours[substr($NF, 9, length($NF) - 9)] = 1; next }
    $4 == "0A" && $10 in ours {
      split($2, address, ":")
      if (!printed[address[2]]++ && ++count <= 100) print address[2]
    }' - "$@"
}
