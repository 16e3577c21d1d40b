"""``install.py PROGRAM ROOT STAMP``: make ROOT/.venv and install the checkout with its test extra
into it. Standard library only.

Started by tests/develop/venv.sh when the stamp in .venv is not STAMP. One at a time; a killed one
is begun again from nothing.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

LOG_LINES = 15
FAILED, INTERRUPTED = 1, 130


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def environment() -> dict[str, str]:
    """Without what would send Python or pip elsewhere."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "VIRTUAL_ENV"
    }
    env |= {
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    # A home where pip has no cache yet is left without one: trying the suite out leaves nothing
    # behind.
    if "PIP_CACHE_DIR" not in env and not any(
        (Path.home() / place).is_dir() for place in (".cache/pip", "Library/Caches/pip")
    ):
        env["PIP_NO_CACHE_DIR"] = "1"
    return env


def run(argv: list[str], log: IO[bytes], lock: IO[str]) -> None:
    # The child holds the lock, too: if we are killed and it lives on, nobody installs beside it.
    subprocess.run(
        argv,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment(),
        cwd="/",
        pass_fds=(lock.fileno(),),
    )


def has(python: Path, module: str) -> bool:
    """Whether this Python runs and has the module."""
    try:
        return (
            subprocess.run([python, "-I", "-c", f"import {module}"], capture_output=True).returncode
            == 0
        )
    except OSError:
        return False


def install(root: Path, stamp: str, lock: IO[str]) -> None:
    venv = root / ".venv"
    done, begun, log_path = venv / "stamp", venv / "installing", venv / "install.log"
    python = venv / "bin" / "python"
    whole = begun.exists() or not has(python, "pip")
    if whole:
        say("installing into .venv (about a minute) …")
        # What a killed installation left may look whole and not be.
        shutil.rmtree(venv, ignore_errors=True)
        venv.mkdir()
    else:
        say("bringing .venv up to date …")
    begun.touch()
    done.unlink(missing_ok=True)
    with log_path.open("wb") as log:
        if whole:
            run([sys.executable, "-I", "-m", "venv", str(venv)], log, lock)
        run(
            [
                str(python),
                "-I",
                "-m",
                "pip",
                "install",
                "--progress-bar",
                "off",
                "-e",
                f"{root}[mcp,test]",
            ],
            log,
            lock,
        )
    begun.unlink()
    done.write_text(stamp)


def main(program: str, root: Path, stamp: str) -> int:
    log = root / ".venv" / "install.log"
    try:
        # Held while .venv is changed. It is no part of .venv, which may have to be removed.
        with (root / ".venv.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another installation into .venv …")
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever had the lock before us may have done it.
            done = root / ".venv" / "stamp"
            if not (
                done.exists()
                and done.read_text() == stamp
                and has(root / ".venv" / "bin" / "python", "git_daytona")
            ):
                install(root, stamp, lock)
            return 0
    except KeyboardInterrupt:
        say("interrupted; the next run begins the installation again")
        return INTERRUPTED
    except subprocess.CalledProcessError:
        for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
            say(f"  {line}")
        say(
            f"{program}: error: the installation into .venv failed\nhint: see '{log}'; it "
            "needs the network, or pip's own settings"
        )
        return FAILED
    except OSError as problem:
        say(
            f"{program}: error: cannot write '{problem.filename}': {problem.strerror}\n"
            "hint: work in a clone that is yours"
        )
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
