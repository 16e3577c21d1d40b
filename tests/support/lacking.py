"""Programs that a machine may lack: what tests them is skipped, with the reason."""

import shutil

import pytest


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Skip a test where a program is not on PATH; the package is Debian's."""
    reason = f"{program} is missing (Debian: apt install {package})"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


needs_man = needs("man", "man-db")
needs_ps = needs("ps", "procps")
