"""bash: run a command in the sandbox. One API call; each second or so another while it runs."""

import math
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from git_daytona.base.errors import GitDaytonaError
from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, commands, files
from git_daytona.tools.answers import name
from git_daytona.tools.context import Context, Result, ToolError, ask, flag, text, tool, whole

DEFAULT_MS = 120_000
MOST_MS = 24 * 3600 * 1000  # milliseconds that a command may take
GRACE = 30.0  # seconds that ending a command and sending its output may take besides
OVERFLOW = 512 * 1024 * 1024  # bytes of output at which a command is ended, for the disk's sake
SENT = 2 * answers.MOST_BYTES  # bytes of output that the sandbox sends
LIVE_LENGTH = 30_000  # characters of output in a tool's metadata, for the display
PATIENCE = 2.0  # seconds after which a command's output is shown while it runs
SLOWEST = 5.0  # seconds between two looks at it at most: they grow with the time it has taken
NOTED = "\n\n<shell_metadata>\n{}\n</shell_metadata>"

_ENDED = re.compile(
    r"ended (?P<status>[0-9]{1,15}) (?P<reason>exit|time|size|cancel) (?P<size>[0-9]{1,15}) "
    r"[0-9]{1,15} (?P<alive>yes|no) (?P<log>.+)"
)
_ENDINGS = {
    "time": "shell tool terminated command after exceeding timeout {limit} ms. If this command is "
    "expected to take longer and is not waiting for interactive input, retry with a larger timeout "
    "value in milliseconds.",
    "size": f"shell tool terminated command because it wrote more than {OVERFLOW // 2**20} MiB of "
    "output",
    "cancel": "User aborted the command",
}
_LEFT = re.compile(r"left (?P<pid>[0-9]{1,15}) (?P<log>.+)")


@tool(
    "bash",
    """Runs a bash command in this session's sandbox and returns its output (stdout and stderr \
together).

- Commands run in the session's own sandbox, a Linux machine apart from the user's computer, in \
the project directory /home/daytona/project. Give `workdir` to run one elsewhere instead of using \
`cd`.
- Every call is a new shell: variables, `cd` and shell options do not last. Standard input is \
closed, so nothing interactive.
- `timeout` is in milliseconds, 120000 by default.
- Start servers and watchers with `background: true`: the call returns at once with a process id \
and the file that the output goes to. getPreviewURL gives a link to a port.
- Long output is cut to its end (2000 lines, 50 KB); all of it is kept in a file in the sandbox \
that the result names, for grep and read. So do not pipe through head or tail to shorten it.
- Use the read, edit, write, glob and grep tools for files rather than cat, sed, echo, find and \
grep.
- Chain commands that depend on each other with `&&`; make independent ones separate calls in one \
message.
- Commit, push or rewrite git history only when asked to. The work comes back to the user's \
repository by itself; gitSync brings it now.""",
    command=text("The command to execute", empty=False),
    timeout=whole(
        "Optional timeout in milliseconds (default 120000)", 1, MOST_MS, DEFAULT_MS, "milliseconds"
    ),
    workdir=text(
        "Directory to run in, absolute or relative to the project. Defaults to the project. Use it "
        "instead of 'cd'.",
        "",
    ),
    description=text("What the command does, in 5 to 10 words", ""),
    background=flag("Leave it running and return at once: for servers and watchers"),
)
def bash(
    context: Context, command: str, limit: int, directory: str, title: str, background: bool
) -> Result:
    if not command.strip() or "\0" in command:
        raise ToolError("the command must not be blank or hold NUL")
    most = files.ARGUMENT_LENGTH
    if len(command.encode()) > most:
        raise ToolError(f"the command has more than {most} bytes: write it to a file and run that")
    directory = files.resolve(directory or ".", context.worktree)
    asked, always = commands.patterns(command)
    if asked:
        ask(context, "bash", asked, {"command": command}, always)
    call = _Call(context, command, limit, directory, title or command)
    return call.leave() if background else call.finish()


