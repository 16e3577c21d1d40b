"""Commands that are run to their end by one call: process/execute and process/code-run.

As in Daytona, the command is fed to the shell's standard input (so a command that reads it eats the
rest of the script), both outputs come back as one text, and the call lasts until the command has
ended *and* nobody holds its output open any more. A client that goes away does not end the command.
"""

import asyncio
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from git_daytona.local.core import pipes
from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError, Program
from git_daytona.local.toolbox.call import (
    Call,
    environment,
    member,
    optional,
    script,
    strings,
    visible,
)

OUTPUT_LIMIT = 64 * 1024 * 1024
"""Bytes of output that are kept of one command; what comes after is read, so that the command goes
on, and dropped."""

RUNNING_LIMIT = 200
"""Commands that run at once for one server; others wait for their turn. Each takes three
descriptors, of 1024 usual ones."""

INTERPRETERS = {"python": "python3 -u -", "javascript": "node -", "typescript": "tsx -"}
"""Language of code-run: command line of the interpreter, which reads the program from its standard
input."""

NO_COMMAND = (
    "Key: 'ExecuteRequest.Command' Error:Field validation for 'Command' failed on the "
    "'required' tag"
)
"""What a newer daemon says of an empty command and of a missing one, in the words of the library
that checks them."""

SHELLS = Path("/etc/shells")
TIMEOUT_LIMIT = 1 << 32
"""Seconds of a time-out are a 32-bit number."""


def shell(listed: Path = SHELLS) -> str:
    """The shell that commands run in, as Daytona chooses: the first of these in /etc/shells, else
    sh.

    Daytona asks $SHELL before sh; no sandbox has it.
    """
    try:
        shells = listed.read_text("utf-8", "replace").split()
    except OSError:
        shells = []
    wanted = ("/usr/bin/zsh", "/bin/zsh", "/usr/bin/bash", "/bin/bash")
    return next((one for one in wanted if one in shells and os.access(one, os.X_OK)), "/bin/sh")


@dataclass(frozen=True)
class Result:
    """Exit code (-1: killed by a signal, or not started) and output of a command."""

    code: int
    output: str


def clipped(output: bytes, dropped: int) -> str:
    """Output as text: what is not UTF-8 is replaced, and a note stands where output was dropped."""
    text = output.decode("utf-8", "replace")
    return (
        text + f"\n[daytona-local: {dropped} more bytes of output dropped]\n" if dropped else text
    )


class Commands:
    """Runs commands in sandboxes, a bounded number at once."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(RUNNING_LIMIT)
        self.shell = shell()

    async def execute(self, call: Call) -> web.Response:
        """POST process/execute ``{command, cwd?, envs?, timeout?}`` (seconds; 0 or none: as long as
        it takes)."""
        body = await call.json()
        command = optional(body, "command", str)
        if not command and call.profile.coded_errors:
            raise ApiError(400, f"invalid request body: {NO_COMMAND}", code="INVALID_REQUEST_BODY")
        if not command or not command.strip():
            raise ApiError(400, "command is required", code="BAD_REQUEST")
        result = await self._run(call, [self.shell], command, body)
        return json_response({"exitCode": result.code, "result": result.output})

    async def code_run(self, call: Call) -> web.Response:
        """POST process/code-run ``{code, language, argv?, envs?, timeout?}``. Charts are not
        recognised."""
        body = await call.json()
        language = member(body, "language", str)
        if language not in INTERPRETERS:
            raise ApiError(400, f"unsupported language: {language}", code="BAD_REQUEST")
        argv = shlex.join(strings(body.get("argv") or [], "argv"))
        command = f"exec {INTERPRETERS[language]} {argv}"
        result = await self._run(call, [self.shell, "-c", command], member(body, "code", str), body)
        return json_response({"exitCode": result.code, "result": result.output})

    async def _run(
        self, call: Call, argv: Sequence[str], text: str, body: dict[str, object]
    ) -> Result:
        cwd = optional(body, "cwd", str) or None
        timeout = optional(body, "timeout", int) or None
        env = environment(body)
        if timeout is not None and not 0 < timeout < TIMEOUT_LIMIT:
            raise ApiError(
                400, "timeout must be an unsigned number of 32 bits", code="INVALID_REQUEST_BODY"
            )
        if cwd is not None and not await asyncio.to_thread(_is_directory, call, cwd):
            # In Go's words, which name the program where the folder is meant.
            return Result(-1, f"fork/exec {argv[0]}: no such file or directory")
        async with self.slots:
            place = None if cwd is None else visible(cwd)
            streams = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
            program = Program(argv, place, env, **streams)
            process = await asyncio.to_thread(call.isolation.popen, call.sandbox, program)
            return await _finish(process, script(call.isolation, call.sandbox, text), timeout, call)


def _is_directory(call: Call, path: str) -> bool:
    return call.isolation.path(call.sandbox, visible(path)).is_dir()


async def _finish(
    process: "subprocess.Popen[bytes]", text: bytes, timeout: int | None, call: Call
) -> Result:
    assert process.stdin is not None and process.stdout is not None
    feeding = asyncio.create_task(_feed(process.stdin.fileno(), process, text))
    try:
        async with asyncio.timeout(timeout):
            output, dropped = await _collect(process.stdout.fileno())
            status = await pipes.exit_status(process)
    except TimeoutError:
        raise ApiError(408, "command execution timeout", code="PROCESS_EXECUTION_TIMEOUT") from None
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        process.stdin.close()
        process.stdout.close()
        if process.poll() is None:  # timed out, or the server is shutting down
            pipes.kill_group(process)
            await pipes.exit_status(process)
    if status < 0 and call.sandbox.state != "started":
        raise ApiError(502, "the sandbox was stopped while the command ran")
    return Result(max(status, -1), clipped(output, dropped))


async def _feed(fd: int, process: "subprocess.Popen[bytes]", text: bytes) -> None:
    os.set_blocking(fd, False)
    await pipes.write(fd, text)
    assert process.stdin is not None
    process.stdin.close()


async def _collect(fd: int) -> tuple[bytes, int]:
    os.set_blocking(fd, False)
    output = bytearray()
    dropped = 0
    while chunk := await pipes.read(fd):
        kept = chunk[: OUTPUT_LIMIT - len(output)]
        output += kept
        dropped += len(chunk) - len(kept)
    return bytes(output), dropped
