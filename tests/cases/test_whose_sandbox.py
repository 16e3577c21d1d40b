"""Whose sandbox it is, and where a session lives (cases 90, 91, 93 and 107)."""

import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from git_daytona.api.toolbox import described
from git_daytona.base import paths
from git_daytona.base.errors import ApiUnreachable, BadSetting, Elsewhere
from git_daytona.local.server import LocalDaytona
from git_daytona.sandbox import lifecycle, ownership
from git_daytona.sessions import project, recovery
from support.round_trip import BIN

OTHER_ORGANIZATION = "20ca1000-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """Another Daytona, on an address of its own."""
    with LocalDaytona(tmp_path_factory.mktemp("another")) as running:
        yield running


@contextmanager
def under(server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("DAYTONA_API_URL", server.api_url)
        patch.setenv("DAYTONA_API_KEY", server.api_key)
        yield


def written(repo) -> dict[str, object]:
    """All that a command could change here, but locks, the log and what status remembers."""
    files = {
        str(path): path.read_bytes()
        for folder in (paths.storage(), paths.own_state())
        for path in folder.rglob("*")
        if path.is_file() and not {"locks", "seen", "log-scrubbed"} & set(path.parts)
    }
    pins = str(paths.pin_file())
    return {name: files[name] for name in files if name != pins} | {
        "refs": repo.git("for-each-ref"),
        "configuration": repo.git("config", "--local", "--list"),
    }


def ids(server) -> set[str]:
    return {each.id for each in server.sandboxes if each.state not in ("destroyed", "destroying")}


@contextmanager
def another_organisations_key(local, sandbox_id):
    """What the servers answer to a key that is good, and of another organisation."""
    missing = f"Sandbox with ID or name {sandbox_id} not found"
    info = json.dumps({"name": "x", "permissions": [], "organizationId": OTHER_ORGANIZATION})
    with (
        local.faults.call(sandbox=sandbox_id, route="^/process|^/files", status=401),
        local.faults.call(sandbox=sandbox_id, status=404, message=missing),
        local.faults.call(route="^list$", body=b'{"items": [], "nextCursor": null}'),
        local.faults.call(route="/api-keys/current", body=info.encode()),
    ):
        yield


def commands(session, tmp_path) -> dict[str, tuple[str, ...]]:
    """All commands that have to do with a session's sandbox."""
    name, here = session.name, tmp_path / "file"
    here.write_text("x")
    return {
        "exec": ("exec", name, "--", "echo", "x"),
        "sync": ("sync", name),
        "fetch": ("fetch", name),
        "push": ("push", name),
        "delete": ("delete", name),
        "delete --force": ("delete", "--force", name),
        "shell": ("shell", name),
        "cp into it": ("cp", str(here), f"{name}:x"),
        "cp out of it": ("cp", f"{name}:README", str(tmp_path / "copied")),
        "open": ("open", "--no-browser", name, "3000"),
        "start": ("start", "--session", session.coordinator.find(name).id),
        "recover": ("recover",),
    }


# -- case 90 ---------------------------------------------------------------------------------------


def test_case_90_under_another_api(local, another, repo, begin, tell, tmp_path, monkeypatch):
    session = begin(repo)
    session.agent("echo x > x")
    session.sync()
    session.agent("echo y > y")
    before, made = written(repo), ids(local)
    local.forget_calls()
    session_id = session.coordinator.find(session.name).id
    examples = commands(session, tmp_path) | {"wait": ("wait", session.name)}
    with under(another, monkeypatch):
        for name, words in examples.items():
            told = tell("git-daytona", *words, cwd=repo.path)
            assert told.status == Elsewhere.status, (name, told)
            for word in ("session 1", local.api_url, another.api_url):
                assert word in told.err, (name, word)
            assert written(repo) == before, name
        events = {
            "tool": {"tool": "bash", "arguments": {"command": "true"}},
            "session.idle": {},
            "session.deleted": {},
        }
        for event, given in events.items():
            payload = json.dumps(given | {"session": session_id}).encode()
            told = tell("git-daytona", "hook", event, cwd=repo.path, stdin=payload)
            assert told.status == Elsewhere.status and local.api_url in told.err, event
            assert written(repo) == before, event
        for words in (("prune", "--yes"), ("status",), ("status", "--offline"), ("diff", "1")):
            told = tell("git-daytona", *words, cwd=repo.path)
            assert told.status == 0 and local.api_url in told.err, words
            assert written(repo) == before, words
        shown = tell("git-daytona", "status", cwd=repo.path).out
        porcelain = tell("git-daytona", "status", "--porcelain", cwd=repo.path).out
        (row,) = json.loads(tell("git-daytona", "status", "--json", cwd=repo.path).out)
    assert "elsewhere" in shown and porcelain.split("\t")[2] == "elsewhere"
    assert (row["elsewhere"], row["apiUrl"]) == (True, local.api_url)
    assert (ids(local), ids(another), len(local.calls)) == (made, set(), 0)
    assert {each.route for each in another.calls} <= {"list", "config", "current-key"}
    told = tell("git-daytona", "sync", "1", cwd=repo.path)
    assert told.status == 0 and repo.show("opencode/1", "y") == "y"


