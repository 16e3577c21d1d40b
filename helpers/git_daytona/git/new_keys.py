"""Keys that a repository's configuration does not have yet, added together: a process of git's for
each would be most of what a session's start takes on this machine."""

import errno
import os
import re
from collections.abc import Mapping

from git_daytona.base.run import run
from git_daytona.git import environment
from git_daytona.git.repository import LOCAL_SECONDS, LOCKED, Repository, past_lock, to_bytes

# Under git's own lock: a file beside it, which takes its place. It is a process of its own, as git
# would be: it comes to its end if ours is killed, and no lock is left in the user's repository. Not
# synced to the disk, as git does not.
_ADD = """
trap '' HUP INT TERM
umask 077
lock() { (set -C; : >"$1.lock"); }
lock "$1" 2>/dev/null || { [ ! -e "$1.lock" ] || exit 255; lock "$1" || exit; }
if { cat "$1" && { [ -z "$(tail -c 1 "$1")" ] || echo; } && printf %s "$3"; } >"$1.lock" &&
  chmod "$2" "$1.lock" && mv -f "$1.lock" "$1"
then exit; fi
rm -f "$1.lock"
exit 1
"""


def _quoted(text: str) -> str:
    """A text between quotation marks, as git-config(1) has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _value(text: str) -> str:
    return text if re.fullmatch(r"""[^\s"\\;#]+""", text) else _quoted(text)


def add(repository: Repository, sections: Mapping[str, Mapping[str, str]]) -> None:
    """Add keys at the end of .git/config, all or none; what is there stays as it is. A section is
    named as for git-config(1): ``remote.sandbox-1``. Raises OSError."""
    text = ""
    for section, values in sections.items():
        kind, _, name = section.partition(".")
        lines = (f"\t{key} = {_value(value)}\n" for key, value in values.items())
        text += f"[{kind} {_quoted(name)}]\n{''.join(lines)}"
    path = (repository.common_dir / "config").resolve()
    mode = f"{path.stat().st_mode & 0o7777:o}"
    argv = ("sh", "-c", _ADD, "sh", str(path), mode, os.fsdecode(to_bytes(text)))
    added = past_lock(lambda: run(argv, env=environment.base(), timeout=LOCAL_SECONDS))
    if added.status == LOCKED:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if added.status != 0:
        raise OSError(errno.EIO, (added.complaint.splitlines() or ["it cannot be written"])[-1])