@dataclass
class _Call:
    """One command. A second thread shows what it prints, and ends it when the user aborts."""

    context: Context
    command: str
    limit: int  # milliseconds
    directory: str
    title: str
    identity: str = field(default_factory=lambda: secrets.token_hex(12))
    over: bool = False
    showing: threading.Lock = field(default_factory=threading.Lock)  # not after the result

    def finish(self) -> Result:
        """Run it to its end."""
        threading.Thread(target=self._attend, name="attend a command", daemon=True).start()
        try:
            ended, output = self._execute("wait", _ENDED)
        finally:
            with self.showing:
                self.over = True
        printed = answers.output(output).strip("\n")
        shown = answers.tail(printed)
        cut = shown != printed or int(ended["size"]) > SENT
        status, log = int(ended["status"]), name(ended["log"])
        own = status if ended["reason"] == "exit" else None
        metadata = self._metadata(printed) | {"exit": own, "truncated": cut}
        note = _ENDINGS.get(ended["reason"], "").format(limit=self.limit)
        if own is not None and ended["alive"] == "yes":
            note = f"a process of this command is still running; its output goes to {log}"
        elif own and not shown:
            note = f"exit status {status}"
        text = shown or "(no output)"
        if cut:
            text = f"...output truncated...\n\nFull output saved to: {log}\n\n{text}"
            metadata["outputPath"] = ended["log"]
        return Result(self.title, text + (NOTED.format(note) if note else ""), metadata)

    def leave(self) -> Result:
        """Start it, and leave it running."""
        left, printed = self._execute("leave", _LEFT)
        pid, log = left["pid"], left["log"]
        output = f"Started in the background with process id {pid}. Its output goes to {name(log)}"
        printed = answers.tail(answers.output(printed)).strip("\n")
        if printed:
            output += f"\n\nSo far:\n{printed}"
        output += NOTED.format(f"end it with: kill -- -{pid}")
        started = {"exit": None, "truncated": False, "pid": int(pid), "outputPath": log}
        return Result(self.title, output, self._metadata(printed) | started)

    def _execute(self, mode: str, expected: re.Pattern[str]) -> tuple[re.Match[str], str]:
        """Run the script; returns its first line, and what the command printed."""
        seconds, rest = divmod(self.limit, 1000)
        limits = (str(seconds), f"{rest / 1000:.3f}", str(SENT), str(OVERFLOW))
        words = (self.identity, self.directory, *limits, mode, self.command)
        timeout = math.ceil(self.limit / 1000) + GRACE
        result = self.context.execute(script("bash"), *words, timeout=timeout)
        first, _, printed = result.output.partition("\n")
        if first == "no-directory":
            raise ToolError(f"workdir is not a directory in the sandbox: {name(self.directory)}")
        found = expected.fullmatch(first)
        if not found:
            raise answers.unexpected("bash", result)
        return found, printed

    def _attend(self) -> None:
        begun = time.monotonic()
        pause, shown = PATIENCE, ""
        while not self.context.cancelled.wait(pause):
            if self.over:
                return
            words = (self.identity, str(2 * LIVE_LENGTH))
            try:
                seen = self.context.execute(script("peek"), *words, timeout=10.0).output
            except GitDaytonaError:  # only for the display; the command will say what is wrong
                seen = shown
            with self.showing:
                if seen not in ("", shown) and not self.over:
                    shown = seen
                    self.context.progress(self.title, self._metadata(answers.output(seen)))
            pause = min(SLOWEST, 1.0 + (time.monotonic() - begun) / 20)
        try:
            if not self.over:
                self.context.execute(script("stop"), self.identity, timeout=GRACE)
        except GitDaytonaError:  # it ends at its time limit, then
            pass

    def _metadata(self, printed: str) -> dict[str, Any]:
        if len(printed) > LIVE_LENGTH:
            printed = "...\n\n" + printed[-LIVE_LENGTH:]
        return {"output": printed or "(no output)", "description": self.title}
