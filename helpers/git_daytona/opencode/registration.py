"""Which plugins OpenCode's configuration names, and where. Reads only.

OpenCode 1.18 merges, later ones first in rank: the files of ``$XDG_CONFIG_HOME/opencode``; the file
that OPENCODE_CONFIG names; ``opencode.json`` and ``opencode.jsonc`` of each directory from the
worktree's root to where it runs; those in ``.opencode`` folders on that way and in HOME; those of
OPENCODE_CONFIG_DIR. The plugins of all of them are loaded, one that is named twice once; but of the
files in the first place only the last array counts (measured: an array in ``opencode.jsonc`` hides
the one in ``opencode.json`` there). So are files in the folders ``plugin`` and ``plugins`` of all
but the second and third kind.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import git_daytona
from git_daytona.base import paths
from git_daytona.base.errors import BadSetting
from git_daytona.opencode import jsonc

SHIM = Path(git_daytona.__file__).absolute().parent / "opencode" / "daytona.js"
"""The plugin of this installation. Not resolved: what pipx, uv or a package manager links to
outlives an update."""
NAMES = ("opencode.json", "opencode.jsonc")
_OTHER = re.compile(r"(?:npm:)?(?:@daytona(?:io)?/opencode(?:-plugin)?|opencode-daytona)(?:@.*)?")
_LARGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class Spec:
    """A plugin in the array: its place there, the string that names it, and what that says."""

    number: int
    node: jsonc.Node
    text: str


@dataclass(frozen=True)
class Config:
    """A configuration file that was read: what it holds."""

    path: Path
    raw: bytes
    document: jsonc.Document

    def place(self, spec: str) -> Path:
        """The file that a plugin of it is, for one that is a file."""
        return Path(os.path.normpath(self.path.parent / target(spec)))

    def specs(self) -> list[Spec]:
        return specs(self.document)

    def own(self) -> list[str]:
        """What it says for a plugin of ours, of whatever installation."""
        return [spec.text for spec in self.specs() if is_ours(spec.text)]


def specs(document: jsonc.Document) -> list[Spec]:
    """The plugins that a document names. One with options is an array that begins with the
    string."""
    found = []
    plugins = document.property("plugin")
    for number, item in enumerate(plugins.value.items if plugins else ()):
        node = (
            item.value.items[0].value
            if item.value.kind == "array" and item.value.items
            else item.value
        )
        if (text := document.string(node)) is not None:
            found.append(Spec(number, node, text))
    return found


def entry() -> str:
    """How this installation's plugin is named in a configuration file."""
    return SHIM.as_uri()


def is_ours(spec: str) -> bool:
    """Whether a plugin is that of an installation of this suite: told by the end of its path."""
    return Path(target(spec)).parts[-3:] == SHIM.parts[-3:]


def is_other(spec: str) -> bool:
    """Whether a plugin is Daytona's own one in TypeScript."""
    return bool(_OTHER.fullmatch(spec))


def target(spec: str) -> str:
    """The path that a plugin's ``file://`` URL, or path, names."""
    return unquote(spec.removeprefix("file://")) if spec.startswith("file://") else spec


def read(path: Path) -> Config | None:
    """Read a configuration file; None if there is none. Raises BadSetting for one that OpenCode
    could not read, either."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(_LARGEST + 1)
    except FileNotFoundError as problem:
        if path.is_symlink():
            raise BadSetting(
                f"'{path}' is a link to nowhere", hint="remove it, or make the file that it names"
            ) from problem
        return None
    except OSError as problem:
        raise BadSetting(
            f"cannot read '{path}': {problem.strerror or problem}", hint="make it readable for you"
        ) from problem
    hint = "correct it first; nothing was changed"
    try:
        if len(raw) > _LARGEST:
            raise BadSetting(f"'{path}' is larger than {_LARGEST >> 20} MiB", hint=hint)
        if not raw.strip():
            raise BadSetting(f"'{path}' is empty", hint="remove it, or write {} into it")
        document = jsonc.parse(raw.decode())
    except UnicodeDecodeError as problem:
        raise BadSetting(f"'{path}' is not UTF-8", hint=hint) from problem
    except jsonc.Malformed as problem:
        raise BadSetting(f"'{path}' is not JSON with comments: {problem}", hint=hint) from problem
    if document.root.kind != "object":
        raise BadSetting(f"'{path}' holds no JSON object", hint=hint)
    plugins = document.property("plugin")
    if plugins is not None and plugins.value.kind != "array":
        raise BadSetting(
            f"\"plugin\" in '{path}' is not an array", hint='make it one: "plugin": []'
        )
    return Config(path, raw, document)


def global_files() -> list[Path]:
    """The files for all projects, in the order in which OpenCode reads them."""
    return [paths.opencode_config() / name for name in ("config.json", *NAMES)]


def project_files(worktree: Path) -> list[Path]:
    """The files of a project, those first that are to be changed rather (as ``opencode mcp add``
    has it)."""
    return [folder / name for folder in (worktree, worktree / ".opencode") for name in NAMES]


def configs(worktree: Path | None, start: Path) -> Iterator[Config | BadSetting]:
    """The files whose plugins OpenCode loads when it runs in ``start``, each once; for one that
    cannot be read, why."""
    shared = [each for path in global_files() if (each := _tried(path)) is not None]
    counts = next(
        (
            each
            for each in reversed(shared)
            if isinstance(each, Config) and each.document.property("plugin")
        ),
        None,
    )
    yield from (each for each in shared if isinstance(each, BadSetting) or each is counts)
    found = (
        [Path(os.environ["OPENCODE_CONFIG"]).absolute()]
        if os.environ.get("OPENCODE_CONFIG")
        else []
    )
    if worktree is not None and not _flag("OPENCODE_DISABLE_PROJECT_CONFIG"):
        found += [folder / name for folder in _way(worktree, start) for name in NAMES]
    found += [folder / name for folder in _folders(worktree, start) for name in NAMES]
    yield from (each for path in dict.fromkeys(found) if (each := _tried(path)) is not None)


def _tried(path: Path) -> Config | BadSetting | None:
    try:
        return read(path)
    except BadSetting as problem:
        return problem


def loose(worktree: Path | None, start: Path) -> list[Path]:
    """Plugin files that OpenCode loads because of where they lie."""
    folders = (
        folder / name
        for folder in [paths.opencode_config(), *_folders(worktree, start)]
        for name in ("plugin", "plugins")
    )
    return [path for folder in dict.fromkeys(folders) for path in _scripts(folder)]


def pure() -> bool:
    """Whether OpenCode is told to load no plugins at all."""
    return _flag("OPENCODE_PURE")


def _scripts(folder: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (".js", ".ts"))
    except OSError:
        return ()


def _folders(worktree: Path | None, start: Path) -> list[Path]:
    found = []
    if worktree is not None and not _flag("OPENCODE_DISABLE_PROJECT_CONFIG"):
        found += [folder / ".opencode" for folder in _way(worktree, start)]
    found.append(Path.home() / ".opencode")
    if named := os.environ.get("OPENCODE_CONFIG_DIR"):
        found.append(Path(named).absolute())
    return found


def _way(worktree: Path, start: Path) -> list[Path]:
    """The directories from the root of the worktree to where OpenCode runs."""
    inside = [folder for folder in (start, *start.parents) if folder.is_relative_to(worktree)]
    return inside[::-1] or [worktree]


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true")
