"""Put the plugin into OpenCode's configuration, and take it out again. What is planned can be shown before it is done.

Nothing is remembered besides the configuration itself: uninstalling is the inverse of installing (jsonc.py), and a file that holds what
we would write where there is none is ours to remove.
"""

import difflib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona import files, jsonc, registered
from git_daytona.errors import BadSetting, GitDaytonaError
from git_daytona.registered import Config
from git_daytona.secret import printable

SCHEMA = "https://opencode.ai/config.json"


@dataclass(frozen=True)
class Change:
    """A configuration file before and after; None where there is no file. ``replaced`` are plugins of ours of other installations."""

    path: Path
    before: bytes | None
    after: bytes | None
    replaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff, fit for a terminal."""
        old, new = (io.StringIO(side.decode() if side else "", newline="\n").readlines() for side in (self.before, self.after))
        name = str(self.path)
        came, went = (name if side is not None else "/dev/null" for side in (self.before, self.after))
        lines = []
        for line in difflib.unified_diff(old, new, came, went):
            lines.append(line.rstrip("\r\n") if line.endswith("\n") else f"{line}\n\\ No newline at end of file")
        return printable("\n".join(lines).replace("\r", ""))

    def make(self) -> None:
        """Write it, or remove the file. Raises BadSetting, also when the file has changed since the plan."""
        now = registered.read(self.path)
        if (now.raw if now else None) != self.before:
            raise BadSetting(f"'{self.path}' was changed meanwhile", hint="try again")
        if self.after is not None:
            files.rewrite(self.path, self.after)
            return
        try:
            self.path.unlink()
        except OSError as problem:
            raise BadSetting(f"cannot remove '{self.path}': {problem.strerror}", hint="make its directory writable") from problem


def install(candidates: Sequence[Path]) -> Change:
    """The plan for one of the files: the one that has a plugin of ours already, else the first one there is, else a new first one.

    Raises BadSetting for a file that cannot be edited.
    """
    there = [found for path in candidates if (found := registered.read(path)) is not None]
    chosen = next((found for found in there if found.own()), there[0] if there else None)
    if chosen is None:
        return Change(candidates[0], None, _fresh(registered.entry()))
    wanted = json.dumps(registered.entry())
    own = [each for each in chosen.specs() if registered.is_ours(each[2])]
    text = chosen.document.text
    if not own:
        text = _added(chosen, wanted)
    elif registered.entry() not in [spec for _, _, spec in own]:
        text = jsonc.replace(chosen.document, own[0][1], wanted)
    text = _without(text, lambda spec: registered.is_ours(spec) and spec != registered.entry())
    replaced = tuple(spec for _, _, spec in own if spec != registered.entry())
    return _checked(chosen, text, replaced, expected=registered.entry())


def uninstall(candidates: Sequence[Path]) -> list[Change]:
    """The plans for all of the files that have a plugin of ours. Raises BadSetting for a file that cannot be edited."""
    changes = []
    for path in candidates:
        found = registered.read(path)
        if found is None or not found.own():
            continue
        if not path.is_symlink() and found.raw in [_fresh(spec) for spec in found.own()]:
            changes.append(Change(path, found.raw, None))
        else:
            changes.append(_checked(found, _without(found.document.text, registered.is_ours), tuple(found.own()), expected=None))
    return changes


def rivals(worktree: Path | None, start: Path, changed: Path) -> list[str]:
    """What OpenCode would load beside the plugin in the changed file and should not, one line each. Files that cannot be read are left
    to ``git daytona doctor``."""
    found = []
    for path in registered.every_file(worktree, start):
        try:
            config = registered.read(path)
        except BadSetting:
            continue
        for _, _, spec in config.specs() if config else ():
            if registered.is_other(spec):
                found.append(f"'{path}' also names Daytona's other plugin, '{spec}', and both would run: remove one")
            elif registered.is_ours(spec) and spec != registered.entry() and path != changed:
                found.append(f"'{path}' names the plugin of another installation, and both would run: take that one back")
    found += [
        f"'{path}' may be Daytona's other plugin, and both would run"
        for path in registered.loose(worktree, start)
        if "daytona" in path.name
    ]
    return found


def _fresh(spec: str) -> bytes:
    """The file that is written where there is none."""
    return f"{json.dumps({'$schema': SCHEMA, 'plugin': [spec]}, indent=2)}\n".encode()


def _added(config: Config, wanted: str) -> str:
    if config.plugins is not None:
        return jsonc.append(config.document, config.plugins, wanted)
    return jsonc.append(config.document, config.document.root, f'"plugin": [{wanted}]')


def _without(text: str, unwanted: Callable[[str], bool]) -> str:
    """The text without some of the plugins. A property that is exactly as we add it goes as a whole."""
    while True:
        document = jsonc.parse(text)
        found = document.property("plugin")
        if found is None:
            return text
        config = Config(Path(), b"", document, found.value)
        numbers = [number for number, _, spec in config.specs() if unwanted(spec)]
        if not numbers:
            return text
        item = found.value.items[numbers[0]].value
        if text[found.value.start : found.value.end] == f"[{text[item.start : item.end]}]":
            text = jsonc.remove(document, document.root, document.root.items.index(found))
        else:
            text = jsonc.remove(document, found.value, numbers[0])


def _checked(config: Config, text: str, replaced: tuple[str, ...], *, expected: str | None) -> Change:
    """The change to a text, after looking whether it says what it shall: all other plugins as before, and ours once or not at all."""
    before = [spec for _, _, spec in config.specs()]
    document = jsonc.parse(text)
    found = document.property("plugin")
    after = [spec for _, _, spec in Config(config.path, b"", document, found.value if found else None).specs()]
    ours = [spec for spec in after if registered.is_ours(spec)]
    if [spec for spec in after if spec not in ours] != [spec for spec in before if not registered.is_ours(spec)] or set(ours) != (
        {expected} if expected else set()
    ):
        raise GitDaytonaError(
            f"'{config.path}' cannot be edited safely", hint="do it by hand (the README says what belongs there), and report it"
        )
    return Change(config.path, config.raw, text.encode(), replaced)
