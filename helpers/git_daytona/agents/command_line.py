"""Command lines that an agent's shell runs for us. Which shell that is we do not know."""

import re
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import git_daytona

LONGEST = 100_000
"""Bytes of a command line: Linux takes 131072 in one argument."""
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%'\\!")


def program() -> str:
    """Return the path of this installation's git-daytona, or its name. Links stay: what pipx, uv or
    a package manager links to outlives an update."""
    package = Path(git_daytona.__file__).absolute().parent
    places = (package.parents[1] / "bin", Path(sys.executable).absolute().parent)
    found = (place / "git-daytona" for place in places)
    return next((str(path) for path in found if path.is_file()), None) or (
        shutil.which("git-daytona") or "git-daytona"
    )


def encoded(text: str) -> str:
    """Return the text as one word for any shell, with ``%`` and two digits for every byte that some
    shell does not take as it is in single quotes.

    POSIX shells end them at the next one; fish knows the backslash in them, csh the exclamation
    mark and no line feed; PowerShell takes typographic quotes for quotes. Raises UnicodeEncodeError
    for half a surrogate pair.
    """
    return f"'{quote(text, safe=_PLAIN, errors='strict')}'"


def decoded(word: str) -> str:
    """Return the text that encoded() was given, without the quotes. Raises ValueError."""
    if re.search(r"%(?![0-9A-F]{2})", word):
        raise ValueError("a % without two digits")
    return unquote_to_bytes(word).decode()


def exec_line(session: str, directory: Path, command: str) -> str:
    """Return the line that runs a command in a session's sandbox, for a directory's project."""
    if "\0" in command:
        raise ValueError("the command holds a NUL")
    words = (shlex.quote(program()), "exec --for-agent", encoded(str(directory)), session, "--")
    line = " ".join((*words, encoded(command)))
    if len(line) > LONGEST:
        raise ValueError("the command is too long; write it into a file first")
    return line
