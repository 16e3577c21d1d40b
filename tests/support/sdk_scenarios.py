"""What the Python SDKs must find at a Daytona, told once for both clients: each scenario is given a
client and plays it through.

The asynchronous client is used as it is; `Blocking` gives the synchronous one the same face.
"""

import asyncio
import inspect
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from daytona import (
    CreateSandboxFromSnapshotParams,
    FileDownloadRequest,
    FileUpload,
    ListSandboxesQuery,
    SessionExecuteRequest,
)
from daytona.common import errors
from daytona.common.pty import PtySize

HOME = "/home/daytona"
EVERY_BYTE = bytes(range(256))
MULTIPART_LOOKALIKE = (
    b"\r\n--ANOTHER-BOUNDARY\r\nContent-Disposition: form-data\r\n\r\nx\r\n--ANOTHER-BOUNDARY--\r\n"
)


class Blocking:
    """An object of the synchronous SDK whose methods are awaited, each call in a thread."""

    def __init__(self, target: Any):
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return _faced(value)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await asyncio.to_thread(value, *map(_bare, args), **kwargs)
            return _faced(await result if inspect.isawaitable(result) else result)

        return call


def _faced(value: Any) -> Any:
    return Blocking(value) if type(value).__module__.startswith("daytona._sync.") else value


def _bare(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value


async def items(result: Any) -> list[Any]:
    """All that an iterator of either client yields."""
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "__aiter__"):
        return [item async for item in result]
    return [_faced(item) for item in await asyncio.to_thread(list, result)]


@asynccontextmanager
async def sandbox(daytona: Any, **params: Any) -> AsyncIterator[Any]:
    """A sandbox for one scenario."""
    made = await daytona.create(CreateSandboxFromSnapshotParams(**params))
    try:
        yield made
    finally:
        await made.delete()


async def life(daytona: Any) -> None:
    """Created with what was asked for, found by id and name, stopped, started, relabelled,
    deleted."""
    params = CreateSandboxFromSnapshotParams(
        name="life",
        labels={"scenario": "life", "ü": "ö"},
        env_vars={"GREETING": "hello world"},
        auto_stop_interval=7,
    )
    made = await daytona.create(params)
    assert (made.state.value, made.name, made.auto_stop_interval) == ("started", "life", 7)
    assert made.labels["scenario"] == "life" and made.labels["ü"] == "ö"
    assert (await daytona.get(made.id)).id == (await daytona.get("life")).id == made.id
    assert await made.get_work_dir() == await made.get_user_home_dir() == HOME
    assert (await made.process.exec('echo "$GREETING"; echo kept > kept')).result == "hello world\n"

    await made.stop()
    assert made.state.value == "stopped"
    with pytest.raises(errors.DaytonaBadRequestError, match="Is the Sandbox started"):
        await made.process.exec("true")
    with pytest.raises(errors.DaytonaBadRequestError, match="Is the Sandbox started"):
        await made.fs.list_files(".")
    await made.start()
    assert made.state.value == "started"
    assert (await made.process.exec("cat kept")).result == "kept\n"

    assert (await made.set_labels({"other": "label"}))["other"] == "label"
    await made.set_autostop_interval(0)
    await made.refresh_activity()
    await made.refresh_data()
    assert (made.labels.get("scenario"), made.labels["other"], made.auto_stop_interval) == (
        None,
        "label",
        0,
    )

    await daytona.delete(made)
    await gone(daytona, made.id)


async def gone(daytona: Any, sandbox_id: str) -> None:
    """A deleted sandbox is shown for a while, and then no longer."""
    async with asyncio.timeout(20):
        while True:
            try:
                state = (await daytona.get(sandbox_id)).state.value
                assert state in ("destroying", "destroyed"), state
            except errors.DaytonaNotFoundError:
                return
            await asyncio.sleep(0.05)


