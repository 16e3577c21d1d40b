"""bin/demo, bin/test and the launchers in bin/, started as a person starts them."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest

from git_daytona.__main__ import main

ROOT = Path(__file__).parents[1]
BIN = ROOT / "bin"
PROGRAMS = (
    *("daytona-local", "daytona-pin", "daytona-ssh", "daytona-token"),
    *("git-daytona", "git-remote-daytona"),
)
MISSING, INTERRUPTED = 12, 130


def run(
    *argv: str | Path, cwd: Path | None = None, timeout: float = 110, **env: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=os.environ | env
    )


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


# -- bin/demo --------------------------------------------------------------------------------------


@pytest.mark.complete("a whole demo, of which there is another test")
def test_the_demo_holds_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    before = files_below(home)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run(BIN / "demo", timeout=110, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "NOT SO" not in done.stdout
    first, last = done.stdout.splitlines()[-2:]
    assert re.fullmatch(r"opencode/1 holds the sandbox's commit [0-9a-f]{10} '.+'", first)
    counts = re.match(r"(\d+) tokens were minted and (\d+) revoked", last)
    assert counts is not None and counts[1] == counts[2] != "0"
    assert files_below(home) == before
    assert list(temporary.iterdir()) == []


def test_the_demo_in_a_repository_of_ours(tmp_path: Path) -> None:
    place = tmp_path / "ours"
    place.mkdir()
    for argv in (
        ("init", "-q"),
        ("commit", "-q", "--allow-empty", "-m", "Begin"),
        ("branch", "opencode/1"),
    ):
        subprocess.run(("git", *argv), cwd=place, check=True, timeout=30)
    (place / "untracked").write_text("mine\n")
    done = run(BIN / "demo", "--repo", ".", cwd=place, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opencode/2 holds the sandbox's commit" in done.stdout
    log = run("git", "log", "--format=%s", "opencode/2", cwd=place).stdout.splitlines()
    assert log[1:] == ["Say hello from the sandbox", "Begin"]
    assert run("git", "remote", cwd=place).stdout == ""


def test_the_demo_cleans_up_after_ctrl_c(tmp_path: Path) -> None:
    argv = (BIN / "demo",)
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "$ git daytona start" in line:
                break
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, rest + err
    assert err.strip() == "interrupted; everything was cleaned up"
    assert [each for each in tmp_path.iterdir() if each.name.startswith("git-daytona")] == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--repo", "/nonexistent"), 1, "demo: error: '/nonexistent' is not a directory\nhint: "),
        (("--repo", "."), 1, "demo: error: '.' is not a git repository with a commit\nhint: "),
        (("--bogus",), 2, "unrecognized arguments: --bogus"),
    ],
)
def test_the_demo_refuses(arguments: tuple[str, ...], status: int, said: str) -> None:
    done = run(BIN / "demo", *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# -- bin/test --------------------------------------------------------------------------------------


def collected(*arguments: str, cwd: Path | None = None) -> str:
    done = run(BIN / "test", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tests_are_named_from_the_root_or_from_here() -> None:
    expected = "tests/test_layers.py::test_imports_run_one_way"
    assert expected in collected("tests/test_layers.py")
    assert (
        collected("test_layers.py::test_imports_run_one_way", cwd=ROOT / "tests").splitlines()[0]
        == expected
    )


def test_benchmarks_run_only_when_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "test_marked.py"
    file.write_text(
        "import pytest\n@pytest.mark.bench\ndef test_slow(): pass\n@pytest.mark.fuzz\ndef "
        "test_long(): pass\ndef test_quick(): pass\n"
    )
    assert re.findall(r"::(\w+)", collected(str(file))) == ["test_quick"]
    assert re.findall(r"::(\w+)", collected("-m", "bench", str(file))) == ["test_slow"]


# -- what they need --------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in small: its package needs nothing, and each installation of it is counted in the
    file 'installations'."""
    root = tmp_path / "a checkout"
    for name in (
        "bin/demo",
        "bin/test",
        "bin/git-daytona",
        "bin/daytona-pin",
        "tests/develop/venv.sh",
        "tests/develop/install.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "tests" / "develop" / "demo.py").write_text(
        "import sys, git_daytona\nprint('ran', *sys.argv[1:])\n"
    )
    (root / "helpers" / "git_daytona").mkdir(parents=True)
    (root / "helpers" / "git_daytona" / "__init__.py").touch()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (root / "backend.py").write_text(
        """if True:
        import os, pathlib, zipfile
        root = pathlib.Path(__file__).parent
        def build_editable(folder, config_settings=None, metadata_directory=None):
            with open(root / "installations", "a") as count:
                count.write("x")
            if (root / "fails").exists():
                raise SystemExit("the backend says no")
            if (root / "hangs").exists():
                open(root / "hangs", "w").close()  # until the test opens the pipe, too
                open(root / "hangs").read()  # until it is killed
            name, info = "git_daytona-0-py3-none-any.whl", "git_daytona-0.dist-info"
            with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
                wheel.writestr("git_daytona.pth", str(root / "helpers") + chr(10))
                lines = ["Metadata-Version: 2.1", "Name: git-daytona", "Version: 0"]
                lines += ["Provides-Extra: test"]
                wheel.writestr(f"{info}/METADATA", "".join(f"{line}\\n" for line in lines))
                lines = ["Wheel-Version: 1.0", "Generator: x", "Root-Is-Purelib: true"]
                lines += ["Tag: py3-none-any"]
                wheel.writestr(f"{info}/WHEEL", "".join(f"{line}\\n" for line in lines))
                wheel.writestr(f"{info}/RECORD", "")
            return name
        """
    )
    return root


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., str]:
    """A PATH with nothing but a few programs; each may be replaced by a script, or left out
    (None)."""

    def make(**scripts: str | None) -> str:
        folder = tmp_path / "programs"
        folder.mkdir()
        for name in ("sh", "cat", "cksum", "readlink", "git", "ssh", "python3"):
            script = scripts.get(name, "")
            if script == "":
                (folder / name).symlink_to(
                    os.path.realpath(shutil.which(name) or name)
                    if name != "python3"
                    else BASE_PYTHON
                )
            elif script is not None:
                (folder / name).write_text(f"#!/bin/sh\n{script}\n")
                (folder / name).chmod(0o755)
        return str(folder)

    return make


