"""Which plugins OpenCode's configuration names, and where. Reads only.

OpenCode 1.18 merges, later ones first in rank: the files of ``$XDG_CONFIG_HOME/opencode``; the file
that OPENCODE_CONFIG names; ``opencode.json`` and ``opencode.jsonc`` of each directory from the
worktree's root to where it runs; those in ``.opencode`` folders on that way and in HOME; those of
OPENCODE_CONFIG_DIR. The plugins of all of them are loaded, one that is named twice once; but of the
files in the first place only the last array counts (an array in ``opencode.jsonc`` hides the one in
``opencode.json`` there). So are files in the folders ``plugin`` and ``plugins`` of all
but the second and third kind.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import git_daytona
from git_daytona.base import files, paths
from git_daytona.base.errors import BadSetting
from git_daytona.opencode import jsonc

PLUGIN = Path(git_daytona.__file__).absolute().parent / "opencode" / "plugin"
"""The plugin of this installation: a directory with ``index.js``, the only form that OpenCode 2
takes. Not resolved: what pipx, uv or a package manager links to outlives an update."""
ID = "git-daytona"
"""The plugin's name in OpenCode 2."""
_FORMER = PLUGIN.with_name("daytona.js")
NAMES = ("opencode.json", "opencode.jsonc")
_OTHER = re.compile(r"(?:npm:)?(?:@daytona(?:io)?/opencode(?:-plugin)?|opencode-daytona)(?:@.*)?")


@dataclass(frozen=True)
class Spec:
    """A plugin in the array: its number there, the string that names it, and that string's text."""

    number: int
    node: jsonc.Node
    text: str


@dataclass(frozen=True)
class Config:
    """A configuration file that was read."""

    path: Path
    raw: bytes
    document: jsonc.Document

    def place(self, spec: str) -> Path:
        """The file that a plugin of it is, for one that is a file."""
        return Path(os.path.normpath(self.path.parent / target(spec)))

    def specs(self) -> list[Spec]:
        return specs(self.document)

    def own(self) -> list[str]:
        """The plugins of ours that it names, of whatever installation."""
        return [spec.text for spec in self.specs() if is_ours(spec.text)]


def specs(document: jsonc.Document) -> list[Spec]:
    """The plugins that a document names; one with options is an array that begins with its name."""
    found = []
    plugins = document.root.item("plugin")
    for number, item in enumerate(plugins.value.items if plugins else ()):
        node = item.value
        if node.kind == "array" and node.items:
            node = node.items[0].value
        if (text := document.string(node)) is not None:
            found.append(Spec(number, node, text))
    return found


def entry() -> str:
    """How this installation's plugin is named in a configuration file."""
    return PLUGIN.as_uri()


def is_ours(spec: str) -> bool:
    """Whether a plugin is that of an installation of this suite, by the end of its path."""
    place = Path(target(spec))
    place = place.parent if place.name == "index.js" else place
    return place.parts[-3:] in (PLUGIN.parts[-3:], _FORMER.parts[-3:])


def is_off(spec: str) -> bool:
    """Whether an entry switches the plugin off."""
    return spec in (f"-{ID}", "-*")


def is_other(spec: str) -> bool:
    """Whether a plugin is Daytona's own one in TypeScript."""
    return bool(_OTHER.fullmatch(spec))


def target(spec: str) -> str:
    """The path that a plugin's ``file://`` URL, or path, names."""
    return unquote(spec.removeprefix("file://")) if spec.startswith("file://") else spec


def read(path: Path) -> Config | None:
    """Read a configuration file; None if there is none. Raises BadSetting for one that OpenCode
    could not read, either."""
    if (raw := files.read_text(path)) is None:
        return None
    if not raw.strip():
        raise BadSetting(f"'{path}' is empty", hint="remove it, or write {} into it")
    hint = "correct it first; nothing was changed"
    try:
        document = jsonc.parse(raw.decode())
    except jsonc.Malformed as problem:
        raise BadSetting(f"'{path}' is not JSON with comments: {problem}", hint=hint) from problem
    if document.root.kind != "object":
        raise BadSetting(f"'{path}' does not hold a JSON object", hint=hint)
    plugins = document.root.item("plugin")
    if plugins is not None and plugins.value.kind != "array":
        hint = 'make it one: "plugin": []'
        raise BadSetting(f"\"plugin\" in '{path}' is not an array", hint=hint)
    return Config(path, raw, document)


def global_files() -> list[Path]:
    """The files for all projects, in the order in which OpenCode reads them."""
    return [paths.opencode_config() / name for name in ("config.json", *NAMES)]


def project_files(worktree: Path) -> list[Path]:
    """The files of a project, in the order of preference of ``opencode mcp add``."""
    return [folder / name for folder in (worktree, worktree / ".opencode") for name in NAMES]


def is_of_project(worktree: Path) -> bool:
    """Tell whether the plugin belongs into a project's own configuration, where the project has
    one and that for all projects does not name the plugin already."""

    def named(places: list[Path]) -> bool:
        return any(isinstance(it, Config) and it.own() for it in _readable(places))

    here = project_files(worktree)
    return named(here) or (any(map(os.path.lexists, here)) and not named(global_files()))


def configs(worktree: Path | None, start: Path) -> Iterator[Config | BadSetting]:
    """The files whose plugins OpenCode loads when it runs in ``start``, each once; for one that
    cannot be read, why."""
    shared = list(_readable(global_files()))
    arrays = [it for it in shared if isinstance(it, Config) and it.document.root.item("plugin")]
    yield from (it for it in shared if isinstance(it, BadSetting) or it in arrays[-1:])
    named = os.environ.get("OPENCODE_CONFIG")
    folders = [*_way(worktree, start), *_folders(worktree, start)]
    found = [folder / name for folder in folders for name in NAMES]
    yield from _readable([Path(named).absolute(), *found] if named else found)


def usable(worktree: Path | None, start: Path) -> list[Config]:
    """Those of configs() that can be read."""
    return [it for it in configs(worktree, start) if isinstance(it, Config)]


def _readable(places: list[Path]) -> Iterator[Config | BadSetting]:
    for path in dict.fromkeys(places):
        try:
            if (config := read(path)) is not None:
                yield config
        except BadSetting as problem:
            yield problem


def loose(worktree: Path | None, start: Path) -> list[Path]:
    """Plugin files that OpenCode loads because of where they are."""
    found: list[Path] = []
    for folder in dict.fromkeys([paths.opencode_config(), *_folders(worktree, start)]):
        for plugins in (folder / "plugin", folder / "plugins"):
            with contextlib.suppress(OSError):
                found += sorted(
                    it for it in plugins.iterdir() if it.suffix in (".js", ".ts") or it.is_dir()
                )
    return found


def pure() -> bool:
    """Whether OpenCode is told to load no plugins at all."""
    return _flag("OPENCODE_PURE")


def _folders(worktree: Path | None, start: Path) -> list[Path]:
    """The folders of OpenCode's configuration besides that for all projects."""
    found = [folder / ".opencode" for folder in (*_way(worktree, start), paths.home())]
    named = os.environ.get("OPENCODE_CONFIG_DIR")
    return [*found, Path(named).absolute()] if named else found


def _way(worktree: Path | None, start: Path) -> list[Path]:
    """The directories from the root of the worktree to where OpenCode runs."""
    if worktree is None or _flag("OPENCODE_DISABLE_PROJECT_CONFIG"):
        return []
    inside = [folder for folder in (start, *start.parents) if folder.is_relative_to(worktree)]
    return inside[::-1] or [worktree]


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true")
