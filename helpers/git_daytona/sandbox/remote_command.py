"""A command in a sandbox that is joined while it runs: its output as it comes and as it is, its
input, and signals.

It is started by one call, which waits a moment for its end, and followed by others, each of which
waits for news (scripts/attach.sh). All that one call loses the next one gets.
"""

import base64
import binascii
import re
import secrets
import threading
from dataclasses import dataclass
from functools import cached_property

from git_daytona.api.cloud import Cloud
from git_daytona.base.errors import (
    ApiUnreachable,
    BadAnswer,
    CutShort,
    GitDaytonaError,
    SandboxCommandFailed,
)
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report, scripts
from git_daytona.sandbox.parts import FOLDER
from git_daytona.transfer import leases

JOIN_SECONDS = 30.0
"""Limit of one call; it waits for news for LONGEST at most."""
MOMENT, LONGEST = 150, 1000
"""Hundredths of a second: of the first call, for the end; of later ones, for news."""
PIECE_BYTES = 6 * 1024 * 1024
"""The most output that one call brings of each stream."""
LARGE_BYTES = 16 * 1024 * 1024
"""From so much output on its room in the sandbox is given back at once."""
BEGIN_BYTES = 64 * 1024
"""The most input that is sent with a command; larger pieces go as files, since a shell reads what
it is fed byte by byte."""
INPUT_BYTES = 4 * 1024 * 1024
"""The largest piece of input that is sent at once."""
AHEAD = 4
"""How many pieces of input may wait in the sandbox."""
COMMAND_BYTES = 96 * 1024
"""The longest command: it is one string of an environment there (execve(2))."""


@dataclass(frozen=True)
class Wanted:
    """What shall run: a line of shell, where, how long, whether both its outputs are to be one, and
    how its input begins (``whole``: that is all of it)."""

    command: str
    directory: str
    seconds: int
    merged: bool
    begin: bytes = b""
    whole: bool = True


@dataclass(frozen=True)
class News:
    """What a command has written since the last time, and how it ended, if it has."""

    output: bytes
    errors: bytes
    ended: bool
    """Whether it has, and nothing more comes."""
    status: int = 0
    late: bool = False
    """Whether it was ended because its time was over."""


