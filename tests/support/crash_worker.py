"""Runs one operation of the coordinator in a process of its own and kills that with SIGKILL at a
chosen step.

A step is every call that changes something: an API call, a git command that writes, a state,
journal or mark that is written or removed. It dies right before a step, or right after the last
one. ``count`` as the step only prints the steps.

Reads cases from standard input, one JSON list a line: repository, operation (of OPERATIONS), its
arguments, step number, ``last`` or ``count``. Each runs in a fork of this process, which has loaded
the SDK once; answers with its wait status.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from git_daytona.api.cloud import Cloud
from git_daytona.base import files
from git_daytona.git import new_keys
from git_daytona.git import repository as git
from git_daytona.sessions import copy, recovery
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import settings
from git_daytona.transfer import transfer

OPERATIONS: dict[str, Callable[..., object]] = {
    "start": Coordinator.start,
    "fork": lambda coordinator, origin: coordinator.start(f"{origin}_fork", origin=origin),
    "sync": Coordinator.sync,
    "delete": Coordinator.delete,
    "push": Coordinator.push,
    "recover": recovery.recover,
    "adopt": recovery.adopt,
    "prune": lambda coordinator: recovery.prune(coordinator, recovery.leftovers(coordinator)),
    "copy_in": copy.copy_in,
    "copy_out": copy.copy_out,
}
CHANGES = (
    *("create", "delete", "start", "recover", "mint", "revoke", "execute"),
    *("upload", "download", "fork", "label"),
)
WRITING = {"update-ref", "fetch", "push", "reset", "hash-object", "commit-tree"}


class Steps:
    def __init__(self, target: str) -> None:
        self.target = int(target) if target.isdigit() else None
        self.seen: list[str] = []

    def wrap(self, owner: object, name: str, label: Callable[..., str | None]) -> None:
        original = getattr(owner, name)

        def stepped(*arguments: Any, **options: Any) -> Any:
            what = label(*arguments, **options)
            if what is None:
                return original(*arguments, **options)
            self.seen.append(what)
            if len(self.seen) == self.target:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(owner, name, stepped)


def git_step(argv: tuple[str, ...], **_options: object) -> str | None:
    words = [word for word in argv if word in WRITING or word == "config"]
    if not words or (
        words[0] == "config" and ("--get" in argv or "--get-regexp" in argv or "--list" in argv)
    ):
        return None
    return f"git {words[0]}"


def work(place: str, operation: str, arguments: list[str], target: str) -> None:
    steps = Steps(target)
    for name in CHANGES:
        steps.wrap(Cloud, name, lambda *_arguments, name=name, **_options: f"api {name}")
    for module in (git, transfer):
        steps.wrap(module, "run", git_step)
    steps.wrap(new_keys, "add", lambda *_arguments: "git config")
    steps.wrap(
        files, "write_whole", lambda path, *_arguments, **_options: f"write {path.parent.name}"
    )
    steps.wrap(
        Path,
        "unlink",
        lambda path, **_options: (
            f"remove {path.parent.name}"
            if path.parent.name in ("leases", "creating") and path.name[0] != "."
            else None
        ),
    )
    repository = git.discover(Path(place))
    coordinator = Coordinator(repository, settings.load(repository.worktree))
    OPERATIONS[operation](coordinator, *arguments)
    coordinator.close()
    if target == "last":
        os.kill(os.getpid(), signal.SIGKILL)
    if target == "count":
        print(json.dumps(steps.seen), flush=True)


def main() -> None:
    Cloud(settings.load(None)).load()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(*json.loads(line))
                status = 0
            except Exception:  # noqa: BLE001 — the parent shows it
                traceback.print_exc()
            finally:
                os._exit(status)
        _, waited = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(waited), flush=True)


main()
