"""The toolbox over plain HTTP: what the SDKs cannot say or would not show."""

import os
import pwd
import resource
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from git_daytona.local.core.model import Sandbox
from git_daytona.local.server import LocalDaytona
from git_daytona.local.toolbox import execute
from git_daytona.local.toolbox.places import changeable
from support.plain_http import change, created, http
from support.toolbox_http import Box
from support.waiting import until


class TestExecute:
    def test_a_command_that_reads_its_input_eats_the_rest_of_the_script(self, box: Box) -> None:
        assert box.output("cat\necho eaten") == "echo eaten"

    def test_home_is_meant_by_its_daytona_name(self, box: Box) -> None:
        assert box.output("echo x > /home/daytona/file && cat ~/file") == "x\n"
        assert (box.home / "file").read_text() == "x\n"

    def test_a_background_child_that_holds_the_output_blocks_the_call(self, box: Box) -> None:
        assert box.output(
            "(until [ -e go ]; do sleep 0.01; done; echo late) & (sleep 0.2; touch go) "
            ">/dev/null 2>&1 & echo early"
        ) == ("early\nlate\n")

    def test_a_background_child_without_the_output_does_not(self, box: Box) -> None:
        box.output("(until [ -e go ]; do sleep 0.01; done; touch went) >/dev/null 2>&1 &")
        assert not (box.home / "went").exists()
        (box.home / "go").touch()
        until((box.home / "went").exists)

    def test_a_time_out_ends_the_whole_process_group(self, box: Box) -> None:
        code = box.refused(
            408,
            "POST",
            "process/execute",
            json={"command": "sleep 300 & echo $$ > pid; sleep 300", "timeout": 5},
        )
        assert code == "PROCESS_EXECUTION_TIMEOUT"
        group = (box.home / "pid").read_text().strip()
        until(
            lambda: (
                box.output(f"kill -0 -- -{group} 2>/dev/null && echo alive || echo gone")
                == "gone\n"
            )
        )

    def test_a_client_that_goes_away_does_not_end_the_command(self, box: Box) -> None:
        with pytest.raises(httpx.ReadTimeout):
            box.call(
                "POST",
                "process/execute",
                json={"command": "touch begun; until [ -e go ]; do sleep 0.01; done; touch went"},
                timeout=0.5,
            )
        until((box.home / "begun").exists)
        (box.home / "go").touch()
        until((box.home / "went").exists)

    def test_output_is_bounded_and_what_is_too_much_does_not_hold_the_command(
        self, box: Box
    ) -> None:
        answer = box.execute(
            f"head -c {execute.OUTPUT_LIMIT + 12345} /dev/zero | tr '\\0' x; touch finished"
        ).json()
        assert answer["exitCode"] == 0 and (box.home / "finished").exists()
        assert answer["result"].endswith("\n[daytona-local: 12345 more bytes of output dropped]\n")
        assert answer["result"].count("x") == execute.OUTPUT_LIMIT

    def test_long_scripts_and_large_ones(self, box: Box) -> None:
        assert box.output(": " + "x" * 3_000_000 + "\necho long") == "long\n"
        assert box.output("true\n" * 20_000 + "echo many") == "many\n"

    def test_killed_and_missing(self, box: Box) -> None:
        assert box.execute("kill -9 $$").json()["exitCode"] == -1
        missing = f"fork/exec {execute.shell()}: no such file or directory"
        for cwd in ("no/such", "~"):
            assert box.execute("true", cwd=cwd).json() == {"exitCode": -1, "result": missing}

    def test_a_child_with_a_session_of_its_own_survives_a_time_out(self, box: Box) -> None:
        script = (
            "setsid sh -c 'echo $$ > pid; sleep 300' >/dev/null 2>&1 & until [ -s pid ]; do "
            "sleep 0.01; done; sleep 300"
        )
        assert box.execute(script, timeout=5).status_code == 408
        child = (box.home / "pid").read_text().strip()
        assert box.output(f"kill -0 {child} && kill -9 {child} && echo alive") == "alive\n"

    def test_nothing_of_the_servers_environment_goes_in(
        self, box: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DAYTONA_API_KEY", "secret")
        assert "secret" not in box.output("env")

    def test_stopping_the_sandbox_ends_the_call(self, box: Box) -> None:
        with ThreadPoolExecutor() as pool:
            running = pool.submit(box.execute, "touch begun; sleep 300")
            until((box.home / "begun").exists)
            assert change(box.client, box.id, "stop") == "stopped"
            assert running.result(timeout=20).status_code == 502
        answer = box.execute("true")
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        assert answer.json()["message"].endswith("no IP address found. Is the Sandbox started?")

    def test_a_hundred_at_once(self, box: Box) -> None:
        # Each waits for all others, so none may be kept waiting for a thread or a descriptor.
        command = "touch here.%d; until [ -e go ]; do sleep 0.05; done; echo %d"
        limits = httpx.Limits(max_connections=100)
        with (
            httpx.Client(
                headers=box.client.headers, limits=limits, timeout=60, trust_env=False
            ) as client,
            ThreadPoolExecutor(101) as pool,
        ):
            url = f"{box.local.toolbox_url}/{box.id}/process/execute"
            answers = [
                pool.submit(client.post, url, json={"command": command % (n, n)})
                for n in range(100)
            ]
            until(lambda: len(list(box.home.glob("here.*"))) == 100, seconds=60)
            (box.home / "go").touch()
            assert [answer.result().json()["result"] for answer in answers] == [
                f"{n}\n" for n in range(100)
            ]

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b"{",
            b"{}",
            b'{"command": 1}',
            b'{"command": " "}',
            b'{"command": "x", "timeout": true}',
            b'{"command": "x", "timeout": -1}',
            b'{"command": "x", "timeout": 4294967296}',
            b'{"command": "x", "timeout": 1.5}',
            b'{"command": "x", "timeout": "1"}',
            b'{"command": "x", "envs": {"": "x"}}',
            b'{"command": "x", "envs": {"A B": "x"}}',
            b'{"command": "x", "envs": {"A": 1}}',
        ],
    )
    def test_bad_bodies(self, box: Box, body: bytes) -> None:
        assert box.refused(400, "POST", "process/execute", content=body) in (
            "INVALID_REQUEST_BODY",
            "BAD_REQUEST",
        )

    def test_code_run(self, box: Box) -> None:
        body = {
            "language": "python",
            "code": "import sys, os; print(sys.argv[1:], os.environ['A']); sys.exit(3)",
        }
        answer = box.call(
            "POST", "process/code-run", json={**body, "argv": ["a b", "'"], "envs": {"A": "x"}}
        ).json()
        assert answer == {"exitCode": 3, "result": "['a b', \"'\"] x\n"}
        assert (
            box.refused(400, "POST", "process/code-run", json={"language": "cobol", "code": ""})
            == "BAD_REQUEST"
        )


