"""What a machine may lack: the tests that need it are skipped, with the reason."""

import shutil
import subprocess

import pytest


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skip a test where a program is not on PATH; the package is Debian's."""
    reason = f"{program} is missing (Debian: apt install {package})"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


needs_man = needs("man", "man-db")
needs_ps = needs("ps", "procps")


def ask_npm_for(package: str, npm: str) -> None:
    """Skip where npm's registry does not have a package for us, before it is installed."""
    argv = (npm, "view", package, "version", "--fetch-retries=0", "--fetch-timeout=20000")
    if subprocess.run(argv, capture_output=True, timeout=120).returncode != 0:
        pytest.skip(f"npm's registry cannot be reached, or does not have {package}")
