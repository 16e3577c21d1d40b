"""What the doctor found, in columns: status, check, what was seen; below it what to do."""

import sys
import textwrap
from functools import partial

import click

from git_daytona.doctor.findings import Finding, Status

NAME_COLUMNS = len("daytona-local")
DETAIL_COLUMN = len("skipped ") + NAME_COLUMNS + len("  ")
LEAST_COLUMNS = 20
_COLOURS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}


def text(finding: Finding, *, columns: int | None = None, colour: bool = False) -> str:
    """Render a finding, wrapped to so many columns of a terminal."""
    word = f"{'FAIL' if finding.status is Status.FAIL else finding.status.value:7}"
    if colour:
        word = click.style(word, _COLOURS.get(finding.status), dim=finding.status is Status.SKIPPED)
    room = max(columns - DETAIL_COLUMN, LEAST_COLUMNS) if columns else sys.maxsize
    texts = [finding.detail, *([f"hint: {finding.hint}"] if finding.hint else [])]
    wrap = partial(textwrap.wrap, width=room, break_long_words=False, break_on_hyphens=False)
    lines = [line for each in texts for line in wrap(each) or [""]]
    return f"{word} {finding.check:{NAME_COLUMNS}}  " + f"\n{'':{DETAIL_COLUMN}}".join(lines)
