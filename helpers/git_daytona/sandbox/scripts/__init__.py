"""What runs in the sandbox: sh scripts that need POSIX tools and base64 only."""

import re
from functools import cache
from pathlib import Path


@cache
def read(name: str) -> str:
    """Read a script of this folder, without its comments: shells read what they are fed byte by
    byte."""
    text = (Path(__file__).parent / f"{name}.sh").read_text("utf-8")
    return re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)


def script(*names: str) -> str:
    """Read the scripts of a tool, with what all tools share before them."""
    return "".join(map(read, ("common", *names)))
