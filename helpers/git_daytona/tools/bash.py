"""bash: run a command in the sandbox. One API call; a command that takes longer is looked at once a
second or so."""

import math
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError
from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, bounds, clean, commands, files, places
from git_daytona.tools.arguments import (
    Arguments,
    Definition,
    schema,
    stop_if_cancelled,
    text,
    whole,
    yes_or_no,
)
from git_daytona.tools.context import Cancelled, Context, Result, ToolError

DEFAULT = 120_000
LONGEST = 24 * 3600 * 1000
"""Milliseconds that a command may take."""
GRACE = 30.0
"""Seconds that ending a command and sending its output may take besides."""
OVERFLOW = 512 * 1024 * 1024
"""Bytes of output at which a command is ended, before it fills the sandbox's disk."""
PATIENCE = 2.0
"""Seconds after which a command's output is shown while it runs."""
SLOWEST = 5.0
"""The longest pause between two looks at it, seconds: they grow with the time that it has taken."""


@dataclass(frozen=True)
class Ended:
    """What the script says of a command."""

    status: int
    reason: str
    size: int
    lines: int
    alive: bool
    log: str
    output: str


def run(context: Context, arguments: Arguments) -> Result:
    command = arguments.text("command", empty=False)
    if not command.strip() or "\0" in command:
        raise ToolError("the command must not be blank or hold NUL")
    if len(command.encode()) > files.ARGUMENT:
        raise ToolError(
            f"the command has more than {files.ARGUMENT} bytes: write it to a file and run that"
        )
    limit = arguments.number("timeout", DEFAULT, least=1, most=LONGEST, unit="milliseconds")
    directory = places.resolve(arguments.text("workdir", "") or ".", context.worktree)
    title = arguments.text("description", "") or command
    background = arguments.flag("background")
    asked, always = commands.patterns(command)
    if asked:
        context.ask("bash", asked, always, {"command": command})
    stop_if_cancelled(context)
    call = _Call(context, secrets.token_hex(12), limit, title)
    if background:
        return call.leave(command, directory)
    return call.result(call.run(command, directory))


