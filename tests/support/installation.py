"""An installation as people make it: the wheel, by pip, in a virtual environment of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

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
    """The wheel with all it depends on, from the package index."""
    place = tmp_path_factory.mktemp("installation")
    venv = place / "venv"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }

    def run(*argv: str) -> None:
        done = subprocess.run(
            (sys.executable, "-I", *argv),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            env=environment,
        )
        assert done.returncode == 0, done.stderr

    run("-m", "hatchling", "build", "-t", "wheel", "-d", str(place))
    run("-m", "venv", "--without-pip", str(venv))
    (wheel,) = place.glob("*.whl")
    run(
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(venv / "bin" / "python"),
        "install",
        "--quiet",
        str(wheel),
    )
    return Installed(venv)
