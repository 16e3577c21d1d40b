"""Process sessions over plain HTTP: their logs, their files, their end."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.plain_http import change
from support.toolbox_http import Box
from support.waiting import until

SDK = {"X-Daytona-SDK-Version": "0.226.0"}
OUT, ERR = "\x01\x01\x01", "\x02\x02\x02"


def begin(box: Box, name: str = "s") -> None:
    assert box.call("POST", "process/session", json={"sessionId": name}).status_code == 201


def run(box: Box, command: str, **members: Any) -> dict[str, Any]:
    answer = box.call(
        "POST", "process/session/s/exec", json={"command": command, **members}, headers=SDK
    )
    assert answer.status_code == (202 if members.get("runAsync") else 200), answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_command_without_input_finds_it_empty_and_the_next_one_runs(box: Box) -> None:
    begin(box)
    assert run(box, "cat; echo after")["stdout"] == "after\n"
    assert run(box, "echo 'unterminated")["exitCode"] != 0
    assert run(box, "printf next")["stdout"] == "next\n"  # the last line gets an end


def test_sdks_get_labelled_lines_and_streams_others_plain_text(box: Box) -> None:
    begin(box)
    script = {"command": "echo one; echo two; printf three >&2"}
    answer = box.call("POST", "process/session/s/exec", json=script, headers=SDK).json()
    assert sorted(answer["output"].splitlines()) == sorted(
        [f"{OUT}one", f"{OUT}two", f"{ERR}three"]
    )
    assert (answer["stdout"], answer["stderr"], answer["exitCode"]) == ("one\ntwo\n", "three\n", 0)
    path = f"process/session/s/command/{answer['cmdId']}/logs"
    assert box.call("GET", path, headers=SDK).json() == {
        name: answer[name] for name in ("output", "stdout", "stderr")
    }
    plain = box.call("GET", path)
    assert plain.headers["Content-Type"].startswith("text/plain")
    assert sorted(plain.text.splitlines()) == ["one", "three", "two"]
    other = box.call("POST", "process/session/s/exec", json={"command": "printf x"}).json()
    assert other == {
        "cmdId": other["cmdId"],
        "output": "x\n",
        "stdout": None,
        "stderr": None,
        "exitCode": 0,
    }
    older = {"X-Daytona-SDK-Version": "0.166.9"}
    other = box.call(
        "POST", "process/session/s/exec", json={"command": "printf x"}, headers=older
    ).json()
    assert (other["output"], other["stdout"], other["stderr"]) == (f"{OUT}x\n", None, None)


def test_commands_have_folders_in_the_sandbox(box: Box) -> None:
    begin(box)
    command = run(box, "echo out; exit_code() { return 3; }; exit_code")["cmdId"]
    folder = box.home / ".daytona/sessions/s" / command
    assert sorted(file.name for file in folder.iterdir()) == ["cmd.sh", "exit_code", "output.log"]
    assert (folder / "cmd.sh").read_text().startswith("echo out")
    assert ((folder / "exit_code").read_text(), (folder / "output.log").read_text()) == (
        "3\n",
        f"{OUT}out\n",
    )


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 300, "a b'$(touch never)"])
def test_the_names_of_sessions_are_names_only(box: Box, name: str) -> None:
    begin(box, name)
    begin(box)
    assert run(box, "pwd")["stdout"].endswith(
        "/home\n" if not box.local.isolation.isolates else "/home/daytona\n"
    )
    assert sorted(file.name for file in box.home.iterdir()) == [".daytona", ".zshrc"]
    assert sorted(file.name for file in (box.home / ".daytona").iterdir()) == ["sessions"]


def test_a_command_that_runs_apart_is_answered_at_once(box: Box) -> None:
    begin(box)
    answer = run(box, "sleep 300", runAsync=True)
    assert answer == {
        "cmdId": answer["cmdId"],
        "output": None,
        "stdout": None,
        "stderr": None,
        "exitCode": None,
    }


def test_input_is_shown_unless_it_is_suppressed(box: Box) -> None:
    begin(box)
    for suppress in (False, True):
        command = run(box, "read line; echo got $line", runAsync=True, suppressInputEcho=suppress)[
            "cmdId"
        ]
        path = f"process/session/s/command/{command}"
        assert box.call("POST", f"{path}/input", json={"data": "secret"}).status_code == 204
        until(lambda path=path: "exitCode" in box.call("GET", path).json())
        shown = box.call("GET", f"{path}/logs", headers=SDK).json()["stdout"]
        assert shown == ("" if suppress else "secret\n") + "got secret\n"
        assert (
            box.refused(410, "POST", f"{path}/input", json={"data": "x"})
            == "COMMAND_ALREADY_COMPLETED"
        )


def test_exit_ends_the_session_but_its_logs_stay(box: Box) -> None:
    begin(box)
    ended = run(box, "echo bye; exit 7")
    assert (ended["exitCode"], ended["stdout"]) == (7, "bye\n")
    assert (
        box.refused(410, "POST", "process/session/s/exec", json={"command": "true"})
        == "SESSION_ENDED"
    )
    assert box.call("GET", f"process/session/s/command/{ended['cmdId']}/logs").text == "bye\n"
    assert box.call("DELETE", "process/session/s").status_code == 204


@pytest.mark.parametrize("ending", ["delete", "stop"])
def test_on_an_older_daemon_commands_hang_after_exit(old: Box, ending: str) -> None:
    begin(old)
    with ThreadPoolExecutor() as pool:
        calls = []
        for command in ("touch begun; exit 7", "true"):
            calls.append(
                pool.submit(
                    old.call,
                    "POST",
                    "process/session/s/exec",
                    json={"command": command},
                    timeout=30,
                )
            )
            until((old.home / "begun").exists)
            until(
                lambda: len(old.call("GET", "process/session/s").json()["commands"]) == len(calls)
            )
        assert not any(call.done() for call in calls)
        if ending == "delete":
            assert old.call("DELETE", "process/session/s").status_code == 204
        else:
            assert change(old.client, old.id, "stop") == "stopped"
        answers = [call.result(20) for call in calls]
    if ending == "delete":
        assert {answer.status_code for answer in answers} == {500}
        assert all("session cancelled" in answer.json()["message"] for answer in answers)
    else:
        assert {answer.status_code for answer in answers} == {502}


def test_deleting_ends_what_runs_and_removes_the_folder(box: Box) -> None:
    begin(box)
    run(
        box,
        "echo $$ > pid; trap 'touch told' TERM; touch begun; while :; do sleep 0.05; done",
        runAsync=True,
    )
    until((box.home / "begun").exists)
    assert list((box.home / ".daytona/sessions").iterdir()) != []
    begun = time.monotonic()
    assert box.call("DELETE", "process/session/s").status_code == 204
    # asked with SIGTERM, which it does not heed for five seconds
    assert time.monotonic() - begun > 4
    assert (box.home / "told").exists()
    assert list((box.home / ".daytona/sessions").iterdir()) == []
    group = (box.home / "pid").read_text().strip()
    until(lambda: box.output(f"kill -0 {group} 2>/dev/null && echo alive || echo gone") == "gone\n")
    assert box.refused(404, "GET", "process/session/s") == "PROCESS_NOT_FOUND"


def test_sessions_end_with_the_sandbox(box: Box) -> None:
    begin(box)
    run(box, "sleep 300", runAsync=True)
    assert change(box.client, box.id, "stop") == "stopped"
    assert change(box.client, box.id, "start") == "started"
    until(lambda: box.call("GET", "process/session").json() == [])
    begin(box)
    assert run(box, "echo again")["stdout"] == "again\n"


def test_bad_calls(box: Box) -> None:
    assert box.refused(400, "POST", "process/session", json={}) == "INVALID_REQUEST_BODY"
    assert (
        box.refused(400, "POST", "process/session", json={"sessionId": "entrypoint"})
        == "BAD_REQUEST"
    )
    assert (
        box.refused(500, "POST", "process/session/s/exec", json={"command": "true"})
        == "INTERNAL_SERVER_ERROR"
    )
    begin(box)
    assert box.refused(400, "POST", "process/session/s/exec", json={"command": ""}) == "BAD_REQUEST"
    assert box.refused(404, "GET", "process/session/s/command/none") == "PROCESS_NOT_FOUND"