BASE_PYTHON = os.path.realpath(ROOT / ".venv" / "bin" / "python")

NO_VENV = f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec {BASE_PYTHON} "$@"'


@pytest.mark.parametrize(
    ("scripts", "missing", "packages"),
    [
        ({"git": None}, "git 2.36 or newer", "git"),
        ({"git": "echo git version 2.35.9"}, "git 2.36 or newer", "git"),
        ({"ssh": None}, "OpenSSH 8.7 or newer", "openssh-client"),
        (
            {"ssh": "echo OpenSSH_8.4p1, OpenSSL 1.1.1 >&2"},
            "OpenSSH 8.7 or newer",
            "openssh-client",
        ),
        ({"ssh": "echo Dropbear v2022.83 >&2"}, "OpenSSH 8.7 or newer", "openssh-client"),
        ({"python3": None}, "Python 3.11 or newer", "python3 python3-venv"),
        ({"python3": "exit 1"}, "Python 3.11 or newer", "python3 python3-venv"),
        ({"python3": NO_VENV}, "Python's venv module", "python3-venv"),
        (
            {"git": None, "ssh": None, "python3": NO_VENV},
            "git 2.36 or newer, OpenSSH 8.7 or newer, Python's venv module",
            "git openssh-client python3-venv",
        ),
    ],
)
def test_what_is_missing_is_named(
    checkout: Path,
    programs: Callable[..., str],
    scripts: dict[str, str | None],
    missing: str,
    packages: str,
) -> None:
    for name in ("demo", "test"):
        done = run(
            checkout / "bin" / name,
            PATH=programs(**scripts) if name == "demo" else str(checkout.parent / "programs"),
        )
        assert done.returncode == MISSING
        assert (
            done.stderr
            == f"{name}: error: missing: {missing}\nhint: install it (Debian: apt install "
            f"{packages})\n"
        )
        assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    "version", ["git version 2.36.0", "git version 2.39.5 (Apple Git-154)", "git version 3.0.rc1"]
)
def test_versions_that_will_do(checkout: Path, programs: Callable[..., str], version: str) -> None:
    done = run(checkout / "bin" / "demo", PATH=programs(git=f"echo '{version}'", ssh=None))
    assert done.stderr.splitlines()[0] == "demo: error: missing: OpenSSH 8.7 or newer"


def installations(checkout: Path) -> int:
    return len((checkout / "installations").read_text())


