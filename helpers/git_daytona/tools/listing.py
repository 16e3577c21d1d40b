"""list and ls: the files below a directory as a tree. One API call."""

from collections.abc import Sequence

from git_daytona.tools import answers, files, glob
from git_daytona.tools.answers import name
from git_daytona.tools.context import Context, Question, Result, Tool, ask, text, texts

LIMIT = 100
DEEPEST = 30  # levels that are shown by indentation
IGNORED = str.split(
    "node_modules/ __pycache__/ .git/ dist/ build/ target/ vendor/ bin/ obj/ .idea/ .vscode/ "
    ".zig-cache/ zig-out .coverage coverage/ tmp/ temp/ .cache/ cache/ logs/ .venv/ venv/ env/"
)
"""What is left out besides what git ignores."""


def run(context: Context, given: str, ignored: Sequence[str]) -> Result:
    path = files.resolve(given or ".", context.worktree)
    without = glob.any_of([*IGNORED, *filter(None, ignored)])
    ask(context, Question("list", [path], {"path": path}))
    full, found = glob.names(context, "list", path, "", str(LIMIT + 1), "list", without)
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
    """Return the paths as indented lines, in each folder the folders first; below DEEPEST each as
    it is."""
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


LIST, LS = (
    Tool(
        each,
        """Lists the files below a directory as a tree, at most 100. What git ignores, and \
folders as node_modules, are left out. Where you know what to look for, glob and grep are \
better.""",
        run,
        {
            "path": text("The directory to list. Leave it out for the project.", ""),
            "ignore": texts("Glob patterns of what to leave out"),
        },
    )
    for each in ("list", "ls")
)