def test_case_90_another_organisations_key(local, repo, begin, tell, tmp_path):
    session = begin(repo)
    session.agent("echo x > x")
    before, made = written(repo), ids(local)
    examples = commands(session, tmp_path)
    with another_organisations_key(local, session.sandbox_id):
        for name, words in examples.items():
            told = tell("git-daytona", *words, cwd=repo.path)
            assert told.status == Elsewhere.status, (name, told)
            assert OTHER_ORGANIZATION in told.err and "session 1" in told.err, (name, told)
            assert written(repo) == before, name
        assert OTHER_ORGANIZATION in tell("git-daytona", "prune", "--yes", cwd=repo.path).err
        (row,) = json.loads(tell("git-daytona", "status", "--json", cwd=repo.path).out)
    assert row["elsewhere"] and OTHER_ORGANIZATION in row["notes"][0]
    assert ids(local) == made and written(repo) == before
    session.sync()
    assert repo.show("opencode/1", "x") == "x"


def test_case_90_who_cannot_say_whose_the_key_is_decides_nothing(local, repo, begin):
    """The API forgets a sandbox and cannot be asked about the key: not yet gone."""
    session = begin(repo)
    state = session.coordinator.state
    missing = {"sandbox": session.sandbox_id, "status": 404}
    examples = (
        lambda: session.agent("true"),
        lambda: session.coordinator.delete(session.name),
        lambda: session.coordinator._delete_sandbox(session.coordinator.find(session.name)),
    )
    for work in examples:
        with (
            local.faults.call(**missing),
            local.faults.call(route="/api-keys/current", drop="before"),
            pytest.raises(ApiUnreachable),
        ):
            session.coordinator.cloud._organization = ""
            work()
        assert [each.sandbox_id for each in state.sessions()] == [session.sandbox_id]
    with local.faults.call(**missing):  # it says that the key is ours: then it is gone
        session.coordinator.delete(session.name)
    assert state.sessions() == []


def test_case_90_a_record_of_an_earlier_version(local, another, repo, begin, tell, monkeypatch):
    """It lives where it is found, and is not gone where it is not."""
    session = begin(repo)
    path = session.coordinator.state.path

    def age() -> bytes:
        document = json.loads(path.read_text())
        for record in document["sessions"].values():
            record.pop("apiUrl", None)
            record.pop("organizationId", None)
        path.write_text(json.dumps(document))
        return path.read_bytes()

    old = json.loads(age())
    with under(another, monkeypatch):
        for words in (("exec", "1", "--", "true"), ("sync", "1"), ("delete", "1"), ("recover",)):
            told = tell("git-daytona", *words, cwd=repo.path)
            assert told.status == Elsewhere.status and another.api_url in told.err, words
            after = json.loads(path.read_text())
            assert after["sessions"].keys() == old["sessions"].keys() and not ids(another), words
    examples = (lambda: session.agent("true"), session.sync, lambda: session.coordinator.push("1"))
    for work in examples:
        age()
        work()
        (record,) = json.loads(path.read_text())["sessions"].values()
        assert record["apiUrl"] == local.api_url and record["organizationId"]
    session.coordinator.cloud.delete(session.sandbox_id)
    age()
    assert tell("git-daytona", "delete", "1", cwd=repo.path).status == Elsewhere.status
    for word, status in (("--force", Elsewhere.status), ("--forget", 0)):
        assert tell("git-daytona", "delete", word, "1", cwd=repo.path).status == status
    assert session.coordinator.sessions() == []


def test_case_90_an_interrupted_start(local, another, repo, coordinate, monkeypatch):
    """Its sandbox is on the API where it began."""
    coordinator = coordinate(repo.path)
    with local.faults.call(route="^(create|list)$", drop="after"), pytest.raises(ApiUnreachable):
        coordinator.start("ses_begun")
    begun = written(repo)
    with under(another, monkeypatch):
        there = coordinate(repo.path)
        assert local.api_url in recovery.recover(there).away[0]
        with pytest.raises(Elsewhere, match="ses_begun was interrupted on"):
            there.start("ses_begun")
        assert written(repo) == begun and not ids(another)
    assert recovery.recover(coordinator).done
    assert [each.id for each in coordinator.sessions()] == ["ses_begun"]


