"""An installation as people make it: the wheel, by pip, in a virtual environment of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """Where it is."""

    prefix: Path

    @property
    def bin(self) -> Path:
        return self.prefix / "bin"

    @property
    def share(self) -> Path:
        return self.prefix / "share"

    @property
    def environment(self) -> dict[str, str]:
        """What an installation for the whole system would have by itself: PATH, and where shells
        and man look."""
        return {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "XDG_DATA_DIRS": f"{self.share}:/usr/local/share:/usr/share",
            "MANPATH": f"{self.share / 'man'}:",
        }


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with all it depends on, from the package index; one for all processes of a run.
    Skips where no index can be reached."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installation"
    with FileLock(f"{place}.lock"):
        if not (place / "complete").exists():
            place.mkdir(exist_ok=True)
            _install(place)
            (place / "complete").touch()
    return Installed(place / "venv")


def _install(place: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }

    def run(*argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            (sys.executable, "-I", "-m", *argv),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            env=environment,
        )

    def must_run(*argv: str) -> None:
        assert (done := run(*argv)).returncode == 0, done.stderr

    pip = ("pip", "--disable-pip-version-check")
    quick = ("--retries=0", "--timeout=10", "--no-deps")
    if run(*pip, "download", *quick, "-d", str(place / "probe"), "wcwidth").returncode != 0:
        pytest.skip("no package index can be reached: nothing can be installed as users do")
    must_run("hatchling", "build", "-t", "wheel", "-d", str(place))
    must_run("venv", "--without-pip", str(place / "venv"))
    (wheel,) = place.glob("*.whl")
    python = str(place / "venv" / "bin" / "python")
    must_run(*pip, "--python", python, "install", "--quiet", str(wheel))
