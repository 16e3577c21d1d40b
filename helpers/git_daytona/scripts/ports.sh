# listening: prints the TCP ports, in hexadecimal, that processes of this sandbox's user listen on. A socket counts if a process that
# we may look into holds it: a sandbox may see sockets that are not its own (a shared network, Daytona's daemon).
listening() {
  held=$(ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | sort -u | tr '\n' ' ')
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    awk -v held="$held" 'BEGIN { n = split(held, inodes, " "); for (i = 1; i <= n; i++) ours[inodes[i]] = 1 }
      $4 == "0A" && $10 in ours { split($2, address, ":"); print address[2] }' | sort -u | head -n 100
}
