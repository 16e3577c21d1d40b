"""Whose a sandbox is: what its labels say, and which ones were made here.

Everybody in an organisation can read and copy labels, and a copy of a home directory copies an
identity. So a label alone proves nothing: what was made here is on record here, by its id.
"""

import getpass
import hashlib
import json
import re
import secrets
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import one_line, redact
from git_daytona.git import identity

SESSION, PROJECT, CREATION = "git-daytona/session", "git-daytona/project", "git-daytona/creation"
HOST, USER = "git-daytona/host", "git-daytona/user"
REPOSITORY, INSTALLATION = "git-daytona/repository", "git-daytona/installation"
"""Labels of our sandboxes; those of earlier versions have SESSION, PROJECT and HOST alone."""
LABEL_CHARACTERS = 60


def installation() -> str:
    """Return the identity of this installation, made once. Raises BadSetting."""
    path = paths.own_state() / "installation"
    try:
        if not path.exists():
            files.write_whole(path, secrets.token_hex(16).encode(), replace=False)
        text = path.read_text("ascii", "replace")
    except OSError as problem:
        hint = "make it readable for you, or remove it"
        raise BadSetting(f"cannot read '{path}': {problem.strerror}", hint=hint) from problem
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise BadSetting(f"'{path}' does not hold an identity", hint="remove it; a new one is made")
    return text


def labels(repository: str) -> dict[str, str]:
    """Say whose a sandbox is that is made for a repository of that name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = ""
    names = {HOST: socket.gethostname() or "unknown", USER: user, REPOSITORY: repository}
    return {INSTALLATION: installation()} | {
        label: _shown(text) for label, text in names.items() if text
    }


def owner(info: SandboxInfo) -> str:
    """Say for people whose a sandbox is, as far as its labels tell."""
    host, user = (_shown(info.labels.get(name, "")) for name in (HOST, USER))
    whose = f"{user or 'somebody'} on '{host}'" if INSTALLATION in info.labels else ""
    return whose or (f"nobody known, on '{host}'" if host else "nobody known")


def repository(info: SandboxInfo) -> str:
    """Name the repository that a sandbox was made for; empty where its labels do not tell."""
    return _shown(info.labels.get(REPOSITORY, ""))


def _shown(text: str) -> str:
    return one_line(redact(text))[:LABEL_CHARACTERS]


def owner_here() -> str:
    """Name this installation with the state files that it uses, for what it writes into a
    repository: others may work there, too."""
    return hashlib.sha256(f"{installation()}\0{paths.storage()}".encode()).hexdigest()[:32]


# -- what was made here ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """The record, on disk, of a sandbox that was made here for a session of this user."""

    api_url: str
    sandbox_id: str
    storage: str
    """The folder of the state files that its session was put into."""
    repository: str = ""
    """The identity of the repository that its work comes back to; empty where none does."""
    git_dir: str = ""
    """Where that was."""
    title: str = field(default="", compare=False)
    """What its session was called last, for people who find it without one."""

    def is_of(self, git_dir: str) -> bool:
        """Tell whether the work in it comes back to a repository: no copy of the one that it was
        made for, unless that is gone."""
        own = identity.read(git_dir)
        is_it = self.git_dir == git_dir or not identity.is_at(self.git_dir, own)
        return "" != own == self.repository and is_it

    @property
    def path(self) -> Path:
        name = hashlib.sha256(f"{self.api_url}\0{self.sandbox_id}".encode()).hexdigest()[:32]
        return paths.own_state() / "made" / f"{name}.json"

    def write(self) -> None:
        files.write_whole(self.path, json.dumps(vars(self)).encode())

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def here(api_url: str, sandbox_id: str, git_dir: str = "") -> Made:
    """Return the record that a sandbox made here has, or would have, with its repository."""
    repository = identity.give(git_dir) if git_dir else ""
    return Made(api_url, sandbox_id, str(paths.storage()), repository, git_dir)


def title(api_url: str, sandbox_id: str) -> str:
    """Return what the session of a sandbox made here was called last; empty if not known."""
    found = (each.title for each in made(api_url) if each.sandbox_id == sandbox_id)
    return _shown(next(found, ""))


def set_title(api_url: str, sandbox_id: str, text: str) -> None:
    """Record what the session of a sandbox is called, if that was made here."""
    for record in made(api_url):
        if record.sandbox_id == sandbox_id:
            replace(record, title=text).write()


def made(api_url: str) -> Iterator[Made]:
    """Find the sandboxes of an API that were made here, for the state files in use now."""
    for path in sorted((paths.own_state() / "made").glob("*.json")):
        try:
            found = Made(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            log.logger.warning("'%s' cannot be read and is left alone", path)
            continue
        if (found.api_url, found.storage) == (api_url, str(paths.storage())):
            yield found


def is_own(info: SandboxInfo, mine: Collection[str]) -> bool:
    """Tell whether a sandbox was made here, and nobody has put his labels on it."""
    return info.id in mine and info.labels.get(INSTALLATION) == installation()
