"""An executable's main, called in this process: what people would see of it, without a second and a
half for each start."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_daytona.__main__ import main


@dataclass(frozen=True)
class Told:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> tuple[str, str]:
        """The one error line and the one hint line; warnings and notes apart."""
        lines = self.err.splitlines()
        errors = [line for line in lines if ": error: " in line]
        hints = [line for line in lines if line.startswith("hint: ")]
        assert len(errors) == 1, self.err
        assert len(hints) == 1, self.err
        assert lines.index(hints[0]) == lines.index(errors[0]) + 1
        return errors[0], hints[0]


@pytest.fixture
def tell(capfd, monkeypatch, tmp_path) -> Callable[..., Told]:
    """Run ``PROGRAM ARGUMENTS…`` in a directory, with standard input from bytes."""

    def run(*words: str, cwd: Path | None = None, stdin: bytes = b"") -> Told:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch, (tmp_path / "stdin").open("w+b") as source:
            source.write(stdin)
            source.seek(0)
            with os.fdopen(os.dup(source.fileno())) as text:
                patch.setattr(sys, "stdin", text)
                if cwd is not None:
                    patch.chdir(cwd)
                status = main(list(words))
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Told(status, out, err)

    return run
