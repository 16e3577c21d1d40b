"""write: create or overwrite a file. One API call; two for a file that is there, which is read."""

from git_daytona.tools import files
from git_daytona.tools.answers import name
from git_daytona.tools.context import Context, Result, text, tool
from git_daytona.tools.edit import change
from git_daytona.tools.texts import BOM

BINARY = "[binary content]\n"  # what a difference shows of a binary file that is overwritten


@tool(
    "write",
    """Writes a file, with the folders above it; one that is there is overwritten.

- Read a file before you overwrite it, and prefer the edit tool to change one. Do not create \
files that nobody asked for (documentation, say).
- A file that is there keeps its mode, its line endings and its byte-order mark.""",
    filePath=text(
        "The path of the file to write, absolute or relative to the project", empty=False
    ),
    content=text("The content to write to the file"),
)
def write(context: Context, path: str, content: str) -> Result:
    path = files.resolve(path, context.worktree)
    with files.locked(context, [path]):
        # Most files that are written are new, so this one is taken for new. Where a file turns up
        # nothing has been changed, and the user is asked again with what would be replaced.
        try:
            found = files.Found(path, "missing")
            metadata = change(context, path, found, "", content)
        except files.Changed as problem:
            found, before = problem.found, problem.found.need_text()
            before = BINARY if "\0" in before else before
            metadata = change(context, path, found, before, adapted(content, before))
    metadata |= {"filepath": found.path, "exists": found.kind == "file"}
    return Result(name(files.relative(path)), "Wrote file successfully.", metadata)


def adapted(text: str, before: str) -> str:
    """Return the text with the mark of the one before, and its line endings where all are alike."""
    breaks = before.count("\n")
    if breaks and breaks == before.count("\r\n") and "\r\n" not in text:
        text = text.replace("\n", "\r\n")
    return BOM + text if before.startswith(BOM) and not text.startswith(BOM) else text
