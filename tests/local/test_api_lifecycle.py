"""Time, restarts and accidents: what becomes of sandboxes when nobody calls."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from git_daytona.local.core.model import ApiError
from git_daytona.local.core.registry import Timings
from git_daytona.local.core.store import RootInUse
from git_daytona.local.server import LocalDaytona
from support.plain_http import Clock, change, created, http, settled
from support.waiting import until


def state(server: LocalDaytona, sandbox: str) -> str:
    return next((s.state for s in server.sandboxes if s.id == sandbox), "gone")


def test_an_idle_sandbox_stops_then_is_archived_then_deleted(
    timed: LocalDaytona, clock: Clock
) -> None:
    with http(timed) as api:
        box = created(api, autoStopInterval=15, autoArchiveInterval=60, autoDeleteInterval=100)
        clock.now += 14 * 60
        timed.tick()
        assert api.get(f"{timed.toolbox_url}/{box}/work-dir").status_code == 200  # activity
        clock.now += 14 * 60
        timed.tick()
        assert state(timed, box) == "started"
        clock.now += 60
        timed.tick()
        until(lambda: state(timed, box) == "stopped")
        clock.now += 59 * 60
        timed.tick()
        assert state(timed, box) == "stopped"
        clock.now += 60
        timed.tick()
        until(lambda: state(timed, box) == "archived")
        assert change(api, box, "start") == "started"
        assert change(api, box, "stop") == "stopped"
        clock.now += 100 * 60
        timed.tick()
        until(lambda: state(timed, box) == "gone")
        until(lambda: not (timed.root / "sandboxes" / box).exists())


def test_zero_means_never_to_stop_and_looking_is_no_activity(
    timed: LocalDaytona, clock: Clock
) -> None:
    with http(timed) as api:
        always, fifteen = created(api, autoStopInterval=0), created(api)
        clock.now += 14 * 60
        api.get(f"/sandbox/{fifteen}")
        api.get("/sandbox")
        api.post(f"/sandbox/{always}/last-activity")
        clock.now += 60
        timed.tick()
        until(lambda: state(timed, fifteen) == "stopped")
        clock.now += 10**6
        timed.tick()
        assert state(timed, always) == "started"


def test_a_sandbox_at_work_is_not_idle(timed: LocalDaytona, clock: Clock) -> None:
    with http(timed) as api:
        box = created(api, autoStopInterval=1)
        running = threading.Thread(
            target=lambda: api.post(
                f"{timed.toolbox_url}/{box}/process/execute",
                json={"command": "touch begun; until test -e go; do sleep 0.05; done"},
            )
        )
        home = timed.root / "sandboxes" / box / "home"
        running.start()
        until((home / "begun").exists)
        clock.now += 3600
        timed.tick()
        time.sleep(0.1)
        assert state(timed, box) == "started"
        (home / "go").touch()
        running.join(60)
        assert not running.is_alive()
        clock.now += 60
        timed.tick()
        until(lambda: state(timed, box) == "stopped")


def test_minutes_can_be_short(root: Path) -> None:
    with LocalDaytona(root, timings=Timings(minute=0.1)) as local, http(local) as api:
        box = created(api, autoStopInterval=1, autoDeleteInterval=1)
        api.post(f"/sandbox/{box}/ssh-access", params={"expiresInMinutes": 1})
        until(lambda: local.live_tokens() == 0)
        until(lambda: state(local, box) == "gone")


def test_a_sandbox_has_a_time_to_live(timed: LocalDaytona, clock: Clock) -> None:
    with http(timed) as api:
        box, other = created(api, ttlMinutes=5), created(api)
        api.post(f"/sandbox/{other}/ttl/5")
        assert "autoDestroyAt" in api.get(f"/sandbox/{box}").json()
        api.post(f"/sandbox/{other}/ttl/0")
        clock.now += 300
        timed.tick()
        until(lambda: state(timed, box) == "gone")
        assert state(timed, other) == "started"


def test_a_restart_is_like_a_reboot(root: Path) -> None:
    with LocalDaytona(root) as local, http(local) as api:
        key, keys, ports = (
            local.api_key,
            local.gateway.presented_keys(),
            (local.api_port, local.gateway_port),
        )
        box = created(api, name="kept", labels={"a": "b"}, env={"C": "d"}, autoStopInterval=7)
        archived, ephemeral = created(api), created(api, autoDeleteInterval=0)
        change(api, archived, "stop")
        change(api, archived, "archive")
        api.post(f"{local.toolbox_url}/{box}/process/execute", json={"command": "echo work > file"})
        api.post("/sandbox/kept/ssh-access")
        deleted = created(api)
        api.delete(f"/sandbox/{deleted}")
    with LocalDaytona(root) as local, http(local) as api:
        assert local.api_key == key
        assert local.gateway.presented_keys() == keys
        assert (local.api_port, local.gateway_port) == ports
        shown = api.get("/sandbox/kept").json()
        assert (shown["id"], shown["state"], shown["desiredState"]) == (box, "stopped", "stopped")
        assert (shown["labels"], shown["env"], shown["autoStopInterval"]) == (
            {"a": "b"},
            {"C": "d"},
            7,
        )
        assert state(local, archived) == "archived"
        until(lambda: state(local, ephemeral) == "gone")
        assert local.live_tokens() == 0
        assert api.get(f"/sandbox/{deleted}").status_code == 404
        assert change(api, "kept", "start") == "started"
        answer = api.post(
            f"{local.toolbox_url}/{box}/process/execute", json={"command": "cat file; echo $C"}
        ).json()
        assert answer["result"] == "work\nd\n"


def test_one_server_per_root(local: LocalDaytona, root: Path) -> None:
    with pytest.raises(RootInUse, match=str(root)), LocalDaytona(root):
        pass
    with http(local) as api:
        assert api.get("/health").status_code == 200


def test_a_taken_port_is_an_error_and_leaves_nothing_behind(
    local: LocalDaytona, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    for ports in ({"api_port": local.api_port}, {"gateway_port": local.gateway_port}):
        with pytest.raises(OSError, match=r"in use"), LocalDaytona(other, **ports):
            pass
    with LocalDaytona(other):
        pass


def test_the_last_ports_are_left_to_whoever_has_them_now(root: Path) -> None:
    with LocalDaytona(root) as local:
        ports = [local.api_port, local.gateway_port]
    with contextlib.ExitStack() as taken:
        for port in ports:
            taken.enter_context(socket.create_server(("127.0.0.1", port)))
        with LocalDaytona(root) as local:
            assert local.api_port not in ports
            assert local.gateway_port not in ports


def test_it_starts_and_stops_again(root: Path) -> None:
    server = LocalDaytona(root)
    with server:
        pass
    with server, http(server) as api:
        created(api)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"sandbox": {"id": "x"}}'])
def test_a_damaged_record_costs_one_sandbox_only(root: Path, damage: bytes) -> None:
    with LocalDaytona(root) as local, http(local) as api:
        broken, good = created(api), created(api)
    (root / "sandboxes" / broken / "sandbox.json").write_bytes(damage)
    with LocalDaytona(root) as local, http(local) as api:
        assert [s.id for s in local.sandboxes] == [good]
        assert created(api)
    assert (root / "sandboxes" / broken / "home").is_dir()


def test_read_only_trees_are_deleted_too(local: LocalDaytona) -> None:
    with http(local) as api:
        box = created(api)
        script = "mkdir -p a/b; touch a/b/c; ln -s /etc a/b/l; chmod 0 a/b/c; chmod 500 a/b a"
        assert (
            api.post(f"{local.toolbox_url}/{box}/process/execute", json={"command": script}).json()[
                "exitCode"
            ]
            == 0
        )
        assert api.delete(f"/sandbox/{box}").status_code == 200
        until(lambda: list((local.root / "sandboxes").iterdir()) == [])
    assert Path("/etc/passwd").exists()


def test_a_deleted_sandboxs_processes_are_ended(local: LocalDaytona) -> None:
    with http(local) as api:
        for ending in ("post", "delete"):
            box = created(api)
            script = (
                "(trap '' TERM HUP INT; while :; do date > beat; sleep 0.05; done) >/dev/null "
                "2>&1 & echo $!"
            )
            answer = api.post(
                f"{local.toolbox_url}/{box}/process/execute", json={"command": script}
            )
            assert answer.json()["exitCode"] == 0
            home = local.root / "sandboxes" / box / "home"
            until((home / "beat").exists)
            if ending == "delete":
                change(api, box, "delete")
                assert not home.exists()
            else:
                change(api, box, "stop")
                (home / "beat").unlink()
                time.sleep(0.2)
                assert not (home / "beat").exists()


def test_a_slow_creation_is_seen_and_a_second_change_refused(local: LocalDaytona) -> None:
    with http(local) as api:
        local.faults.start_delay = 0.3
        shown = api.post("/sandbox", json={}).json()
        box = f"/sandbox/{shown['id']}"
        assert shown["state"] == "creating"
        for method, path in (("POST", f"{box}/start"), ("POST", f"{box}/stop"), ("DELETE", box)):
            answer = api.request(method, path)
            assert (answer.status_code, answer.json()["message"]) == (
                409,
                "Sandbox state change in progress",
            )
        assert settled(api, shown["id"]) == "started"


def test_a_failed_start_is_an_error_to_recover_from(local: LocalDaytona) -> None:
    with http(local) as api:
        local.faults.start_error = "no room"
        box = api.post("/sandbox", json={}).json()["id"]
        assert settled(api, box) == "error"
        shown = api.get(f"/sandbox/{box}").json()
        assert (shown["errorReason"], shown["recoverable"]) == ("no room", True)
        local.faults.start_error = None
        assert change(api, box, "recover") == "started"


def test_the_registry_answers_other_threads(local: LocalDaytona) -> None:
    with http(local) as api:
        box = created(api)
        token = api.post(f"/sandbox/{box}/ssh-access").json()["token"]
    registry = local._lifecycle
    sandbox = registry.validate(token)
    assert sandbox is not None
    assert registry.sandbox(box) is sandbox
    assert registry.validate("") is None
    assert registry.validate("\udcff") is None
    before = sandbox.last_activity_at
    registry.touch(sandbox)
    assert sandbox.last_activity_at >= before
    with pytest.raises(ApiError, match="not found"):
        registry.sandbox("none")
