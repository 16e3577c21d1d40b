"""The JSON object that comes with an event, and what clients call the same things in it."""

import json
from pathlib import Path
from typing import Any

from git_daytona.base.errors import UsageError

EVENTS = ("session.created", "session.idle", "session.deleted", "tool", "shutdown")
PAYLOAD_BYTES = 64 * 1024 * 1024

# Ours first, then what others send: Claude Code, Codex and Gemini CLI; VS Code; Cursor; goose.
_NAMES = {
    "session": ("sessionID", "session_id", "session", "sessionId", "conversation_id"),
    "parent": ("parentID", "parent_id", "parent_session_id"),
    "directory": ("directory", "cwd", "working_dir", "workspace_roots"),
}


def parse(payload: bytes) -> dict[str, Any]:
    """Return the object; nothing at all is an empty one. Raises UsageError."""
    try:
        found = json.loads(payload) if payload.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        hint = "see git-daytona-hooks(7) for what each event needs"
        raise UsageError("standard input is not a JSON object", hint=hint)
    return found


def text(payload: dict[str, Any], what: str) -> str:
    """Return the session, its parent or the directory; empty where the payload has none."""
    for name in _NAMES[what]:
        value = payload.get(name)
        if isinstance(value, list) and value:  # Cursor's roots
            value = value[0]
        if isinstance(value, str) and value:
            return value
    return ""


def directory(payload: dict[str, Any], default: Path) -> Path:
    """Return the directory that the event is about. Raises UsageError for one that is none."""
    place = Path(text(payload, "directory") or default)
    try:
        usable = place.is_absolute() and place.is_dir()
    except ValueError:  # a NUL
        usable = False
    if not usable:
        raise UsageError(
            f"'{place}' is not a directory", hint="give 'directory' (or 'cwd') as an absolute path"
        )
    return place