class RemoteCommand:
    """One command, which runs at most once."""

    def __init__(self, cloud: Cloud, wanted: Wanted, name: str = "") -> None:
        """``name`` is what others join it by, from the beginning of its output; such a run is not
        removed when it has ended."""
        self._cloud, self._wanted = cloud, wanted
        self._id = name or secrets.token_hex(12)
        self._known = (0, 0)
        """How many bytes of its output and of its errors are here."""
        self.behind = False
        """Whether there is more already."""
        self.sandbox_id = ""
        """Where it runs, or may have begun; set by who joins it by its name."""
        self.joined = False
        """Whether it is known to have begun."""
        self.taken = threading.Condition()
        self.fed = 0
        """How many pieces of its input are taken; whoever waits on ``taken`` is told."""

    def begin(self, sandbox_id: str, least: int = MOMENT) -> News:
        """Start it, or join it where an earlier call did, and wait for its end, or for its first
        output after the ``least`` time. Raises CutShort where it may have begun
        in another sandbox, and as ``follow`` does."""
        if self.sandbox_id not in ("", sandbox_id):
            raise CutShort("the sandbox was deleted while this ran, and a new one has been made")
        wanted = self._wanted
        words = (
            *(self._id, wanted.directory, PROJECT, str(wanted.seconds)),
            "merged" if wanted.merged else "apart",
            "whole" if wanted.whole else "more",
            *(base64.b64encode(wanted.begin).decode(), wanted.command),
        )
        runner = report.script(scripts.read("runner"), *words)
        return leases.patiently(lambda: self._join(sandbox_id, least, MOMENT, runner))

    def follow(self, least: int) -> News:
        """Wait for news, at least so many hundredths of a second. Raises CutShort where it was
        ended from outside; then the news is the error's ``news``."""
        least, most = (0, 0) if self.behind else (least, LONGEST)
        return self._join(self.sandbox_id, least, most, "")

    def _join(self, sandbox_id: str, least: int, most: int, runner: str) -> News:
        known = map(str, self._known)
        words = (self._id, *known, str(least), str(most), str(PIECE_BYTES), runner)
        line = report.line(scripts.read("attach"), *words)
        before, self.sandbox_id = self.sandbox_id, sandbox_id
        try:
            for _ in range(2):  # where the script was ended: what became of the command?
                answer = self._cloud.execute(sandbox_id, line, timeout=JOIN_SECONDS).output
                if found := self._pattern.search(answer):
                    break
        except (ApiUnreachable, BadAnswer):  # all others are refusals
            raise
        except GitDaytonaError:
            self.sandbox_id = before
            raise
        if found is None:
            hint, details = "see whether it has sh, base64 and room on its disk", answer[-1000:]
            raise BadAnswer("the sandbox's answer makes no sense", hint=hint, details=details)
        return self._read(found)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        numbers = r"(\d{1,9}) (\d{1,3}) ([a-z-]+) (\d{1,15}) (\d{1,15})"
        lines = r"([A-Za-z0-9+/=]*)\n([A-Za-z0-9+/=]*)$"
        return re.compile(rf"^{self._id} ([a-z]+) {numbers}\n{lines}", re.MULTILINE)

    def _read(self, found: re.Match[str]) -> News:
        """Read an answer, which is the sandbox's word. Raises BadAnswer."""
        state, fed, status, reason = found[1], int(found[2]), min(int(found[3]), 255), found[4]
        if state == "full":
            raise SandboxCommandFailed(
                "cannot write to ~/.cache in the sandbox; is its disk full?",
                hint="make room there: git daytona shell N",
            )
        try:
            output, errors = (base64.b64decode(text, validate=True) for text in found.groups()[6:])
        except binascii.Error:
            raise BadAnswer("the sandbox's answer makes no sense", hint="try again") from None
        self.joined = True
        self._known = (self._known[0] + len(output), self._known[1] + len(errors))
        more = self._known[0] < int(found[5]) or self._known[1] < int(found[6])
        self.behind = more and bool(output or errors)
        with self.taken:
            self.fed = fed
            self.taken.notify_all()
        over = state != "running" and not self.behind
        if over and state != "ended":
            raise Cut(News(output, errors, ended=True))
        return News(output, errors, over, status, late=reason == "time")

    def feed(self, number: int, data: bytes, *, last: bool) -> None:
        """Send a piece of its input; the one that it began with is number 0."""
        text, path = base64.b64encode(data).decode(), ""
        if len(data) > BEGIN_BYTES:
            text, path = "", f"{FOLDER.format(self._id)}.{number}"
            leases.patiently(lambda: self._cloud.upload(self.sandbox_id, path, data))
        words = (self._id, str(number), text, path, "end" if last else "more")
        line = report.line(scripts.read("feed"), *words)
        sent = leases.patiently(
            lambda: self._cloud.execute(self.sandbox_id, line, timeout=JOIN_SECONDS)
        )
        if self._id not in sent.output:
            hint = "see whether its disk is full"
            raise SandboxCommandFailed(
                "standard input could not be written in the sandbox", hint=hint
            )

    @property
    def is_large(self) -> bool:
        """Whether its output takes much room there."""
        return sum(self._known) > LARGE_BYTES

    def signal(self, name: str, *, end: bool = False) -> None:
        """Send it a signal; with ``end`` nobody wants its output, and it is ended in whatever way a
        few seconds later."""
        words = (self._id, name, "end" if end else "")
        line = report.line(scripts.read("signal"), *words)
        self._cloud.execute(self.sandbox_id, line, timeout=JOIN_SECONDS)


class Cut(CutShort):
    """The command was ended from outside; ``news`` is the last of its output."""

    def __init__(self, news: News) -> None:
        super().__init__("the sandbox stopped while this ran, or something in it ended it")
        self.news = news
