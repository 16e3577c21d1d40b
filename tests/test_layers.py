"""Imports run one way, heavy packages have one door each, and asking for help loads none of them."""

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

LAYERS = {
    "alone": "ssh",  # the wrapper: nothing may be below it
    "ground": "__init__ api config hosts opencode trust help errors secret endpoint refs trust.hostkeys trust.knownhosts trust.decision trust.published gitenv opencode.jsonc",
    "rim": "run files paths say log beside lastseen unpack progress",
    "sources": "config.keystore config.cliprofile config.settings config.preferences records state git api.bounded api.account api.toolbox api.cloud api.cloud_errors trust.probe trust.glance trust.pinfile trust.manual trust.refusals trust.asked trust.pin trust.verify opencode.registered opencode.install",
    "transfers": "leases reports transfer sandbox branches old_remotes worktrees lifecycle ahead",
    "sessions": "sync sessions status recovery terminal shell copying doctor.*",
    "tools": "tools.*",
    "service": "hosts.lanes hosts.rpc hosts.harmless hosts.prompt hosts.hosttools hosts.toasts hosts.workspace hosts.previews hosts.turns hosts.events hosts.calls hosts.hosting hosts.service hosts.hooks",
    "faces": "cli.* __main__",
}
"""From the bottom to the top: a module may import from its own layer and those before it. A new module gets its place here."""

LOCAL_FROM_GROUND = {"errors", "secret", "endpoint", "trust.hostkeys", "__init__"}
"""All that the embedded Daytona may use of the suite that is tested against it."""

DOORS = {
    "daytona_api_client": "api.account api.cloud",
    "daytona_toolbox_api_client": "api.cloud api.toolbox",
    "urllib3": "api.account api.bounded api.cloud_errors",
    "pydantic": "api.cloud_errors",
    "keyring": "config.keystore",
    "dotenv": "config.settings",
    "platformdirs": "paths",
    "filelock": "files local.store",
    "tenacity": "api.cloud git leases lifecycle status",
    "click": "cli.*",
    "wcwidth": "cli.table",
    "cryptography": "trust.hostkeys local.*",
    "asyncssh": "trust.probe local.*",
    "aiohttp": "terminal local.*",
    "multidict": "local.*",
    "yarl": "local.*",
}
"""Every package that is not the standard library's, and the modules that may import it."""

HEAVY = {
    "daytona",
    "daytona_api_client",
    "daytona_toolbox_api_client",
    "asyncssh",
    "cryptography",
    "aiohttp",
    "keyring",
    "pydantic",
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
    """Absolute dotted names of what a module imports, anywhere in it; names of the package end in a module."""
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
    inner = {found for found in imports(name) if found == "git_daytona" or found.startswith("git_daytona.")}
    return {found.removeprefix("git_daytona").removeprefix(".") or "__init__" for found in inner}


def outside(name: str) -> set[str]:
    """The top-level packages that a module imports of others."""
    tops = {found.partition(".")[0] for found in imports(name)}
    return tops - set(sys.stdlib_module_names) - {"git_daytona"}


def covers(patterns: str, name: str) -> bool:
    return any(name == each or (each.endswith(".*") and (name + ".").startswith(each[:-1])) for each in patterns.split())


def of_local(name: str) -> bool:
    return covers("local.*", name)


def layer(name: str) -> int:
    places = [number for number, names in enumerate(LAYERS.values()) if covers(names, name)]
    assert len(places) == 1, f"give '{name}' one place in LAYERS"
    return places[0]


def ordinary() -> Iterator[str]:
    return (name for name in modules() if not of_local(name))


def test_every_module_has_its_layer_and_every_name_a_module() -> None:
    for name in ordinary():
        layer(name)
    named = {each for names in LAYERS.values() for each in names.split() if not each.endswith(".*")}
    assert named <= set(modules())


def test_imports_run_one_way() -> None:
    upward = [
        f"{name} imports {found}"
        for name in ordinary()
        for found in of_package(name)
        if not of_local(found) and layer(found) > layer(name)
    ]
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
            assert name == "cli.local", f"{name} imports the embedded Daytona"


def test_each_package_has_its_door() -> None:
    unexpected = [
        f"{name} imports {found}" for name in modules() for found in outside(name) if not covers(DOORS.get(found, ""), name)
    ]
    assert unexpected == []


def loaded_by(program: str, *arguments: str) -> set[str]:
    """The top-level modules that a command has loaded when it is done."""
    script = """if True:
        import json, sys
        from git_daytona.__main__ import main
        status = main(sys.argv[1:])
        print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-I", "-c", script, program, *arguments], capture_output=True, text=True, timeout=60)
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
        "git-daytona doctor",
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


def test_the_wrapper_loads_little() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", str(PACKAGE / "ssh.py"), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "select" in loaded
    slow = {
        "enum",
        "signal",
        "re",
        "subprocess",
        "tempfile",
        "random",
        "shutil",
        "pathlib",
        "socket",
        "logging",
        "typing",
        "dataclasses",
        "ctypes",
        "site",
    }
    assert loaded & slow == set()
