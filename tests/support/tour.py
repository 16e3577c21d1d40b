"""The README's three minutes, as they stand there: run in an installation, with the real OpenCode
and an embedded Daytona.

tests/opencode/test_tour.py runs them, and fails where man/tour.svg, the README's picture, is no
longer what they print: ``bin/test tests/opencode/test_tour.py --renew`` makes it anew.
"""

import html
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "man" / "tour.svg"
TOUR_SECONDS = 300.0
COLUMNS = 80
PICTURED = ("opencode run", "git daytona status", "git daytona log", "git daytona merge")
"""The commands that the picture has, by how they begin."""
LINES = 5
"""How many lines it has of each one's output, empty ones not counted: 20 in all."""

# What differs each time (ids, commits, times) is left out when two pictures are compared; behind
# an age the whole line, whose last column is cut where a longer age leaves less room.
MASKS = re.compile(
    r"\b[0-9a-f]{40}\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,12}\b"
    r"|\bDate: .*|\b\d+ ?(?:ms|s|seconds?|minutes?) ago\b.*|\bjust now\b.*|\b\d+[smh]\b"
)

PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}"
  width="{terminal_width}" font-size="{char_height}">
<style>
text {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre;
}}
{styles}
</style>
<rect width="100%" height="100%" rx="6" fill="#0c0c0c"/>
<g transform="translate(12, 6)">
{backgrounds}
<g>{matrix}</g>
</g>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="100%" height="100%"/></clipPath>
{lines}
</defs>
</svg>
"""


@dataclass(frozen=True)
class Step:
    """A command as it stands in the README, what it printed (both streams as they came), and its
    exit status."""

    command: str
    output: str
    status: int


def blocks() -> list[str]:
    """The README's blocks of commands that its tests run. (Those without ``sh`` need what a test
    cannot give: root, your repository.)"""
    return re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def block(beginning: str) -> str:
    """The one that begins so."""
    (found,) = (each for each in blocks() if each.startswith(beginning))
    return found


def commands() -> list[str]:
    """The tour's commands."""
    return block("git daytona install").splitlines()


def way_in() -> str:
    """The command that gives the shell in which the tour is made."""
    (found,) = re.findall(
        r"^```\n(daytona-local exec .*)\n```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    return str(found)


def take(
    env: Mapping[str, str], cwd: Path, ended: Callable[[str], None] = lambda _command: None
) -> list[Step]:
    """Type the tour into that shell, one command when the one before it has ended; one that fails
    does not end it. ``ended`` is called after each.

    The shell's standard input is a terminal, as a person's is, its output a pipe: nothing draws on
    it.
    """
    mark = b"-- end of command --"
    keyboard, terminal = os.openpty()
    shell = subprocess.Popen(
        ("bash", "-c", way_in()),
        cwd=cwd,
        env=dict(env),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.close(terminal)
    watchdog = threading.Timer(TOUR_SECONDS, shell.kill)
    watchdog.start()
    steps = []
    assert shell.stdout is not None
    try:
        for command in commands():
            os.write(keyboard, command.encode() + b"\nprintf '\\n%s %s\\n' '" + mark + b"' $?\n")
            lines: list[bytes] = []
            for line in shell.stdout:
                if line.startswith(mark):
                    break
                lines.append(line)
            else:
                raise AssertionError(
                    f"the shell ended in '{command}': {b''.join(lines).decode(errors='replace')}"
                )
            steps.append(
                Step(
                    command,
                    b"".join(lines).decode(errors="replace").removesuffix("\n"),
                    int(line.split()[-1]),
                )
            )
            ended(command)
        os.write(keyboard, b"exit\n")
        shell.stdout.read()
        shell.wait(TOUR_SECONDS)
        return steps
    finally:
        watchdog.cancel()
        shell.kill()
        shell.wait()
        shell.stdout.close()
        os.close(keyboard)


def visible(svg: str) -> list[str]:
    """Return what a picture shows, line by line, without what differs each time. Blanks count as
    one: the columns of a table are as wide as ages that differ."""
    words = (
        html.unescape(re.sub(r"<[^>]*>", "", line)) for line in svg.split("<g>", 1)[-1].splitlines()
    )
    return [MASKS.sub("…", text) for line in words if (text := " ".join(line.split()))]


def picture(steps: list[Step]) -> str:
    """Draw the tour's main steps as an SVG of COLUMNS columns and 20 lines."""
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for step in steps:
        if step.command.startswith(PICTURED):
            console.print(Text.assemble(("$ ", "green"), (step.command, "bold")))
            lines = [Text.from_ansi(line) for line in step.output.splitlines()]
            for line in [line for line in lines if line.plain.strip()][:LINES]:
                console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    return console.export_svg(title="", theme=MONOKAI, code_format=PAGE, unique_id="tour")
