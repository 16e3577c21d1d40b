"""What ``--help`` and ``--version`` print, without click: loading that takes three times as long as
Python's own start.

The texts are files in cli/help, one per program and command, that ``tests/develop/helptexts.py``
has click write; a test holds them current. Imports next to nothing: ``typing`` alone would double
the time.
"""

import os

from git_daytona import __version__

PROGRAMS = ("git-daytona", "daytona-token", "daytona-pin", "daytona-local")
FOLDER = os.path.join(os.path.dirname(__file__), "help")


def name_of(program: str, words: list[str]) -> str:
    """The file of a program's help (no words) or of one of its commands'."""
    return ".".join((program, *words)) + ".txt"


def text(program: str, arguments: list[str]) -> str | None:
    """What the arguments ask for when they are ``--version``, or ``--help`` or ``-h`` after a
    command or nothing; None for all others, and for a command that there is no text of: click has
    the answer."""
    if program not in PROGRAMS or not arguments:
        return None
    *words, last = arguments
    if last == "--version" and not words:
        return f"{program} {__version__}\n"
    if last not in ("-h", "--help") or not all(
        word.isascii() and word.replace("-", "a").isalnum() for word in words
    ):
        return None
    try:
        with open(os.path.join(FOLDER, name_of(program, words)), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None
