"""What runs in the sandbox: sh scripts that need POSIX tools and base64 only, and say everything
foreign as one base64 line."""

from functools import cache
from pathlib import Path


@cache
def script(name: str) -> str:
    """A script of this folder, with what all of them share before it."""
    here = Path(__file__).parent
    return (here / "common.sh").read_text("utf-8") + (here / f"{name}.sh").read_text("utf-8")
