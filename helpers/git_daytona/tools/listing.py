"""list and ls: the files below a directory as a tree. One API call."""

from collections.abc import Sequence

from git_daytona.sandbox.scripts import script
from git_daytona.tools import bounds, clean, globs, places
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result
from git_daytona.tools.glob import names

LIMIT = 100
DEEPEST = 30
"""Levels that are shown by indentation."""
SECONDS = 60.0
IGNORED = str.split(
    "node_modules/ __pycache__/ .git/ dist/ build/ target/ vendor/ bin/ obj/ .idea/ "
    ".vscode/ .zig-cache/ zig-out .coverage"
    " coverage/ tmp/ temp/ .cache/ cache/ logs/ .venv/ venv/ env/"
)
"""What is left out besides what git ignores."""


def run(context: Context, arguments: Arguments) -> Result:
    given = arguments.text("path", "")
    ignored = arguments.texts("ignore")
    path = places.resolve(given or ".", context.worktree)
    without = globs.any_of([*IGNORED, *(each for each in ignored if each)])
    context.ask("list", [path], ["*"], {"path": path})
    stop_if_cancelled(context)
    words = (path, "", str(LIMIT + 1), "list", without)
    full, found = names(
        context.execute(script("names") + script("glob"), *words, timeout=SECONDS), "list"
    )
    shown = found[:LIMIT]
    truncated = len(found) > LIMIT
    rows, cut = bounds.head(tree(shown).splitlines())
    truncated = truncated or cut
    output = "\n".join([f"{clean.name(full.rstrip('/'))}/", *rows, ""])
    if truncated:
        output += (
            f"\n(Results are truncated: showing first {LIMIT} files. Consider listing a "
            "subdirectory.)"
        )
    return Result(
        clean.name(places.relative(path)), output, {"count": len(shown), "truncated": truncated}
    )


def tree(paths: Sequence[str], depth: int = 1) -> str:
    """The paths as indented lines, in each folder the folders first. From DEEPEST on they stand as
    they are."""
    if depth > DEEPEST:
        return "".join(f"{'  ' * depth}{clean.name(path)}\n" for path in sorted(paths))
    folders: dict[str, list[str]] = {}
    files = []
    for path in sorted(paths):
        head, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(head, []).append(rest)
        else:
            files.append(head)
    indent = "  " * depth
    lines = [
        f"{indent}{clean.name(name)}/\n{tree(below, depth + 1)}" for name, below in folders.items()
    ]
    return "".join(lines) + "".join(f"{indent}{clean.name(name)}\n" for name in files)


def _definition(name: str) -> Definition:
    return Definition(
        name,
        """Lists the files below a directory as a tree, at most 100. What git ignores, and \
folders as node_modules, are left out. Where you know what to look for, glob and grep are \
better.""",
        schema(
            "",
            path=text("The directory to list. Leave it out for the project."),
            ignore={
                "type": "array",
                "items": {"type": "string"},
                "description": "Glob patterns of what to leave out",
            },
        ),
        run,
    )


LIST = _definition("list")
LS = _definition("ls")
