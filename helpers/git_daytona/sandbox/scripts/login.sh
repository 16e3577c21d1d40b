# A login shell in the project directory, $0, that reads our input. The gateway sets no SHELL.
cd "$0" 2>/dev/null || cd
for shell in "$SHELL" /bin/bash /usr/bin/bash; do [ ! -x "$shell" ] || exec "$shell" -l; done
exec sh -l
