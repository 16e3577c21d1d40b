"""The fault matrix: each API call of start, sync and delete fails in each way; the gateway breaks
before, during and after the pack.

For each: the state that is recorded, the message, and how often the call was made. Then the fault
goes, and the same operation works. All of it with debug logging and tracing on, and a server that
repeats the key and the last token: neither is to be found afterwards. Printed by ``bin/test -k
fault -s``.
"""

import re

import pytest

from git_daytona.base.errors import GitDaytonaError
from git_daytona.sandbox import lifecycle
from git_daytona.transfer import leases
from support.secret_search import shown

# What the call answers → how often it is made (None: see `tries`) and what the message says.
ANSWERS = {
    "401": ({"status": 401}, 1, "does not accept the API key"),
    "403": ({"status": 403}, 1, "may not"),
    "404": ({"status": 404, "message": "fault"}, 1, None),
    "409": ({"status": 409}, 3, "busy"),
    "429": ({"status": 429, "retry_after": 0.01}, 3, "too many requests"),
    "500": ({"status": 500}, 3, "HTTP 500"),
    "dropped": ({"drop": "before"}, 3, "cannot reach Daytona at"),
    "answer lost": ({"drop": "after"}, 3, "cannot reach Daytona at"),
    "hang": ({"hang": True}, 1, "in time"),
}
# A deletion that is refused because the sandbox is changing waits for that (at most START_SECONDS)
# and is made again. Operation → the calls that it makes and that its success depends on.
CALLS = {
    "start": ("create", "process/execute", "mint"),
    "sync": ("process/execute", "mint"),
    "delete": ("process/execute", "mint", "delete"),
}
# What each call is over HTTP.
ROUTES = {
    "create": "POST /sandbox",
    "mint": "POST /sandbox/[^/]+/ssh-access",
    "delete": "DELETE /sandbox/[^/]+",
    "process/execute": "POST /process/execute",
}
# A command whose answer was lost is sent again; the script's guard makes that one run. Before
# creating again it is looked up whether the lost answer had made a sandbox.
CASES = [
    (operation, call, answer)
    for operation, calls in CALLS.items()
    for call in calls
    for answer in ANSWERS
]
AGAIN = pytest.mark.complete("the same fault of the same call in another operation")


def sampled():
    """The cases, each fault of a call in one operation first."""
    seen = set()
    for operation, call, answer in CASES:
        marks = AGAIN if (call, answer) in seen else ()
        seen.add((call, answer))
        yield pytest.param(operation, call, answer, marks=marks)


def act(session, operation, session_id):
    if operation == "start":
        return session.coordinator.start(session_id)
    if operation == "sync":
        return session.coordinator.sync(session_id)
    return session.coordinator.delete(session_id)


def hurry(cloud, call):
    """Have an answer to that call awaited for a moment instead of minutes; others may be slow."""
    send = cloud._send

    def hurried(doing, method, path, **request):
        if re.fullmatch(ROUTES[call], f"{method} {path}"):
            request["seconds"] = 0.5
        return send(doing, method, path, **request)

    cloud._send = hurried


class Prepared:
    def __init__(self, coordinator):
        self.coordinator = coordinator


@pytest.fixture(autouse=True)
def searched(canary):
    yield canary
    assert canary.leaks() == []


@pytest.mark.parametrize(
    ("operation", "call", "answer"), [*sampled()], ids=lambda value: str(value).replace("/", "-")
)
def test_case_66_fault_matrix(
    searched, local, repo, begin, coordinate, monkeypatch, operation, call, answer
):
    fault, tries, words = ANSWERS[answer]
    session_id = f"ses_{operation}_{call}_{answer}"
    if operation != "start":
        begun = begin(repo, session_id)
        begun.agent("echo work > work")
        begun.coordinator.close()
    if "status" in fault:
        fault = {"message": "fault"} | fault
        fault["message"] += f" {local.api_key} {searched.tokens[-1] if searched.tokens else ''}"
    # The limits of the suite are minutes; only their length is changed, and that of pauses.
    monkeypatch.setattr(leases, "PAUSE_SECONDS", 0.01)
    coordinator = coordinate(repo.path)
    if answer == "hang":
        monkeypatch.setattr(leases, "RETRY_SECONDS", 1)
        hurry(coordinator.cloud, call)
    if (call, answer) == ("delete", "409"):
        monkeypatch.setattr(lifecycle, "START_SECONDS", 2)
    session = Prepared(coordinator)
    succeeded = False
    with local.faults.call(route=f"^{call}$", **fault) as injected:
        try:
            act(session, operation, session_id)
            succeeded = True
        except GitDaytonaError as problem:
            failed = problem
            searched.tell("the error", shown(problem, frames="status" not in fault))
        seen = injected.seen
        injected.release()
    coordinator.close()
    recorded = coordinate(repo.path).state.get(session_id)
    state = recorded.git_return.state if recorded else "none"
    message = "ok" if succeeded else failed.message
    print(f"{operation:7} {call:16} {answer:12} {seen:3} calls  {state:13} {message}")
    if succeeded:
        # Deleting what is gone already, and a deletion whose answer was lost, are done.
        # Creating is adopted, when its answer was lost, at the second try.
        assert (operation, call, answer) in {
            ("delete", "delete", "404"),
            ("start", "create", "answer lost"),
        }
        mine = [
            each
            for each in local.sandboxes
            if each.labels.get("git-daytona/session") == session_id and each.state != "destroyed"
        ]
        assert len(mine) == 1, "the 404 was a lie; and one sandbox was created, not two"
        return
    assert failed.message and failed.hint and "\n" not in failed.message
    if (call, answer) == ("process/execute", "401"):
        words = "its proxy does not take the key that the API accepts"
    if words is not None:
        assert words in failed.message
    if answer == "hang" or (call, answer) == ("delete", "409"):
        assert seen >= tries, "for a while, and as long as the sandbox is changing"
    else:
        assert seen == tries
    if call == "create":
        assert state == "none"
    if operation == "start" and call != "create":
        assert state == "setup-failed" and recorded.git_return.message == failed.message
    if operation != "start":
        assert state == ("synced" if call == "delete" else "failed")
        if call != "delete":
            assert recorded.git_return.message == failed.message
        assert recorded.number == 1
        stands = [each.state for each in local.sandboxes if each.id == recorded.sandbox_id] == [
            "started"
        ]
        assert stands or (call == "delete" and answer in ("answer lost", "hang")), (
            "the sandbox still stands"
        )
    # And when the fault has gone, the next try goes on from there, and nothing is left behind.
    after = coordinate(repo.path)
    act(Prepared(after), operation, session_id)
    after.close()
    if operation != "start":
        assert repo.show("opencode/1", "work") == "work"
    mine = [
        each
        for each in local.sandboxes
        if each.labels.get("git-daytona/session") == session_id and each.state != "destroyed"
    ]
    assert len(mine) == (0 if operation == "delete" else 1)