async def listing(daytona: Any) -> None:
    """Every sandbox with the labels, over several pages, and no other."""
    made = [
        await daytona.create(
            CreateSandboxFromSnapshotParams(labels={"scenario": "listing", "n": str(n)})
        )
        for n in range(5)
    ]
    other = await daytona.create(CreateSandboxFromSnapshotParams(labels={"scenario": "other"}))
    try:
        found = await items(
            daytona.list(ListSandboxesQuery(labels={"scenario": "listing"}, limit=2))
        )
        assert sorted(one.id for one in found) == sorted(one.id for one in made)
        found = await items(
            daytona.list(ListSandboxesQuery(labels={"scenario": "listing", "n": "3"}))
        )
        assert [one.id for one in found] == [made[3].id]
        assert await items(daytona.list(ListSandboxesQuery(labels={"scenario": "none"}))) == []
    finally:
        for one in (*made, other):
            await one.delete()


async def refusals(daytona: Any) -> None:
    """An unknown snapshot is named, an unknown sandbox is not found."""
    with pytest.raises(errors.DaytonaValidationError, match="no-such-snapshot"):
        await daytona.create(CreateSandboxFromSnapshotParams(snapshot="no-such-snapshot"))
    with pytest.raises(errors.DaytonaNotFoundError):
        await daytona.get("00000000-0000-4000-8000-000000000000")


CONTENTS: dict[str, bytes] = {
    "plain.txt": b"hello\n",
    "empty": b"",
    "bytes.bin": EVERY_BYTE * 300,
    "lookalike": MULTIPART_LOOKALIKE,
    "crlf.txt": b"\r\na\r\n\n--\r\n",
    "deep/er/with space.txt": b"in made folders",
    "ünï/日本 'quoted' \"twice\" 100%;x=y.txt": "ä".encode(),
    "back\\slash": b"\\",
    f"{HOME}/absolute": b"absolute",
    "/tmp/elsewhere": b"tmp",
}


async def transfers(daytona: Any) -> None:
    """Contents and names come back byte for byte, one by one, many at once, and streamed."""
    async with sandbox(daytona) as made:
        for name, content in CONTENTS.items():
            await made.fs.upload_file(content, name)
            assert await made.fs.download_file(name) == content, name
        await made.fs.upload_files(
            [FileUpload(content + b"!", name) for name, content in CONTENTS.items()]
        )
        asked = [FileDownloadRequest(source=name) for name in (*CONTENTS, "missing", "deep")]
        answers = {answer.source: answer for answer in await made.fs.download_files(asked)}
        for name, content in CONTENTS.items():
            assert (answers[name].result, answers[name].error) == (content + b"!", None), name
        assert answers["missing"].error_details.status_code == 404
        assert answers["deep"].error_details.code == "INVALID_FILE_PATH"
        with pytest.raises(errors.DaytonaFileNotFoundError):
            await made.fs.download_file("missing")


async def streams(daytona: Any) -> None:
    """A large file is streamed both ways, with its size known and progress told."""
    content = EVERY_BYTE * 4 * 1024 * 8
    sent: list[int] = []
    received: list[tuple[int, int | None]] = []
    async with sandbox(daytona) as made:
        await made.fs.upload_file_stream(
            io.BytesIO(content),
            "big.bin",
            on_progress=lambda progress: sent.append(progress.bytes_sent),
        )
        chunks = await items(
            made.fs.download_file_stream(
                "big.bin",
                on_progress=lambda progress: received.append(
                    (progress.bytes_received, progress.total_bytes)
                ),
            )
        )
        assert b"".join(chunks) == content
        assert sent[-1] == len(content) and received[-1] == (len(content), len(content))
        with pytest.raises(errors.DaytonaFileNotFoundError):
            await items(made.fs.download_file_stream("missing"))


