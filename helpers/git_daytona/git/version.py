"""Which git this is: an older one is refused before anything else is tried with it."""

import functools
import re

from git_daytona.base.errors import MissingProgram
from git_daytona.base.run import run
from git_daytona.git import environment

OLDEST = (2, 36)


@functools.cache
def check() -> None:
    """Ask git once for its version. Raises MissingProgram if it is too old."""
    said = run(("git", "version"), env=environment.base(), timeout=60).text
    found = re.search(r"(\d+)\.(\d+)\S*", said)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        version, oldest = found[0], ".".join(map(str, OLDEST))
        raise MissingProgram(f"git {version} is older than {oldest}", hint="update git")
