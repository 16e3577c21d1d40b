"""Large files to and from a sandbox, through the toolbox's file calls: in parts, so that no answer
is larger than what any may be, and without a token."""

import contextlib
import re
import secrets
from dataclasses import dataclass, field
from typing import IO

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import errors
from git_daytona.base.secret import one_line
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report, scripts

PART_BYTES = 16 * 1024 * 1024
FOLDER = "/tmp/.git-daytona-{}"  # noqa: S108 — in the sandbox
PARTS_SECONDS = 1800.0
"""How long packing or unpacking in the sandbox may take."""


@dataclass(frozen=True)
class Parts:
    """The parts of one file in a sandbox, in a folder of their own."""

    cloud: Cloud
    sandbox_id: str
    folder: str = field(default_factory=lambda: FOLDER.format(secrets.token_hex(8)))
    place: str = PROJECT
    """The directory that scripts begin in."""

    def run(self, script: str, *arguments: str) -> list[str]:
        """Run a script; return the lines that it marked as its own, one at least, without the mark.
        Raises SandboxCommandFailed."""
        return self.run_loud(script, *arguments)[0]

    def run_loud(self, script: str, *arguments: str) -> tuple[list[str], str]:
        """Run a script as ``run`` does; return also all that it and its programs printed."""
        mark = secrets.token_hex(8)
        source = scripts.read("reset") + scripts.read(script)
        words = (source, mark, self.place, *arguments)
        result = self._do(*words)
        lines = [line for line in result.output.splitlines() if line.startswith(f"{mark} ")]
        if not lines:
            text = one_line(result.output)[-300:]
            raise errors.SandboxCommandFailed(
                f"the files could not be copied: {text or f'exit status {result.status}'}",
                hint="see the path, and the space, in the sandbox",
            )
        return [line.removeprefix(f"{mark} ") for line in lines], result.output

    def download(self, lines: list[str], target: IO[bytes]) -> None:
        """Append the parts that a script's lines name to an open file."""
        for line in lines:
            if found := re.fullmatch(r"part (part\.[a-z]{4})", line):
                path = f"{self.folder}/{found[1]}"
                target.write(self.cloud.download(self.sandbox_id, path))

    def upload(self, source: IO[bytes]) -> None:
        """Send an open file, from where it stands."""
        number = 0
        while content := source.read(PART_BYTES):
            path = f"{self.folder}/part.{number:04}"
            self.cloud.upload(self.sandbox_id, path, content)
            number += 1

    def remove(self) -> None:
        # what went wrong before is what is reported
        with contextlib.suppress(errors.GitDaytonaError):
            self._do('rm -rf -- "$1"', self.folder)

    def _do(self, *words: str) -> Execution:
        return report.Command(*words, timeout=PARTS_SECONDS).run(self.cloud, self.sandbox_id)