async def files(daytona: Any) -> None:
    """Listed, described, made, moved, changed and deleted, with the cloud's errors."""
    async with sandbox(daytona) as made:
        before = datetime.now(UTC) - timedelta(seconds=2)
        await made.fs.create_folder("project/src", "755")
        await made.fs.create_folder("project/src", "700")  # is there already: left alone
        await made.fs.upload_file(b"print('hi')\n", "project/src/main.py")
        await made.fs.set_file_permissions("project/src/main.py", mode="750")
        info = await made.fs.get_file_info("project/src/main.py")
        assert (info.name, info.size, info.is_dir, info.permissions, info.mode) == (
            "main.py",
            12,
            False,
            "0750",
            "-rwxr-x---",
        )
        assert info.path == f"{HOME}/project/src/main.py"
        assert (
            before
            <= datetime.fromisoformat(info.modified_at)
            <= datetime.now(UTC) + timedelta(seconds=2)
        )
        folder = await made.fs.get_file_info("project/src")
        assert (folder.is_dir, folder.permissions, folder.mode) == (True, "0755", "drwxr-xr-x")
        listed = await made.fs.list_files("project", depth=2)
        assert [one.path for one in listed] == [
            f"{HOME}/project/src",
            f"{HOME}/project/src/main.py",
        ]
        assert [one.name for one in await made.fs.list_files(HOME)] == [".zshrc", "project"]

        await made.fs.move_files("project/src/main.py", "project/app.py")
        assert await made.fs.download_file("project/app.py") == b"print('hi')\n"
        await made.fs.upload_file(b"", "project/taken")
        with pytest.raises(errors.DaytonaConflictError):
            await made.fs.move_files("project/app.py", "project/taken")
        with pytest.raises(errors.DaytonaFileNotFoundError):
            await made.fs.move_files("project/none", "project/x")
        with pytest.raises(errors.DaytonaBadRequestError, match="recursive"):
            await made.fs.delete_file("project")
        await made.fs.delete_file("project/app.py")
        await made.fs.delete_file("project", recursive=True)
        for missing in (made.fs.get_file_info, made.fs.list_files, made.fs.delete_file):
            with pytest.raises(errors.DaytonaFileNotFoundError):
                await missing("project")
        with pytest.raises(errors.DaytonaBadRequestError):
            await made.fs.delete_file("/etc/passwd")
        with pytest.raises(errors.DaytonaFileAccessDeniedError):
            await made.fs.set_file_permissions(".", owner="root")


async def searches(daytona: Any) -> None:
    """Text and names are found, text is replaced."""
    async with sandbox(daytona) as made:
        await made.fs.upload_files(
            [
                FileUpload(b"one TODO: a\ntwo\r\nthree TODO: \xff\n", "src/a.py"),
                FileUpload(b"TODO: \0 binary", "src/b.bin"),
                FileUpload(b"none", "src/deep/c.ts"),
            ]
        )
        found = await made.fs.find_files("src", "TODO:")
        assert [(one.file, one.line, one.content) for one in found] == [
            ("src/a.py", 1, "one TODO: a"),
            ("src/a.py", 3, "three TODO: \ufffd"),
        ]
        assert (await made.fs.search_files("src", "*.ts")).files == ["src/deep/c.ts"]
        assert (await made.fs.search_files("src", "**/*.{py,ts}")).files == []
        assert (await made.fs.search_files(f"{HOME}/src", "*.py")).files == [f"{HOME}/src/a.py"]
        results = await made.fs.replace_in_files(["src/a.py", "src/none"], "TODO:", "DONE:")
        assert [(one.file, one.success) for one in results] == [
            ("src/a.py", True),
            ("src/none", False),
        ]
        assert await made.fs.download_file("src/a.py") == b"one DONE: a\ntwo\r\nthree DONE: \xff\n"


COMMANDS: list[tuple[str, dict[str, Any], int, str]] = [
    ("echo out; echo err >&2; exit 3", {}, 3, "out\nerr\n"),
    ("pwd", {}, 0, f"{HOME}\n"),
    ("pwd", {"cwd": "/tmp"}, 0, "/tmp\n"),
    ("mkdir -p below && cd below && pwd", {"cwd": HOME}, 0, f"{HOME}/below\n"),
    ("pwd", {"cwd": "below"}, 0, f"{HOME}/below\n"),
    ('echo "$A|$B"', {"env": {"A": "a b", "B": "$A 'x'"}}, 0, "a b|$A 'x'\n"),
    ("sh -c 'exit 42'", {"timeout": 30}, 42, ""),
    ("printf 'no newline'", {}, 0, "no newline"),
    (r"printf '\303\244 \377 end'", {}, 0, "ä \ufffd end"),
    ("cat <<'EOF'\n$x `y`\nEOF", {}, 0, "$x `y`\n"),
    ("no-such-command 2>/dev/null", {}, 127, ""),
    ('test -z "$(env | grep -i daytona_api)"', {}, 0, ""),
]


