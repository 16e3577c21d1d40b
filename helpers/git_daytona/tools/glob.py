"""glob: files by name, the newest first. One API call."""

import posixpath

from git_daytona.cloud import Execution
from git_daytona.tools import answers, clean, globs, places
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result, ToolError
from git_daytona.tools.scripts import script

LIMIT = 100
SECONDS = 60.0


def run(context: Context, arguments: Arguments) -> Result:
    pattern = arguments.text("pattern", empty=False)
    given = arguments.text("path", "")
    path, pattern_below = _base(places.resolve(given or ".", context.worktree), pattern, context.worktree)
    expression = globs.expression(pattern_below)
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
        output += f"\n\n(Results are truncated: showing first {LIMIT} results. Consider using a more specific path or pattern.)"
    return Result(clean.name(places.relative(path)), output, {"count": len(rows), "truncated": truncated})


def names(result: Execution, tool: str) -> tuple[str, list[str]]:
    """The searched directory and what was found in it. Raises ToolError for what is no directory."""
    lines = answers.lines(result, tool)
    if len(lines) < 2:
        raise answers.unexpected(result, tool)
    full = answers.path(lines[1])
    if lines[0] == "file":
        raise ToolError(f"{tool} path must be a directory: {clean.name(full)}")
    if lines[0] != "directory" or len(lines) != 3:
        raise ToolError(f"No such directory: {clean.name(full)}")
    return full, [each.removeprefix("./") for each in answers.names(lines[2])]


def _base(path: str, pattern: str, worktree: str) -> tuple[str, str]:
    """Models also write the folder into the pattern (``/repo/src/**/*.ts``): then that is where to look."""
    if not pattern.startswith(("/", "~/")):
        return path, pattern
    plain: list[str] = []
    for part in pattern.split("/")[:-1]:
        if any(char in part for char in "*?[{\\"):
            break
        plain.append(part)
    rest = pattern.split("/")[len(plain) :]
    return places.resolve("/".join(plain) or "/", worktree), "/".join(rest) if len(rest) > 1 else "/" + rest[0]


TOOL = Definition(
    "glob",
    """Finds files by name, the newest first, at most 100.

- Patterns as `**/*.js`, `src/**/*.{ts,tsx}` or `*.md` (at any depth, as it has no slash).
- Looks into the project or, with `path`, another directory of the sandbox. What git ignores is left out.
- Make several searches in one message when you expect to need them.""",
    schema(
        "pattern",
        pattern=text("The glob pattern to match files against"),
        path=text("The directory to search in. Leave it out for the whole project."),
    ),
    run,
)
