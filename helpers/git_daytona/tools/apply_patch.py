"""apply_patch: changes to several files, all or none. Two API calls: one reads them, one writes
them if they are still the same."""

from dataclasses import dataclass, field

from git_daytona.tools import clean, diff, files, patch, places, texts
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, text
from git_daytona.tools.context import Context, Result
from git_daytona.tools.files import Change, Found
from git_daytona.tools.patch import Rejected, Section
from git_daytona.tools.texts import Text


@dataclass
class Step:
    """One section of the patch, worked out: paths are the sandbox's."""

    kind: str
    """add, update, move or delete."""
    path: str
    target: str
    difference: diff.Diff

    def as_file(self) -> dict[str, object]:
        """As OpenCode's ``metadata.files``."""
        entry: dict[str, object] = {
            "filePath": self.path,
            "relativePath": places.relative(self.target),
            "type": self.kind,
            "patch": self.difference.patch,
            "additions": self.difference.additions,
            "deletions": self.difference.deletions,
        }
        return entry | ({"movePath": self.target} if self.kind == "move" else {})

    @property
    def line(self) -> str:
        letter = {"add": "A", "delete": "D"}.get(self.kind, "M")
        return f"{letter} {clean.name(places.relative(self.target))}"


@dataclass
class Plan:
    """The files as they will be: a path's text, or None where nothing will be."""

    found: dict[str, Found]
    texts: dict[str, Text | None] = field(default_factory=dict)
    likes: dict[str, str] = field(default_factory=dict)

    def current(self, path: str) -> Text | None:
        """The text of a file after the steps so far; None where there is none. Raises ToolError,
        Rejected."""
        if path not in self.texts:
            found = self.found[path]
            if found.kind == "missing":
                return None
            if texts.is_binary(files.need_file(found).content):
                raise Rejected(f"{clean.name(path)} is a binary file")
            self.texts[path] = texts.decode(found.content)
        return self.texts[path]

    def changes(self) -> list[Change]:
        """What has to be written; deletions last, since a moved file's mode comes from the old
        one."""
        made = []
        for path, planned in self.texts.items():
            found = self.found[path]
            if planned is None and found.kind == "file":
                made.append(Change(found, None))
            elif planned is not None and (
                found.kind != "file" or planned.encode() != found.content
            ):
                made.append(Change(found, planned.encode(), self.likes.get(path)))
        return sorted(made, key=lambda change: change.content is None)


def run(context: Context, arguments: Arguments) -> Result:
    sections = patch.parse(arguments.text("patchText", empty=False))
    for section in sections:
        section.path = places.resolve(section.path, context.worktree)
        section.move = places.resolve(section.move, context.worktree) if section.move else None
    paths = list(
        dict.fromkeys(path for section in sections for path in (section.path, section.move) if path)
    )
    with files.locked(context, paths):
        found = dict(zip(paths, files.fetch(context, paths), strict=True))
        if len({each.path for each in found.values()}) < len(paths):
            raise Rejected("one file is named in two ways")
        plan = Plan(found)
        steps = [_step(section, plan) for section in sections]
        names = [places.relative(step.path) for step in steps]
        whole = "".join(step.difference.patch + "\n" for step in steps)
        listed = [step.as_file() for step in steps]
        context.ask(
            "edit", names, ["*"], {"filepath": ", ".join(names), "diff": whole, "files": listed}
        )
        stop_if_cancelled(context)
        if changes := plan.changes():
            files.store(context, changes)
    said = "Success. Updated the following files:\n" + "\n".join(step.line for step in steps)
    return Result(said, said, {"diff": whole, "files": listed, "diagnostics": {}})


def _step(section: Section, plan: Plan) -> Step:
    path, shown = section.path, clean.name(section.path)
    before = plan.current(path)
    if section.action == "add":
        made = texts.decode(section.content.encode())
        plan.texts[path] = made
        return Step(
            "add", path, path, diff.compare(shown, before.shown if before else "", made.shown)
        )
    if before is None:
        what = "delete" if section.action == "delete" else "update"
        raise Rejected(f"Failed to read file to {what}: {shown}")
    if section.action == "delete":
        plan.texts[path] = None
        return Step("delete", path, path, diff.compare(shown, before.shown, ""))
    after = patch.update(shown, before, section.chunks)
    target = section.move or path
    if target != path:
        plan.current(target)  # a binary file or a directory there is refused
        plan.texts[path] = None
        plan.likes[target] = plan.found[path].path if plan.found[path].kind == "file" else "-"
    plan.texts[target] = after
    return Step(
        "move" if target != path else "update",
        path,
        target,
        diff.compare(shown, before.shown, after.shown),
    )


TOOL = Definition(
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
    schema(
        "patchText", patchText=text("The full patch text that describes all changes to be made")
    ),
    run,
)
