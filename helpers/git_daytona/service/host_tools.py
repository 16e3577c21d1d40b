"""Which tools of OpenCode's own may run while the agent lives in a sandbox. Those that we do not
replace would act on the host."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from git_daytona.service.harmless import HARMLESS
from git_daytona.settings import preferences
from git_daytona.settings.preferences import ALLOW_HOST_TOOLS as KEY

VARIABLE = "DAYTONA_ALLOW_HOST_TOOLS"

_NO = {"", "false", "no", "off", "0"}
_YES = {"true", "yes", "on", "1"}


def opted_in(directory: Path, environ: Mapping[str, str] | None = None) -> frozenset[str] | None:
    """The tools that the user lets run on the host (None: all): ``true`` or names, from the
    environment, else git's configuration.

    Never from a file of the repository (``.env``, ``.opencode``), which may come from a stranger;
    ``.git/config`` is the user's.
    """
    env = os.environ if environ is None else environ
    value = env.get(VARIABLE, "").strip()
    if not value:
        # no git, or a directory that is gone: not opted in
        preference = preferences.load(directory).get(KEY)
        value = preference.value.strip() if preference else ""
    if value.lower() in _NO:
        return frozenset()
    return None if value.lower() in _YES else frozenset(re.split(r"[\s,]+", value))


def refusal(
    tool: str, *, builtin: Sequence[str], servers: Sequence[str], allowed: frozenset[str] | None
) -> str:
    """Why a tool may not run; empty if it may. ``builtin`` are the tools that OpenCode and its
    plugins register, ``servers`` the MCP servers of the user's configuration: what those offer
    (``SERVER_TOOL``) runs where the user put it.
    """
    if allowed is None or tool in allowed or tool in HARMLESS:
        return ""
    if tool not in builtin and any(
        tool.startswith(f"{re.sub(r'[^a-zA-Z0-9_-]', '_', server)}_") for server in servers
    ):
        return ""
    name = tool if re.fullmatch(r"[\w-]+", tool) else "true"
    return (
        f"'{tool}' is blocked: it would act on the user's machine, and this session runs in a Daytona sandbox. Use the tools that act"
        f" there instead. (The user may allow it: git config {KEY} {name})"
    )
