"""Put the plugin into OpenCode's configuration, and take it out again. What is planned can be shown
before it is done.

Nothing is remembered besides the configuration itself: uninstalling is the inverse of installing
(jsonc.py), and a file that holds what we would write where there is none is ours to remove.
"""

import difflib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base import files
from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.opencode import jsonc, registration
from git_daytona.opencode.registration import Config

SCHEMA = "https://opencode.ai/config.json"


@dataclass(frozen=True)
class Change:
    """A configuration file before and after; None where there is no file. ``replaced`` are plugins
    of ours of other installations."""

    path: Path
    before: bytes | None
    after: bytes | None
    replaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff, fit for a terminal."""
        old, new = (
            io.StringIO(side.decode() if side else "", newline="\n").readlines()
            for side in (self.before, self.after)
        )
        name = str(self.path)
        came, went = (
            name if side is not None else "/dev/null" for side in (self.before, self.after)
        )
        lines = []
        for line in difflib.unified_diff(old, new, came, went):
            lines.append(
                line.rstrip("\r\n")
                if line.endswith("\n")
                else f"{line}\n\\ No newline at end of file"
            )
        return printable("\n".join(lines).replace("\r", ""))

    def make(self) -> None:
        """Write it, or remove the file. Raises BadSetting, also when the file has changed since the
        plan."""
        now = registration.read(self.path)
        if (now.raw if now else None) != self.before:
            raise BadSetting(f"'{self.path}' was changed meanwhile", hint="try again")
        if self.after is not None:
            files.rewrite(self.path, self.after)
            return
        try:
            self.path.unlink()
        except OSError as problem:
            raise BadSetting(
                f"cannot remove '{self.path}': {problem.strerror}",
                hint="make its directory writable",
            ) from problem


def install(worktree: Path | None) -> Change:
    """The plan for the project's configuration, or with None for that of all projects. Raises
    BadSetting for a file that cannot be edited."""
    candidates = (
        registration.global_files() if worktree is None else registration.project_files(worktree)
    )
    there = [found for path in candidates if (found := registration.read(path)) is not None]
    preferred = [found for found in there if found.path.name in registration.NAMES]
    if worktree is None:
        # There the last array counts: another file would have no effect, or hide the plugins of
        # this one.
        chosen = next(
            (found for found in reversed(there) if found.document.property("plugin")),
            next(iter(preferred), None),
        )
    else:
        chosen = next((found for found in there if found.own()), next(iter(preferred), None))
    if chosen is None:
        return Change(
            next(path for path in candidates if path.name in registration.NAMES),
            None,
            _fresh(registration.entry()),
        )
    wanted = json.dumps(registration.entry())
    own = [spec for spec in chosen.specs() if registration.is_ours(spec.text)]
    text = chosen.document.text
    if not own:
        text = added(chosen.document, wanted)
    elif registration.entry() not in chosen.own():
        text = jsonc.replace(chosen.document, own[0].node, wanted)
    text = removed(text, lambda spec: registration.is_ours(spec) and spec != registration.entry())
    replaced = tuple(spec for spec in chosen.own() if spec != registration.entry())
    return _checked(chosen, text, replaced, expected={registration.entry()})


def uninstall(worktree: Path | None) -> list[Change]:
    """The plans for all files of the project, or of all projects, that have a plugin of ours.
    Raises BadSetting for a file that cannot be edited."""
    changes = []
    for path in (
        registration.global_files() if worktree is None else registration.project_files(worktree)
    ):
        found = registration.read(path)
        if found is None or not found.own():
            continue
        if not path.is_symlink() and found.raw in [_fresh(spec) for spec in found.own()]:
            changes.append(Change(path, found.raw, None))
        else:
            changes.append(
                _checked(
                    found,
                    removed(found.document.text, registration.is_ours),
                    tuple(found.own()),
                    expected=set(),
                )
            )
    return changes


def rivals(worktree: Path | None, start: Path, changed: Path) -> list[str]:
    """What OpenCode would load beside the plugin in the changed file and should not, one line each.
    Files that cannot be read are left to ``git daytona doctor``."""
    found = []
    for config in registration.configs(worktree, start):
        if isinstance(config, BadSetting):
            continue
        for spec in config.specs():
            if registration.is_other(spec.text):
                found.append(
                    f"'{config.path}' also names Daytona's other plugin, '{spec.text}', and both would run: remove one"
                )
            elif (
                registration.is_ours(spec.text)
                and config.path != changed
                and config.place(spec.text) != registration.SHIM
            ):
                found.append(
                    f"'{config.path}' names the plugin of another installation, and both would run: take that one back"
                )
    found += [
        f"'{path}' may be Daytona's other plugin, and both would run"
        for path in registration.loose(worktree, start)
        if "daytona" in path.name
    ]
    return found


def _fresh(spec: str) -> bytes:
    """The file that is written where there is none."""
    return f'{{\n  "$schema": "{SCHEMA}",\n  "plugin": [{json.dumps(spec)}]\n}}\n'.encode()


def added(document: jsonc.Document, entry: str) -> str:
    """The text of a document with an entry, as JSON, in its array of plugins."""
    plugins = document.property("plugin")
    if plugins is None:
        return jsonc.append(document, document.root, f'"plugin": [{entry}]')
    return jsonc.append(document, plugins.value, entry)


def removed(text: str, unwanted: Callable[[str], bool]) -> str:
    """The text without some of the plugins. A property that is exactly as added() makes it goes as
    a whole."""
    while True:
        document = jsonc.parse(text)
        found = document.property("plugin")
        number = next(
            (spec.number for spec in registration.specs(document) if unwanted(spec.text)), None
        )
        if found is None or number is None:
            return text
        item = found.value.items[number].value
        if text[found.value.start : found.value.end] == f"[{text[item.start : item.end]}]":
            text = jsonc.remove(document, document.root, document.root.items.index(found))
        else:
            text = jsonc.remove(document, found.value, number)


def _checked(config: Config, text: str, replaced: tuple[str, ...], *, expected: set[str]) -> Change:
    """The change to a text, after looking whether it says what it shall: all other plugins as
    before, and of ours what is expected."""
    after = Config(config.path, b"", jsonc.parse(text))

    def others(each: Config) -> list[str]:
        return [spec.text for spec in each.specs() if not registration.is_ours(spec.text)]

    if others(after) != others(config) or set(after.own()) != expected:
        raise GitDaytonaError(
            f"'{config.path}' cannot be edited safely",
            hint="do it by hand (the README says what belongs there), and report it",
        )
    return Change(config.path, config.raw, text.encode(), replaced)