class TestFiles:
    def test_links_lead_where_they_lead_in_the_sandbox(self, box: Box) -> None:
        box.output(
            "mkdir d && echo x > d/f && ln -s /home/daytona/d/f absolute && ln -s d/f "
            "relative && ln -s none dangling"
        )
        for name in ("absolute", "relative"):
            assert box.call("GET", "files/download", params={"path": name}).content == b"x\n"
        assert [one["name"] for one in box.call("GET", "files").json()] == [
            ".zshrc",
            "absolute",
            "d",
            "relative",
        ]
        box.call("POST", "files/upload-v2", params={"path": "absolute"}, content=b"through")
        assert (box.home / "d/f").read_bytes() == b"through"
        assert box.call("DELETE", "files", params={"path": "absolute"}).status_code == 204
        assert box.refused(404, "DELETE", "files?path=dangling") == "FILE_NOT_FOUND"
        assert (box.home / "d/f").exists() and os.path.lexists(box.home / "dangling")

    def test_no_change_outside_the_sandbox(self, box: Box) -> None:
        box.output("ln -s /etc escape; mkdir inside; ln -s /etc/hostname inside/name")
        for method, path in [
            ("DELETE", "files?path=/etc/hostname"),
            ("DELETE", "files?path=escape/hostname"),
            ("DELETE", "files?path=/home/daytona"),
            ("DELETE", "files?path=."),
            ("DELETE", "files?recursive=true&path=/"),
            ("POST", "files/folder?path=escape/daytona-test&mode=755"),
            ("POST", "files/folder?path=/home/other&mode=755"),
            ("POST", "files/upload-v2?path=escape/daytona-test"),
            ("POST", "files/upload-v2?path=../../../../etc/daytona-test"),
            ("POST", "files/move?source=escape/hostname&destination=y"),
            ("POST", "files/move?source=inside&destination=escape/daytona-test"),
            ("POST", "files/permissions?path=inside/name&mode=777"),
        ]:
            answer = box.call(method, path + ("" if "recursive" in path else "&recursive=true"))
            wanted = (400, "BAD_REQUEST") if method == "DELETE" else (403, "FILE_ACCESS_DENIED")
            assert (answer.status_code, answer.json()["code"]) == wanted, (path, answer.text)
        body = {"files": ["inside/name"], "pattern": "a", "newValue": "b"}
        assert box.call("POST", "files/replace", json=body).json()[0]["success"] is False
        assert not Path("/etc/daytona-test").exists()
        assert box.call("DELETE", "files?path=inside&recursive=true").status_code == 204
        assert Path("/etc/hostname").exists()

    def test_the_users_home_is_not_shown(self, box: Box) -> None:
        home = pwd.getpwuid(os.getuid()).pw_dir
        for call in ("files", "files/info", "files/download"):
            assert box.refused(403, "GET", f"{call}?path={home}") == "FILE_ACCESS_DENIED"
        box.output(f"ln -s {home} link")
        assert box.refused(403, "GET", "files?path=link") == "FILE_ACCESS_DENIED"
        assert box.call("GET", "files/find?path=link&pattern=x").status_code == 403

    def test_an_interrupted_upload_leaves_nothing(self, box: Box) -> None:
        (box.home / "old").write_bytes(b"old")
        begun = threading.Event()

        def content() -> Iterator[bytes]:
            yield b"x" * 1_000_000
            until(lambda: len(list(box.home.iterdir())) == 3)
            begun.set()
            raise ConnectionError("gone")

        with pytest.raises(ConnectionError):
            box.call("POST", "files/upload-v2?path=old", content=content())
        assert begun.is_set()
        until(lambda: {one.name for one in box.home.iterdir()} == {".zshrc", "old"})
        assert (box.home / "old").read_bytes() == b"old"

    def test_bulk_upload_stores_what_it_can_and_names_the_rest(self, box: Box) -> None:
        (box.home / "folder").mkdir()
        data = {
            "files[0].path": "a",
            "files[1].path": "folder",
            "files[2].path": "/etc/x",
            "files[3].path": "b",
        }
        files = {f"files[{n}].file": ("x", b"%d" % n) for n in range(5)}
        answer = box.call("POST", "files/bulk-upload", data=data, files=files)
        assert answer.status_code == 400
        assert answer.json() == {
            "errors": [
                "folder: is a directory",
                "/etc/x: permission denied",
                "file[4]: missing .path metadata",
            ],
            "files": [{"path": "a", "bytes": 1}, {"path": "b", "bytes": 1}],
        }
        assert (box.home / "b").read_bytes() == b"3" and (
            box.home / "b"
        ).stat().st_mode & 0o777 == 0o644

    @pytest.mark.parametrize(
        "content_type", ["multipart/form-data", "multipart/form-data; boundary=x", "text/plain"]
    )
    def test_broken_forms(self, box: Box, content_type: str) -> None:
        answer = box.call(
            "POST", "files/bulk-upload", content=b"garbage", headers={"Content-Type": content_type}
        )
        assert (answer.status_code, answer.json()["files"], len(answer.json()["errors"])) == (
            400,
            None,
            1,
        )

    def test_paths_of_a_form_are_trimmed_and_folders_made(self, box: Box) -> None:
        data, files = {"files[0].path": " new/deep/file \n"}, {"files[0].file": ("x", b"x")}
        answer = box.call("POST", "files/bulk-upload", data=data, files=files)
        assert answer.json() == {"files": [{"path": "new/deep/file", "bytes": 1}]}
        modes = [
            (box.home / name).stat().st_mode & 0o777
            for name in ("new", "new/deep", "new/deep/file")
        ]
        assert modes == [0o755, 0o755, 0o644]

    def test_a_part_of_a_file(self, box: Box) -> None:
        (box.home / "f").write_bytes(b"0123456789")
        for asked, status, content, range_ in (
            ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
            ("bytes=7-", 206, b"789", "bytes 7-9/10"),
            ("bytes=-2", 206, b"89", "bytes 8-9/10"),
            ("bytes=10-", 416, b"", "bytes */10"),
            ("", 200, b"0123456789", None),
        ):
            answer = box.call(
                "GET", "files/download?path=f", headers={"Range": asked} if asked else {}
            )
            assert (answer.status_code, answer.content, answer.headers.get("Content-Range")) == (
                status,
                content,
                range_,
            )
        assert answer.headers["Last-Modified"].endswith(" GMT")

    def test_many_files_come_with_one_boundary_always(self, box: Box) -> None:
        (box.home / "f").write_bytes(b"x")
        answer = box.call("POST", "files/bulk-download", json={"paths": ["f", "none"]})
        assert (
            answer.headers["Content-Type"] == "multipart/form-data; boundary=DAYTONA-FILE-BOUNDARY"
        )
        assert b"FILE_NOT_FOUND" in answer.content

    def test_names_are_searched_at_any_depth(self, box: Box) -> None:
        box.output("mkdir -p d/sub; touch d/a.txt d/sub/b.TXT d/sub/c.txt d/x")
        for pattern, found in (
            ("*.txt", ["d/a.txt", "d/sub/c.txt"]),
            ("*.TXT", ["d/sub/b.TXT"]),
            ("**/*.txt", []),
            ("*.{txt,TXT}", []),
            ("sub", ["d/sub"]),
            ("d", ["d"]),
        ):
            assert box.call(
                "GET", "files/search", params={"path": "d", "pattern": pattern}
            ).json() == {"files": found}, pattern
        assert box.call("GET", "files/search?path=none&pattern=*").json() == {"files": []}
        assert box.call("GET", "files/find?path=none&pattern=x").json() == []

    def test_files_with_a_slash(self, box: Box) -> None:
        (box.home / "f").touch()
        assert [one["name"] for one in box.call("GET", "files/").json()] == [".zshrc", "f"]

    def test_an_older_daemon_says_less(self, old: Box) -> None:
        old.output("mkdir -p d/e; echo x > d/e/f; chmod 4755 d/e/f")
        (info,) = old.call("GET", "files?path=d/e&depth=5").json()
        assert set(info) == {
            "name",
            "size",
            "isDir",
            "mode",
            "permissions",
            "modTime",
            "modifiedAt",
            "owner",
            "group",
        }
        assert [one["name"] for one in old.call("GET", "files?path=d&depth=5").json()] == ["e"]
        for method, path, status in (
            ("GET", "files?path=none", 404),
            ("GET", "files/info", 400),
            ("GET", "files/download?path=none", 404),
            ("DELETE", "files?path=d", 400),
            ("POST", "files/move?source=none&destination=x", 404),
        ):
            answer = old.call(method, path)
            assert (answer.status_code, answer.content) == (status, b""), path
        assert (
            b"FILE_NOT_FOUND"
            in old.call("POST", "files/bulk-download", json={"paths": ["none"]}).content
        )
        assert old.call("POST", "files/bulk-upload", files={"files[0].file": ("x", b"")}).json()[
            "errors"
        ]

    def test_a_single_upload_may_be_a_form(self, box: Box) -> None:
        answer = box.call("POST", "files/upload-v2?path=new/file", files={"file": ("x", b"form")})
        assert answer.json() == {"name": "file", "path": "new/file", "type": "file"}
        assert (box.home / "new/file").read_bytes() == b"form"

    def test_a_download_is_the_file_and_not_its_compressed_neighbour(self, box: Box) -> None:
        (box.home / "f").write_bytes(b"right")
        (box.home / "f.gz").write_bytes(b"wrong")
        answer = box.call("GET", "files/download?path=f", headers={"Accept-Encoding": "gzip"})
        assert (answer.content, answer.headers["content-length"]) == (b"right", "5")

    def test_what_is_no_file_is_not_downloaded(self, box: Box) -> None:
        os.mkfifo(box.home / "pipe")
        assert box.refused(400, "GET", "files/download?path=pipe") == "INVALID_FILE_PATH"
        assert box.refused(400, "GET", "files/download?path=.") == "INVALID_FILE_PATH"
        assert box.refused(404, "GET", "files/download?path=none") == "FILE_NOT_FOUND"
        assert box.refused(400, "GET", "files/download") == "BAD_REQUEST"

    def test_two_hundred_megabytes_take_no_memory(self, box: Box) -> None:
        block, blocks = os.urandom(1 << 20), 200
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (
            box.call(
                "POST", "files/upload-v2?path=big", content=(block for _ in range(blocks))
            ).status_code
            == 200
        )
        size = 0
        with box.client.stream(
            "POST", f"{box.local.toolbox_url}/{box.id}/files/bulk-download", json={"paths": ["big"]}
        ) as answer:
            for chunk in answer.iter_raw():
                size += len(chunk)
        assert size > blocks << 20 and (box.home / "big").stat().st_size == blocks << 20
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 * 1024  # KiB

    def test_folders_and_modes(self, box: Box) -> None:
        assert box.call("POST", "files/folder?path=a/b&mode=777").status_code == 201
        # the umask of Daytona's daemon
        assert box.call("GET", "files/info?path=a/b").json()["permissions"] == "0755"
        assert box.call("POST", "files/permissions?path=a/b&mode=1777").status_code == 200
        # no more than nine bits get through
        assert box.call("GET", "files/info?path=a/b").json()["permissions"] == "0777"
        box.output("chmod 1777 a/b; touch a/b/c; chmod 4755 a/b/c")
        shown = [box.call("GET", f"files/info?path={path}").json() for path in ("a/b", "a/b/c")]
        assert [(one["permissions"], one["mode"]) for one in shown] == [
            ("0777", "dtrwxrwxrwx"),
            ("0755", "urwxr-xr-x"),
        ]
        for mode in ("9", "x", "-1"):
            assert (
                box.refused(400, "POST", f"files/permissions?path=a&mode={mode}") == "BAD_REQUEST"
            )
        assert box.refused(400, "GET", "files?depth=0") == "BAD_REQUEST"
        assert box.refused(404, "GET", "files?path=none") == "FILE_NOT_FOUND"


