"""glob: files by name, the newest first. One API call."""

import posixpath

from git_daytona.api.cloud import Execution
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, clean, globs, places
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result, ToolError

LIMIT = 100
SECONDS = 60.0


def run(context: Context, arguments: Arguments) -> Result:
    pattern = arguments.text("pattern", empty=False)
    given = arguments.text("path", "")
    path, below = split(places.resolve(given or ".", context.worktree), pattern, context.worktree)
    expression = globs.expression(below)
    asked = {"pattern": pattern, "path": given} if given else {"pattern": pattern}
    context.ask("glob", [pattern], ["*"], asked)
    stop_if_cancelled(context)
    words = (path, expression, str(LIMIT + 1), "newest", "")
    result = context.execute(script("names") + script("glob"), *words, timeout=SECONDS)
    full, found = names(result, "glob")
    truncated = len(found) > LIMIT
    rows = [clean.name(posixpath.join(full, each)) for each in found[:LIMIT]]
    output = "\n".join(rows) or "No files found"
    if truncated:
        output += (
            f"\n\n(Results are truncated: showing first {LIMIT} results. Consider using a more "
            "specific path or pattern.)"
        )
    return Result(
        clean.name(places.relative(path)), output, {"count": len(rows), "truncated": truncated}
    )


def names(result: Execution, tool: str) -> tuple[str, list[str]]:
    """The searched directory and what was found in it. Raises ToolError for what is no
    directory."""
    lines = answers.lines(result, tool)
    if len(lines) < 2:
        raise answers.unexpected(result, tool)
    full = answers.path(lines[1])
    if lines[0] == "file":
        raise ToolError(f"{tool} path must be a directory: {clean.name(full)}")
    if lines[0] != "directory" or len(lines) != 3:
        raise ToolError(f"No such directory: {clean.name(full)}")
    return full, [each.removeprefix("./") for each in answers.names(lines[2])]


def split(path: str, pattern: str, worktree: str) -> tuple[str, str]:
    """Where to look, and for what: models also write the folder into the pattern
    (``/repo/src/**/*.ts``). Any other pattern that begins with a slash is one that begins in the
    searched directory."""
    if not pattern.startswith((PROJECT + "/", "~/")) and (
        worktree == "/" or not pattern.startswith(worktree.rstrip("/") + "/")
    ):
        return path, pattern
    parts = pattern.split("/")
    wild = next(
        (at for at, part in enumerate(parts) if any(char in part for char in "*?[{\\")),
        len(parts) - 1,
    )
    wild = min(wild, len(parts) - 1)
    return places.resolve("/".join(parts[:wild]), worktree), "/" + "/".join(parts[wild:])


TOOL = Definition(
    "glob",
    """Finds files by name, the newest first, at most 100.

- Patterns as `**/*.js`, `src/**/*.{ts,tsx}` or `*.md` (at any depth, as it has no slash).
- Looks into the project or, with `path`, another directory of the sandbox. What git ignores is \
left out.
- Make several searches in one message when you expect to need them.""",
    schema(
        "pattern",
        pattern=text("The glob pattern to match files against"),
        path=text("The directory to search in. Leave it out for the whole project."),
    ),
    run,
)