async def commands(daytona: Any) -> None:
    """Exit code and joint output, directory, environment, time-out."""
    async with sandbox(daytona) as made:
        for command, options, code, output in COMMANDS:
            answer = await made.process.exec(command, **options)
            assert (answer.exit_code, answer.result) == (code, output), command
        with pytest.raises(errors.DaytonaProcessExecutionTimeoutError):
            await made.process.exec("sleep 60", timeout=1)
        assert (
            await made.process.code_run("import sys; print(sys.argv[1:], 6 * 7)")
        ).result == "[] 42\n"


async def sessions(daytona: Any) -> None:
    """A session keeps its state; its commands have logs, input and exit codes of their own."""
    async with sandbox(daytona) as made:
        process = made.process

        async def run(command: str, **options: Any) -> Any:
            return await process.execute_session_command(
                "s", SessionExecuteRequest(command=command, **options)
            )

        await process.create_session("s")
        with pytest.raises(errors.DaytonaConflictError):
            await process.create_session("s")
        first = await run(
            "mkdir -p there && cd there && export WORD=kept; echo out; echo err >&2; false"
        )
        assert (first.exit_code, first.stdout, first.stderr) == (1, "out\n", "err\n")
        assert (await run("pwd; echo $WORD")).stdout == f"{HOME}/there\nkept\n"
        logs = await process.get_session_command_logs("s", first.cmd_id)
        assert (logs.stdout, logs.stderr) == ("out\n", "err\n")

        started = await run(
            "read one; echo got $one; read two; echo got $two >&2; exit_code() { return 5; "
            "}; exit_code",
            run_async=True,
        )
        assert (await process.get_session_command("s", started.cmd_id)).exit_code is None
        heard: list[tuple[str, str]] = []
        following = asyncio.create_task(
            process.get_session_command_logs_async(
                "s",
                started.cmd_id,
                lambda text: heard.append(("out", text)),
                lambda text: heard.append(("err", text)),
            )
        )
        await process.send_session_command_input("s", started.cmd_id, "1")
        await process.send_session_command_input("s", started.cmd_id, "2")
        await following
        for stream, text in (("out", "1\n2\ngot 1\n"), ("err", "got 2\n")):
            # The echo of what was sent and the output race for their places.
            assert sorted(
                "".join(part for kind, part in heard if kind == stream).split()
            ) == sorted(text.split())
        assert (await process.get_session_command("s", started.cmd_id)).exit_code == 5

        session = await process.get_session("s")
        assert (session.session_id, [one.exit_code for one in session.commands]) == ("s", [1, 0, 5])
        assert [one.session_id for one in await process.list_sessions()] == ["s"]
        await process.delete_session("s")
        assert await process.list_sessions() == []
        with pytest.raises(errors.DaytonaError, match="session not found"):
            await run("true")
        (entrypoint,) = (await process.get_entrypoint_session()).commands
        assert (entrypoint.command, entrypoint.exit_code) == ("'sleep' 'infinity'", None)
        assert (await process.get_entrypoint_logs()).output == ""


async def ssh_access(daytona: Any) -> None:
    """A token is minted and revoked; whether one is valid is not for users to ask."""
    async with sandbox(daytona) as made:
        access = await made.create_ssh_access(10)
        assert access.token in access.ssh_command and access.sandbox_id == made.id
        assert (
            timedelta(minutes=9)
            < access.expires_at - datetime.now(UTC)
            <= timedelta(minutes=10, seconds=5)
        )
        assert (await made.create_ssh_access(10)).token != access.token
        with pytest.raises(errors.DaytonaForbiddenError):
            await made.validate_ssh_access(access.token)
        await made.revoke_ssh_access(access.token)


