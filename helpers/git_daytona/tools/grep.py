"""grep: lines by a regular expression, of the newest files first. One API call.

With ripgrep where the sandbox has it; else GNU grep with Perl's expressions, whose language is
nearly the same; else grep -E.
"""

import posixpath
import re

from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, bounds, clean, globs, places
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result, ToolError

LIMIT = 100
LINE = 2000
"""Characters of a line that are shown."""
LONGEST = 10_000
"""Characters of a pattern."""
SECONDS = 120.0


def run(context: Context, arguments: Arguments) -> Result:
    pattern = arguments.text("pattern", empty=False)
    given, include = arguments.text("path", ""), arguments.text("include", "")
    if "\0" in pattern or len(pattern) > LONGEST:
        raise ToolError(f"the pattern must not hold NUL or be longer than {LONGEST} characters")
    path = places.resolve(given or ".", context.worktree)
    names = globs.expression(include) if include else ""
    asked = {"pattern": pattern, "path": given, "include": include}
    context.ask("grep", [pattern], ["*"], {name: value for name, value in asked.items() if value})
    stop_if_cancelled(context)
    words = (path, pattern, extended(pattern), names, str(LIMIT + 1))
    result = context.execute(script("names") + script("grep"), *words, timeout=SECONDS)
    lines = answers.lines(result, "grep")
    if len(lines) < 2:
        raise answers.unexpected(result, "grep")
    kind, full = lines[0], answers.path(lines[1])
    if kind == "pattern":
        raise ToolError(
            f"The pattern is no regular expression: {clean.output(full).strip()[:1000]}"
        )
    if kind not in ("directory", "file") or len(lines) != 3:
        raise ToolError(f"No such file or directory: {clean.name(full)}")
    folder = full if kind == "directory" else posixpath.dirname(full)
    return _result(pattern, folder, parse(answers.decoded(lines[2])))


def parse(answer: bytes) -> list[tuple[str, int, str]]:
    """File, line number and line of each match; what is no match (remarks on binary files) is
    passed over."""
    found = []
    at = 0
    while (end := answer.find(b"\1", at)) >= 0:
        last = answer.find(b"\n", end)
        last = len(answer) if last < 0 else last
        number, colon, row = answer[end + 1 : last].partition(b":")
        name = answer[at:end]
        if colon and number.isdigit():  # of bytes: ASCII alone
            found.append(
                (
                    name.decode("utf-8", "replace").removeprefix("./"),
                    int(number[:15]),
                    row.decode("utf-8", "replace"),
                )
            )
        at = last + 1
    return found


def extended(pattern: str) -> str:
    """The pattern for grep -E, as near as it comes: Perl's classes spelled out."""
    classes = {"d": "[0-9]", "D": "[^0-9]", "s": "[[:space:]]", "S": "[^[:space:]]"}
    return re.sub(
        r"\\(.)",
        lambda found: classes.get(found[1], found[0]),
        pattern.replace("(?:", "("),
        flags=re.DOTALL,
    )


def _result(pattern: str, folder: str, matches: list[tuple[str, int, str]]) -> Result:
    title = clean.name(pattern)
    if not matches:
        return Result(title, "No files found", {"matches": 0, "truncated": False})
    more = len(matches) > LIMIT
    rows: list[str] = []
    shown = used = 0
    current = None
    for name, number, line in matches[:LIMIT]:
        line = clean.line(line.removesuffix("\r"))
        line = line[:LINE] + "..." if len(line) > LINE else line
        block = [f"  Line {number}: {line}"]
        if name != current:
            block = [
                *([""] if rows else []),
                f"{clean.name(posixpath.join(folder, name))}:",
                *block,
            ]
        used += bounds.size("\n".join(block)) + 1
        if used > bounds.BYTES:
            more = True
            break
        current, shown = name, shown + 1
        rows += block
    output = [f"Found {shown} matches{' (more matches available)' if more else ''}", *rows]
    if more:
        output += ["", "(Results truncated. Consider using a more specific path or pattern.)"]
    return Result(title, "\n".join(output), {"matches": shown, "truncated": more})


TOOL = Definition(
    "grep",
    """Searches the contents of files by a regular expression and gives the matching lines with \
their numbers, of the newest files first, at most 100.

- Full expressions as `log.*Error` or `function\\s+\\w+`.
- `include` narrows it to names as `*.js` or `*.{ts,tsx}`, `path` to a directory or file. What \
git ignores is left out.
- To count matches, use bash.""",
    schema(
        "pattern",
        pattern=text("The regex pattern to search for in file contents"),
        path=text("The directory or file to search in. Leave it out for the whole project."),
        include=text('File pattern to include in the search (e.g. "*.js", "*.{ts,tsx}")'),
    ),
    run,
)
