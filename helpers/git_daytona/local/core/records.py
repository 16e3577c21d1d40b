"""A sandbox as the server keeps it: the shared record, what only the life cycle knows of it, and
when something is due."""

import asyncio
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from git_daytona.local.core.model import Sandbox

Due = Literal["stop", "archive", "delete"]


def preview_token() -> str:
    """A new secret for a sandbox's preview links."""
    return secrets.token_hex(16)


def signing_key() -> str:
    """A new secret for a sandbox's signed file links."""
    return secrets.token_hex(32)


@dataclass
class Record:
    """One sandbox and its life cycle's notes. Times are seconds since the epoch."""

    sandbox: Sandbox
    preview_token: str = field(default_factory=preview_token, repr=False)
    signing_key: str = field(default_factory=signing_key, repr=False)
    env: dict[str, Any] = field(default_factory=dict)
    """The variables as they were asked for, which is how they are shown: numbers stay numbers."""
    stopped_at: float | None = None
    destroy_at: float | None = None
    """When it is deleted whatever its state (`ttlMinutes`)."""

    pending: bool = False
    """A change of state is under way; another one is refused until it is done."""
    calls: int = 0
    """Toolbox calls under way: a sandbox at work is not idle, however long the work takes."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """What is kept on disk."""
        kept = asdict(self.sandbox)
        del kept["directory"]
        return {
            "sandbox": kept,
            "previewToken": self.preview_token,
            "signingKey": self.signing_key,
            "env": self.env,
            "stoppedAt": self.stopped_at,
            "destroyAt": self.destroy_at,
        }

    @classmethod
    def from_json(cls, directory: Path, kept: dict[str, Any]) -> "Record":
        """Back from disk. Raises KeyError, TypeError or ValueError for what `to_json` did not
        write."""
        sandbox = Sandbox(directory=directory, **kept["sandbox"])
        if sandbox.id != directory.name:
            raise ValueError(f"the record in '{directory}' is of sandbox '{sandbox.id}'")
        return cls(
            sandbox,
            kept["previewToken"],
            kept.get("signingKey", signing_key()),
            kept.get("env", sandbox.env),
            stopped_at=kept["stoppedAt"],
            destroy_at=kept["destroyAt"],
        )


def next_due(record: Record, minute: float) -> tuple[float, Due] | None:
    """What the sandbox's settings ask for next, and when (seconds since the epoch). A `minute`
    lasts that many seconds."""
    sandbox = record.sandbox
    due: list[tuple[float, Due]] = []
    if record.destroy_at is not None:
        due.append((record.destroy_at, "delete"))
    if sandbox.state == "started" and sandbox.auto_stop_interval > 0:
        due.append((sandbox.last_activity_at + sandbox.auto_stop_interval * minute, "stop"))
    if sandbox.state in ("stopped", "archived") and record.stopped_at is not None:
        if sandbox.auto_delete_interval >= 0:
            due.append((record.stopped_at + sandbox.auto_delete_interval * minute, "delete"))
        if sandbox.state == "stopped" and sandbox.auto_archive_interval > 0:
            due.append((record.stopped_at + sandbox.auto_archive_interval * minute, "archive"))
    return min(due, default=None)