def test_case_90_the_embedded_daytona_beside_real_sessions(local, repo, begin, command):
    session = begin(repo)
    session.agent("echo work > work")
    before = session.coordinator.state.get(session.coordinator.sessions()[0].id)
    script = "git daytona exec 1 -- true; git daytona delete --force 1; true"
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    told = command("daytona-local", "exec", "--", "sh", "-c", script, cwd=repo.path, env=path)
    assert told.status == 0 and told.err.count(f"session 1 lives on {local.api_url}") == 2
    assert session.coordinator.state.get(before.id) == before
    session.sync()
    assert repo.show("opencode/1", "work") == "work"


def test_case_90_a_daytona_that_is_no_more(local, repo, begin, tell, monkeypatch):
    """Its sessions can be forgotten, and only that: adopting takes up what was left."""
    session = begin(repo)
    session.agent("echo x > x")
    with local.faults.call(route="^(create|list)$", drop="after"), pytest.raises(ApiUnreachable):
        session.coordinator.start("ses_begun")
    with monkeypatch.context() as patch:
        patch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
        examples = {"1": session.sandbox_id, "ses_begun": ""}
        for name, left in examples.items():
            refused = tell("git-daytona", "start", "--session", "ses_begun", cwd=repo.path)
            assert name != "ses_begun" or f"delete --forget {name}" in refused.err
            told = tell("git-daytona", "delete", "--forget", name, cwd=repo.path)
            assert (told.status, told.out) == (0, "forgotten\n") and left in told.err
    assert session.sandbox_id in ids(local) and repo.git("remote") == ""
    assert recovery.recover(session.coordinator) == recovery.Recovered()
    recovery.adopt(session.coordinator, session.sandbox_id)
    assert repo.show("opencode/2", "x") == "x"


def test_an_api_that_has_moved(local, repo, begin, tell, monkeypatch):
    """The same server under another address: said, and taken over by its sandbox's id."""
    session = begin(repo)
    moved = local.api_url.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("DAYTONA_API_URL", moved)
    monkeypatch.setenv("NO_PROXY", "localhost")
    told = tell("git-daytona", "exec", "1", "--", "true", cwd=repo.path)
    assert told.status == Elsewhere.status
    adopt = told.complaint[1].rpartition("git daytona ")[2].split()
    assert adopt == ["adopt", session.sandbox_id]
    assert tell("git-daytona", *adopt, cwd=repo.path).out.startswith("session 1: ")
    assert tell("git-daytona", "exec", "1", "--", "true", cwd=repo.path).status == 0


# -- cases 91 and 107 ------------------------------------------------------------------------------


@contextmanager
def home_of_another(folder: Path, monkeypatch):
    """Another user of this machine, or another container with the same host name."""
    with monkeypatch.context() as patch:
        patch.setenv("HOME", str(folder))
        for name, place in (("DATA", ".local/share"), ("STATE", ".local/state")):
            patch.setenv(f"XDG_{name}_HOME", str(folder / place))
        yield


@pytest.fixture
def foreign(local, repo, begin, coordinate):
    """Sandboxes of others, by kind, beside a session of ours; those of other tests are gone."""
    for each in ids(local):
        coordinate(repo.path).cloud.delete(each)
    session = begin(repo, "ses_ours")
    cloud = session.coordinator.cloud
    ours = dict(cloud.get(session.sandbox_id).labels)
    host = ours[ownership.HOST]
    project = {ownership.PROJECT: ours[ownership.PROJECT]}
    kinds = {
        "another installation": ours
        | {ownership.INSTALLATION: "0" * 32, ownership.SESSION: "ses_theirs"},
        "an earlier version": project | {ownership.SESSION: "ses_old", ownership.HOST: host},
        "our labels, copied": ours,
        "our labels, another session": ours | {ownership.SESSION: "ses_lost"},
        "no labels": {},
    }
    return session, {name: cloud.create(labels).id for name, labels in kinds.items()}


