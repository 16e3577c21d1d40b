"""`git daytona doctor`: the whole chain from OpenCode to the gateway's host key, link by link.
Repairs nothing."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from git_daytona.doctor import confinement, findings, live, machine
from git_daytona.doctor.daytona import Service
from git_daytona.doctor.findings import Check, Finding, Status

__all__ = ["Finding", "Status", "examine"]


def examine(
    start: Path,
    isolation: Callable[[], str] | None = None,
    daytona: live.Daytona | None = None,
) -> Iterator[Finding]:
    """Look at each link for a directory, and yield what is found as soon as it is known.
    ``isolation`` tells what the embedded Daytona isolates with; None leaves that out. With
    ``daytona``, which starts one, OpenCode is run once, too."""
    service = Service(start)
    checks = [
        Check("python", machine.python),
        Check("plugin file", machine.shim),
        Check("git", machine.git_version),
        Check("repository", lambda: machine.repository(service.find(), start), ("git",)),
        Check("opencode", lambda: machine.opencode(service.worktree, start)),
        Check("plugin", lambda: machine.plugin(service.worktree, start)),
        Check("confined", lambda: confinement.confined(service.directory)),
        Check("ssh", partial(machine.ssh_version, os.environ)),
        Check("files", machine.own_files),
        Check("settings", service.settings),
        Check("key", service.key, ("settings",)),
        Check("api", service.api, ("settings",)),
        Check("key accepted", service.accepted, ("key", "api")),
        Check("clock", service.clock, ("key accepted",)),
        Check("snapshot", service.snapshot, ("key accepted",)),
        Check("gateway", service.gateway, ("api",)),
        Check("leases", service.leases, ("settings", "files")),
        Check("sessions", service.sessions, ("settings", "files", "repository")),
        Check("daytona-local", lambda: machine.isolation(isolation, matters=service.is_local)),
    ]
    if daytona is not None:
        look = partial(live.look, start=start, daytona=daytona)
        checks.append(Check("live", lambda: look(service.directory), ("git",), bounded=True))
    return findings.run(checks)
