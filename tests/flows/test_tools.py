"""Every tool against a real sandbox: what the model is told, what lies in the sandbox afterwards,
and how many API calls it took."""

import base64
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from git_daytona.local.server import LocalDaytona
from git_daytona.tools import answers, bash
from git_daytona.tools.context import Cancelled, Denied, Result, ToolError
from support.lacking import needs_ps
from support.round_trip import Repo, Session
from support.tool_context import RealContext, Toolbox

PROJECT = "/home/daytona/project"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)
ODD = [
    "with blank",
    'quote\'s "double"',
    "new\nline",
    "-leading",
    "$(dollar)`tick`",
    "ünï 日本",
    "back\\slash",
    "a*b?[c]",
]


@pytest.fixture
def tools(
    local: LocalDaytona,
    repo: Repo,
    begin: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
) -> Toolbox:
    """The tools in a session of their own; API calls are counted from here on."""
    monkeypatch.setattr(bash, "PATIENCE", 1000.0)  # a look is a call, and a machine may be slow
    session = begin(repo, "ses_tools")
    box = Toolbox(RealContext(session.coordinator, "ses_tools", str(repo.path)))
    local.forget_calls()
    return box


@pytest.fixture
def looked_at(tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands' output is looked at while they run."""
    monkeypatch.setattr(bash, "PATIENCE", 0.2)


def calls(local: LocalDaytona) -> int:
    """API calls since the last count."""
    made = len(local.calls)
    local.forget_calls()
    return made


def fits(result: Result) -> bool:
    """Whether OpenCode shows a plugin's output as it is."""
    return result.output.count("\n") < 2000 and len(result.output.encode()) <= 51_200


# -- bash ------------------------------------------------------------------------------------------


def test_bash_runs_in_the_project_with_one_call(tools: Toolbox, local: LocalDaytona) -> None:
    result = tools("bash", command="pwd; echo oops >&2; ls")
    assert result.output == f"{PROJECT}\noops\nREADME"
    assert result.title == "pwd; echo oops >&2; ls"
    assert result.metadata["exit"] == 0
    assert result.metadata["output"] == result.output
    assert result.metadata["truncated"] is False
    assert calls(local) == 1
    assert tools.context.asked[0].permission == "bash"
    assert tools.context.asked[0].patterns == ["pwd", "echo oops >&2", "ls"]
    assert tools.context.asked[0].always == ["pwd *", "echo *", "ls *"]
    assert tools.sh("ls ~/.local/share/opencode/tool-output ~/.cache/git-daytona-bash").split() == [
        "/home/daytona/.cache/git-daytona-bash:",
        "/home/daytona/.local/share/opencode/tool-output:",
    ]


def test_bash_says_how_a_command_ended(tools: Toolbox) -> None:
    assert tools("bash", command="exit 3").metadata["exit"] == 3
    assert "exit status 3" in tools("bash", command="exit 3").output
    assert tools("bash", command="true").output == "(no output)"
    assert tools("bash", command="echo no; false").output == "no"


def test_bash_in_another_directory(tools: Toolbox, repo: Repo) -> None:
    tools.sh("mkdir 'sub dir'")
    assert tools("bash", command="pwd", workdir="sub dir").output == f"{PROJECT}/sub dir"
    assert (
        tools("bash", command="pwd", workdir=str(repo.path / "sub dir")).output
        == f"{PROJECT}/sub dir"
    )
    assert tools("bash", command="pwd", workdir="/tmp").output == "/tmp"
    assert tools("bash", command="pwd", workdir="~").output == "/home/daytona"
    with pytest.raises(ToolError, match=r"workdir is not a directory in the sandbox: .*/missing"):
        tools("bash", command="touch here", workdir="missing")
    assert tools.sh("ls") == "README\nsub dir\n"


def test_bash_takes_any_text_as_a_command(tools: Toolbox) -> None:
    command = (
        "printf '%s\\n' \"it's\" '$HOME' \"`echo tick`\" 'back\\slash' <<'E'\n'\nE\n# comment "
        "'open\necho $((1+1)) ünï"
    )
    assert tools("bash", command=command).output == "it's\n$HOME\ntick\nback\\slash\n2 ünï"
    assert tools("bash", command="-v").metadata["exit"] == 127
    with pytest.raises(ToolError, match="more than 98304 bytes: write it to a file"):
        tools("bash", command="echo " + "x" * 100_000)
    assert len(tools("bash", command="echo " + "x" * 40_000).output) == 40_000


def test_case_52b_a_command_reads_nothing(tools: Toolbox) -> None:
    assert tools("bash", command="cat; read x; echo after").output == "after"


def test_case_52b_an_answer_that_gets_lost_changes_nothing(
    tools: Toolbox, local: LocalDaytona
) -> None:
    tools.sh("echo one >f")
    for name, arguments in (
        ("bash", {"command": "echo x >>count; cat count"}),
        ("write", {"filePath": "new", "content": "new\n"}),
        ("edit", {"filePath": "f", "oldString": "one", "newString": "one one"}),
        (
            "apply_patch",
            {
                "patchText": "*** Begin Patch\n*** Update File: new\n@@\n-new\n+new new\n*** End "
                "Patch"
            },
        ),
    ):
        with local.faults.call(route="process/execute", drop="after", times=1) as met:
            result = tools(name, **arguments)
        assert met.seen >= 2
        assert result.output.startswith(("x", "Wrote", "Edit applied", "Success"))
    assert tools.sh("cat count f new") == "x\none one\nnew new\n"


def test_case_51_bash_bounds_and_cleans_its_output(tools: Toolbox, local: LocalDaytona) -> None:
    result = tools(
        "bash",
        command="for i in $(seq 1 5000); do printf '\\033[31mline %s\\033[0m\\a\\n' $i; done",
    )
    assert result.metadata["truncated"] is True
    assert fits(result)
    log = result.metadata["outputPath"]
    assert result.output.startswith(
        f"...output truncated...\n\nFull output saved to: {log}\n\nline "
    )
    assert result.output.endswith("line 5000")
    assert "\x1b" not in result.output and "\a" not in result.output
    assert calls(local) == 1
    assert tools.sh(f"wc -l <{log}").strip() == "5000"
    assert "3: " in tools("read", filePath=log, offset=3, limit=1).output
    progress = tools("bash", command="printf '10%%\\r50%%\\r100%%\\r\\ndone\\n'")
    assert progress.output == "100%\ndone"


def test_case_51_bash_survives_fifty_megabytes_and_binary_output(tools: Toolbox) -> None:
    result = tools("bash", command="head -c 50000000 /dev/zero | tr '\\0' x")
    assert fits(result) and result.metadata["truncated"]
    assert tools.sh(f"wc -c <{result.metadata['outputPath']}").strip() == "50000000"
    result = tools("bash", command="head -c 60000 /dev/urandom")
    assert fits(result)
    result = tools("bash", command="head -c 40000 /dev/zero | tr '\\0' '\\377'")
    assert fits(result) and result.metadata["truncated"]
    assert tools.sh(f"wc -c <{result.metadata['outputPath']}").strip() == "40000"


@needs_ps
def test_bash_ends_a_command_at_its_time(tools: Toolbox, local: LocalDaytona) -> None:
    begun = time.monotonic()
    result = tools(
        "bash", command="trap '' TERM; echo begun; sleep 60 & wait; sleep 60", timeout=500
    )
    assert time.monotonic() - begun < 50
    assert result.output.startswith("begun\n\n<shell_metadata>\n")
    assert "after exceeding timeout 500 ms" in result.output
    assert result.metadata["exit"] is None
    assert tools.sh("pgrep -f '[s]leep [36]00*$' | wc -l").strip() == "0"


@pytest.mark.usefixtures("looked_at")
def test_bash_shows_what_a_long_command_says(
    tools: Toolbox, local: LocalDaytona, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = threading.Event()
    tools.context.when_shown = lambda shown: seen.set() if "begun" in shown["output"] else None
    with ThreadPoolExecutor() as pool:
        running = pool.submit(
            tools,
            "bash",
            command="echo begun; until [ -e go ]; do sleep 0.1; done; echo ended",
            description="Wait",
        )
        assert seen.wait(30)
        tools.sh("touch go")
        result = running.result(30)
    assert result.output == "begun\nended"
    assert result.title == "Wait"
    assert tools.context.shown[0]["description"] == "Wait"


@pytest.mark.usefixtures("looked_at")
@needs_ps
def test_a_cancelled_command_ends_in_the_sandbox(tools: Toolbox) -> None:
    started = threading.Event()
    tools.context.when_shown = lambda _shown: started.set()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(tools, "bash", command="echo begun; sleep 300 & sleep 300")
        assert started.wait(30)
        tools.context.cancelled.set()
        result = running.result(30)
    assert result.output == "begun\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>"
    assert tools.sh("pgrep -f '[s]leep [36]00*$' | wc -l").strip() == "0"


def test_a_cancelled_call_never_begins(tools: Toolbox, local: LocalDaytona) -> None:
    tools.context.when_asked = lambda _asked: tools.context.cancelled.set()
    with pytest.raises(Cancelled):
        tools("bash", command="touch here")
    with pytest.raises(Cancelled):
        tools("read", filePath="README")
    assert calls(local) == 0


def test_bash_leaves_a_server_running(tools: Toolbox, local: LocalDaytona) -> None:
    command = "echo up; exec python3 -c 'import time; print(1, flush=True); time.sleep(300)'"
    begun = time.monotonic()
    result = tools("bash", command=command, background=True)
    assert time.monotonic() - begun < 60
    assert calls(local) == 1
    assert "up" in result.output
    pid, log = result.metadata["pid"], result.metadata["outputPath"]
    assert f"process id {pid}" in result.output and log in result.output
    tools.sh(f"kill -0 {pid} && kill -- -{pid}")


@needs_ps
def test_case_51_a_server_started_with_an_ampersand_does_not_hold_the_call(tools: Toolbox) -> None:
    result = tools("bash", command="sleep 300 & echo started")
    assert result.output.startswith(
        "started\n\n<shell_metadata>\na process of this command is still running"
    )
    assert result.metadata["exit"] == 0
    assert tools.sh("pgrep -f '[s]leep [36]00*$' | wc -l").strip() == "1"


def test_a_denied_command_does_not_run(tools: Toolbox, local: LocalDaytona) -> None:
    tools.context.deny = {"bash", "edit", "read", "glob", "grep", "list"}
    for name, arguments in {
        "bash": {"command": "touch here"},
        "write": {"filePath": "here", "content": ""},
        "read": {"filePath": "README"},
        "glob": {"pattern": "*"},
        "grep": {"pattern": "x"},
        "list": {},
    }.items():
        with pytest.raises(Denied):
            tools(name, **arguments)
    assert calls(local) == 0
    with pytest.raises(Denied):
        tools("edit", filePath="README", oldString="hello", newString="bye")
    with pytest.raises(Denied):
        tools("apply_patch", patchText="*** Begin Patch\n*** Delete File: README\n*** End Patch")
    assert tools.sh("ls; cat README") == "README\nhello\n"


# -- read ------------------------------------------------------------------------------------------


def test_read_numbers_lines_with_one_call(tools: Toolbox, local: LocalDaytona, repo: Repo) -> None:
    tools.sh("printf 'one\\n\\ttwo\\nthree' >lines")
    calls(local)
    result = tools("read", filePath=str(repo.path / "lines"))
    assert calls(local) == 1
    assert result.title == "lines"
    assert result.output == (
        f"<path>{PROJECT}/lines</path>\n<type>file</type>\n<content>\n1: one\n2: \ttwo\n3: "
        "three\n\n"
        "(End of file - total 3 lines)\n</content>"
    )
    assert tools.context.asked[-1].permission == "read" and tools.context.asked[-1].patterns == [
        "lines"
    ]
    assert result.metadata["display"]["text"] == "one\n\ttwo\nthree"
    result = tools("read", filePath="lines", offset=2, limit=1)
    assert "\n2: \ttwo\n\n(Showing lines 2-2 of 3. Use offset=3 to continue.)" in result.output
    with pytest.raises(ToolError, match=r"Offset 4 is out of range for this file \(3 lines\)"):
        tools("read", filePath="lines", offset=4)
    assert (
        "(End of file - total 0 lines)"
        in tools(
            "read",
            filePath="/dev/../home/daytona/project/./empty" if tools.sh(": >empty") else "empty",
        ).output
    )


def test_read_is_bounded(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh(
        "seq 1 5000 >many; head -c 300000 /dev/zero | tr '\\0' x >long; truncate -s 1G "
        "huge.txt; seq 1 3000000 >large;"
        " for i in $(seq 1 500); do printf '%0500d\\n' $i; done >wide"
    )
    calls(local)
    result = tools("read", filePath="many")
    assert fits(result)
    assert "(Showing lines 1-1990 of 5000. Use offset=1991 to continue.)" in result.output
    result = tools("read", filePath="long")
    assert (
        result.output.count("x") == 2000 and "... (line truncated to 2000 chars)" in result.output
    )
    result = tools("read", filePath="wide")
    assert fits(result) and "(Output capped at 50 KB. Showing lines 1-" in result.output
    begun = time.monotonic()
    result = tools("read", filePath="large", offset=2_999_999)
    assert "2999999: 2999999\n3000000: 3000000\n\n(End of file" in result.output
    assert calls(local) == 4
    with pytest.raises(ToolError, match="Cannot read binary file"):
        tools("read", filePath="huge.txt")
    assert time.monotonic() - begun < 60


def test_read_lists_directories(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh(
        "mkdir -p d/sub d/.hidden && cd d && touch b A -- -x 'new\nline' && ln -s sub link "
        "&& ln -s nowhere dangling"
    )
    calls(local)
    result = tools("read", filePath="d")
    assert calls(local) == 1
    assert result.output == (
        f"<path>{PROJECT}/d</path>\n<type>directory</type>\n<entries>\n-x\n.hidden/\nA\nb\n"
        "dangling\nlink/\nnew\\nline\nsub/\n\n"
        "(8 entries)\n</entries>"
    )
    assert "(Showing 2 of 8 entries. Use 'offset' parameter to read beyond entry 4)" in tools(
        "read", filePath="d", offset=3, limit=2
    ).output.replace("entry 5", "entry 4")


def test_read_shows_images_and_refuses_binaries(tools: Toolbox, local: LocalDaytona) -> None:
    tools.context.upload(f"{PROJECT}/dot.png", PNG)
    tools.sh(
        "printf 'a\\0b' >binary; cp dot.png code.txt; printf '%%PDF-1.4\\nx' >paper; head "
        "-c 2000000 /dev/zero >>dot.png; : >empty.so; mkfifo pipe"
    )
    calls(local)
    result = tools("read", filePath="code.txt")
    assert result.output == "Image read successfully"
    assert result.attachments == [
        {
            "type": "file",
            "mime": "image/png",
            "url": "data:image/png;base64," + base64.b64encode(PNG).decode(),
        }
    ]
    assert calls(local) == 1
    assert len(tools("read", filePath="dot.png").attachments[0]["url"]) > 2_600_000
    tools.sh(
        "printf 'RIFF1234WEBP' >web; printf 'GIF89a' >gif; printf '\\377\\330\\377\\340' >photo; "
        "printf 'RIFF1234WAVE' >sound"
    )
    for name, mime in {
        "paper": "application/pdf",
        "web": "image/webp",
        "gif": "image/gif",
        "photo": "image/jpeg",
    }.items():
        assert tools("read", filePath=name).attachments[0]["mime"] == mime
    assert "1: RIFF1234WAVE" in tools("read", filePath="sound").output
    for name in ("binary", "empty.so"):
        with pytest.raises(ToolError, match="Cannot read binary file: /home/daytona/project/"):
            tools("read", filePath=name)
    with pytest.raises(ToolError, match="Not a regular file"):
        tools("read", filePath="pipe")


def test_read_suggests_what_may_be_meant(tools: Toolbox) -> None:
    tools.sh("mkdir src; touch src/Button.tsx src/other.ts")
    with pytest.raises(ToolError) as caught:
        tools("read", filePath="src/button")
    assert caught.value.message == (
        f"File not found: {PROJECT}/src/button\n\nDid you mean one of these?\n"
        f"{PROJECT}/src/Button.tsx"
    )
    with pytest.raises(ToolError, match=r"File not found: /nowhere/at/all$"):
        tools("read", filePath="/nowhere/at/all")


# -- write, edit, multiedit ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_case_68_odd_names_work_everywhere(tools: Toolbox, name: str) -> None:
    path = f"dir {name}/{name}"
    content = "needle $& \\1 \\n \"quoted\" 'single' `x`\n"
    tools("write", filePath=path, content=content)
    assert tools.bytes_of(f"{PROJECT}/{path}") == content.encode()
    assert "1: needle $& \\1" in tools("read", filePath=path).output
    tools("edit", filePath=path, oldString="$& \\1", newString="\\2 $&$1 \\n")
    assert tools.bytes_of(f"{PROJECT}/{path}") == content.replace("$& \\1", "\\2 $&$1 \\n").encode()
    assert tools("glob", pattern="**/*").metadata["count"] == 2
    assert tools("grep", pattern="needle").metadata["matches"] == 1
    assert tools("list").metadata["count"] == 2
    if "\n" not in name:
        patch = (
            f'*** Begin Patch\n*** Update File: {path}\n@@\n-needle \\2 $&$1 \\n \\n "quoted" '
            "'single' `x`\n+done\n*** End Patch"
        )
        tools("apply_patch", patchText=patch)
        assert tools.bytes_of(f"{PROJECT}/{path}") == b"done\n"


def test_write_makes_a_new_file_with_one_call(
    tools: Toolbox, local: LocalDaytona, repo: Repo
) -> None:
    result = tools("write", filePath=str(repo.path / "a/b/new.txt"), content="one\ntwo\n")
    assert calls(local) == 1
    assert result.output == "Wrote file successfully."
    assert result.title == "a/b/new.txt"
    assert result.metadata["exists"] is False
    asked = tools.context.asked[0]
    assert (asked.permission, asked.patterns, asked.always) == ("edit", ["a/b/new.txt"], ("*",))
    assert "+one\n+two\n" in asked.metadata["diff"]
    assert tools.sh("cat a/b/new.txt; stat -c %a a/b/new.txt") == "one\ntwo\n644\n"
    assert not (repo.path / "a").exists()


def test_write_overwrites_with_two_calls_and_keeps_what_a_file_has(
    tools: Toolbox, local: LocalDaytona
) -> None:
    tools.sh("printf '\\357\\273\\277one\\r\\ntwo\\r\\n' >f; chmod 751 f; ln f hard; ln -s f soft")
    calls(local)
    result = tools("write", filePath="soft", content="three\nfour\n")
    assert calls(local) == 2
    assert result.metadata["exists"] is True
    assert tools.bytes_of(f"{PROJECT}/f") == b"\xef\xbb\xbfthree\r\nfour\r\n"
    assert tools.sh("stat -c '%a %h' f; readlink soft").split() == ["751", "2", "f"]
    # The second question shows what is really replaced.
    assert "-one\n" in tools.context.asked[-1].metadata["diff"]
    tools.context.deny = {"edit"}
    with pytest.raises(Denied):
        tools("write", filePath="f", content="")
    assert tools.bytes_of(f"{PROJECT}/f").startswith(b"\xef\xbb\xbfthree")


def test_write_takes_large_contents_and_says_what_is_wrong(
    tools: Toolbox, local: LocalDaytona
) -> None:
    for size in (0, 200_000, 300_000, 2_000_000):
        content = "".join(f"{number} ünï\n" for number in range(size // 12))
        tools("write", filePath=f"size{size}", content=content)
        assert tools.bytes_of(f"{PROJECT}/size{size}") == content.encode()
    tools.sh("mkdir folder; : >plain")
    with pytest.raises(ToolError, match=r"Path is a directory, not a file: .*/folder"):
        tools("write", filePath="folder", content="x")
    with pytest.raises(
        ToolError, match=r"Cannot write /home/daytona/project/plain/x: .*Nothing was changed"
    ):
        tools("write", filePath="plain/x", content="x")
    with pytest.raises(ToolError, match="Cannot write /proc/nothing/x"):
        tools("write", filePath="/proc/nothing/x", content="x")
    assert tools.sh("ls /tmp | grep -c '^git-daytona-\\|^tmp' || true").strip() == "0"


def test_write_and_edit_outside_of_the_project(tools: Toolbox) -> None:
    tools("write", filePath="~/notes.txt", content="home\n")
    tools("write", filePath="/tmp/notes.txt", content="tmp\n")
    assert tools.sh("cat ~/notes.txt /tmp/notes.txt") == "home\ntmp\n"
    assert (
        tools("edit", filePath="~/notes.txt", oldString="home", newString="house").title
        == "~/notes.txt"
    )
    assert tools("read", filePath="~/notes.txt").output.startswith(
        "<path>/home/daytona/notes.txt</path>"
    )
    assert {asked.permission for asked in tools.context.asked} == {"edit", "read"}


def test_edit_replaces_with_two_calls(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh("printf 'one\\ntwo\\nthree\\n' >f; chmod 700 f")
    calls(local)
    result = tools("edit", filePath="f", oldString="two\n", newString="2\n2\n")
    assert calls(local) == 2
    assert result.output == "Edit applied successfully."
    assert result.title == "f"
    assert (
        result.metadata["filediff"]["additions"] == 2
        and result.metadata["filediff"]["deletions"] == 1
    )
    assert "@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2\n three\n" in result.metadata["diff"]
    assert tools.context.asked[-1].metadata["diff"] == result.metadata["diff"]
    assert tools.sh("cat f; stat -c %a f") == "one\n2\n2\nthree\n700\n"


def test_case_68_edit_keeps_line_endings_bytes_and_mark(tools: Toolbox) -> None:
    tools.context.upload(f"{PROJECT}/f", b"\xef\xbb\xbfa\r\nb\r\nc\nlatin \xe9\r\n")
    tools("edit", filePath="f", oldString="a\nb\n", newString="x\ny\nz\n")
    assert tools.bytes_of(f"{PROJECT}/f") == b"\xef\xbb\xbfx\r\ny\r\nz\r\nc\nlatin \xe9\r\n"


def test_edit_says_what_is_wrong_and_changes_nothing(tools: Toolbox) -> None:
    tools.sh("printf 'a b\\na b\\nc\\n' >f; printf 'a\\0b' >binary; mkdir folder")
    for arguments, message in (
        (
            {"filePath": "f", "oldString": "a b", "newString": "x"},
            r"Found multiple matches for oldString: 2, at lines 1, 2\.",
        ),
        (
            {"filePath": "f", "oldString": "missing", "newString": "x"},
            "Could not find oldString in the file",
        ),
        (
            {"filePath": "f", "oldString": "a  b", "newString": "x"},
            "Line 1 differs from it in whitespace only",
        ),
        (
            {"filePath": "f", "oldString": "c", "newString": "c"},
            "oldString and newString are identical",
        ),
        ({"filePath": "f", "oldString": "", "newString": "c"}, "oldString cannot be empty"),
        (
            {"filePath": "none", "oldString": "a", "newString": "c"},
            "File /home/daytona/project/none not found",
        ),
        (
            {"filePath": "folder", "oldString": "a", "newString": "c"},
            "Path is a directory, not a file",
        ),
        ({"filePath": "binary", "oldString": "a", "newString": "c"}, "Cannot edit binary file"),
    ):
        with pytest.raises(ToolError, match=message):
            tools("edit", **arguments)
    assert tools.sh("cat f") == "a b\na b\nc\n"
    assert tools.context.asked == []
    tools("edit", filePath="f", oldString="a b", newString="x", replaceAll=True)
    tools("edit", filePath="made/new", oldString="", newString="new\n")
    assert tools.sh("cat f made/new") == "x\nx\nc\nnew\n"


def test_edits_of_one_file_at_once_lose_none(tools: Toolbox) -> None:
    tools.sh("seq 100 120 >f")
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: tools("edit", filePath="f", oldString=f"{n}\n", newString=f"<{n}>\n"),
                range(100, 121),
            )
        )
    assert tools.sh("cat f") == "".join(f"<{n}>\n" for n in range(100, 121))


def test_an_edit_does_not_undo_what_a_command_wrote_meanwhile(tools: Toolbox) -> None:
    tools.sh("echo one >f")
    tools.context.when_asked = lambda _asked: tools.sh("echo two >>f") and None
    with pytest.raises(ToolError, match="has been modified since it was last read"):
        tools("edit", filePath="f", oldString="one", newString="1")
    assert tools.sh("cat f") == "one\ntwo\n"


def test_multiedit_is_all_or_nothing(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh("printf 'a\\nb\\n' >f")
    calls(local)
    edits = [{"oldString": "a", "newString": "x y"}, {"oldString": "y\nb", "newString": "z"}]
    result = tools("multiedit", filePath="f", edits=edits)
    assert calls(local) == 2
    assert len(result.metadata["results"]) == 2
    assert len(tools.context.asked) == 1
    assert tools.sh("cat f") == "x z\n"
    with pytest.raises(
        ToolError, match="Edit 2 of 2 failed, so none was made: Could not find oldString"
    ):
        tools(
            "multiedit",
            filePath="f",
            edits=[{"oldString": "x", "newString": "1"}, {"oldString": "x", "newString": "2"}],
        )
    assert tools.sh("cat f") == "x z\n"


# -- apply_patch -----------------------------------------------------------------------------------

PATCH = """*** Begin Patch
*** Add File: docs/new.txt
+first
+second
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Update File: keep.txt
@@
 one
-two
+2
*** Delete File: gone.txt
*** End Patch"""


def test_apply_patch_changes_files_with_two_calls(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh(
        'mkdir src; printf \'def other():\\n    print("Hi")\\n\\ndef greet():\\n    '
        'print("Hi")\\n\' >src/app.py; chmod 755 src/app.py;'
        " printf 'one\\r\\ntwo\\r\\n' >keep.txt; echo bye >gone.txt"
    )
    calls(local)
    result = tools("apply_patch", patchText=PATCH)
    assert calls(local) == 2
    assert (
        result.output
        == "Success. Updated the following files:\nA docs/new.txt\nM src/main.py\nM keep.txt\n"
        "D gone.txt"
    )
    assert [each["type"] for each in result.metadata["files"]] == [
        "add",
        "move",
        "update",
        "delete",
    ]
    assert tools.context.asked[0].patterns == ["docs/new.txt", "src/app.py", "keep.txt", "gone.txt"]
    assert tools.sh("cat docs/new.txt src/main.py; stat -c %a src/main.py; ls src") == (
        'first\nsecond\ndef other():\n    print("Hi")\n\ndef greet():\n    print("Hello")\n'
        "755\nmain.py\n"
    )
    assert tools.bytes_of(f"{PROJECT}/keep.txt") == b"one\r\n2\r\n"
    assert tools.sh("[ -e gone.txt ] || echo gone") == "gone\n"


def test_apply_patch_is_all_or_nothing(tools: Toolbox) -> None:
    tools.sh("echo one >a; echo two >b; mkdir ro; echo three >ro/c; echo four >d")
    before = tools.sh("git add -A; git write-tree")
    good = "*** Update File: a\n@@\n-one\n+1\n*** Delete File: d\n"
    for bad, message in (
        (
            "*** Update File: b\n@@\n-missing\n+x\n",
            "Failed to find expected lines in .*/b:\nmissing",
        ),
        ("*** Update File: none\n@@\n-x\n+y\n", "Failed to read file to update: .*/none"),
        ("*** Delete File: none\n", "Failed to read file to delete: .*/none"),
        ("*** Update File: ro\n@@\n-x\n+y\n", "Path is a directory"),
        ("*** Add File: b/below\n+x\n", "Cannot write .*/b/below: .*Nothing was changed"),
        ("*** Nonsense\n", "is not a header of a patch"),
        ("*** Update File: ~/project/a\n@@\n-one\n+x\n", "one file is named in two ways"),
    ):
        with pytest.raises(ToolError, match=message):
            tools("apply_patch", patchText=f"*** Begin Patch\n{good}{bad}*** End Patch")
        assert tools.sh("git add -A; git write-tree") == before, message


# -- glob, grep, list ------------------------------------------------------------------------------


def test_glob_finds_the_newest_first_with_one_call(
    tools: Toolbox, local: LocalDaytona, repo: Repo
) -> None:
    tools.sh(
        "mkdir -p src/deep ignored nested && printf 'ignored/\\n' >.gitignore;"
        " for n in 1 2 3; do touch -d 2020-01-0$n src/f$n.ts src/deep/g$n.tsx; done; touch "
        "-d 2020-01-09 src/f1.ts; touch ignored/f9.ts;"
        " git -C nested init -q; touch -d 2019-01-01 nested/n.ts; ln -s src/f1.ts link.ts"
    )
    calls(local)
    result = tools("glob", pattern="**/*.ts")
    assert calls(local) == 1
    names = [f"{PROJECT}/{name}" for name in ("src/f1.ts", "src/f3.ts", "src/f2.ts", "nested/n.ts")]
    assert result.output == "\n".join(names)
    assert result.metadata == {"count": 4, "truncated": False}
    assert tools.context.asked[-1].permission == "glob"
    assert tools("glob", pattern="*.{ts,tsx}", path="src/deep").metadata["count"] == 3
    assert tools("glob", pattern="f[12].ts").metadata["count"] == 2
    assert tools("glob", pattern="src/*.ts").metadata["count"] == 3
    assert tools("glob", pattern=f"{repo.path}/src/*.ts").metadata["count"] == 3
    assert tools("glob", pattern="*.rs").output == "No files found"
    assert tools("glob", pattern="*.ts", path="ignored").metadata["count"] == 1
    assert tools("glob", pattern="/passwd", path="/etc").output == "/etc/passwd"
    with pytest.raises(ToolError, match="glob path must be a directory"):
        tools("glob", pattern="*", path="README")
    with pytest.raises(ToolError, match=r"No such directory: .*/none"):
        tools("glob", pattern="*", path="none")
    tools.sh("for i in $(seq 1 150); do : >many$i; done")
    result = tools("glob", pattern="many*")
    assert result.metadata == {"count": 100, "truncated": True}
    assert "(Results are truncated: showing first 100 results." in result.output


def test_grep_finds_lines_newest_files_first_with_one_call(
    tools: Toolbox, local: LocalDaytona
) -> None:
    tools.sh(
        "mkdir src; printf 'x\\nneedle 1\\n' >src/a.ts; printf 'needle 22\\r\\nno\\nneedle "
        "3\\n' >src/b.js; printf 'needle\\0' >binary;"
        " touch -d 2020-01-01 src/b.js; touch -d 2021-01-01 src/a.ts"
    )
    calls(local)
    result = tools("grep", pattern=r"needle \d+")
    assert calls(local) == 1
    assert result.output == (
        f"Found 3 matches\n{PROJECT}/src/a.ts:\n  Line 2: needle 1\n\n{PROJECT}/src/b.js:\n "
        " Line 1: needle 22\n  Line 3: needle 3"
    )
    assert (result.title, result.metadata) == (r"needle \d+", {"matches": 3, "truncated": False})
    assert tools("grep", pattern="needle", include="*.js").metadata["matches"] == 2
    assert tools("grep", pattern="needle", include="*.{js,ts}", path="src").metadata["matches"] == 3
    assert tools("grep", pattern="needle", path="src/a.ts").output.startswith(
        f"Found 1 matches\n{PROJECT}/src/a.ts:"
    )
    assert tools("grep", pattern="-e").output == "No files found"
    with pytest.raises(ToolError, match="The pattern is not a regular expression"):
        tools("grep", pattern="(unclosed")
    with pytest.raises(ToolError, match="No such file or directory"):
        tools("grep", pattern="x", path="none")
    tools.sh(
        "yes 'needle many' | head -n 300 >many; head -c 100000 /dev/zero | tr '\\0' y "
        ">long; echo needle >>long; yes yyyy%0500d | head -n 99 >wide"
    )
    result = tools("grep", pattern="needle many")
    assert result.metadata == {"matches": 100, "truncated": True}
    assert result.output.startswith("Found 100 matches (more matches available)")
    assert result.output.endswith(
        "(Results truncated. Consider using a more specific path or pattern.)"
    )
    assert fits(tools("grep", pattern="y"))


def test_list_shows_a_tree_with_one_call(tools: Toolbox, local: LocalDaytona) -> None:
    tools.sh(
        "mkdir -p src/deep node_modules/x; touch src/b.py src/a.py src/deep/c.py "
        "node_modules/x/y.js z.log"
    )
    calls(local)
    result = tools("list")
    assert calls(local) == 1
    assert (
        result.output
        == f"{PROJECT}/\n  src/\n    deep/\n      c.py\n    a.py\n    b.py\n  README\n  z.log\n"
    )
    assert result.metadata == {"count": 5, "truncated": False}
    assert tools.context.asked[-1].permission == "list"
    assert (
        tools("ls", path="src", ignore=["deep", "*.log"]).output
        == f"{PROJECT}/src/\n  a.py\n  b.py\n"
    )


# -- the rest --------------------------------------------------------------------------------------


def test_preview_waits_for_the_port(tools: Toolbox) -> None:
    server = tools("bash", command="sleep 0.5; exec python3 -m http.server 8123", background=True)
    result = tools("getPreviewURL", port=8123)
    assert result.metadata["listening"] is True
    assert result.metadata["url"] in result.output and result.metadata["url"].startswith("http")
    assert result.title == f"Port 8123: {result.metadata['url']}", "what OpenCode shows"
    tools.sh(f"kill -- -{server.metadata['pid']}")


def test_sync_brings_the_work_back(tools: Toolbox, repo: Repo) -> None:
    tools("write", filePath="work.txt", content="done\n")
    result = tools("gitSync")
    assert result.title == result.output and "opencode/1 is at" in result.title
    assert repo.show("opencode/1", "work.txt") == "done"


def test_results_can_be_sent_as_json(tools: Toolbox) -> None:
    tools.context.upload(f"{PROJECT}/latin", b"caf\xe9 needle\n")
    tools.sh("touch \"$(printf 'bad\\377name')\"")
    results: list[Any] = [
        tools("read", filePath="latin"),
        tools("grep", pattern="needle"),
        tools("glob", pattern="*"),
        tools("read", filePath="."),
        tools("list"),
        tools("edit", filePath="latin", oldString="needle", newString="pin"),
        tools("bash", command="cat latin"),
    ]
    for result in [*results, *tools.context.asked]:
        json.dumps(vars(result)).encode()
        json.dumps(vars(result), ensure_ascii=False).encode()
    assert tools.bytes_of(f"{PROJECT}/latin") == b"caf\xe9 pin\n"
    assert bash.DEFAULT_MS == 120_000 and answers.MOST_LINES < 2000
