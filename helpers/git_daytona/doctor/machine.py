"""The links on this machine: programs, OpenCode's configuration, the repository, our own files."""

import itertools
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from git_daytona import __version__, ssh
from git_daytona.base import paths
from git_daytona.base.errors import BadSetting, MissingProgram, TimedOut
from git_daytona.base.run import run
from git_daytona.doctor.findings import Finding, fail, ok, skipped, warn
from git_daytona.git import branches, version
from git_daytona.git.repository import Repository
from git_daytona.opencode import closing, registration
from git_daytona.settings import preferences

OPENCODE, OPENCODE_KNOWN = (1, 18), 2
SSH = (8, 7)
PROGRAM_SECONDS = 8.0
INSTALL = "register it: git daytona install"
UNUSED = "OpenCode is not used here"
NO_OPENCODE = "install it (https://opencode.ai); git daytona's own commands work without it"


def python() -> Finding:
    return ok(
        f"git-daytona {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def shim() -> Finding:
    """The plugin file of this installation."""
    if not (registration.PLUGIN / "index.js").is_file():
        return fail(f"'{registration.PLUGIN}' is missing", "install git-daytona again")
    return ok(str(registration.PLUGIN))


def find_opencode() -> str | None:
    """The program on PATH, never one of the directory that we happen to be in."""
    return shutil.which("opencode", path=ssh.search_path(os.environ.get("PATH", "")))


def opencode(worktree: Path | None, start: Path) -> Finding:
    program = find_opencode()
    if program is None:
        if _registered(worktree, start)[0]:
            return fail("it is not on PATH", NO_OPENCODE)
        text = "not on PATH, and its configuration does not name the plugin"
        return skipped(f"it is not used here: {text}")
    text = f"'{program}' does not tell its version"
    try:
        said = first_line(program, "--version")
    except TimedOut:
        text = f"{text} within {PROGRAM_SECONDS:.0f} seconds"
        return fail(text, f"see what keeps it: {program} --version")
    version = version_in(said)
    if version is None:
        return warn(text, f"see what this says: {program} --version")
    text = f"{said.split()[-1]} ('{program}')"
    if version < OPENCODE:
        return warn(f"{text} is older than any that was tested", "update it: opencode upgrade")
    if version[0] > OPENCODE_KNOWN:
        return warn(f"{text} is newer than any that was tested", "update git-daytona, too")
    return ok(text)


def plugin(worktree: Path | None, start: Path) -> Finding:
    """Whether OpenCode, run here, loads our plugin, once, and not Daytona's other one as well."""
    own, others = _registered(worktree, start)
    if not own:
        if find_opencode() is None:
            return skipped(UNUSED)
        return fail("OpenCode's configuration does not name it", INSTALL)
    for file, (first, *_) in own.items():
        if not (file / "index.js").is_file():
            what = "OpenCode 2 does not load" if file.exists() else "does not exist"
            return fail(f"'{first}' names '{file}', which {what}", INSTALL)
    (file, where), *more = own.items()
    text = "registered in " + ", ".join(f"'{path}'" for path in where)
    if more:
        second = more[0][1][0]
        both = f"that of '{where[0]}' and that of '{second}'"
        return fail(f"two of them would run: {both}", _take_back(second))
    if others:
        return fail(f"Daytona's other plugin would run, too: {others[0]}", "remove one of the two")
    if registration.pure():
        text = f"{text}, but OPENCODE_PURE is set: OpenCode loads no plugins"
        return warn(text, "unset OPENCODE_PURE")
    if file.resolve() != registration.PLUGIN.resolve():
        text = f"{text}, but that of another installation: '{file}'"
        return warn(text, f"to change that, {INSTALL}")
    return _closed(worktree, start, where[0]) or ok(text)


def _closed(worktree: Path | None, start: Path, where: Path) -> Finding | None:
    """What leaves OpenCode open where the plugin does not load; None if nothing does."""
    configs = registration.usable(worktree, start)
    for config in configs:
        for spec in config.specs():
            if registration.is_off(spec.text):
                return fail(f"'{config.path}' switches it off: \"{spec.text}\"", "remove that line")
    ranked = itertools.dropwhile(lambda config: config.path != where, configs)
    then = "the plugin does not load"
    own = next(ranked, None)
    if own and (missing := closing.missing(own.document)):
        names = ", ".join(missing)
        return warn(f"'{where}' does not forbid OpenCode's own {names} where {then}", INSTALL)
    for config in ranked:
        if opened := closing.opened(config.document):
            text = f"'{config.path}' allows OpenCode's own {', '.join(opened)} where {then}"
            remedy = "remove these rules there, or give them in the file for all projects"
            return warn(text, remedy)
    return None


def _registered(worktree: Path | None, start: Path) -> tuple[dict[Path, list[Path]], list[str]]:
    """Our plugin's files and what names each, and Daytona's other plugin. Raises BadSetting."""
    own: dict[Path, list[Path]] = {}
    others: list[str] = []
    for config in registration.configs(worktree, start):
        if isinstance(config, BadSetting):
            raise config
        for spec in config.specs():
            if registration.is_ours(spec.text):
                own.setdefault(config.place(spec.text), []).append(config.path)
            elif registration.is_other(spec.text):
                others.append(f"'{spec.text}' in '{config.path}'")
    for path in registration.loose(worktree, start):
        if registration.is_ours(str(path.resolve())):
            own.setdefault(path, []).append(path)
        elif "daytona" in path.name:
            others.append(f"'{path}'")
    return own, others


def _take_back(path: Path) -> str:
    if path.suffix not in (".json", ".jsonc"):
        return f"remove '{path}'"
    scope = "--global" if path.is_relative_to(paths.opencode_config()) else "--project"
    return f"take one back: git daytona uninstall {scope}"


def git_version() -> Finding:
    try:
        said = first_line("git", "--version")
    except MissingProgram:
        return fail("it is not on PATH", "install it (Debian: apt install git)")
    return _at_least(version.OLDEST, said.removeprefix("git version "), "update git")


def repository(found: Repository | None, start: Path) -> Finding:
    """Whether sessions of this directory can be synced."""
    unsynced = "sessions here would not be synced"
    if found is None:
        text = f"'{start}' is not in a git repository: {unsynced}"
        return warn(text, "run this in a repository, too")
    if found.worktree is None:
        return warn(f"it is bare: {unsynced}", "run this in a worktree of it")
    if blocked := branches.in_the_way(found, preferences.load(found.worktree).branch_prefix()):
        raise blocked
    if found.resolve("HEAD") is None:
        text = f"'{found.worktree}' has no commits: sessions begin with an empty project"
        return warn(text, "make a first commit")
    return ok(str(found.worktree))


def ssh_version(environ: Mapping[str, str]) -> Finding:
    try:
        program = ssh.find_ssh(environ.get("DAYTONA_SSH_BINARY", ""), environ.get("PATH", ""))
    except ssh.Refusal as problem:
        return fail(problem.message, problem.hint)
    said = first_line(program, "-V")
    found = re.search(r"OpenSSH_(\S+?),? ", said + " ")
    if found is None and (refusal := ssh.nameless()):
        return fail(refusal.message, refusal.hint)
    if found is None:
        text = f"'{program}' is not OpenSSH: {said[:60]}"
        return warn(text, "set DAYTONA_SSH_BINARY to an OpenSSH client")
    text = f"{found[1].rstrip(',')} ('{program}')"
    return _at_least(SSH, text, "update OpenSSH, or set DAYTONA_SSH_BINARY to a newer one")


def own_files() -> Finding:
    """Whether state and log can be written, and whether a state file had to be set aside."""
    for path in (paths.storage(), paths.log_file().parent, paths.own_state()):
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        if not there.is_dir():
            return fail(f"'{there}' is not a directory", "move it out of the way")
        if not os.access(there, os.W_OK | os.X_OK):
            remedy = "make it writable, or set XDG_DATA_HOME and XDG_STATE_HOME"
            return fail(f"'{there}' cannot be written", remedy)
    if paths.log_file().exists() and not os.access(paths.log_file(), os.W_OK):
        return fail(f"the log '{paths.log_file()}' cannot be written", "make it writable for you")
    if aside := sorted(paths.storage().glob("*.corrupt-*")):
        text = f"a state file made no sense and was set aside: '{aside[-1]}'"
        return warn(text, "sessions are found again; remove it when all is well")
    return ok(f"'{paths.storage()}' and '{paths.own_state()}' are writable")


def isolation(kind: Callable[[], str] | None, *, matters: bool) -> Finding:
    """What keeps sandboxes of the embedded Daytona apart from the user's files."""
    if kind is None:
        return skipped("not asked")
    found = kind()
    if found != "plain":
        return ok(f"{found} works here")
    text = "sandboxes of daytona-local are not isolated here: their commands run as you"
    if not matters:
        return ok(f"{text} (not in use)")
    if platform.system() == "Linux" and not shutil.which("bwrap"):
        return warn(text, "install bubblewrap (Debian: apt install bubblewrap)")
    return warn(text, "daytona-local says why when it starts")


def first_line(*argv: str) -> str:
    """The first line that a program prints. It is not told our settings."""
    result = run(argv, env=ssh.scrubbed(dict(os.environ)), timeout=PROGRAM_SECONDS)
    lines = (result.text + "\n" + result.complaint).split("\n")
    return next((line.strip() for line in lines if line.strip()), "")


def version_in(text: str) -> tuple[int, int] | None:
    """Major and minor number of the first version in a text."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def _at_least(wanted: tuple[int, int], said: str, hint: str) -> Finding:
    version = version_in(said)
    if version is None:
        return warn(f"its version cannot be told: {said[:60]}", hint)
    if version < wanted:
        return fail(f"{said} is older than {wanted[0]}.{wanted[1]}", hint)
    return ok(said)