class _Call:
    """One command. Beside the thread that waits for it, another shows what it says and ends it when
    the user wants that."""

    def __init__(self, context: Context, identity: str, limit: int, title: str) -> None:
        self.context = context
        self.identity = identity
        self.limit = limit
        self.title = title
        self.over = threading.Event()
        self.showing = threading.Lock()  # nothing is shown after the result

    def run(self, command: str, directory: str) -> Ended:
        threading.Thread(target=self._attend, name="attend a command", daemon=True).start()
        try:
            return _ended(self._execute("wait", command, directory), directory)
        except Cancelled:
            self._stop()
            raise
        finally:
            with self.showing:
                self.over.set()

    def _execute(self, mode: str, command: str, directory: str) -> Execution:
        seconds, rest = divmod(self.limit, 1000)
        words = (
            self.identity,
            directory,
            str(seconds),
            f"{rest / 1000:.3f}",
            str(2 * bounds.BYTES),
            str(OVERFLOW),
            mode,
            command,
        )
        result = self.context.execute(
            script("bash"), *words, timeout=math.ceil(self.limit / 1000) + GRACE
        )
        if result.output.strip() == "no-directory":
            raise ToolError(f"workdir is no directory in the sandbox: {clean.name(directory)}")
        return result

    def _attend(self) -> None:
        begun = time.monotonic()
        pause, shown = PATIENCE, ""
        while not self.context.cancelled.wait(pause):
            if self.over.is_set():
                return
            try:
                seen = self.context.execute(
                    script("peek"), self.identity, str(2 * bounds.LIVE), timeout=10.0
                ).output
            # only for the display; the command itself will say what is wrong
            except GitDaytonaError:
                seen = ""
            with self.showing:
                if self.over.is_set():
                    return
                if seen and seen != shown:
                    shown = seen
                    self.context.progress(
                        title=self.title, metadata=self._metadata(clean.output(seen))
                    )
            pause = min(SLOWEST, 1.0 + (time.monotonic() - begun) / 20)
        if not self.over.is_set():
            self._stop()

    def _stop(self) -> None:
        try:
            self.context.execute(script("stop"), self.identity, timeout=GRACE)
        except GitDaytonaError:  # it ends at its time limit, then
            pass

    def leave(self, command: str, directory: str) -> Result:
        result = self._execute("leave", command, directory)
        first, _, said = result.output.partition("\n")
        word, _, rest = first.partition(" ")
        number, _, log = rest.partition(" ")
        if word != "left" or answers.number(number) is None:
            raise answers.unexpected(result, "bash")
        output = (
            f"Started in the background with process id {number}. Its output goes to "
            f"{clean.name(log)}"
        )
        if said := bounds.tail(clean.output(said))[0].strip("\n"):
            output += f"\n\nSo far:\n{said}"
        output += f"\n\n<shell_metadata>\nend it with: kill -- -{number}\n</shell_metadata>"
        metadata = self._metadata(said) | {
            "exit": None,
            "truncated": False,
            "pid": int(number),
            "outputPath": log,
        }
        return Result(self.title, output, metadata)

    def result(self, ended: Ended) -> Result:
        said = clean.output(ended.output).strip("\n")
        shown, cut = bounds.tail(said)
        cut = cut or ended.size > 2 * bounds.BYTES
        notes: list[str] = []
        if ended.reason == "time":
            notes.append(
                f"shell tool terminated command after exceeding timeout {self.limit} ms. If "
                "this command is expected to take longer "
                "and is not waiting for interactive input, retry with a larger timeout "
                "value in milliseconds."
            )
        if ended.reason == "size":
            notes.append(
                "shell tool terminated command because it wrote more than "
                f"{OVERFLOW // 2**20} MiB of output"
            )
        if ended.reason == "cancel":
            notes.append("User aborted the command")
        if ended.alive and ended.reason == "exit":
            notes.append(
                "a process of this command is still running; its output goes to "
                f"{clean.name(ended.log)}"
            )
        if not shown and ended.status and not notes:
            notes.append(f"exit status {ended.status}")
        output = shown or "(no output)"
        if cut:
            output = (
                f"...output truncated...\n\nFull output saved to: {clean.name(ended.log)}\n\n"
                f"{output}"
            )
        if notes:
            output += "\n\n<shell_metadata>\n" + "\n".join(notes) + "\n</shell_metadata>"
        exit_status = ended.status if ended.reason == "exit" else None
        metadata = self._metadata(said) | {"exit": exit_status, "truncated": cut}
        if cut:
            metadata["outputPath"] = ended.log
        return Result(self.title, output, metadata)

    def _metadata(self, said: str) -> dict[str, Any]:
        return {"output": bounds.live(said) or "(no output)", "description": self.title}


def _ended(result: Execution, directory: str) -> Ended:
    first, _, output = result.output.partition("\n")
    words = first.split(" ", 6)
    if len(words) == 7 and words[0] == "ended":
        status, size, lines = (answers.number(word) for word in (words[1], words[3], words[4]))
        if status is not None and size is not None and lines is not None:
            return Ended(status, words[2], size, lines, words[5] == "yes", words[6], output)
    raise answers.unexpected(result, "bash")


TOOL = Definition(
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
    schema(
        "command",
        command=text("The command to execute"),
        timeout=whole("Optional timeout in milliseconds (default 120000)", 1, LONGEST),
        workdir=text(
            "Directory to run in, absolute or relative to the project. Defaults to the "
            "project. Use it instead of 'cd'."
        ),
        description=text("What the command does, in 5 to 10 words"),
        background=yes_or_no("Leave it running and return at once: for servers and watchers"),
    ),
    run,
)
