"""Consent to what a repository wants to run in its sandboxes, as direnv has it: by the hash of
that, for one repository, on record with the user."""

import hashlib
import json
from enum import Enum, auto
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.sessions.devcontainer import Plan


class Answer(Enum):
    """What becomes of a plan."""

    RUN = auto()
    ASK = auto()
    IGNORE = auto()


def decide(setting: str, plan: Plan, *, allowed: bool) -> Answer:
    """Decide by ``daytona.setup``. What takes values from this machine's environment needs consent
    whatever that says: it may be anybody's file."""
    if setting == "never" or not plan.wanted:
        return Answer.IGNORE
    if allowed or (setting == "always" and not plan.local_names):
        return Answer.RUN
    return Answer.ASK


def _folder() -> Path:
    return paths.own_state() / "allowed"


def _path(git_dir: str, digest: str) -> Path:
    name = hashlib.sha256(f"{git_dir}\0{digest}".encode("utf-8", "surrogateescape")).hexdigest()
    return _folder() / f"{name[:32]}.json"


def allow(git_dir: str, plan: Plan) -> None:
    """Record consent to a plan in a repository, by its common directory."""
    record = {"gitDir": git_dir, "digest": plan.digest}
    files.write_whole(_path(git_dir, plan.digest), json.dumps(record).encode())


def is_allowed(git_dir: str, digest: str) -> bool:
    """Tell whether there is consent to a plan, by its hash."""
    return _path(git_dir, digest).is_file()


def revoke(git_dir: str) -> int:
    """Take back all consent in a repository; return to how many plans there was some."""
    count = 0
    for path in _folder().glob("*.json"):
        try:
            record = json.loads(path.read_bytes())
            mine = record["gitDir"] == git_dir
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if mine:
            path.unlink(missing_ok=True)
            count += 1
    return count
