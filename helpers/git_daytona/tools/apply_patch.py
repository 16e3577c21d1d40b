"""apply_patch: changes to several files, all or none. Two API calls: one reads them, one writes
them if they are still the same."""

from dataclasses import dataclass
from typing import Any

from git_daytona.tools import files, patch
from git_daytona.tools.arguments import text
from git_daytona.tools.context import Context, Question, Result, Tool, ask
from git_daytona.tools.display import name
from git_daytona.tools.files import Change, Found
from git_daytona.tools.patch import Rejected, Section
from git_daytona.tools.texts import compare


@dataclass
class File:
    """A file that the patch names."""

    found: Found
    text: str | None
    """What it will hold after the sections so far; None where nothing will be."""
    like: str = "-"
    """The file whose mode it takes."""

    def changes(self) -> list[Change]:
        before = self.found.text if self.found.kind == "file" else None
        return [] if self.text == before else [Change(self.found, self.text, self.like)]


def run(context: Context, patch_text: str) -> Result:
    sections = patch.parse(patch_text)
    for section in sections:
        section.path = files.resolve(section.path, context.worktree)
        section.target = files.resolve(section.target or section.path, context.worktree)
    paths = list(dict.fromkeys(path for each in sections for path in (each.path, each.target)))
    with files.locked(context, paths):
        named = dict(zip(paths, map(_file, files.fetch(context, paths)), strict=True))
        if len({file.found.path for file in named.values()}) < len(paths):
            raise Rejected("one file is named in two ways")
        entries = [_apply(section, named) for section in sections]
        names = [files.relative(section.path) for section in sections]
        difference = "".join(entry["patch"] + "\n" for entry in entries)
        metadata = {"diff": difference, "files": entries}
        ask(context, Question("edit", names, {"filepath": ", ".join(names), **metadata}))
        # Deletions come last: a moved file's mode is taken from the old one.
        changes = [change for file in named.values() for change in file.changes()]
        changes.sort(key=lambda change: change.text is None)
        if changes:
            files.store(context, changes)
    letters = {"add": "A", "delete": "D", "update": "M", "move": "M"}
    rows = [f"{letters[entry['type']]} {name(entry['relativePath'])}" for entry in entries]
    output = "\n".join(["Success. Updated the following files:", *rows])
    return Result(output, output, {**metadata, "diagnostics": {}})


def _file(found: Found) -> File:
    if found.kind == "missing":
        return File(found, None)
    if "\0" in found.need_file().text:
        raise Rejected(f"{name(found.path)} is a binary file")
    return File(found, found.text)


def _apply(section: Section, named: dict[str, File]) -> dict[str, Any]:
    """Apply a section to what those before it have left; returns its entry of OpenCode's
    ``metadata.files``. Raises Rejected."""
    file, target, shown = named[section.path], named[section.target], name(section.path)
    before, after = file.text, None
    if section.action == "add":
        after = "".join(section.added)
    elif before is None:
        raise Rejected(f"Failed to read file to {section.action}: {shown}")
    elif section.action == "update":
        after = patch.update(shown, before, section.chunks)
    moved = {}
    if target is not file:
        moved = {"type": "move", "movePath": section.target}
        file.text = None
        target.like = file.found.path if file.found.kind == "file" else "-"
    target.text = after
    difference = compare(shown, before or "", after or "")
    return {
        "filePath": section.path,
        "relativePath": files.relative(section.target),
        "type": section.action,
        "patch": difference.patch,
        "additions": difference.additions,
        "deletions": difference.deletions,
        **moved,
    }


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