class Late:
    """An isolation in whose sandboxes a directory becomes a link just after the path to it was
    found."""

    isolates = True

    def path(self, sandbox: Sandbox, path: str) -> Path:
        found = sandbox.home / path.removeprefix("/home/daytona/")
        parent = found if found.is_dir() else found.parent
        if parent.is_dir() and not parent.is_symlink():
            parent.rename(sandbox.directory / "moved")
            parent.symlink_to(sandbox.directory / "outside")
        return found


@pytest.mark.parametrize("follow", [False, True])
def test_a_link_put_in_the_way_after_the_check_is_not_followed(
    tmp_path: Path, follow: bool
) -> None:
    sandbox = Sandbox(id="x", name="x", directory=tmp_path)
    for folder in (sandbox.home / "d", sandbox.tmp, tmp_path / "outside"):
        folder.mkdir(parents=True)
    with pytest.raises(OSError), changeable(Late(), sandbox, "d/f", follow=follow):  # type: ignore[arg-type]
        raise AssertionError("the link was followed")


def test_nothing_stays_open(box: Box) -> None:
    """After commands, sessions and transfers the server has no more descriptors than before."""

    def use() -> None:
        box.output("echo x")
        box.execute("sleep 300", timeout=1)
        box.call("POST", "files/upload-v2?path=f", content=b"x")
        box.call("POST", "files/upload-v2?path=/etc/daytona-test/x", content=b"x")
        box.call("POST", "files/bulk-download", json={"paths": ["f", "none", "."]})
        box.call("POST", "process/session", json={"sessionId": "s"})
        box.call("POST", "process/session/s/exec", json={"command": "echo x"})
        box.call("POST", "process/session/s/exec", json={"command": "read x", "runAsync": True})
        box.call("DELETE", "process/session/s")
        box.call("POST", "process/pty", json={"id": "t"})
        box.call("DELETE", "process/pty/t")

    descriptors = Path("/dev/fd")
    use()
    before = len(list(descriptors.iterdir()))
    use()
    until(lambda: len(list(descriptors.iterdir())) <= before)


