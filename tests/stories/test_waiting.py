"""What is said while a sandbox takes its time: to a person at a terminal, in a log, and to a
host."""

import re
import threading
import time

import httpx

from git_daytona.base.progress import LINE_SECONDS
from git_daytona.service.toasts import Toasts
from git_daytona.service.workspace import Workspace
from support import tmux
from support.round_trip import BIN
from support.waiting import until


def test_a_creation_that_takes_its_time_on_a_terminal(local, repo):
    with (
        local.faults.call(route="^create$", hang=True) as held,
        tmux.start([str(BIN / "git-daytona"), "start"], size=(70, 20), cwd=repo.path) as screen,
    ):
        assert held.reached.wait(30)
        screen.wait_for(r"\Acreating a sandbox\ncreating a sandbox: \d+ s$")
        held.release()
        screen.wait_for(r"^session 1 started: ")
        shown = [line for line in screen.everything().splitlines() if line]
    steps = [line for line in shown if not line.endswith(" s")]
    assert steps[:2] == ["creating a sandbox", "preparing its repository"]


def test_a_shell_has_the_terminal_to_itself(local, repo, begin):
    session = begin(repo)
    httpx.post(
        f"{local.api_url}/sandbox/{session.sandbox_id}/stop",
        headers={"Authorization": f"Bearer {local.api_key}"},
        timeout=60,
    ).raise_for_status()
    with (
        local.faults.call(route="^start$", hang=True) as held,
        tmux.start(
            [str(BIN / "git-daytona"), "shell", "1"], size=(70, 20), cwd=repo.path
        ) as screen,
    ):
        assert held.reached.wait(30)
        screen.wait_for(r"^starting the sandbox \(stopped\): \d+ s$")
        held.release()
        screen.type("echo $((6*7)) and on\n")
        screen.wait_for(r"^42 and on$")
        time.sleep(LINE_SECONDS * 1.5)  # in which a step would have been repeated
        assert not re.search(r" s$", screen.screen().rpartition("42 and on")[2], re.MULTILINE)


def test_a_host_is_told_after_a_moment(local, repo):
    told = []
    workspace = Workspace(
        repo.path, str(repo.path), None, Toasts(lambda _method, params: told.append(params))
    )
    workspace.patience._seconds = 0.05
    with local.faults.call(route="^create$", hang=True) as held:
        starting = threading.Thread(target=lambda: workspace.coordinator().start("ses_1"))
        starting.start()
        assert held.reached.wait(30)
        until(
            lambda: (
                ("Please wait", "creating a sandbox")
                in [(each["title"], each["message"]) for each in told]
            )
        )
        held.release()
        starting.join(60)
    workspace.close()
