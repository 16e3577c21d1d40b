# Sourced by bin/demo and bin/test, with $program and $root set: sees that git, ssh and Python are
# there and new enough, and that $root/.venv holds what pyproject.toml asks for. POSIX sh;
# tests/develop/install.py does the installing.

# These two send even an isolated Python (-I) elsewhere.
unset PYTHONEXECUTABLE __PYVENV_LAUNCHER__

# The suite's exit status for a missing program (errors.py).
MISSING=12

# at_least VERSION MAJOR MINOR
at_least() {
  _rest=${1#*.}
  _major=${1%%.*} _minor=${_rest%%[!0-9]*}
  case ${_major}x${_minor} in *[!0-9x]* | x* | *x) return 1 ;; esac
  [ "$_major" -gt "$2" ] || { [ "$_major" -eq "$2" ] && [ "$_minor" -ge "$3" ]; }
}

# Sets $python to a Python that is new enough; -I keeps PYTHON* and the working directory out of it.
find_python() {
  for python in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      return 0
    fi
  done
  return 1
}

# lacking WHAT DEBIAN-PACKAGE…
lacking() {
  missing="${missing:+$missing, }$1"
  shift
  packages="$packages $*"
}

check_programs() {
  missing='' packages=''
  _git=$(LC_ALL=C git --version 2>/dev/null) || _git=''
  _git=${_git#git version }
  at_least "$_git" 2 36 || lacking 'git 2.36 or newer' git
  # The version is on stderr.
  _ssh=$(ssh -V 2>&1) || _ssh=''
  case $_ssh in OpenSSH_[0-9]*) _ssh=${_ssh#OpenSSH_} ;; *) _ssh='' ;; esac
  at_least "$_ssh" 8 7 || lacking 'OpenSSH 8.7 or newer' openssh-client
  if [ -z "$installed" ]; then
    if ! find_python; then
      lacking 'Python 3.11 or newer' python3 python3-venv
    elif ! "$python" -I -c 'import ensurepip, venv' >/dev/null 2>&1; then
      lacking "Python's venv module" python3-venv
    fi
  fi
  if [ -n "$missing" ]; then
    printf '%s: error: missing: %s\nhint: install it (Debian: apt install%s)\n' \
      "$program" "$missing" "$packages" >&2
    exit "$MISSING"
  fi
}

# The stamp is written when an installation is complete. It changes with pyproject.toml, and with
# the path: an editable installation of a checkout that was moved still points to the old place.
ready() {
  [ -f "$root/.venv/stamp" ] && [ "$(cat "$root/.venv/stamp")" = "$stamp" ] &&
    "$root/.venv/bin/python" -I -c 'import git_daytona' >/dev/null 2>&1
}

stamp="$(cksum <"$root/pyproject.toml") $root"
installed=''
if ready; then installed=yes; fi
check_programs
if [ -z "$installed" ]; then
  "$python" -I "$root/tests/develop/install.py" "$program" "$root" "$stamp" || exit
fi
