"""glob: files by name, the newest first; list and ls: all below a directory. One API call each.

Patterns are read as ripgrep reads them, and turned into extended regular expressions for grep -E.
"""

import posixpath
import re
from collections.abc import Sequence

from git_daytona.git.refs import PROJECT
from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, files
from git_daytona.tools.answers import Answer, name
from git_daytona.tools.context import Context, Result, ToolError, ask, text, texts, tool

NAMES_SECONDS = 60.0
LIMIT = 100
PATTERN_LENGTH = 1000
DEEPEST = 30  # levels that are shown by indentation
IGNORED = str.split(
    "node_modules/ __pycache__/ .git/ dist/ build/ target/ vendor/ bin/ obj/ .idea/ .vscode/ "
    ".zig-cache/ zig-out .coverage coverage/ tmp/ temp/ .cache/ cache/ logs/ .venv/ venv/ env/"
)
"""What is left out besides what git ignores."""

_WILD = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
_CHOICE = {",": "|", "}": ")"}
_PIECE = re.compile(
    r"(?:^|(?<=[/{,]))\*\*/|\*\*|\[(?P<negated>[!^]?+)(?P<members>.[^\]]*)\]|\\.|.", re.DOTALL
)


@tool(
    "glob",
    """Finds files by name, the newest first, at most 100.

- Patterns as `**/*.js`, `src/**/*.{ts,tsx}` or `*.md` (at any depth, as it has no slash).
- Looks into the project or, with `path`, another directory of the sandbox. What git ignores is \
left out.
- Make several searches in one message when you expect to need them.""",
    pattern=text("The glob pattern to match files against", empty=False),
    path=text("The directory to search in. Leave it out for the whole project.", ""),
)
def glob(context: Context, pattern: str, given: str) -> Result:
    path = files.resolve(given or ".", context.worktree)
    path, below = split(path, pattern, context.worktree)
    expression = translate(below)
    asked = {"pattern": pattern, "path": given} if given else {"pattern": pattern}
    ask(context, "glob", [pattern], asked)
    full, found = names(context, "glob", path, expression, str(LIMIT + 1), "newest", "")
    rows = [name(posixpath.join(full, each)) for each in found[:LIMIT]]
    output = "\n".join(rows) or "No files found"
    truncated = len(found) > LIMIT
    if truncated:
        output += (
            f"\n\n(Results are truncated: showing first {LIMIT} results. Consider using a more "
            "specific path or pattern.)"
        )
    metadata = {"count": len(rows), "truncated": truncated}
    return Result(name(files.relative(path)), output, metadata)


def names(context: Context, tool_name: str, *words: str) -> tuple[str, list[str]]:
    """Run glob.sh; returns the directory and the names in it. Raises ToolError."""
    source = script("names", "glob")
    answer = Answer(tool_name, context.execute(source, *words, timeout=NAMES_SECONDS))
    kind, full = answer.line(), answer.text()
    if kind == "file":
        raise ToolError(f"{tool_name} path must be a directory: {name(full)}")
    if kind != "directory":
        raise ToolError(f"No such directory: {name(full)}")
    return full, [each.removeprefix("./") for each in answer.names()]


def split(path: str, pattern: str, worktree: str) -> tuple[str, str]:
    """Return where to look, and for what: models also write the folder into the pattern
    (``/repo/src/**/*.ts``). Any other pattern that begins with a slash begins in ``path``."""
    folders = [f"{PROJECT}/", "~/"]
    if worktree != "/":
        folders.append(worktree.rstrip("/") + "/")
    if not pattern.startswith(tuple(folders)):
        return path, pattern
    *parents, last = pattern.split("/")
    wild = (at for at, part in enumerate(parents) if any(char in part for char in "*?[{\\"))
    at = next(wild, len(parents))
    below = "/".join([*parents[at:], last])
    return files.resolve("/".join(parents[:at]), worktree), "/" + below


