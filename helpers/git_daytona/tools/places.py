"""Where a path that the model writes lies in the sandbox. Pure.

OpenCode tells the model the host's working directory, so models write host paths; the tools' own
output shows sandbox paths. Both lead to the same place.
"""

import posixpath

from git_daytona.git.refs import PROJECT
from git_daytona.tools.context import ToolError

LONGEST = 4000
"""Characters of a path; Linux takes 4095 bytes."""


def resolve(path: str, worktree: str) -> str:
    """The sandbox path that is meant: absolute and without ``.``, ``..`` and double slashes, or
    ``~`` or ``~/…`` for what lies in the sandbox's home (only the sandbox knows where that is).

    Relative paths are relative to the project, absolute ones under the host's worktree mean the
    same place in the project, every other absolute path is the sandbox's own. Raises ToolError for
    what can be no path.
    """
    if not path or "\0" in path or len(path) > LONGEST:
        raise ToolError("a path must not be empty, hold NUL or be longer than 4000 characters")
    if path == "~" or path.startswith("~/"):
        rest = posixpath.normpath("/" + path[1:]).lstrip("/")
        return f"~/{rest}" if rest else "~"
    full = _normal(posixpath.join(PROJECT, path))
    root = _normal(worktree) if worktree.startswith("/") else "/"
    # "/" is OpenCode's worktree where there is no repository: everything would be below it. And
    # what the tools print lies in PROJECT already, unless the worktree itself lies there (OpenCode
    # running in a sandbox).
    if root == "/" or (_below(full, PROJECT) and not _below(root, PROJECT)):
        return full
    if _below(full, root) and posixpath.isabs(path):
        return _normal(PROJECT + full[len(root) :])
    return full


def relative(path: str) -> str:
    """A sandbox path as it is shown in titles and matched by permission rules: relative to the
    project, ``""`` for the project."""
    if path.startswith("~"):
        return path
    found = posixpath.relpath(path, PROJECT)
    return "" if found == "." else found


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
