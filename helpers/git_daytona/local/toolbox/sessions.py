"""The calls on process sessions (process/session/…): shells that keep their state, with commands,
logs and input."""

import asyncio
from typing import Any

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.toolbox import command_log
from git_daytona.local.toolbox.call import Call, from_os, member, optional, script
from git_daytona.local.toolbox.command_log import SPLITTING, CommandLog, sdk_version
from git_daytona.local.toolbox.session import Command, Session

ENTRYPOINT = "entrypoint"
"""Daytona's name for the session of the image's entry point."""
ENTRYPOINT_COMMAND = {"id": "entrypoint_command", "command": "'sleep' 'infinity'"}
"""That of Daytona's default image, which runs for ever and prints nothing. Here nothing runs for
it."""


class Sessions:
    """The sessions of all sandboxes of a server. Those of a sandbox are gone when it stops, as in
    Daytona."""

    def __init__(self, shell: str) -> None:
        self._shell = shell
        self._sessions: dict[tuple[str, str], Session] = {}
        self._starting: set[tuple[str, str]] = set()

    async def create(self, call: Call) -> web.Response:
        """POST process/session ``{sessionId}``."""
        key = (call.sandbox.id, member(await call.json(), "sessionId", str))
        if not key[1]:
            raise ApiError(400, "sessionId is required", code="BAD_REQUEST")
        if key[1] == ENTRYPOINT:
            raise ApiError(400, f"session ID '{ENTRYPOINT}' is reserved")
        if key in self._sessions or key in self._starting:
            raise ApiError(409, "session already exists", code="CONFLICT")
        self._starting.add(key)
        try:
            session = await Session.start(
                call.isolation,
                call.sandbox,
                self._shell,
                key[1],
                refuses=call.profile.ended_sessions_refuse,
            )
        except OSError as error:
            raise from_os(error, call.sandbox.id) from None
        finally:
            self._starting.discard(key)
        self._sessions[key] = session

        def forget(life: "asyncio.Task[None]") -> None:
            # A session whose shell said `exit` can still be asked for its logs; one whose sandbox
            # stopped cannot.
            if self._sessions.get(key) is session and call.sandbox.state != "started":
                del self._sessions[key]

        session.life.add_done_callback(forget)
        return web.Response(status=201)

    async def list_all(self, call: Call) -> web.Response:
        """GET process/session."""
        mine = [
            (name, session)
            for (sandbox, name), session in self._sessions.items()
            if sandbox == call.sandbox.id
        ]
        return json_response([_session(name, session) for name, session in mine])

    async def get(self, call: Call) -> web.Response:
        """GET process/session/{session}."""
        return json_response(_session(call.url("session"), self._session(call)))

    async def delete(self, call: Call) -> web.Response:
        """DELETE process/session/{session}: ends its processes, with SIGKILL if need be."""
        session = self._session(call)
        del self._sessions[call.sandbox.id, call.url("session")]
        await session.close()
        return web.Response(status=204)

    async def execute(self, call: Call) -> web.Response:
        """POST process/session/{session}/exec ``{command, runAsync?, async?, suppressInputEcho?}``.

        Answers 200 with exit code and output when the command has ended, or with ``runAsync`` 202
        when it was begun. A session that is not there is an error of the server, here and in
        Daytona.
        """
        body = await call.json()
        session = self._sessions.get((call.sandbox.id, call.url("session")))
        if session is None:
            raise ApiError(500, "failed to execute command: not found: session not found")
        text = member(body, "command", str)
        if not text.strip():
            raise ApiError(400, "command cannot be empty", code="BAD_REQUEST")
        apart = bool(optional(body, "runAsync", bool) or optional(body, "async", bool))
        echo = not optional(body, "suppressInputEcho", bool)
        command = Command(
            text, script(call.isolation, call.sandbox, text), interactive=apart, echo=echo
        )
        try:
            await session.execute(command)
        except OSError as error:
            raise from_os(error, "session") from None
        if apart:
            nothing = dict.fromkeys(("output", "stdout", "stderr", "exitCode"))
            return json_response({"cmdId": command.id, **nothing}, status=202)
        code = await session.result(command)
        return json_response(
            {"cmdId": command.id, "exitCode": code, **command.log.answer(sdk_version(call.request))}
        )

    async def command(self, call: Call) -> web.Response:
        """GET process/session/{session}/command/{command}."""
        return json_response(_command(self._command(call)))

    async def logs(self, call: Call) -> web.StreamResponse:
        """GET process/session/{session}/command/{command}/logs ``?follow``: JSON for SDKs, text for
        others, over WebSocket as it comes."""
        return await _logs(call, self._command(call).log)

    async def send_input(self, call: Call) -> web.Response:
        """POST process/session/{session}/command/{command}/input ``{data}``: a line for its
        standard input."""
        session, command = self._session(call), self._command(call)
        await session.send(command, member(await call.json(), "data", str))
        return web.Response(status=204)

    async def entrypoint(self, call: Call) -> web.Response:
        """GET process/session/entrypoint."""
        return json_response({"sessionId": ENTRYPOINT, "commands": [ENTRYPOINT_COMMAND]})

    async def entrypoint_logs(self, call: Call) -> web.StreamResponse:
        """GET process/session/entrypoint/logs."""
        log = CommandLog()
        log.end()
        return await _logs(call, log)

    def _session(self, call: Call) -> Session:
        session = self._sessions.get((call.sandbox.id, call.url("session")))
        if session is None:
            raise ApiError(404, "session not found", code="PROCESS_NOT_FOUND")
        return session

    def _command(self, call: Call) -> Command:
        command = self._session(call).commands.get(call.url("command"))
        if command is None:
            raise ApiError(404, "command not found", code="PROCESS_NOT_FOUND")
        return command


async def _logs(call: Call, log: CommandLog) -> web.StreamResponse:
    version = sdk_version(call.request)
    if call.request.headers.get("Upgrade", "").lower() == "websocket":
        follow = call.request.query.get("follow", "").lower() == "true"
        return await command_log.send(
            call.request, log.pieces(follow=follow, labelled=version is not None)
        )
    if version is not None and version >= SPLITTING:
        return json_response(log.answer(version))
    return web.Response(text=log.text(version))


def _session(name: str, session: Session) -> dict[str, Any]:
    return {
        "sessionId": name,
        "commands": [_command(command) for command in session.commands.values()],
    }


def _command(command: Command) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": command.id, "command": command.text}
    return answer if command.exit_code is None else {**answer, "exitCode": command.exit_code}
