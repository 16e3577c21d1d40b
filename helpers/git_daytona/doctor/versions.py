"""The versions that a bug report needs."""

import platform
import shutil
import sys
from importlib import metadata

from git_daytona import __version__
from git_daytona.base.errors import GitDaytonaError
from git_daytona.doctor import machine

PACKAGES = ("asyncssh", "click", "keyring", "urllib3", "wcwidth")


def versions() -> dict[str, str]:
    """What → its version, or why there is none. Programs are asked; no network."""
    found = {
        "git-daytona": __version__,
        "Python": f"{platform.python_version()} ({sys.implementation.name})",
        "system": platform.platform(),
        "git": _program("git", "--version"),
        "ssh": _program("ssh", "-V"),
        "OpenCode": _program("opencode", "--version"),
    }
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _program(name: str, option: str) -> str:
    if shutil.which(name) is None:
        return "not found"
    try:
        return machine.first_line(name, option)[:200] or "it does not say"
    except GitDaytonaError as problem:
        return problem.message
