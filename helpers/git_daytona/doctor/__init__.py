"""`git daytona doctor`: the whole chain from OpenCode to the gateway's host key, link by link.
Repairs nothing."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from git_daytona.doctor import confinement, findings, live, machine
from git_daytona.doctor.daytona import Service
from git_daytona.doctor.findings import Check, Finding, Seen, Status
from git_daytona.git.repository import Repository
from git_daytona.git.repository import find as find_repository

__all__ = ["Finding", "Status", "examine"]


def examine(
    start: Path, isolation: Callable[[], str] | None = None, daytona: live.Daytona | None = None
) -> Iterator[Finding]:
    """Look at each link for a directory, and yield what is found as soon as it is known.
    ``isolation`` tells what the embedded Daytona isolates with; None leaves that out. With
    ``daytona``, which starts one, OpenCode is run once, too."""
    repository: list[Repository | None] = [None]

    def find() -> Repository | None:
        repository[0] = find_repository(start)
        return repository[0]

    def inside() -> Path | None:
        return repository[0].worktree if repository[0] else None

    def worktree() -> Path:
        return inside() or start

    service = Service(start)

    def load() -> Seen:
        service.directory = worktree()
        return service.settings()

    def sessions() -> Seen:
        return service.sessions(repository[0])

    tried: list[Check] = []
    if daytona is not None:
        look = partial(live.look, worktree, start, daytona)
        tried.append(Check("live", look, ("git",), bounded=True))
    return findings.run(
        [
            Check("python", machine.python),
            Check("plugin file", machine.shim),
            Check("git", machine.git_version),
            Check("repository", partial(machine.repository, find, start), ("git",)),
            Check("opencode", lambda: machine.opencode(inside(), start)),
            Check("plugin", lambda: machine.plugin(inside(), start)),
            Check("confined", lambda: confinement.confined(worktree())),
            Check("ssh", partial(machine.ssh_version, os.environ)),
            Check("files", machine.own_files),
            Check("settings", load),
            Check("key", service.key, ("settings",)),
            Check("api", service.api, ("settings",)),
            Check("key accepted", service.accepted, ("key", "api")),
            Check("clock", service.clock, ("key accepted",)),
            Check("snapshot", service.snapshot, ("key accepted",)),
            Check("gateway", service.gateway, ("api",)),
            Check("leases", service.leases, ("settings", "files")),
            Check("sessions", sessions, ("settings", "files", "repository")),
            Check("daytona-local", lambda: machine.isolation(isolation, matters=service.is_local)),
            *tried,
        ]
    )
