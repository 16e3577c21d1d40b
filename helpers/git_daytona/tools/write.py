"""write: create or overwrite a file. One API call for a new file; two for one that is there, which
is read for the difference."""

from git_daytona.tools import clean, diff, files, places, texts
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result
from git_daytona.tools.files import Change, Changed, Found
from git_daytona.tools.texts import Text

BINARY = "[binary content]\n"
"""What a difference shows for a binary file that is overwritten."""


def run(context: Context, arguments: Arguments) -> Result:
    path = places.resolve(arguments.text("filePath", empty=False), context.worktree)
    content = texts.decode(arguments.text("content").encode())
    with files.locked(context, [path]):
        # Most files that are written are new. So it is asked for and tried as such; where a file
        # turns up nothing has been changed, and the user is asked again with what would really be
        # replaced.
        try:
            return _write(context, path, Found(path, "missing"), content)
        except Changed as problem:
            return _write(context, path, files.need_file(problem.found), content)


def _write(context: Context, path: str, found: Found, content: Text) -> Result:
    exists = found.kind == "file"
    before, after = Text(""), content
    if exists and not texts.is_binary(found.content):
        before = texts.decode(found.content)
        after = adapted(content, before)
    old = BINARY if exists and texts.is_binary(found.content) else before.shown
    difference = diff.compare(clean.name(found.path), old, after.shown)
    name = places.relative(path)
    context.ask("edit", [name], ["*"], {"filepath": found.path, "diff": difference.patch})
    stop_if_cancelled(context)
    files.store(context, [Change(found, after.encode())])
    return Result(
        clean.name(name),
        "Wrote file successfully.",
        {
            "diagnostics": {},
            "filepath": found.path,
            "exists": exists,
            "diff": difference.patch,
            "filediff": difference.as_file(),
        },
    )


def adapted(content: Text, before: Text) -> Text:
    """The new content with the old one's byte-order mark, and its line endings where all of it had
    them."""
    raw = content.raw
    if (
        before.ending == "\r\n"
        and before.raw.count("\n") == before.raw.count("\r\n")
        and "\r\n" not in raw
    ):
        raw = texts.with_ending(raw, "\r\n")
    return Text(raw, content.bom or before.bom)


TOOL = Definition(
    "write",
    """Writes a file, with the folders above it; one that is there is overwritten.

- Read a file before you overwrite it, and prefer the edit tool to change one. Do not create \
files that nobody asked for (documentation, say).
- A file that is there keeps its mode, its line endings and its byte-order mark.""",
    schema(
        "filePath content",
        filePath=text("The path of the file to write, absolute or relative to the project"),
        content=text("The content to write to the file"),
    ),
    run,
)
