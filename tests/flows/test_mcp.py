"""``git daytona mcp``, driven by the official client."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from unittest.mock import Mock

import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, ListRootsResult, Root

from git_daytona.agents.table import TOOLS
from git_daytona.service import mcp
from support.round_trip import BIN
from support.waiting import until


@contextlib.asynccontextmanager
async def client(place, *words, mode="auto", roots=None, **more):
    """A client of a server that was started in ``place``."""

    async def list_roots(_context):
        return ListRootsResult(roots=[Root(uri=uri) for uri in roots])

    server = StdioServerParameters(
        command=str(BIN / "git-daytona"),
        args=["mcp", *words],
        env=dict(os.environ),
        cwd=str(place),
    )
    more |= {"list_roots_callback": list_roots} if roots is not None else {}
    async with Client(server, mode=mode, read_timeout_seconds=60, **more) as one:
        yield one


def said(result: CallToolResult) -> str:
    assert not result.is_error, result
    return "\n".join(each.text for each in result.content if each.type == "text")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_session_from_its_first_call_to_the_end_of_input(local, repo, mode):
    async def work():
        async with client(repo.path, mode=mode) as one:
            assert "sandbox" in one.instructions
            tools = {tool.name: tool for tool in (await one.list_tools()).tools}
            assert set(tools) == {
                *("bash", "read", "write", "edit", "apply_patch", "glob", "grep", "list"),
                *("sync", "diff", "log", "preview"),
            }
            for tool in tools.values():
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                assert "gitSync" not in tool.description and "PreviewURL" not in tool.description
            assert tools["read"].annotations.read_only_hint
            assert not tools["bash"].annotations.read_only_hint
            first = said(await one.call_tool("bash", {"command": "pwd; echo work >made"}))
            assert "opencode/1" in first and first.endswith("/home/daytona/project")
            local.forget_calls()
            assert said(await one.call_tool("read", {"filePath": "made"})).count("work") == 1
            assert len(local.calls) == 1, "as a plugin's tool call"
            assert "opencode/1" in said(await one.call_tool("sync"))
            assert repo.show("opencode/1", "made") == "work"
            assert "+work" in said(await one.call_tool("diff", {"paths": ["made"]}))
            assert "+work" not in said(await one.call_tool("diff", {"paths": ["other"]}))
            assert "commit " in said(await one.call_tool("log"))
            await one.call_tool("write", {"filePath": "last", "content": "at the end"})

    asyncio.run(work())
    assert until(lambda: "last" in repo.git("ls-tree", "--name-only", "opencode/1"))
    assert repo.git("status", "--porcelain") == ""


def test_the_repository_of_the_clients_first_root(local, repo, tmp_path):
    async def work():
        roots = ["file:///nowhere", repo.path.as_uri()]
        async with client(tmp_path, mode="legacy", roots=roots) as one:
            assert "opencode/1" in said(await one.call_tool("bash", {"command": "true"}))

    asyncio.run(work())
    assert repo.git("rev-parse", "opencode/1")


def test_a_session_that_every_run_goes_on_with(local, repo, tmp_path):
    async def work(name, *calls):
        words = ("--directory", str(repo.path), "--session", name)
        async with client(tmp_path, *words) as one:
            return [await one.call_tool("bash", {"command": each}) for each in calls]

    asyncio.run(work("review", "echo kept >~/kept"))
    for name in ("review", "1", "opencode/1"):
        assert "kept" in said(asyncio.run(work(name, "cat ~/kept"))[0])
    (refused,) = asyncio.run(work("7", "true"))
    assert refused.is_error and "hint:" in refused.content[0].text


def test_what_a_command_prints_comes_while_it_runs_and_a_call_can_be_cancelled(local, repo):
    async def work():
        seen, shown = [], asyncio.Event()

        async def progress(_progress, _total, message):
            seen.append(message)
            shown.set()

        async with client(repo.path) as one:
            command = {"command": "echo begun >made; echo a line; sleep 1000"}
            call = asyncio.create_task(one.call_tool("bash", command, progress_callback=progress))
            await asyncio.wait_for(shown.wait(), 60)
            assert seen[0] == "a line"
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            ended = {"command": "until ! pgrep -f 'sleep 100[0]'; do :; done; cat made"}
            assert "begun" in said(await one.call_tool("bash", ended))

    asyncio.run(work())


def test_what_goes_wrong_is_an_answer(local, repo, monkeypatch):
    async def work():
        async with client(repo.path) as one:
            for name, arguments, words in (
                ("read", {"filePath": "nowhere"}, "nowhere"),
                ("bash", {}, "command"),
                ("bash", {"command": 5}, "command"),
                ("edit", None, "filePath"),
            ):
                failed = await one.call_tool(name, arguments)
                assert failed.is_error and words in failed.content[0].text
            with pytest.raises(MCPError, match="no tool 'delete'"):
                await one.call_tool("delete", {})

    asyncio.run(work())
    monkeypatch.delenv("DAYTONA_API_KEY")

    async def without_a_key():
        async with client(repo.path) as one:
            failed = await one.call_tool("bash", {"command": "true"})
            assert failed.is_error and "[no-key]" in failed.content[0].text
            assert "hint:" in failed.content[0].text

    asyncio.run(without_a_key())


def lines(process, *messages):
    for message in messages:
        process.stdin.write(
            (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n"
        )
    process.stdin.flush()


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "a client", "version": "1"},
    },
}


def call(number, name, **arguments):
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.fixture
def started(local, repo):
    process = subprocess.Popen(
        (str(BIN / "git-daytona"), "mcp"),
        cwd=repo.path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        yield process
        process.kill()


def test_lines_that_are_no_messages(started):
    strange = (b"{", b"[]", b"null", b"\xff", b'{"jsonrpc":"2.0","id":9}', b"\0" * 100_000)
    lines(started, *strange, HELLO)
    while (answer := json.loads(started.stdout.readline())).get("id") != 1:
        assert "error" in answer
    assert answer["result"]["protocolVersion"] == "2024-11-05"
    started.stdin.close()
    assert started.wait(60) == 0
    assert started.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_client_that_ends_its_server(repo, started, number):
    """Nothing is lost by that."""
    lines(started, HELLO, call(2, "write", filePath="made", content="work"))
    while json.loads(started.stdout.readline()).get("id") != 2:
        pass
    started.send_signal(number)
    assert started.wait(60) == 0
    assert until(lambda: "made" in repo.git("ls-tree", "--name-only", "opencode/1", check=False))


def test_the_tools_that_hooks_know():
    assert {tool.name for tool in mcp.tools()} == set(TOOLS)


def test_a_session_that_a_hook_names(local, repo, coordinate):
    async def work():
        async with client(repo.path, "--hooked") as one:
            assert all(
                "session" in it.input_schema["properties"] for it in (await one.list_tools()).tools
            )
            first = said(await one.call_tool("bash", {"command": "echo a >a", "session": "s1"}))
            assert "opencode/1" in first
            await one.call_tool("bash", {"command": "echo b >b", "session": "s2"})
            for arguments in ({"command": "true"}, {"command": "true", "session": 1}):
                refused = await one.call_tool("bash", arguments)
                assert refused.is_error and "hook did not run" in refused.content[0].text
            assert (
                said(await one.call_tool("bash", {"command": "ls", "session": "s1"})).count("a")
                == 1
            )

    asyncio.run(work())
    assert {each.id for each in coordinate(repo.path).sessions()} == {"s1", "s2"}
    assert until(
        lambda: repo.git("ls-tree", "--name-only", "opencode/1").split() == ["README", "a"]
    )
    assert until(
        lambda: repo.git("ls-tree", "--name-only", "opencode/2").split() == ["README", "b"]
    )


def test_every_session_that_was_called_has_an_end_of_its_turn(tmp_path):
    served, ended = mcp._Session(tmp_path, None, True), []
    served.dispatcher = Mock(event=lambda request: ended.append(request.params))
    served._turns.update({"s1", "s2"})
    served._turn_ended()
    served._turn_ended()
    assert {each["type"] for each in ended} == {"session.idle"}
    assert sorted(each["properties"]["sessionID"] for each in ended) == ["s1", "s2"]
