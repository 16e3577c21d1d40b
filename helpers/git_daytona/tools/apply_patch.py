"""apply_patch: changes to several files, all or none. Two API calls: one reads them, one writes
them if they are still the same."""

from dataclasses import dataclass

from git_daytona.tools import files, patch
from git_daytona.tools.arguments import text
from git_daytona.tools.context import Context, Question, Result, Tool, ask
from git_daytona.tools.display import name
from git_daytona.tools.files import Change, Found
from git_daytona.tools.patch import Rejected, Section
from git_daytona.tools.texts import Diff, Text, compare, decode, is_binary


@dataclass(frozen=True)
class Step:
    """What a section of the patch does; paths are the sandbox's."""

    kind: str
    """add, update, move or delete."""
    path: str
    target: str
    difference: Diff

    def metadata(self) -> dict[str, object]:
        """Return an entry of OpenCode's ``metadata.files``."""
        entry: dict[str, object] = {
            "filePath": self.path,
            "relativePath": files.relative(self.target),
            "type": self.kind,
            "patch": self.difference.patch,
            "additions": self.difference.additions,
            "deletions": self.difference.deletions,
        }
        return entry | ({"movePath": self.target} if self.kind == "move" else {})

    def line(self) -> str:
        letter = {"add": "A", "delete": "D"}.get(self.kind, "M")
        return f"{letter} {name(files.relative(self.target))}"


@dataclass
class File:
    """A file that the patch names."""

    found: Found
    text: Text | None
    """What it will hold after the steps so far; None where nothing will be."""
    like: str = "-"
    """The file whose mode it takes."""

    def change(self) -> Change | None:
        content = self.text.encode() if self.text else None
        before = self.found.content if self.found.kind == "file" else None
        return None if content == before else Change(self.found, content, self.like)


def run(context: Context, patch_text: str) -> Result:
    sections = patch.parse(patch_text)
    for section in sections:
        section.path = files.resolve(section.path, context.worktree)
        section.move = section.move and files.resolve(section.move, context.worktree)
    paths = list(
        dict.fromkeys(path for each in sections for path in (each.path, each.move) if path)
    )
    with files.locked(context, paths):
        named = dict(zip(paths, map(_file, files.fetch(context, paths)), strict=True))
        if len({file.found.path for file in named.values()}) < len(paths):
            raise Rejected("one file is named in two ways")
        steps = [_step(section, named) for section in sections]
        names = [files.relative(step.path) for step in steps]
        difference = "".join(step.difference.patch + "\n" for step in steps)
        metadata = {"diff": difference, "files": [step.metadata() for step in steps]}
        ask(context, Question("edit", names, {"filepath": ", ".join(names), **metadata}))
        changes = [change for file in named.values() if (change := file.change())]
        if changes:
            # Deletions come last: a moved file's mode is taken from the old one.
            files.store(context, sorted(changes, key=lambda change: change.content is None))
    lines = [step.line() for step in steps]
    output = "\n".join(["Success. Updated the following files:", *lines])
    return Result(output, output, metadata | {"diagnostics": {}})


def _file(found: Found) -> File:
    if found.kind == "missing":
        return File(found, None)
    if is_binary(found.need_file().content):
        raise Rejected(f"{name(found.path)} is a binary file")
    return File(found, decode(found.content))


def _step(section: Section, named: dict[str, File]) -> Step:
    """Work a section out, on what those before it have left. Raises Rejected."""
    path, target, shown = section.path, section.move or section.path, name(section.path)
    file = named[path]
    before = file.text
    if section.action == "add":
        after: Text | None = decode(section.content.encode())
    elif before is None:
        raise Rejected(f"Failed to read file to {section.action}: {shown}")
    elif section.action == "delete":
        after = None
    else:
        after = patch.update(shown, before, section.chunks)
    if target != path:
        file.text = None
        named[target].like = file.found.path if file.found.kind == "file" else "-"
    named[target].text = after
    difference = compare(shown, before.shown if before else "", after.shown if after else "")
    return Step("move" if target != path else section.action, path, target, difference)


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
