"""Whether the OpenCode that runs here has the plugin, by the plugin and OpenCode 2's service."""

import base64
import json
import os
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from git_daytona.doctor.findings import Finding, fail, ok, warn
from git_daytona.opencode import registration
from git_daytona.service import charge

ACTIVE_SECONDS = 5.0
"""How long OpenCode 2 may take to load the plugins of a directory."""
POLL_SECONDS = 0.2
ANSWER_BYTES = 4 * 1024 * 1024


def confined(worktree: Path) -> Finding:
    """Look at every OpenCode that runs in a worktree."""
    charge.check(worktree)
    if (service := charge.background()) is not None:
        if (problem := _plugin(service, worktree)) is not None:
            remedy = "opencode service stop; it is started again with the configuration of then"
            return fail(f"{service} {problem}: its tools act on this machine", remedy)
        if names := _differing(service.environment(), os.environ):
            remedy = "run OpenCode with --standalone here, or start it anew: opencode service stop"
            return warn(f"{service} was started with another {', '.join(names)}", remedy)
    stamps = [it for it in charge.stamps() if Path(it.directory).is_relative_to(worktree)]
    found = [f"OpenCode {it.version} (process {it.pid})" for it in stamps]
    return ok(f"in charge of {', '.join(found)}" if found else "no OpenCode runs here now")


def _differing(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """The names of our variables, never their values."""
    if not theirs and not os.path.exists("/proc/self/environ"):  # noqa: PTH110
        return []
    names = ("DAYTONA_API_URL", "DAYTONA_API_KEY", "DAYTONA_TARGET", "DAYTONA_SERVICE_BINARY")
    return [name for name in names if theirs.get(name, "") != ours.get(name, "")]


def _plugin(service: charge.Background, worktree: Path) -> str | None:
    """What is wrong with the plugin there, to follow the service's name; None if nothing.

    ``GET /api/plugin`` lists nothing until the directory's plugins are loaded, which it starts.
    """
    password = base64.b64encode(f"opencode:{service.password}".encode()).decode()
    query = urlencode({"location[directory]": str(worktree)})
    until = time.monotonic() + ACTIVE_SECONDS
    while True:
        connection = HTTPConnection("127.0.0.1", service.port, timeout=ACTIVE_SECONDS)
        try:
            headers = {"Authorization": f"Basic {password}"}
            connection.request("GET", f"/api/plugin?{query}", headers=headers)
            answer = json.loads(connection.getresponse().read(ANSWER_BYTES))
            plugins = {it["id"]: it["state"] for it in answer["data"]}
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as problem:
            return f"does not say which plugins it has ({type(problem).__name__})"
        finally:
            connection.close()
        if plugins:
            return _state(plugins.get(registration.ID))
        if time.monotonic() > until:
            return "loads no plugins"
        time.sleep(POLL_SECONDS)


def _state(state: Any) -> str | None:
    if state is None:
        return "does not have the plugin"
    status = state.get("status") if isinstance(state, dict) else None
    return None if status == "active" else f"has the plugin, but it is {status}"
