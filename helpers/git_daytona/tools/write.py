"""write: create or overwrite a file. One API call for a new file; two for one that is there, which
is read for the difference."""

from git_daytona.tools import files
from git_daytona.tools.arguments import text
from git_daytona.tools.context import Context, Result, Tool
from git_daytona.tools.display import name
from git_daytona.tools.edit import change
from git_daytona.tools.files import Changed, Found
from git_daytona.tools.texts import Text, decode, is_binary

BINARY = "[binary content]\n"
"""What a difference shows for a binary file that is overwritten."""


def run(context: Context, path: str, content: str) -> Result:
    path = files.resolve(path, context.worktree)
    after = decode(content.encode())
    with files.locked(context, [path]):
        # Most files that are written are new, so this one is taken for new. Where a file turns up
        # nothing has been changed, and the user is asked again with what would be replaced.
        try:
            return _write(context, path, Found(path, "missing"), after)
        except Changed as problem:
            return _write(context, path, problem.found.need_file(), after)


def _write(context: Context, path: str, found: Found, after: Text) -> Result:
    old = ""
    if is_binary(found.content):
        old = BINARY
    elif found.kind == "file":
        before = decode(found.content)
        old, after = before.shown, _adapted(after, before)
    written = {"filepath": found.path, "exists": found.kind == "file"}
    metadata = change(context, path, found, old, after) | written
    return Result(name(files.relative(path)), "Wrote file successfully.", metadata)


def _adapted(content: Text, before: Text) -> Text:
    """Return the new content with the old one's byte-order mark, and its line endings where all of
    it had them."""
    breaks = before.raw.count("\n")
    raw = content.raw
    if breaks and breaks == before.raw.count("\r\n") and "\r\n" not in raw:
        raw = raw.replace("\n", "\r\n")
    return Text(raw, content.bom or before.bom)


TOOL = Tool(
    "write",
    """Writes a file, with the folders above it; one that is there is overwritten.

- Read a file before you overwrite it, and prefer the edit tool to change one. Do not create \
files that nobody asked for (documentation, say).
- A file that is there keeps its mode, its line endings and its byte-order mark.""",
    run,
    {
        "filePath": text(
            "The path of the file to write, absolute or relative to the project", empty=False
        ),
        "content": text("The content to write to the file"),
    },
)
