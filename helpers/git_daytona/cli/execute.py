"""``git daytona exec``: a command in a session's sandbox."""

import codecs
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import TextIO

import click

from git_daytona.agents import command_line
from git_daytona.base import inherited, messages, signals
from git_daytona.base.errors import UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import boundary, common, options
from git_daytona.cli.options import flag, number
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox.remote_command import COMMAND_BYTES
from git_daytona.sessions import execution, shell
from git_daytona.sessions.coordinator import Coordinator

EXEC_SECONDS = 3600
ENDED_BY = (signal.SIGTERM, signal.SIGHUP)


@click.command("exec", cls=options.SessionFirst, context_settings=options.PASSING_ON)
@flag("--tty", "-t", help="Give the command this terminal: keys, size, colours.")
@number(
    "--timeout",
    metavar="S",
    within=(1, 86400),
    default=EXEC_SECONDS,
    help="End it after S seconds.",
)
@click.option(
    "--for-agent",
    metavar="DIR",
    help="As hooks write it: N is the session id of an agent that works in DIR, and its session is "
    "started at first; DIR and COMMAND are percent-encoded.",
)
@common.session
@options.command
def exec_(
    tty: bool, timeout: int, for_agent: str | None, name: str, command: tuple[str, ...]
) -> int:
    """Run COMMAND in the session's project, and exit with its status.

    Several words are one command with its arguments; a single word is a shell command line. It runs
    at most once, in the subdirectory of the project that you stand in here, if that is there. What
    it prints comes as it is, to stdout and stderr, and what is piped in arrives. Ctrl-C reaches it.
    With -t it has this terminal instead, and no time limit.
    """
    line = command[0] if len(command) == 1 else shlex.join(command)
    agents = None
    if for_agent is not None:
        agents, line = Path(_decoded("DIR", for_agent)), _decoded("COMMAND", line)
    _check(line, tty)
    with common.coordinator(agents, anywhere=True, step="running the command") as coordinator:
        place = execution.place(coordinator, agents)
        if agents:
            name = _begin(coordinator, name)
            # an agent means this directory, and none in its place
            line, place = f"cd -- {shlex.quote(place)} || exit\n{line}", PROJECT
        if tty:
            return shell.run_on_terminal(coordinator, name, line, place)
        typed = sys.stdin is None or sys.stdin.isatty()  # what a person types is no input
        source = execution.Input(None if typed else sys.stdin.fileno())
        streams = (_Stream("stdout"), _Stream("stderr"))

        def show(*printed: bytes) -> None:
            for stream, data in zip(streams, printed, strict=True):
                if data:
                    stream.write(data)

        run, whole = execution.prepare(
            *(coordinator, name, line, place),
            seconds=timeout,
            merged=os.path.sameopenfile(1, 2),  # their order counts then
            source=source,
            show=show,
        )
        with (
            signals.handling((signal.SIGINT,), lambda _: run.interrupt()),
            signals.handling(ENDED_BY, _unwind),
        ):
            try:
                status, notice = run.run(source, whole=whole)
            except BrokenPipeError:
                return boundary.reader_gone()
            finally:
                for stream in streams:
                    stream.finish()
        if notice:
            common.warn(notice)
        return status


def _check(line: str, tty: bool) -> None:
    if len(line.encode("utf-8", "surrogateescape")) > COMMAND_BYTES or "\0" in line:
        hint = "copy it there as a file (git daytona cp), and run that"
        raise UsageError(f"the command is longer than {COMMAND_BYTES >> 10} KiB", hint=hint)
    if tty:
        from git_daytona.sandbox import terminal  # here: asyncio takes long to load

        if not terminal.is_there():
            raise UsageError(
                "-t needs a terminal for input and output", hint="leave it out in scripts and pipes"
            )


def _decoded(name: str, word: str) -> str:
    try:
        return command_line.decoded(word)
    except ValueError as problem:
        hint = "leave --for-agent out"
        raise UsageError(f"{name} is not encoded as a hook does it", hint=hint) from problem


def _begin(coordinator: Coordinator, session_id: str) -> str:
    """Start an agent's session if there is none yet; return its name."""
    begun = coordinator.ensure(coordinator.state.root_of(session_id) or session_id)
    if begun.new:
        messages.note(f"in a sandbox of session {begun.session.name}")
        common.warn_of_dangers(coordinator, begun.session)
    return begun.session.name


def _unwind(number: int) -> None:
    """Unwind once: git passes a signal on that we got ourselves, and the command is being ended."""
    for each in ENDED_BY:
        signal.signal(each, inherited.ignore)
    signals.unwind(number)


# Of what a sandbox wrote, a terminal gets text, colours, and what goes back to the line's beginning
# and clears it, as progress does.
_TAKEN = re.compile(r"\x1b\[(?:[0-9;:]{0,40}m|K)|\r")
_BEGUN = re.compile(r"\x1b(?:\[[0-9;:]{0,40})?$")


class _Stream:
    """Where output or errors go; a terminal gets no control characters of them (case 51)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held, self._coloured = "", False

    @property
    def _file(self) -> TextIO:
        file: TextIO = getattr(sys, self._name)
        return file

    def write(self, data: bytes) -> None:
        if self._file.isatty():
            self._print(self._decoder.decode(data))
        else:
            self._file.buffer.write(data)
        self._file.flush()

    def _print(self, text: str, *, last: bool = False) -> None:
        text = self._held + text
        begun = None if last else _BEGUN.search(text)
        text, self._held = (text[: begun.start()], begun[0]) if begun else (text, "")
        at = 0
        for found in _TAKEN.finditer(text):
            self._file.write(printable(text[at : found.start()]) + found[0])
            self._coloured |= found[0].endswith("m")
            at = found.end()
        self._file.write(printable(text[at:]))

    def finish(self) -> None:
        """Write what was held back, and end a colour that was left on."""
        if self._file.isatty():
            self._print(self._decoder.decode(b"", final=True), last=True)
            if self._coloured:
                self._file.write("\x1b[0m")
            self._file.flush()
