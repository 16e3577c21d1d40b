"""Put the plugin into OpenCode's configuration, and take it out again; a plan can be shown first.

Nothing is remembered besides the configuration itself: uninstalling is the inverse of installing
(jsonc.py), and a file that holds only what we would write is ours to remove.
"""

import json
from collections.abc import Callable
from pathlib import Path

from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.files import Change
from git_daytona.opencode import closing, jsonc, registration
from git_daytona.opencode.registration import Config

SCHEMA = "https://opencode.ai/config.json"


def install(worktree: Path | None) -> Change:
    """Plan for the project's configuration, or with None for that of all. Raises BadSetting."""
    entry = registration.entry()
    chosen = _chosen(worktree)
    if isinstance(chosen, Path):
        return Change(chosen, None, _fresh(entry))
    text = chosen.document.text
    own = [spec for spec in chosen.specs() if registration.is_ours(spec.text)]
    if not own:
        text = added(chosen.document, json.dumps(entry))
    elif entry not in chosen.own():
        text = jsonc.replace(chosen.document, own[0].node, json.dumps(entry))
    text = removed(text, lambda spec: registration.is_ours(spec) and spec != entry)
    text = closing.add(text)
    replaced = tuple(spec.text for spec in own if spec.text != entry)
    return _checked(chosen, text, replaced, expected={entry})


def _chosen(worktree: Path | None) -> Config | Path:
    """The file that the plugin belongs into; its path where it has to be made."""
    paths = _files(worktree)
    there = [found for path in paths if (found := registration.read(path)) is not None]
    if worktree is None:
        # There the last array counts: another file would have no effect, or hide the plugins of
        # this one.
        better = [found for found in reversed(there) if found.document.root.item("plugin")]
    else:
        better = [found for found in there if found.own()]
    named = [found for found in there if found.path.name in registration.NAMES]
    missing = next(path for path in paths if path.name in registration.NAMES)
    return next(iter((*better, *named)), missing)


def uninstall(worktree: Path | None) -> list[Change]:
    """Plan for all files, likewise, that have a plugin of ours. Raises BadSetting."""
    changes = []
    for path in _files(worktree):
        found = registration.read(path)
        if found is None or not found.own():
            continue
        if not path.is_symlink() and found.raw in [_fresh(spec) for spec in found.own()]:
            changes.append(Change(path, found.raw, None))
        else:
            text = removed(closing.remove(found.document.text), registration.is_ours)
            changes.append(_checked(found, text, tuple(found.own()), expected=set()))
    return changes


def rivals(worktree: Path | None, start: Path, changed: Path) -> list[str]:
    """What OpenCode would load besides the changed file's plugin, and should not, a line each."""
    found = []
    both = "and both would run"
    named = [(it, spec.text) for it in registration.usable(worktree, start) for spec in it.specs()]
    for it, spec in named:
        elsewhere = it.path != changed and it.place(spec) != registration.PLUGIN
        if registration.is_other(spec):
            words = f"also names Daytona's other plugin, '{spec}', {both}: remove one"
        elif registration.is_ours(spec) and elsewhere:
            words = f"names the plugin of another installation, {both}: take that one back"
        else:
            continue
        found.append(f"'{it.path}' {words}")
    return found + [
        f"'{path}' may be Daytona's other plugin, {both}"
        for path in registration.loose(worktree, start)
        if "daytona" in path.name
    ]


def _files(worktree: Path | None) -> list[Path]:
    if worktree is None:
        return registration.global_files()
    return registration.project_files(worktree)


def _fresh(spec: str) -> bytes:
    """The file that is written where there is none."""
    plugin = f'{{\n  "$schema": "{SCHEMA}",\n  "plugin": [{json.dumps(spec)}]\n}}\n'
    return closing.add(plugin).encode()


def added(document: jsonc.Document, entry: str) -> str:
    """The text of a document with an entry, as JSON, in its array of plugins."""
    plugins = document.root.item("plugin")
    if plugins is None:
        return jsonc.append(document, document.root, f'"plugin": [{entry}]')
    return jsonc.append(document, plugins.value, entry)


def removed(text: str, unwanted: Callable[[str], bool]) -> str:
    """The text without the unwanted plugins; a property that is as added() makes it goes whole."""
    while True:
        document = jsonc.parse(text)
        found = document.root.item("plugin")
        numbers = [it.number for it in registration.specs(document) if unwanted(it.text)]
        if found is None or not numbers:
            return text
        item = found.value.items[numbers[0]].value
        if document.source(found.value) == f"[{document.source(item)}]":
            text = jsonc.remove(document, document.root, document.root.items.index(found))
        else:
            text = jsonc.remove(document, found.value, numbers[0])


def _checked(config: Config, text: str, replaced: tuple[str, ...], *, expected: set[str]) -> Change:
    """The change to a text, checked: all other plugins as before, and of ours what is expected."""
    after = Config(config.path, b"", jsonc.parse(text))

    def others(each: Config) -> list[str]:
        return [spec.text for spec in each.specs() if not registration.is_ours(spec.text)]

    if others(after) != others(config) or set(after.own()) != expected:
        hint = "do it by hand (the README says what belongs there), and report it"
        raise GitDaytonaError(f"'{config.path}' cannot be edited safely", hint=hint)
    return Change(config.path, config.raw, text.encode(), replaced)