@tool(
    "list",
    """Lists the files below a directory as a tree, at most 100. What git ignores, and \
folders as node_modules, are left out. Where you know what to look for, glob and grep are \
better.""",
    path=text("The directory to list. Leave it out for the project.", ""),
    ignore=texts("Glob patterns of what to leave out"),
)
def list_files(context: Context, given: str, ignored: Sequence[str]) -> Result:
    path = files.resolve(given or ".", context.worktree)
    without = any_of([*IGNORED, *filter(None, ignored)])
    ask(context, "list", [path], {"path": path})
    full, found = names(context, "list", path, "", str(LIMIT + 1), "list", without)
    rows = tree(found[:LIMIT]).splitlines()
    shown = answers.head(rows)
    output = "\n".join([f"{name(full.rstrip('/'))}/", *shown, ""])
    truncated = len(found) > LIMIT or len(shown) < len(rows)
    if truncated:
        output += (
            f"\n(Results are truncated: showing first {LIMIT} files. Consider listing a "
            "subdirectory.)"
        )
    metadata = {"count": min(len(found), LIMIT), "truncated": truncated}
    return Result(name(files.relative(path)), output, metadata)


def tree(paths: Sequence[str], depth: int = 1) -> str:
    """Return the paths as indented lines, folders first; below DEEPEST each as it is."""
    indent = "  " * depth
    if depth > DEEPEST:
        return "".join(f"{indent}{name(path)}\n" for path in sorted(paths))
    folders: dict[str, list[str]] = {}
    lines = []
    for path in sorted(paths):
        head, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(head, []).append(rest)
        else:
            lines.append(f"{indent}{name(head)}\n")
    subtrees = [f"{indent}{name(each)}/\n{tree(folders[each], depth + 1)}" for each in folders]
    return "".join([*subtrees, *lines])


def translate(pattern: str) -> str:
    """Return an ERE that matches, from beginning to end, the relative paths that a pattern means.

    ``*`` and ``?`` stop at slashes, ``**`` does not, ``{a,b}`` and ``[a-z]`` choose, a backslash
    takes the next character literally. A pattern without a slash matches at any depth, as in
    .gitignore. Raises ToolError for an invalid pattern.
    """
    if not pattern or "\0" in pattern or len(pattern) > PATTERN_LENGTH:
        raise ToolError(
            "the glob pattern must not be empty, hold NUL or be longer than 1000 characters"
        )
    pattern = pattern.removeprefix("./")
    anchored = pattern.startswith("/") or "/" in pattern.rstrip("/")
    return f"^(\\./)?{'' if anchored else '(.*/)?'}{_translate(pattern.lstrip('/'))}$"


def _translate(pattern: str) -> str:
    out: list[str] = []
    depth = 0
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if piece in _WILD:
            out.append(_WILD[piece])
        elif found["members"]:
            out.append(_bracket(found["members"], negated=bool(found["negated"])))
        elif piece == "{" and "}" in pattern[found.end() :]:
            depth += 1
            out.append("(")
        elif piece in _CHOICE and depth:
            depth -= piece == "}"
            out.append(_CHOICE[piece])
        else:
            literal = piece[-1]  # the other character of an escape
            out.append("\\" + literal if literal in ".^$+()[]{}|\\*?" else literal)
    if depth:
        raise ToolError(f"the glob pattern '{pattern}' has an unclosed '{{'")
    return "".join(out)


def any_of(patterns: list[str]) -> str:
    """Return an ERE for paths that match a pattern, or are in a folder that does, as .gitignore."""
    alternatives = [translate(each.rstrip("/") or each)[1:-1] for each in patterns]
    return "^(" + "|".join(f"{each}(/.*)?" for each in alternatives) + ")$"


def _bracket(members: str, *, negated: bool) -> str:
    """Return an ERE's bracket: "]" can only be first, and "[" is last, as it may begin a class."""
    members = members.replace("\\", "")
    first, last = "]" * ("]" in members), "[" * ("[" in members)
    members = first + members.replace("]", "").replace("[", "") + last
    sign = "" if not negated else "^" if first else "^/"
    return f"[{sign}{members}]"
