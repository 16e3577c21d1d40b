# Runs a script that says records, and prints them as one line: each ends with NUL, which no name
# holds, and together they are base64, because the toolbox takes what is printed for text, and others
# (a profile, git) print there, too. Arguments: script, marker before the line, arguments of the
# script…
say() { printf '%s %s\0' "$1" "$2"; }
give_up() { say error "$1"; exit 0; }
one_line() { tr '\n\t' '  ' | cut -c1-400; }
script=$1
mark=$2
shift 2
printf '\n%s %s\n' "$mark" "$( (eval "$script") | base64 | tr -d '\n')"
