"""apply_patch: changes to several files, all or none. Two API calls: one reads them, one writes
them if they are still the same."""

from typing import Any

from git_daytona.tools import files, patch
from git_daytona.tools.arguments import text
from git_daytona.tools.context import Context, Question, Result, Tool, ask
from git_daytona.tools.display import name
from git_daytona.tools.files import Change
from git_daytona.tools.patch import Rejected, Section
from git_daytona.tools.texts import compare


def run(context: Context, patch_text: str) -> Result:
    sections = patch.parse(patch_text)
    for section in sections:
        section.path = files.resolve(section.path, context.worktree)
        section.target = files.resolve(section.target, context.worktree)
    paths = list(dict.fromkeys(path for each in sections for path in (each.path, each.target)))
    with files.locked(context, paths):
        changes = _fetch(context, paths)
        entries = [_apply(section, changes) for section in sections]
        names = [files.relative(section.path) for section in sections]
        difference = "".join(entry["patch"] + "\n" for entry in entries)
        metadata = {"diff": difference, "files": entries}
        ask(context, Question("edit", names, {"filepath": ", ".join(names), **metadata}))
        changed = [each for each in changes.values() if each.text != each.found.text]
        if changed:
            # Deletions come last: a moved file's mode is taken from the old one.
            files.store(context, sorted(changed, key=lambda change: change.text is None))
    letters = {"add": "A", "delete": "D", "update": "M", "move": "M"}
    rows = [f"{letters[entry['type']]} {name(entry['relativePath'])}" for entry in entries]
    output = "\n".join(["Success. Updated the following files:", *rows])
    return Result(output, output, {**metadata, "diagnostics": {}})


def _fetch(context: Context, paths: list[str]) -> dict[str, Change]:
    """Read the files that will change. Raises ToolError for what is no text file, or named in two
    ways."""
    changes: dict[str, Change] = {}
    for path, found in zip(paths, files.fetch(context, paths), strict=True):
        if found.kind != "missing" and "\0" in found.need_text():
            raise Rejected(f"{name(found.path)} is a binary file")
        if found.path in [change.found.path for change in changes.values()]:
            raise Rejected("one file is named in two ways")
        changes[path] = Change(found, found.text)
    return changes


def _apply(section: Section, changes: dict[str, Change]) -> dict[str, Any]:
    """Apply a section to what those before it have left; returns its entry of OpenCode's
    ``metadata.files``. Raises Rejected."""
    change, target, shown = changes[section.path], changes[section.target], name(section.path)
    before, after, kind = change.text, None, section.action
    if kind == "add":
        after = "".join(section.added)
    elif before is None:
        raise Rejected(f"Failed to read file to {section.action}: {shown}")
    elif kind == "update":
        after = patch.update(shown, before, section.chunks)
    if target is not change:
        kind, change.text = "move", None
        target.like = "-" if change.found.text is None else change.found.path
    target.text = after
    difference = compare(shown, before or "", after or "")
    entry = {"filePath": section.path, "relativePath": files.relative(section.target), "type": kind}
    entry |= {"movePath": section.target} if kind == "move" else {}
    counts = {"additions": difference.additions, "deletions": difference.deletions}
    return {**entry, "patch": difference.patch, **counts}


TOOL = Tool(
    "apply_patch",
    """Changes files by a patch: all of it is applied, or none.

The patch is an envelope with one section per file:

*** Begin Patch
*** Add File: docs/hello.txt
+Every line of a new file begins with a plus sign
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Delete File: obsolete.txt
*** End Patch

- Each section begins with Add File, Delete File or Update File; Move to, right after Update \
File, renames it.
- In an update, lines begin with a blank (stays), `-` (goes) or `+` (comes). `@@` begins a place; \
after it may stand a line above that place, which tells it from others like it. Give about three \
unchanged lines around each change.
- Paths are relative to the project, or absolute.""",
    run,
    {"patchText": text("The full patch text that describes all changes to be made", empty=False)},
)