@pytest.mark.parametrize("ignored", [False, True], ids=["filtered", "labels ignored"])
def test_case_91_and_case_107_foreign_sandboxes(local, repo, foreign, tell, ignored):
    session, kinds = foreign
    local.faults.list_ignores_labels = ignored
    for words in (("prune", "--yes"), ("prune", "-y", "-n"), ("recover",), ("status",)):
        told = tell("git-daytona", *words, cwd=repo.path)
        assert told.status == 0, (words, told)
        assert ids(local) == {session.sandbox_id, *kinds.values()}, words
        assert not set(kinds.values()) & set(told.out.split()), words
    listed = tell("git-daytona", "prune", "--dry-run", cwd=repo.path).err
    lines = {
        each: next((line for line in listed.splitlines() if id_ in line), "")
        for each, id_ in kinds.items()
    }
    assert "s old), of nobody known, on '" in lines["an earlier version"]
    assert "repository 'repository'" in lines["another installation"]
    assert session.sandbox_id not in listed and not lines["no labels"]
    refused = tell("git-daytona", "prune", "--yes", kinds["no labels"], cwd=repo.path)
    assert refused.status == 8
    named = kinds["an earlier version"]
    assert tell("git-daytona", "prune", "--yes", named, cwd=repo.path).out.endswith("pruned\n")
    assert ids(local) == {session.sandbox_id, *kinds.values()} - {named}


def test_case_91_a_start_adopts_its_own(local, repo, foreign, coordinate):
    """The answer to the creation is lost; the list has everybody's sandboxes, or is of before."""
    before = ids(local)
    coordinator = coordinate(repo.path)
    stale = coordinator.cloud._ask("list", "GET", "/sandbox").body
    examples = {
        "labels ignored": {"route": "^$"},
        "stale list": {"route": "^list$", "body": stale},
        "stale list of copied labels": {"route": "^list$", "body": stale},
    }
    for name, fault in examples.items():
        local.faults.list_ignores_labels = name == "labels ignored"
        with (
            local.faults.call(route="^create$", drop="after", times=1),
            local.faults.call(**fault),
        ):
            started = coordinator.start("ses_lost" if "copied" in name else None).session
        assert started.sandbox_id not in before, name
    assert before <= ids(local)


def test_case_91_adopting_by_hand_takes_no_sessions_place(local, repo, foreign, coordinate):
    """A label names a session of ours; its own sandbox stays its own."""
    session, kinds = foreign
    coordinator = coordinate(repo.path)
    coordinator.cloud._ask("stop it", "POST", f"/sandbox/{kinds['our labels, copied']}/stop")
    adopted = recovery.adopt(coordinator, kinds["our labels, copied"]).session
    assert coordinator.state.get("ses_ours").sandbox_id == session.sandbox_id
    assert (adopted.sandbox_id, adopted.number) == (kinds["our labels, copied"], 2)


def test_case_91_what_was_listed_is_looked_at_again(local, repo, begin, coordinate):
    """Between the list and its deletion somebody has put his labels on it."""
    session = begin(repo)
    coordinator = session.coordinator
    coordinator.state.remove(coordinator.sessions()[0].id)
    found = recovery.leftovers(coordinator)
    assert session.sandbox_id in [info.id for info in found.sandboxes]
    path = f"/sandbox/{session.sandbox_id}/labels"
    for labels in ({}, {ownership.INSTALLATION: "0" * 32}, {ownership.SESSION: "another"}):
        coordinator.cloud._ask("label it", "PUT", path, body={"labels": labels})
        recovery.prune(coordinator, found.only([session.sandbox_id]))
        assert session.sandbox_id in ids(local)
        assert session.sandbox_id not in [
            info.id for info in recovery.leftovers(coordinator).sandboxes
        ]


def test_case_107_one_host_name(local, repo, begin, tell, monkeypatch, tmp_path, home):
    session = begin(repo)
    lost = session.coordinator.start("ses_lost_record").session
    copy, fresh = tmp_path / "copied home", tmp_path / "fresh home"
    shutil.copytree(home, copy)
    fresh.mkdir()
    later = session.coordinator.start().session
    mine = {session.sandbox_id, lost.sandbox_id, later.sandbox_id}
    examples = {
        "another user": {"folder": fresh},
        "a copy of the home": {"folder": copy},
        "other state files": {"folder": home},
    }
    for name, given in examples.items():
        with home_of_another(given["folder"], monkeypatch):
            if name == "other state files":
                monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
            told = tell("git-daytona", "prune", "--yes", cwd=repo.path)
            assert told.status == 0, (name, told)
            assert later.sandbox_id in told.err, name
            assert "left alone: remote sandbox-3" in told.err, name
        assert len(repo.git("remote").split()) == 3, name
        assert mine <= ids(local), name
    assert mine <= ids(local)
    assert tell("git-daytona", "prune", "--yes", cwd=repo.path).status == 0
    assert mine <= ids(local)


