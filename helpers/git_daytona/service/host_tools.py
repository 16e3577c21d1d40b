"""What OpenCode is told: which of its own tools may act on the user's machine, and the prompt."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from git_daytona.git.refs import PROJECT
from git_daytona.settings import preferences
from git_daytona.settings.preferences import ALLOW_HOST_TOOLS as KEY

HARMLESS = (
    *("invalid", "todowrite", "todoread", "task", "question", "plan_enter", "plan_exit"),
    *("webfetch", "websearch", "codesearch", "skill", "subagent"),
)
"""Built-in tools that touch nothing of the user's machine but what the user gave OpenCode for that:
its lists and questions, the network under the user's permissions, skills from the user's folders.
Each version of OpenCode adds some: all others are blocked."""

VARIABLE = "DAYTONA_ALLOW_HOST_TOOLS"

_NO = {"", "false", "no", "off", "0"}
_YES = {"true", "yes", "on", "1"}


def opted_in(directory: Path, environ: Mapping[str, str] | None = None) -> frozenset[str] | None:
    """The tools that the user lets act on the machine (None: all): ``true`` or names, from the
    environment, else git's configuration. Never from a file of the repository (``.env``,
    ``.opencode``), which may come from a stranger; ``.git/config`` is the user's."""
    env = os.environ if environ is None else environ
    value = env.get(VARIABLE, "").strip()
    if not value:
        # no git, or a directory that is gone: not opted in
        preference = preferences.load(directory, embedded=False).get(KEY)
        value = preference.value.strip() if preference else ""
    if value.lower() in _NO:
        return frozenset()
    return None if value.lower() in _YES else frozenset(re.split(r"[\s,]+", value))


def refusal(
    tool: str, *, builtin: Sequence[str], servers: Sequence[str], allowed: frozenset[str] | None
) -> str:
    """Why a tool may not run; empty if it may. ``builtin`` are the tools that OpenCode and its
    plugins register, ``servers`` the MCP servers of the user's configuration: what those offer
    (``SERVER_TOOL``) runs where the user put it."""
    if allowed is None or tool in allowed or tool in HARMLESS:
        return ""
    if tool not in builtin and any(
        tool.startswith(f"{re.sub(r'[^a-zA-Z0-9_-]', '_', server)}_") for server in servers
    ):
        return ""
    return blocked(tool, "Use the tools that act there instead")


def blocked(tool: str, advice: str) -> str:
    """Say why a tool may not run, and what the agent should do."""
    name = tool if re.fullmatch(r"[\w:.-]{1,100}", tool) else "true"
    return (
        f"'{tool[:100]}' is blocked: it would act on the user's machine, and this session runs in "
        f"a Daytona sandbox. {advice}. (The user may allow it: git config {KEY} {name})"
    )


def system_prompt(worktree: str, tools: tuple[str, ...]) -> str:
    """The addition to OpenCode's system prompt."""
    return f"""## Daytona sandbox

This session runs in a Daytona sandbox of its own, a Linux machine apart from the user's. The \
project lies there in {PROJECT}, a git
repository whose branch `opencode` began at the user's HEAD; what was not committed on the user's \
machine is not in it.

- These tools act in the sandbox and nowhere else: {", ".join(f"`{name}`" for name in tools)}.
- Paths: relative ones are relative to {PROJECT}. Paths under {worktree} mean the same place in \
{PROJECT}. All other absolute paths
  are the sandbox's own. You cannot reach the user's machine.
- Servers: start them with `bash` and `background: true`, listening on 0.0.0.0 or localhost, and \
give the user the link that
  `getPreviewURL` makes. A localhost URL does not work for the user.
- Your work comes back by itself after each turn, as commits on a local branch, `opencode/N` as a \
rule. Call `gitSync` when you hand work
  over, or when the user is about to look at it: it names the branch. Commits that you make \
yourself are kept as they are. Do not push, and add no remotes.
"""
