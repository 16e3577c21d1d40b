"""The files that ``--help`` prints are what click would print, and printing them loads next to
nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from develop import helptexts
from git_daytona import __version__
from git_daytona.__main__ import main
from git_daytona.cli import help as helping


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "50")  # a narrow terminal changes nothing
        return helptexts.texts()


def test_the_texts_are_current(wanted: dict[str, str]) -> None:
    found = helptexts.written()
    stale = sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
    assert stale == [], helptexts.RENEW


def test_they_are_printed_for_help_alone(
    wanted: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in wanted.items():
        program, *words = name.removesuffix(".txt").split(".")
        for option in ("--help", "-h"):
            assert helping.text(program, [*words, option]) == text, name
    assert helping.text("git-daytona", ["--version"]) == f"git-daytona {__version__}\n"
    others = (
        [],
        ["status"],
        ["--help", "status"],
        ["status", "--json", "--help"],
        ["nonsense", "--help"],
        ["../help/git-daytona", "--help"],
        ["", "-h"],
        ["status", "--version"],
    )
    for arguments in others:
        assert helping.text("git-daytona", arguments) is None, arguments
    assert helping.text("../git-daytona", ["--help"]) is None
    # What is not for the files is for click, to the same width.
    assert main(["git-daytona", "status", "--json", "--help"]) == 0
    assert capsys.readouterr().out == wanted["git-daytona.status.txt"]


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_nothing_is_loaded_for_them(argument: str) -> None:
    script = """if True:
        import sys
        before = set(sys.modules)
        from git_daytona.__main__ import main
        status = main(sys.argv[1:])
        print(status, *sorted(set(sys.modules) - before), file=sys.stderr)
    """
    for program in helptexts.CLI:
        argv = (sys.executable, "-I", "-c", script, program, argument)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        status, *loaded = done.stderr.split()
        assert status == "0" and done.stdout
        assert loaded == ["git_daytona", "git_daytona.__main__", "git_daytona.cli.help"], program


def test_a_stdout_that_takes_nothing() -> None:
    environment = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}
    launcher = str(Path(__file__).parents[1] / "bin" / "git-daytona")

    def ran(redirection: str) -> tuple[int, str]:
        argv = ("sh", "-c", f'"$1" --help {redirection}', "sh", launcher)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment)
        return done.returncode, done.stderr

    assert ran(">&-") == (0, "")
    # A pipe without a reader.
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        done = subprocess.run(
            (launcher, "--help"), stdout=broken, stderr=subprocess.PIPE, timeout=60, env=environment
        )
    assert done.returncode != 0 and done.stderr == b""
    if Path("/dev/full").exists():
        status, complaint = ran(">/dev/full")
        assert (
            status != 0
            and complaint.startswith("git-daytona: error: ")
            and "Traceback" not in complaint
        )