def test_case_107_a_state_file_that_was_set_aside_still_names_its_sandboxes(local, begin, repo):
    """What a broken file knew is not dead; nor is what a record knows that cannot be read."""
    session = begin(repo)
    path = session.coordinator.state.path
    whole = path.read_bytes()
    document = json.loads(whole)
    (record,) = document["sessions"].values()
    record["sandboxId"] = [record["sandboxId"]]
    examples = {
        "cut off": whole[:-5],
        "not JSON": b"<<<<<<< " + whole,
        "a record that cannot be read": json.dumps(document).encode(),
    }
    for name, content in examples.items():
        path.write_bytes(content)
        assert session.coordinator.sessions() == [], name
        found = recovery.leftovers(session.coordinator)
        assert session.sandbox_id not in [info.id for info in found.sandboxes], name
        for aside in path.parent.glob("*.corrupt-*"):
            aside.unlink()


def test_the_identity_of_an_installation(home):
    with ThreadPoolExecutor(8) as pool:
        (identity,) = set(pool.map(lambda _: ownership.installation(), range(16)))
    (path,) = paths.own_state().glob("installation*")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == identity
    for content in (b"", b"x" * 32, identity.encode() + b"\n", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(BadSetting, match="installation'"):
            ownership.installation()


def test_the_names_on_a_sandbox_are_those_that_people_know(local, repo, coordinate, monkeypatch):
    secret = "s3cr3t" * 5
    names = {
        f"https://me:{secret}@example.com/team/project.git?token={secret}": "project",
        "git@example.com:team/other.git": "other",
        f"/{secret}/path": "repository",
        "": "repository",
    }
    for origin, name in names.items():
        repo.git("config", "remote.origin.url", origin)
        labels = ownership.labels(project.name_of(coordinate(repo.path).repository))
        assert labels[ownership.REPOSITORY] == name
        assert not [text for text in labels.values() if secret in text or str(repo.path) in text]
    monkeypatch.setattr(ownership.getpass, "getuser", Mock(side_effect=KeyError))
    assert ownership.USER not in ownership.labels("x")


# -- case 93 ---------------------------------------------------------------------------------------


def test_case_93_what_ends_by_itself_is_named_in_time(local, repo, tell):
    """At the start, in status, and to the user of a tool."""
    examples = {
        "ttlMinutes": (30, "its sandbox destroys itself on "),
        "autoDeleteInterval": (90, "its sandbox is deleted 90 minutes after it stops"),
        "public": (True, "its sandbox is public: everybody gets to the ports of its servers"),
    }
    for number, (member, (value, line)) in enumerate(examples.items(), start=1):
        local.faults.created_with = {member: value}
        if member == "public":
            event = {"session": "ses_x", "tool": "bash", "arguments": {"command": "true"}}
            told = tell(
                "git-daytona", "hook", "tool", cwd=repo.path, stdin=json.dumps(event).encode()
            )
        else:
            told = tell("git-daytona", "start", cwd=repo.path)
            assert f"warning: session {number}: {line}" in told.err
        assert line in told.err, member
        listed = tell("git-daytona", "status", cwd=repo.path)
        assert f"session {number}: {line}" in listed.err, member
    rows = json.loads(tell("git-daytona", "status", "--json", cwd=repo.path).out)
    assert [len(row["notes"]) for row in rows] == [1, 1, 1]


@pytest.mark.parametrize(
    ("members", "lines"),
    [
        ({}, []),
        ({"autoDestroyAt": None, "autoDeleteInterval": -1, "spot": False, "public": False}, []),
        (
            {"autoDestroyAt": "2026-01-02T03:04:05+01:00"},
            ["destroys itself on 2026-01-02 at 03:04 UTC+01:00"],
        ),
        ({"autoDestroyAt": "0001-01-01T00:00:00+23:59"}, ["destroys itself on "]),
        ({"autoDestroyAt": "soon", "autoDeleteInterval": "1", "spot": 1, "public": "no"}, []),
        ({"autoDeleteInterval": 0}, ["is deleted as soon as it stops"]),
        ({"autoDeleteInterval": 1e400, "spot": True}, ["is a spot one"]),
        ({"autoDeleteInterval": True, "public": True}, ["is public"]),
    ],
)
def test_case_93_what_the_api_says_of_its_end(members, lines):
    found = lifecycle.dangers(described({"id": "box", "state": "started"} | members, "look"))
    assert len(found) == len(lines)
    assert all(line in each for line, each in zip(lines, found, strict=True))
