"""What is built can be installed and used: the wheel's and the sdist's files, and the executables
run from an installation."""

import os
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from git_daytona import __version__

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "helpers" / "git_daytona"
EXECUTABLES = (
    *("daytona-local", "daytona-pin", "daytona-ssh", "daytona-token"),
    *("git-daytona", "git-remote-daytona"),
)
DATA = f"git_daytona-{__version__}.data"


def sources() -> set[str]:
    """The files of the package, relative to helpers/, that git knows or would add."""
    argv = (
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "helpers/git_daytona",
    )
    listed = subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split("\0")
    return {name.removeprefix("helpers/") for name in listed if name and (ROOT / name).exists()}


def build(
    source: Path, folder: Path, *kinds: str, environment: dict[str, str] | None = None
) -> None:
    """`python -m build`, with the hatchling that is here: an environment of its own would need the
    network."""
    argv = (
        sys.executable,
        "-I",
        "-m",
        "build",
        "--no-isolation",
        *(f"--{kind}" for kind in kinds),
        "--outdir",
        str(folder),
    )
    done = subprocess.run(
        (*argv, str(source)),
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | (environment or {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of a fresh virtual environment with the wheel in it. The dependencies are borrowed
    from ours."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    subprocess.run(
        (sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)),
        check=True,
        timeout=60,
        env=environment,
    )
    pip = (
        sys.executable,
        "-I",
        "-m",
        "pip",
        "--python",
        str(venv / "bin" / "python"),
        "--disable-pip-version-check",
    )
    argv = (*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir", str(wheel))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    (site,) = venv.glob("lib/python3*/site-packages")
    # A path in a .pth file is added to sys.path, but .pth files in it are not read: the checkout
    # itself does not come along.
    (site / "borrowed.pth").write_text(
        sysconfig.get_path("purelib") + "\n" + sysconfig.get_path("platlib") + "\n"
    )
    return venv / "bin"


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith("git_daytona/")}
    assert package == sources()
    assert {
        "git_daytona/py.typed",
        "git_daytona/ssh.py",
        "git_daytona/sandbox/scripts/report.sh",
    } <= package
    data = {name.removeprefix(f"{DATA}/") for name in names if name.startswith(f"{DATA}/")}
    pages = {
        f"data/share/man/man{path.suffix[1:]}/{path.name}"
        for path in (ROOT / "man").glob("*.[1-9]")
    }
    shells = {
        "bash-completion/completions": "bash",
        "fish/vendor_conf.d": "fish",
        "zsh/site-functions": "zsh",
    }
    completions = {
        f"data/share/{place}/{path.name}"
        for place, shell in shells.items()
        for path in (PACKAGE / "completions" / shell).iterdir()
    }
    assert len(completions) == 6
    assert data == {f"scripts/{name}" for name in EXECUTABLES} | pages | completions
    other = names - package - {f"{DATA}/{name}" for name in data}
    assert all(name.startswith(f"git_daytona-{__version__}.dist-info/") for name in other)
    assert any(name.endswith("licenses/LICENSE") for name in other)


def test_the_wheel_has_real_executables(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in EXECUTABLES:
            entry = archive.getinfo(f"{DATA}/scripts/{name}")
            mode = entry.external_attr >> 16
            assert stat.S_ISREG(mode) and mode & 0o111 == 0o111, name
            assert archive.read(entry) == (ROOT / "bin" / name).read_bytes()


def test_the_sdist_has_what_a_checkout_has(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"helpers/{name}" for name in sources()} <= names
    assert {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "pyproject.toml",
        "bin/test",
        "bin/demo",
        "tests/develop/venv.sh",
        "man/git-daytona.7",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_the_version_is_one() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    latest = next(
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## [")
    )
    assert latest.startswith(f"## [{__version__}]")


def ran(program: Path, *arguments: str, **more: str) -> str:
    """What it prints, both streams; it must succeed."""
    environment = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], **more}
    done = subprocess.run(
        (program, *arguments), capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", EXECUTABLES)
def test_an_installed_executable(
    name: str, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = installed / name
    assert "Usage:" in ran(program, "--help")
    version = "OpenSSH_" if name == "daytona-ssh" else f"{name} {__version__}"
    assert version in ran(program, "--version")
    # As pipx and uv do it: a link elsewhere, on PATH.
    links = tmp_path / "links"
    links.mkdir()
    (links / name).symlink_to(program)
    assert version in ran(links / name, "--version")
    # A directory with modules of the same names must not be looked into, and no variable may lead
    # Python astray.
    for trap in ("git_daytona.py", "click.py", "os.py", "signal.py"):
        (tmp_path / trap).write_text("raise SystemExit('trapped')\n")
    monkeypatch.chdir(tmp_path)
    rubbish = {
        "PYTHONHOME": "/nonexistent",
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "os.py"),
    }
    assert version in ran(links / name, "--version", **rubbish)
    path = f"{links}{os.pathsep}{os.environ['PATH']}"
    assert version in ran(Path("/bin/sh"), "-c", f"{name} --version", **rubbish, PATH=path)


def test_an_installation_for_one_user(wheel: Path, tmp_path: Path) -> None:
    """`pip install --user`: no virtual environment, and a site-packages that `python -I` does not
    look into."""
    user = tmp_path / "user"
    pip = (
        sys.executable,
        "-I",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-cache-dir",
    )
    argv = (
        *pip,
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        "--prefix",
        str(user),
        str(wheel),
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (site,) = user.glob("lib/python3*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    base = Path(sys.base_prefix, "bin")
    environment = {
        "PYTHONUSERBASE": str(user),
        "PATH": f"{base}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
    }
    for name in EXECUTABLES:
        assert "Usage:" in ran(user / "bin" / name, "--help", **environment)


def test_the_installation_is_the_wheel_s(installed: Path) -> None:
    done = ran(installed / "python", "-I", "-c", "import git_daytona; print(git_daytona.__file__)")
    assert Path(done.strip()).is_relative_to(installed.parent)


def test_man_pages_are_found(installed: Path) -> None:
    manual = installed.parent / "share" / "man"
    assert (manual / "man1" / "git-daytona.1").read_bytes() == (
        ROOT / "man" / "git-daytona.1"
    ).read_bytes()
    assert (manual / "man7" / "git-daytona.7").exists()


# -- a release -------------------------------------------------------------------------------------


def test_a_release_is_accepted(built: Path) -> None:
    argv = (
        sys.executable,
        "-I",
        "-m",
        "twine",
        "check",
        "--strict",
        *sorted(map(str, built.iterdir())),
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_a_release_can_be_built_again(built: Path, tmp_path: Path) -> None:
    """Byte for byte, from another place, with other times of the files, another umask's modes,
    locale and time zone."""
    again, source = tmp_path / "again", tmp_path / "source"
    source.mkdir()
    subprocess.run(
        ("tar", "-xzf", str(next(built.glob("*.tar.gz"))), "-C", str(source)),
        check=True,
        timeout=60,
    )
    (tree,) = source.iterdir()
    for path in tree.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (10**9, 10**9))
            path.chmod(path.stat().st_mode & 0o700)
    build(
        tree, again, environment={"LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "7"}
    )
    for made in built.iterdir():
        assert (again / made.name).read_bytes() == made.read_bytes(), made.name


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(
        r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert versions[0] == __version__
    assert len(set(versions)) == len(versions)


def test_clients_are_bounded_above() -> None:
    """By the next major version, which is another API, and what is installed is within."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["mcp"], *extras["test"]]
    bounds = dict(each.split(",<") for each in listed if ",<" in each)
    names = {each.partition(">=")[0]: int(bound) for each, bound in bounds.items()}
    assert names.keys() == {
        *("aiohttp", "asyncssh", "mcp", "urllib3"),
        *("daytona", "daytona-api-client", "daytona-toolbox-api-client"),
    }
    for name, bound in names.items():
        assert int(metadata.version(name).split(".")[0]) < bound, name
