"""Which repository one is: a random name in its git directory. It moves with the folder; a copy of
the folder is told by the first one being where it was, and gets a name of its own."""

import contextlib
import re
import secrets
from pathlib import Path

from git_daytona.base import files
from git_daytona.base.errors import BadSetting

FILE = "git-daytona-id"


def can_be(git_dir: str) -> bool:
    """Tell whether that is a repository's directory, which can have an identity."""
    return Path(git_dir, "HEAD").is_file() and Path(git_dir, "objects").is_dir()


def read(git_dir: str) -> str:
    """Read a repository's identity; empty where there is none yet, or that is no repository."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = files.read_bounded(Path(git_dir, FILE), 100)[0].decode().strip()
        return text if re.fullmatch("[0-9a-f]{32}", text) else ""
    return ""


def give(git_dir: str, *, anew: bool = False) -> str:
    """Return a repository's identity, made where there is none yet, or ``anew``; empty where
    nothing can be written: then it is told by its path alone."""
    if can_be(git_dir) and (anew or not read(git_dir)):
        name = f"{secrets.token_hex(16)}\n".encode()
        with contextlib.suppress(BadSetting):
            files.write_whole(Path(git_dir, FILE), name, replace=anew)
    return read(git_dir)


def is_at(git_dir: str, identity: str) -> bool:
    """Tell whether a repository still is where it was; one that cannot be looked at may be, and
    without an identity whatever is there counts."""
    path = Path(git_dir, FILE) if identity else Path(git_dir)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return not identity or read(git_dir) in (identity, "")