async def signed_links(daytona: Any) -> None:
    """A link to a file opens it without a key, until the links' key is changed."""
    async with sandbox(daytona) as made, httpx.AsyncClient(trust_env=False) as anybody:
        assert (
            await anybody.post(await made.upload_url("a b/c"), files={"file": b"content"})
        ).status_code == 200
        link = await made.download_url("a b/c")
        assert (await anybody.get(link)).content == b"content"
        assert (await anybody.get(link.replace("c&", "d&"))).status_code == 401
        await made.rotate_signing_key()
        assert (await anybody.get(link)).status_code == 401
        assert (await anybody.get(await made.download_url("a b/c"))).content == b"content"


async def repositories(daytona: Any) -> None:
    """git in the sandbox: made, changed, committed, branched."""
    async with sandbox(daytona) as made:
        await made.process.exec("git init -q --initial-branch=main r && cd r && echo x > f")
        await made.git.add("r", ["."])
        assert len((await made.git.commit("r", "first", "A B", "a@b.c")).sha) == 40
        await made.git.create_branch("r", "work")
        status = await made.git.status("r")
        assert (status.current_branch, status.file_status, status.branch_published) == (
            "work",
            [],
            False,
        )
        await made.git.checkout_branch("r", "main")
        await made.git.delete_branch("r", "work")
        assert (await made.git.branches("r")).branches == ["main"]
        await made.git.clone(f"{HOME}/r", "copy")
        assert (await made.git.status("copy")).branch_published
        with pytest.raises(errors.DaytonaNotFoundError):
            await made.git.status("none")


async def preview(daytona: Any) -> None:
    """A link for a port, with a token."""
    async with sandbox(daytona) as made:
        link = await made.get_preview_link(8080)
        assert link.url.startswith("http") and link.token


async def terminals(daytona: Any) -> None:
    """A shell on a terminal: typed to, resized, left with an exit code, killed."""
    async with sandbox(daytona) as made:
        process = made.process
        shown: list[bytes] = []
        handle = await terminal(
            made,
            shown,
            id="t",
            cwd="/tmp",
            envs={"WORD": "given"},
            pty_size=PtySize(cols=100, rows=30),
        )
        assert [one.id for one in await process.list_pty_sessions()] == ["t"]
        info = await process.get_pty_session_info("t")
        assert (info.active, info.lazy_start, info.created_at[-1]) == (True, False, "Z")
        with pytest.raises(errors.DaytonaConflictError):
            await terminal(made, [], id="t")
        assert (await process.resize_pty_session("t", PtySize(cols=120, rows=40))).cols == 120
        await handle.send_input("echo $((6 * 7)) $WORD; pwd; stty size; exit 3\n")
        result = await handle.wait()
        assert result.exit_code == 3
        text = b"".join(shown).decode()
        for part in ("42 given", "/tmp", "40 120"):
            assert part in text, text
        other = await terminal(made, [], id="u")
        await other.kill()
        assert (await other.wait()).exit_code == 137
        assert await process.list_pty_sessions() == []
        assert (await made.get_metrics_latest()).cpu_count >= 1


async def terminal(made: Any, shown: list[bytes], **options: Any) -> Any:
    """Create a terminal session and hear what it shows; the clients differ in how that is said."""
    if isinstance(made, Blocking):
        handle = await asyncio.to_thread(made._target.process.create_pty_session, **options)
        return BlockingTerminal(handle, shown)
    return await made.process.create_pty_session(on_data=shown.append, **options)


class BlockingTerminal(Blocking):
    """The handle of a terminal session, with what `wait` shows kept where the asynchronous one puts
    it."""

    def __init__(self, target: Any, shown: list[bytes]):
        super().__init__(target)
        self._shown = shown

    async def wait(self) -> Any:
        result = await asyncio.to_thread(self._target.wait, on_data=self._shown.append)
        await asyncio.to_thread(self._target.disconnect)
        return result


SCENARIOS: list[Callable[[Any], Awaitable[None]]] = [
    life,
    listing,
    refusals,
    transfers,
    streams,
    files,
    searches,
    commands,
    sessions,
    ssh_access,
    signed_links,
    repositories,
    preview,
    terminals,
]
