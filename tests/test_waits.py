"""Every wait has an end: the limits stand in git-daytona(7), TIME LIMITS, as they are in the code,
and no call that could wait for ever is made without one. What happens at each limit:
tests/flows/test_time_limits.py, tests/opencode/test_silence.py, tests/unit/test_run.py."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "helpers" / "git_daytona"
PAGE = (ROOT / "man" / "git-daytona.7").read_text()
FILES = [
    path for path in sorted(SOURCE.rglob("*.py")) if "local" not in path.relative_to(SOURCE).parts
]
UNITS = {"s": 1, "min": 60, "h": 3600}

NO_LIMITS = {
    "trust.published.AGAIN_SECONDS": "how often is asked",
    "trust.published.FAILED_SECONDS": "how long a failure is believed",
    "service.charge.STARTING_SECONDS": "an age",
    "doctor.confinement.POLL_SECONDS": "between two looks",
    "doctor.live.POLL_SECONDS": "between two looks",
    "service.previews.LINK_SECONDS": "how long a link is valid",
    "doctor.daytona.SKEW_SECONDS": "a difference of clocks",
    "cli.look.WATCH_SECONDS": "how often --watch looks",
    "cli.screen.SIZE_SECONDS": "between two looks",
    "cli.table.FRESH_SECONDS": "how long a state is news",
    "base.run.LOOK_SECONDS": "between two looks",
    "base.files.POLL_SECONDS": "between two looks",
    "base.progress.LINE_SECONDS": "how often it is said that somebody is waited for",
    "base.progress.PATIENCE_SECONDS": "when that is said to the client",
    "ssh.HOLD_SECONDS": "how long a few bytes of output are held back",
    "sandbox.terminal.PAUSE_SECONDS": "before a connection is tried again",
    "transfer.leases.PAUSE_SECONDS": "before the second try",
    "sessions.ssh_server.RAW_SECONDS": "between two looks",
    "sessions.ssh_server.FLUSH_SECONDS": "last words to a client that may not read them",
    "cli.plain_git.PAGER_SECONDS": "a question to git on this machine",
    "sandbox.terminal.HEARTBEAT_SECONDS": "how often the other side is asked whether it is there",
    "sandbox.transport.BLOCKED_SECONDS": "how long a failure is believed",
    "sessions.ending.LOOK_SECONDS": "between two looks",
    "sandbox.lifecycle.BEFORE_SECONDS": "when a sandbox that destroys itself is brought back",
    "service.awake.OFTEN_SECONDS": "how often one that may be gone soon is",
    "service.awake.RETRY_SECONDS": "before the next try",
    "service.awake.SILENT_SECONDS": "when a turn counts as ended",
    "service.awake.TICK_SECONDS": "between two looks",
    "service.mcp.QUIET_SECONDS": "when a turn counts as ended",
    "sessions.execution.AGAIN_SECONDS": "before the next try",
    "sessions.execution.FIRST_SECONDS": "how long a piece of input is gathered",
    "sessions.execution.TWICE_SECONDS": "in which two signals are one",
    "sessions.execution.REMIND_SECONDS": "when a person is told what to do",
    "settings.keystore.QUIET_SECONDS": "when it is said that somebody is waited for",
}
PARTS = {
    "api.toolbox.MARGIN_SECONDS": "on top of the limit that the sandbox is given, for its answer",
    "api.http.SLACK_SECONDS": "on top of an answer's limit",
    "service.dispatcher.CLOSE_SECONDS": "stands in DRAIN_SECONDS",
    "service.dispatcher.CALLS_SECONDS": "stands in DRAIN_SECONDS",
    "service.turns.LAST_SECONDS": "stands in DRAIN_SECONDS",
    "doctor.machine.PROGRAM_SECONDS": "within a check",
    "doctor.confinement.ACTIVE_SECONDS": "within a check",
    "doctor.daytona.REQUEST_SECONDS": "within a check",
    "doctor.daytona.PROBE_SECONDS": "within a check",
    "tools.files.FILES_SECONDS": "a script in the sandbox, as REPORT_SECONDS",
    "tools.glob.NAMES_SECONDS": "a script in the sandbox",
    "tools.grep.GREP_SECONDS": "a script in the sandbox",
    "tools.read.READ_SECONDS": "a script in the sandbox",
}
"""Limits within a limit that the page has, and those of the agent's tools, which end with their
calls."""


def module(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def constants() -> dict[str, float]:
    """``module.NAME`` → seconds, of all names that end in SECONDS."""
    found = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id.endswith("SECONDS")
            ):
                found[f"{module(path)}.{node.targets[0].id}"] = float(eval(ast.unparse(node.value)))
    plugin = (SOURCE / "opencode" / "plugin" / "index.js").read_text()
    found |= {
        f"plugin.{name}": int(value) / 1000
        for name, value in re.findall(r"^const (\w+_MS) = ([\d_]+)", plugin, re.MULTILINE)
    }
    found["ssh.ConnectTimeout"] = float(
        re.search(r"ConnectTimeout=(\d+)", (SOURCE / "ssh.py").read_text())[1]
    )
    return found


def documented() -> dict[str, float]:
    rows = re.findall(r'^\.B ([\d.]+) (\w+)\n\.\\" (\S+)$', PAGE, re.MULTILINE)
    return {name: float(number) * UNITS[unit] for number, unit, name in rows}


def test_the_page_has_the_codes_limits():
    code, page = constants(), documented()
    assert len(page) > 20
    assert {name: code.get(name) for name in page} == page


def test_every_limit_is_on_the_page():
    # what is shown, and how often is asked
    shown = {"plugin.TOAST_MS", "plugin.READ_MS", "plugin.PING_MS", "plugin.SHOW_MS"}
    assert set(constants()) - set(documented()) - set(NO_LIMITS) - set(PARTS) - shown == set()


ENDLESS = {
    ("__main__", "thread.join()"): "revocations, each with its limit",
    (
        "service.tool_calls",
        "self._question.result()",
    ): "a question to the user; ended by an abort, and by the end of the host",
    ("base.run", "process.wait()"): "a person's own command in the foreground",
    ("cli.daytona_local", "ended.wait()"): "daytona-local serve, until Ctrl-C",
    ("base.threads", "future.result()"): "after its end has been waited for",
    ("sessions.sandbox_branch", "remote.result()"): "the same",
    ("sessions.sandbox_branch", "refs.result()"): "the same",
    ("transfer.transfer", "begun.result()"): "the same",
    ("service.serve", "ending.get()"): "the service waits for its end",
    (
        "sandbox.terminal",
        "self._pieces.get()",
    ): "a thread that shows what comes; ended with the connection",
    ("sandbox.terminal", "keys.get()"): "a person's keys; ended with the connection",
    ("sandbox.terminal", "resized.wait()"): "the next size; ended with the connection",
    (
        "sessions.execution",
        "select.select([self.descriptor], [], [])",
    ): "standard input; in a thread that ends with the process",
    ("sessions.execution", "self._source.wait()"): "the same",
    ("sandbox.lifecycle", "problem.last_attempt.result()"): "tenacity: that has ended",
    ("ssh", "self._process.wait()"): "ssh, which has limits of its own",
    ("ssh", "self._inner.wait()"): "an ssh over that one's connection, which ends with it",
    **{
        ("sessions.ssh_server", said): "a person's own connection; ended with it"
        for said in (
            *("self._ended.wait()", "self._stop.wait()", "self._stands.wait()", "child.wait()"),
            *("child.communicate()", "started.wait()", "task.result()"),
        )
    },
    ("git.repository", "state.outcome.result()"): "tenacity: that has ended",
}
WAITS = ("wait", "join", "result", "get", "acquire", "communicate", "recv", "accept")


def endless(tree: ast.AST) -> set[str]:
    """Calls that wait without a limit."""
    found = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, said = node.func.attr, ast.unparse(node)
        bare = name in WAITS and not node.args and not node.keywords and "_subject" not in said
        bare |= name == "select" and len(node.args) == 3
        bare |= name == "waitpid" and "WNOHANG" not in said
        bare |= said.startswith(("urllib.request.urlopen", "socket.create_connection")) and not any(
            each.arg == "timeout" for each in node.keywords
        )
        if bare:
            found.add(said)
    return found


def test_nothing_waits_without_a_limit():
    found = {
        (module(path), said) for path in FILES for said in endless(ast.parse(path.read_text()))
    }
    assert found - set(ENDLESS) == set()


def test_children_start_in_one_place_and_with_a_limit():
    """run() wants a time-out; whoever starts a process past it has to be one of these."""
    started = {
        module(path)
        for path in FILES
        if re.search(
            r"\bsubprocess\.(Popen|run|call|check_\w+)\(|os\.(fork|posix_spawn)", path.read_text()
        )
    }
    assert started == {"base.run", "ssh"}


@pytest.mark.parametrize(
    "call",
    [
        "lock.acquire()",
        "thread.join()",
        "select.select(a, b, c)",
        "future.result()",
        "os.waitpid(1, 0)",
        "socket.create_connection(a)",
    ],
)
def test_that_look_would_find_it(call):
    assert endless(ast.parse(call))