def test_the_end_of_the_server_ends_everything(root: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with LocalDaytona(root) as local, http(local) as client:
            box = Box(local, client, created(client))
            # A variable of the environment is how the host can tell the sandbox's processes.
            mark = f"DAYTONA_TEST_MARK={box.id}"
            running = pool.submit(box.execute, f"{mark} sh -c 'touch here.exec; sleep 300'")
            box.call("POST", "process/session", json={"sessionId": "s"})
            session = {"command": f"{mark} sh -c 'touch here.session; sleep 300'", "runAsync": True}
            box.call("POST", "process/session/s/exec", json=session)
            box.call("POST", "process/pty", json={"id": "t"})
            until(lambda: len(list(box.home.glob("here.*"))) == 2)
            assert len(marked(mark)) >= 2 or sys.platform != "linux"
        # Answered or cut off: either way the client is not left hanging.
        answer = running.exception(timeout=20) or running.result()
        assert isinstance(answer, httpx.HTTPError) or answer.status_code == 502
        assert marked(mark) == []


def marked(variable: str) -> list[int]:
    """Processes of this machine with this variable in their environment (Linux only)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # another user's, or gone
    return found


def test_what_is_not_there_says_so(box: Box) -> None:
    assert box.refused(501, "POST", "lsp/start", json={}) == "NOT_IMPLEMENTED"
    assert box.refused(501, "GET", "computeruse/status") == "NOT_IMPLEMENTED"


def test_calls_put_auto_stop_off(box: Box) -> None:
    before = box.sandbox.last_activity_at
    box.output("true")
    assert box.sandbox.last_activity_at > before