@pytest.mark.complete("an installation takes long")
def test_the_installation_is_made_once_and_when_it_has_to_be(checkout: Path) -> None:
    demo = (str(checkout / "bin" / "demo"), "an argument", "--x")
    both = [
        subprocess.Popen(demo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, "ran an argument --x\n"), err
    assert installations(checkout) == 1
    again = run(*demo)
    assert (again.returncode, again.stdout, again.stderr) == (0, "ran an argument --x\n", "")
    assert installations(checkout) == 1
    with (checkout / "pyproject.toml").open("a") as handle:
        handle.write("# another dependency\n")
    changed = run(*demo)
    assert (changed.returncode, changed.stderr) == (0, "bringing .venv up to date …\n")
    assert installations(checkout) == 2
    moved = checkout.rename(checkout.with_name("elsewhere"))
    assert run(moved / "bin" / "demo").returncode == 0
    assert installations(moved) == 3


@pytest.mark.complete("an installation takes long")
def test_a_killed_installation_is_begun_again(checkout: Path) -> None:
    os.mkfifo(checkout / "hangs")
    with subprocess.Popen(
        (checkout / "bin" / "demo",), stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        (checkout / "hangs").open().close()
        os.killpg(process.pid, signal.SIGKILL)
    (checkout / "hangs").unlink()
    (checkout / ".venv" / "bin" / "pip").write_text("half a file")
    done = run(checkout / "bin" / "demo")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert done.stderr == "installing into .venv (about a minute) …\n"
    assert installations(checkout) == 2


def test_a_failed_installation_shows_why(checkout: Path) -> None:
    (checkout / "fails").touch()
    done = run(checkout / "bin" / "test")
    assert done.returncode == 1
    assert "the backend says no" in done.stderr
    assert done.stderr.splitlines()[-2:] == [
        "test: error: the installation into .venv failed",
        f"hint: see '{checkout}/.venv/install.log'; it needs the network, or pip's own settings",
    ]


# -- the launchers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_launcher_through_a_link_from_anywhere(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(BIN / name)
    (tmp_path / "git_daytona.py").write_text("raise SystemExit('trapped')\n")
    done = run(
        tmp_path / name, "--help", cwd=tmp_path, PYTHONPATH=str(tmp_path), PYTHONHOME="/nonexistent"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ")
    on_path = run("sh", "-c", f"{name} --help", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert on_path.stdout == done.stdout


def test_git_finds_the_subcommand() -> None:
    done = run("git", "daytona", "-h", PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert done.stdout.startswith("Usage: git daytona ")


def test_a_checkout_without_venv_says_what_to_do(checkout: Path) -> None:
    done = run(checkout / "bin" / "git-daytona", "status")
    assert done.returncode == 70
    assert (
        done.stderr
        == "git-daytona: error: this checkout has no .venv yet\nhint: run bin/demo or bin/test "
        "once, they make it\n"
    )


def commands(program: str) -> list[tuple[str, ...]]:
    """The words after the program's name of all its commands, and none for the program itself."""
    cli = import_module(f"git_daytona.cli.{program.replace('-', '_')}").cli
    names = cli.list_commands(click.Context(cli)) if isinstance(cli, click.Group) else []
    return [(), *((name,) for name in names)]


GROUPS = [name for name in PROGRAMS if name not in ("daytona-ssh", "git-remote-daytona")]


@pytest.mark.parametrize("program", GROUPS)
def test_each_command_is_one_line_of_its_program_s_help(program: str) -> None:
    cli = import_module(f"git_daytona.cli.{program.replace('-', '_')}").cli
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None and command.name == name
        assert 0 < len(command.short_help) <= 56 and not command.short_help.endswith("."), name


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "daytona-ssh"])
def test_every_help_fits_a_terminal(program: str, capsys, monkeypatch) -> None:
    for words in commands(program):
        for option, columns, most in (("-h", 80, 80), ("--help", 200, 120)):
            monkeypatch.setenv("COLUMNS", str(columns))
            assert main([program, *words, option]) == 0
            shown = capsys.readouterr().out
            assert shown.startswith("Usage: "), words
            assert max(map(len, shown.splitlines())) <= most, words


@pytest.mark.parametrize("closed", [True, False])
def test_a_stdout_that_takes_nothing(closed: bool) -> None:
    """One that was closed on purpose wants nothing; one whose reader is gone ends it, silently."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        argv = ("sh", "-c", f'"$1" --help {">&-" if closed else ""}', "sh", BIN / "git-daytona")
        done = subprocess.run(argv, stdout=broken, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode == 0) == closed
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_stdout_that_is_full() -> None:
    with Path("/dev/full").open("wb") as full:
        argv = (BIN / "git-daytona", "--help")
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stderr.startswith("git-daytona: error: ") and "Traceback" not in done.stderr
