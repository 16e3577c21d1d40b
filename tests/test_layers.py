"""Imports run one way, heavy packages have one door each, and asking for help loads none of
them."""

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "helpers" / "git_daytona"

ROOMS = [
    "ssh",
    "base",
    "git",
    "settings",
    "api",
    "trust",
    "transfer",
    "sandbox",
    "sessions",
    "tools",
    "service",
    "opencode",
    "agents",
    "doctor",
    "cli",
    "__main__",
]
"""The rooms of the house from the ground to the roof: a room may import from itself and from those
before it. The wrapper ``ssh`` stands alone and is run by path."""

LOCAL_ROOMS = ["core", "isolation", "preview", "toolbox", "gateway", "api", "server"]
"""The same for the rooms of the embedded Daytona, in ``local``."""

LOCAL_FROM_GROUND = {"base.errors", "base.secret", "base.endpoint", "trust.host_keys", "__init__"}
"""All that the embedded Daytona may use of the suite that is tested against it."""

DOORS = {
    "urllib3": "api.http api.unreachable",
    "keyring": "settings.keystore",
    "dotenv": "settings.settings",
    "platformdirs": "base.paths",
    "filelock": "local.core.store",
    "tenacity": "api.cloud git.repository transfer.leases sandbox.lifecycle",
    "click": "cli.*",
    "json5": "sessions.devcontainer",
    "wcwidth": "cli.table",
    "cryptography": "trust.host_keys local.*",
    "asyncssh": "trust.presented sessions.ssh_server local.*",
    "aiohttp": "sandbox.terminal local.*",
    "mcp": "service.mcp",
    "ruamel": "agents.in_yaml",
    "mcp_types": "service.mcp",
    "multidict": "local.*",
    "yarl": "local.*",
}
"""Every package that is not the standard library's, and the modules that may import it."""

HEAVY = {
    "asyncio",
    "daytona",
    "daytona_api_client",
    "daytona_toolbox_api_client",
    "asyncssh",
    "cryptography",
    "aiohttp",
    "keyring",
    "mcp",
    "mcp_types",
    "pydantic",
    "ruamel",
    "urllib3",
}


@cache
def modules() -> dict[str, Path]:
    """Dotted names below git_daytona."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports(name: str) -> frozenset[str]:
    """Absolute dotted names of what a module imports, anywhere in it; names of the package end in a
    module."""
    found: set[str] = set()
    own = ["git_daytona", *name.split(".")]
    if modules()[name].name == "__init__.py" and name != "__init__":
        own.append("__init__")
    for node in ast.walk(ast.parse(modules()[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = own[: len(own) - node.level] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner.removeprefix("git_daytona.") in modules() else base)
    return frozenset(found)


def of_package(name: str) -> set[str]:
    """What a module imports of the package, as names of modules()."""
    inner = {
        found
        for found in imports(name)
        if found == "git_daytona" or found.startswith("git_daytona.")
    }
    return {found.removeprefix("git_daytona").removeprefix(".") or "__init__" for found in inner}


def outside(name: str) -> set[str]:
    """The top-level packages that a module imports of others."""
    tops = {found.partition(".")[0] for found in imports(name)}
    return tops - set(sys.stdlib_module_names) - {"git_daytona"}


def covers(patterns: str, name: str) -> bool:
    return any(
        name == each or (each.endswith(".*") and (name + ".").startswith(each[:-1]))
        for each in patterns.split()
    )


def of_local(name: str) -> bool:
    return name == "local" or covers("local.*", name)


def room(name: str) -> str:
    """Return a module's room: a folder, of ``local`` a folder in it, or a module at the top."""
    return name.removeprefix("local.").partition(".")[0]


def ordinary() -> Iterator[str]:
    return (name for name in modules() if not of_local(name) and name != "__init__")


def test_nothing_but_the_entry_and_the_wrapper_is_at_the_top() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "ssh.py"}


def test_every_module_is_in_a_room() -> None:
    assert {room(name) for name in ordinary()} == set(ROOMS)
    assert {room(name) for name in modules() if of_local(name)} == {*LOCAL_ROOMS, "local"}


def test_imports_run_one_way() -> None:
    """So no folder can import itself in a circle."""
    upward = []
    for rooms, names in (
        (ROOMS, set(ordinary())),
        (LOCAL_ROOMS, {name for name in modules() if of_local(name) and name != "local"}),
    ):
        place = {each: number for number, each in enumerate(rooms)}
        for name in names:
            for found in of_package(name) & names:
                if place[room(found)] > place[room(name)]:
                    upward.append(f"{name} imports {found}")
    assert upward == []


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: of_package(name) - {name} for name in modules()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(" → ".join(reversed(circle.args[1])))


def test_the_wrapper_stands_alone() -> None:
    assert of_package("ssh") == set()
    assert outside("ssh") == set()


def test_the_embedded_daytona_is_apart() -> None:
    for name in modules():
        inner = of_package(name)
        if of_local(name):
            assert {found for found in inner if not of_local(found)} <= LOCAL_FROM_GROUND, name
        elif any(of_local(found) for found in inner):
            assert name == "cli.daytona_local", f"{name} imports the embedded Daytona"


def test_each_package_has_its_door() -> None:
    unexpected = [
        f"{name} imports {found}"
        for name in modules()
        for found in outside(name)
        if not covers(DOORS.get(found, ""), name)
    ]
    assert unexpected == []


def loaded_by(program: str, *arguments: str) -> set[str]:
    """The top-level modules that a command has loaded when it is done."""
    script = """if True:
        import json, sys
        from git_daytona.__main__ import main
        status = main(sys.argv[1:])
        loaded = sorted({name.partition(".")[0] for name in sys.modules})
        print(json.dumps([status, loaded]), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    status, names = json.loads(done.stderr.splitlines()[-1])
    assert status == 0, done.stderr
    assert "Usage:" in done.stdout
    return set(names)


@pytest.mark.parametrize(
    "command",
    [
        "git-daytona",
        "git-daytona start",
        "git-daytona exec",
        "git-daytona sync",
        "git-daytona status",
        "git-daytona delete",
        "git-daytona serve",
        "git-daytona hook",
        "git-daytona install",
        "git-daytona ssh-config",
        "git-daytona doctor",
        "git-remote-daytona",
        "daytona-token",
        "daytona-token login",
        "daytona-token mint",
        "daytona-token exec",
        "daytona-pin",
        "daytona-pin verify",
        "daytona-local",
        "daytona-local serve",
    ],
)
def test_help_loads_nothing_heavy(command: str) -> None:
    program, *verb = command.split()
    assert loaded_by(program, *verb, "--help") & HEAVY == set()
