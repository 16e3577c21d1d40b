"""What runs in the sandbox: sh scripts that need POSIX tools and base64 only."""

from functools import cache
from pathlib import Path


@cache
def read(name: str) -> str:
    """Read a script of this folder."""
    return (Path(__file__).parent / f"{name}.sh").read_text("utf-8")


def script(name: str) -> str:
    """Read a script of a tool, with what all of them share before it."""
    return read("common") + read(name)
