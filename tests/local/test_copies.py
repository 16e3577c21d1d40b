"""Copies of sandboxes: forks and snapshots, by Daytona's own SDK and by what it cannot say."""

import gc
from pathlib import Path

import httpx
import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig
from daytona.common.errors import DaytonaError

from git_daytona.local.server import LocalDaytona
from support.plain_http import change, created, http, settled

VM = "daytona-vm-small"


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_sdk_forks_and_makes_snapshots(local: LocalDaytona) -> None:
    config = DaytonaConfig(api_key=local.api_key, api_url=local.api_url, target="local")
    daytona = Daytona(config)
    params = CreateSandboxFromSnapshotParams(snapshot=VM, labels={"a": "b"}, env_vars={"E": "1"})
    one = daytona.create(params)
    one.process.exec(
        "ln -s kept link; echo kept >kept; chmod 600 kept; mkfifo pipe; sleep 9 >&- 2>&- &"
    )
    two = one.fork("two")
    assert (two.name, two.labels["a"], two.env) == ("two", "b", {"E": "1"})
    told = two.process.exec(
        "stat -c %a kept; cat link; ls -F; echo $DAYTONA_SANDBOX_ID;"
        " cat /proc/[0-9]*/comm | grep -c sleep"
    )
    lines = ["600", "kept", "kept", "link@", "pipe|", two.id, "0"]
    assert told.result.split("\n")[: len(lines) + 1] == [*lines, ""]
    two.process.exec("echo changed >kept")
    assert one.process.exec("cat kept").result == "kept\n"
    with pytest.raises(DaytonaError, match="active fork children"):
        one.delete()
    one.create_snapshot("made")
    one.refresh_data()
    assert one.state == "started"
    three = daytona.create(CreateSandboxFromSnapshotParams(snapshot="made"))
    assert three.process.exec("cat link").result == "kept\n"
    snapshot = daytona.snapshot.get("made")
    daytona.snapshot.delete(snapshot)
    assert "made" not in [each.name for each in daytona.snapshot.list().items]
    two.delete()
    one.delete()
    del daytona, one, two, three, snapshot
    gc.collect()


def test_what_is_refused(api: httpx.Client, local: LocalDaytona) -> None:
    container, machine = created(api), created(api, snapshot=VM)

    def refused(path: str, **body: object) -> tuple[int, str]:
        answer = api.post(f"/sandbox/{path}", json=body)
        return answer.status_code, answer.json()["message"]

    told = "Forking is not supported for this sandbox"
    assert refused(f"{container}/fork") == (422, told)
    taken = refused(f"{machine}/fork", name=api.get(f"/sandbox/{container}").json()["name"])
    assert taken[0] == 409
    forked = api.post(f"/sandbox/{machine}/fork", json={}).json()
    assert (forked["state"], forked["sandboxClass"]) == ("creating", "linux-vm")
    assert settled(api, forked["id"]) == "started"
    change(api, machine, "stop")
    told = "Sandbox must be in started state to fork"
    assert refused(f"{machine}/fork") == (400, told)
    assert refused(f"{machine}/snapshot")[0] == 400
    assert refused(f"{machine}/snapshot", name="x", includeMemory=True)[0] == 400
    change(api, machine, "archive")
    assert "started or stopped" in refused(f"{machine}/snapshot", name="x")[1]


def test_snapshots_outlast_the_server(root: Path) -> None:
    with LocalDaytona(root) as local, http(local) as api:
        box = created(api)
        assert api.post(f"/sandbox/{box}/snapshot", json={"name": "kept"}).status_code == 200
        assert settled(api, box) == "started"
    (root / "snapshots" / "cut").mkdir()
    with LocalDaytona(root) as local, http(local) as api:
        names = [each["name"] for each in api.get("/snapshots").json()["items"]]
        assert names[-1] == "kept" and len(names) == 4
        assert created(api, snapshot="kept")
    assert [each.name for each in (root / "snapshots").iterdir()] != ["cut"]
