"""A report to attach to a bug report: everything that tells what happened, and nothing that is
private. Texts in, text out.

No key, token, title or content of a file; the home directory is ``~``. (Ids of sandboxes and
sessions stay: they open nothing.)
"""

import json
import os
import re
import time
from collections.abc import Iterable, Mapping

from git_daytona.base import paths
from git_daytona.base.secret import printable, redact
from git_daytona.sessions.state import Session

_OURS = re.compile(
    r"DAYTONA_|GIT_|SSH_|XDG_|OPENCODE|NO_COLOR|LANG|LC_|TERM$|PYTHON|SSL_CERT_"
    r"|(?i:(?:https?|all|no)_proxy|(?:curl|requests)_ca_bundle)$"
)


def report(
    versions: Mapping[str, str],
    findings: Iterable[str],
    config: Iterable[str],
    sessions: Iterable[Session],
    log: Iterable[str],
) -> str:
    """The report, without any secret that this process holds, or what looks like one."""
    sections = {
        "versions": [f"{name}: {version}" for name, version in versions.items()],
        "doctor": findings,
        "settings": config,
        "variables that are set (without their values)": sorted(filter(_OURS.match, os.environ)),
        "sessions (without titles)": [json.dumps(_session(each)) for each in sessions],
        "the end of the log": log,
    }
    lines = [f"git-daytona report, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"]
    for heading, content in sections.items():
        lines += ["", f"-- {heading} --", *content]
    return clean("\n".join(lines)) + "\n"


def clean(text: str) -> str:
    home = str(paths.home())
    text = redact(text)
    return printable(text if home == "/" else re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text))


def _session(session: Session) -> dict[str, object]:
    return {
        "number": session.number,
        "session": session.id,
        "sandbox": session.sandbox_id,
        "worktree": session.worktree,
        "prefix": session.prefix,
        "created": session.created,
        "lastAccessed": session.last_accessed,
        "syncedAt": session.synced_at,
        "deleting": session.deleting,
        "gitReturn": session.git_return.state,
        "message": session.git_return.message,
        "updatedAt": session.git_return.updated_at,
        "title": f"({len(session.title)} characters)",
    }
