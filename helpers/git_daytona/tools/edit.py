"""edit: replace a text in a file. Two API calls: one reads the file, one writes it if it is still
the same."""

from git_daytona.tools import clean, diff, files, matching, places, texts
from git_daytona.tools.arguments import (
    Arguments,
    Definition,
    schema,
    stop_if_cancelled,
    text,
    yes_or_no,
)
from git_daytona.tools.context import Context, Result, ToolError
from git_daytona.tools.files import Change, Found
from git_daytona.tools.texts import Text

OLD = text("The text to replace")
NEW = text("The text to replace it with (must be different from oldString)")
ALL = yes_or_no("Replace all occurrences of oldString (default false)")


def run(context: Context, arguments: Arguments) -> Result:
    path = places.resolve(arguments.text("filePath", empty=False), context.worktree)
    old, new = arguments.text("oldString"), arguments.text("newString")
    every = arguments.flag("replaceAll")
    if texts.unified(old) == texts.unified(new):
        raise ToolError(matching.IDENTICAL)
    with files.locked(context, [path]):
        (found,) = files.fetch(context, [path])
        if not old and found.kind == "missing":
            return change(context, path, found, Text(""), texts.decode(new.encode()))
        before = editable(found)
        return change(context, path, found, before, matching.replace(before, old, new, every=every))


def editable(found: Found) -> Text:
    """The text of a file that is to be edited. Raises ToolError for what is no text file."""
    files.need_file(found)
    if texts.is_binary(found.content):
        raise ToolError(f"Cannot edit binary file: {clean.name(found.path)}")
    return texts.decode(found.content)


def change(context: Context, path: str, found: Found, before: Text, after: Text) -> Result:
    """Ask, write, and say what changed. To be called with the file's lock held."""
    name = places.relative(path)
    difference = diff.compare(clean.name(found.path), before.shown, after.shown)
    context.ask("edit", [name], ["*"], {"filepath": found.path, "diff": difference.patch})
    stop_if_cancelled(context)
    files.store(context, [Change(found, after.encode())])
    metadata = {"diagnostics": {}, "diff": difference.patch, "filediff": difference.as_file()}
    return Result(clean.name(name), "Edit applied successfully.", metadata)


TOOL = Definition(
    "edit",
    """Replaces a text in a file by another.

- `oldString` must stand in the file exactly as given, indentation included, and only once: else \
the edit fails. Add lines around it to make it unique, or set `replaceAll` to change all of them \
(renaming, say).
- Read the file first. Take what follows the line number and its colon and blank; never put these \
into oldString or newString.
- Both strings are taken literally. `\\n` also matches the line ends of files that use `\\r\\n`, \
and the file keeps them, its mode and its byte-order mark.
- Prefer editing a file that exists to writing a new one.""",
    schema(
        "filePath oldString newString",
        filePath=text("The path of the file to modify, absolute or relative to the project"),
        oldString=OLD,
        newString=NEW,
        replaceAll=ALL,
    ),
    run,
)
