"""grep: lines by a regular expression, of the newest files first. One API call.

With ripgrep where the sandbox has it; else GNU grep with Perl's expressions, whose language is
nearly the same; else grep -E.
"""

import posixpath
import re

from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, files, glob
from git_daytona.tools.answers import Answer, name
from git_daytona.tools.context import Context, Result, ToolError, ask, text, tool

GREP_SECONDS = 120.0
LIMIT = 100
LONGEST = 10_000  # characters of a pattern

_MATCH = re.compile(rb"([^\x01]*)\x01(?:([0-9]{1,15}):)?([^\n]*)\n?")


@tool(
    "grep",
    """Searches the contents of files by a regular expression and gives the matching lines with \
their numbers, of the newest files first, at most 100.

- Full expressions as `log.*Error` or `function\\s+\\w+`.
- `include` narrows it to names as `*.js` or `*.{ts,tsx}`, `path` to a directory or file. What \
git ignores is left out.
- To count matches, use bash.""",
    pattern=text("The regex pattern to search for in file contents", empty=False),
    path=text("The directory or file to search in. Leave it out for the whole project.", ""),
    include=text('File pattern to include in the search (e.g. "*.js", "*.{ts,tsx}")', ""),
)
def grep(context: Context, pattern: str, given: str, include: str) -> Result:
    if "\0" in pattern or len(pattern) > LONGEST:
        raise ToolError(f"the pattern must not hold NUL or be longer than {LONGEST} characters")
    path = files.resolve(given or ".", context.worktree)
    names = glob.translate(include) if include else ""
    asked = {"pattern": pattern, "path": given, "include": include}
    asked = {argument: value for argument, value in asked.items() if value}
    ask(context, "grep", [pattern], asked)
    words = (path, pattern, extended(pattern), names, str(LIMIT + 1))
    source = script("names", "grep")
    answer = Answer("grep", context.execute(source, *words, timeout=GREP_SECONDS))
    kind, full = answer.line(), answer.text()
    if kind == "pattern":
        complaint = answers.output(full).strip()[:1000]
        raise ToolError(f"The pattern is not a regular expression: {complaint}")
    if kind not in ("directory", "file"):
        raise ToolError(f"No such file or directory: {name(full)}")
    folder = full if kind == "directory" else posixpath.dirname(full)
    return _result(pattern, folder, parse(answer.content()))


def parse(answer: bytes) -> list[tuple[str, int, str]]:
    """Return file, line number and line of each match, without remarks on binary files."""
    found = []
    at = 0
    while match := _MATCH.match(answer, at):
        at = match.end()
        file, number, line = match.groups()
        if number:
            shown = file.decode("utf-8", "replace").removeprefix("./")
            found.append((shown, int(number), line.decode("utf-8", "replace")))
    return found


def extended(pattern: str) -> str:
    """Return the pattern for grep -E, as near as it comes: Perl's classes spelled out."""
    classes = {"d": "[0-9]", "D": "[^0-9]", "s": "[[:space:]]", "S": "[^[:space:]]"}
    pattern = pattern.replace("(?:", "(")
    return re.sub(r"(?s)\\(.)", lambda found: classes.get(found[1], found[0]), pattern)


def _result(pattern: str, folder: str, matches: list[tuple[str, int, str]]) -> Result:
    if not matches:
        return Result(name(pattern), "No files found", {"matches": 0, "truncated": False})
    rows: list[str] = []
    shown = used = 0
    current = None
    for file, number, line in matches[:LIMIT]:
        block = [f"  Line {number}: {answers.line(line)}"]
        if file != current:
            blank = [""] if rows else []
            block = [*blank, f"{name(posixpath.join(folder, file))}:", *block]
        used += answers.size("\n".join(block)) + 1
        if used > answers.MOST_BYTES:
            break
        current, shown = file, shown + 1
        rows += block
    more = shown < len(matches)
    output = [f"Found {shown} matches{' (more matches available)' if more else ''}", *rows]
    if more:
        output += ["", "(Results truncated. Consider using a more specific path or pattern.)"]
    metadata = {"matches": shown, "truncated": more}
    return Result(name(pattern), "\n".join(output), metadata)
