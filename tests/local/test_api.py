"""The REST API, over plain HTTP: what it answers, what it refuses and in which words."""

import re
import stat
import uuid
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from git_daytona.local.api.admission import signature
from git_daytona.local.server import LocalDaytona
from support.plain_http import Clock, change, created, http, settled
from support.waiting import until

ENVELOPE = {"path", "timestamp", "statusCode", "error", "message", "source"}


def test_everything_but_config_and_health_needs_the_key(local: LocalDaytona) -> None:
    for key in ("", "wrong", local.api_key + "x", "\xe9".encode().decode("latin-1")):
        with http(local, key="") as client:
            headers = {"Authorization": f"Bearer {key}".encode("latin-1")} if key else {}
            answer = client.get("/sandbox", headers=headers)
            assert answer.status_code == 401
            assert set(answer.json()) == ENVELOPE
    with http(local, key="") as client:
        assert client.get("/config").status_code == 200
        assert client.get("/health").status_code == 200
        assert (
            client.get("/sandbox", headers={"Authorization": f"Basic {local.api_key}"}).status_code
            == 401
        )


def test_unknown_paths_and_methods_are_404_in_the_envelope(api: httpx.Client) -> None:
    for method, path in (
        ("GET", "/nothing"),
        ("PATCH", "/sandbox"),
        ("GET", "/sandbox/x/nothing"),
        ("GET", "/snapshots/none"),
    ):
        answer = api.request(method, path)
        assert answer.status_code == 404
        assert set(answer.json()) == ENVELOPE
        assert answer.json()["statusCode"] == 404
    assert api.get("/nothing?a=b").json()["path"] == "/api/nothing?a=b"


def test_a_new_sandbox_is_started_and_shows_what_was_asked_for(api: httpx.Client) -> None:
    asked = {
        "name": "one",
        "env": {"A": "1"},
        "labels": {"session": "s 1"},
        "public": True,
        "target": "eu",
        "autoStopInterval": 0,
        "autoArchiveInterval": 0,
        "autoDeleteInterval": 30,
        "snapshot": "daytonaio/sandbox",
    }
    shown = api.post("/sandbox", json=asked).json()
    assert (shown["state"], shown["desiredState"]) == ("creating", "started")
    assert settled(api, shown["id"]) == "started"
    assert {**asked, "autoArchiveInterval": 43200}.items() <= shown.items()
    assert api.get("/sandbox/one").json()["id"] == shown["id"] == str(uuid.UUID(shown["id"]))
    assert api.get(f"/sandbox/{shown['id']}").json()["name"] == "one"


def test_defaults_are_the_clouds(api: httpx.Client) -> None:
    shown = api.post("/sandbox", json={}).json()
    assert (
        shown["autoStopInterval"],
        shown["autoArchiveInterval"],
        shown["autoDeleteInterval"],
    ) == (15, 10080, -1)
    assert shown["name"] == shown["id"]
    assert not shown["public"]


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        (
            {"snapshot": "mine:1"},
            400,
            "Snapshot mine:1 not found. Did you add it through the Daytona Dashboard?",
        ),
        ({"buildInfo": {"dockerfileContent": "FROM x"}}, 400, "builds nothing but 'FROM"),
        ({"volumes": [{"volumeId": "v", "mountPath": "/v"}]}, 400, "does not support volumes"),
        ({"networkBlockAll": True}, 400, "does not support networkBlockAll"),
        ({"cpu": 4}, 400, "resources"),
        ({"user": "root"}, 400, "user daytona"),
        ({"name": ""}, 200, ""),
        ({"name": "a/b c"}, 200, ""),
        ({"name": "n" * 300}, 200, ""),
        ({"name": 3}, 400, "name"),
        ({"env": {"A": 1}}, 200, ""),
        ({"env": {"A=B": "1"}}, 400, "env"),
        ({"env": {"A": "1\0"}}, 400, "env"),
        ({"labels": ["x"]}, 500, "An unexpected error occurred."),
        ({"labels": {"n": 1}}, 200, ""),
        ({"autoStopInterval": -1}, 400, "Auto-stop interval must be non-negative"),
        ({"autoStopInterval": "15"}, 200, ""),
        ({"autoStopInterval": 1.5}, 500, "An unexpected error occurred."),
        ({"autoStopInterval": True}, 500, "An unexpected error occurred."),
        ({"public": "yes"}, 400, "public"),
        ({"target": "nowhere"}, 404, "Region not found"),
        (
            {"volumes": [], "kvm": False, "spot": False, "env": None, "labels": None, "unknown": 1},
            200,
            "",
        ),
    ],
)
def test_creation_is_checked(
    api: httpx.Client, asked: dict[str, object], status: int, says: str
) -> None:
    answer = api.post("/sandbox", json=asked)
    assert answer.status_code == status, answer.text
    if says:
        assert says in answer.json()["message"]
    assert len(api.get("/sandbox").json()["items"]) == (status == 200)


def test_numbers_stay_numbers(local: LocalDaytona, api: httpx.Client) -> None:
    box = created(api, labels={"n": 1, "m": "1"}, env={"A": 7, "B": "7"})
    shown = api.get(f"/sandbox/{box}").json()
    assert (shown["labels"], shown["env"]) == ({"n": 1, "m": "1"}, {"A": 7, "B": "7"})
    assert [
        len(api.get("/sandbox", params={"labels": f'{{"n": {value}}}'}).json()["items"])
        for value in ("1", '"1"')
    ] == [1, 0]
    answer = api.post(
        f"{local.toolbox_url}/{box}/process/execute", json={"command": "echo $A $B"}
    ).json()
    assert answer["result"] == "7 7\n"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'"x"'])
def test_a_body_that_is_no_json_object_is_a_bad_request(api: httpx.Client, body: bytes) -> None:
    answer = api.post("/sandbox", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    malformed = body in (b"", b"{", b"\xff")
    assert set(answer.json()) == ({"message", "error", "statusCode"} if malformed else ENVELOPE)


def test_names_are_unique(api: httpx.Client) -> None:
    first = created(api, name="one")
    assert api.post("/sandbox", json={"name": "one"}).status_code == 409
    assert api.post("/sandbox", json={"name": first}).status_code == 409
    assert api.delete("/sandbox/one").json()["state"] == "destroying"
    assert created(api, name="one") != first


def test_a_deleted_sandbox_is_shown_for_a_while_under_another_name(
    local: LocalDaytona, api: httpx.Client
) -> None:
    box = created(api, name="one", labels={"a": "b"})
    local.faults.stop_delay = 0.5
    assert api.delete("/sandbox/one").status_code == 200
    shown = api.get(f"/sandbox/{box}").json()
    assert (shown["state"], shown["desiredState"]) == ("destroying", "destroyed")
    assert re.fullmatch(r"DESTROYED_one_\d{13}", shown["name"])
    assert [
        item["id"] for item in api.get("/sandbox", params={"labels": '{"a": "b"}'}).json()["items"]
    ] == [box]
    assert api.get("/sandbox/one").status_code == 404
    again = api.delete(f"/sandbox/{box}")
    assert (again.status_code, again.json()["message"]) == (409, "Sandbox state change in progress")
    assert settled(api, box) == "gone"
    assert api.delete(f"/sandbox/{box}").status_code == 404


def test_states_go_where_the_cloud_lets_them(local: LocalDaytona, api: httpx.Client) -> None:
    box = created(api)
    sandbox = f"/sandbox/{box}"

    def asked(what: str) -> tuple[int, str]:
        answer = api.post(f"{sandbox}/{what}")
        settled(api, box)
        return answer.status_code, answer.json().get("state") or answer.json()["message"]

    assert asked("start") == (200, "started")
    assert asked("archive") == (400, "Sandbox is not stopped")
    assert asked("pause") == (422, "Pausing is not supported for this sandbox")
    assert asked("resize") == (400, "daytona-local cannot resize sandboxes")
    assert asked("stop?force=true") == (200, "stopping")
    assert asked("stop") == (400, "Sandbox is not in a stoppable state")
    assert asked("pause") == (400, "Sandbox must be in started state to pause")
    assert asked("archive") == (200, "archiving")
    assert asked("stop") == (400, "Sandbox is not in a stoppable state")
    assert asked("start") == (200, "restoring")
    assert asked("recover") == (400, "Sandbox is not in a recoverable state")
    local.force_state(box, "error", reason="disk full", recoverable=True)
    assert asked("start") == (400, "Sandbox is in an errored state")
    assert api.get(sandbox).json()["errorReason"] == "disk full"
    assert asked("recover") == (200, "starting")
    assert "errorReason" not in api.get(sandbox).json()
    assert change(api, box, "delete") == "gone"
    assert (
        api.get(sandbox).status_code
        == api.delete(sandbox).status_code
        == api.post(f"{sandbox}/start").status_code
        == 404
    )


def test_changes_take_a_while_in_which_others_are_refused(
    local: LocalDaytona, api: httpx.Client
) -> None:
    box = created(api)
    local.faults.start_delay = local.faults.stop_delay = 0.3
    for what, under_way, after in (
        ("stop", "stopping", "stopped"),
        ("start", "starting", "started"),
    ):
        assert api.post(f"/sandbox/{box}/{what}").json()["state"] == under_way
        for method, path in (
            ("POST", f"/sandbox/{box}/start"),
            ("POST", f"/sandbox/{box}/stop"),
            ("DELETE", f"/sandbox/{box}"),
        ):
            answer = api.request(method, path)
            assert (answer.status_code, answer.json()["message"]) == (
                409,
                "Sandbox state change in progress",
            )
        assert settled(api, box) == after


def test_an_ephemeral_sandbox_is_gone_when_it_stops(local: LocalDaytona, api: httpx.Client) -> None:
    box = created(api, autoDeleteInterval=0)
    api.post(f"/sandbox/{box}/stop")
    until(lambda: api.get(f"/sandbox/{box}").status_code == 404)
    assert local.sandboxes == []


def test_settings(api: httpx.Client) -> None:
    sandbox = f"/sandbox/{created(api, labels={'a': '1'})}"
    relabelled = api.put(f"{sandbox}/labels", json={"labels": {"b": 2}}).json()
    assert (relabelled["labels"], relabelled["state"]) == ({"b": 2}, "started")
    assert api.put(f"{sandbox}/labels", json={}).json()["labels"] == {"b": 2}
    assert api.post(f"{sandbox}/public/true").json()["public"] is True
    assert api.post(f"{sandbox}/public/maybe").status_code == 400
    assert api.post(f"{sandbox}/autostop/0").json()["autoStopInterval"] == 0
    assert api.post(f"{sandbox}/autostop/-1").status_code == 400
    assert api.post(f"{sandbox}/autostop/soon").status_code == 500
    assert api.post(f"{sandbox}/autoarchive/99999999").json()["autoArchiveInterval"] == 43200
    assert api.post(f"{sandbox}/autodelete/-5").json()["autoDeleteInterval"] == -1
    assert api.post(f"{sandbox}/last-activity", json={}).status_code == 201
    assert api.get(f"{sandbox}/toolbox-proxy-url").json() == {
        "url": api.get(sandbox).json()["toolboxProxyUrl"]
    }
    assert api.get(sandbox).json()["labels"] == {"b": 2}


def test_lists_are_filtered_sorted_and_paged(local: LocalDaytona, api: httpx.Client) -> None:
    for number in range(7):
        created(api, name=f"box-{number}", labels={"even": str(number % 2 == 0), "n": str(number)})
    change(api, "box-3", "stop")

    def names(**query: object) -> list[str]:
        answer = api.get("/sandbox", params=query)
        assert answer.status_code == 200, answer.text
        return [item["name"] for item in answer.json()["items"]]

    assert names() == [f"box-{n}" for n in reversed(range(7))]
    assert names(sort="name", order="asc", limit=2) == ["box-0", "box-1"]
    assert names(labels='{"even": "True"}', sort="name", order="asc") == [
        "box-0",
        "box-2",
        "box-4",
        "box-6",
    ]
    assert names(labels='{"even": "True", "n": "4"}') == ["box-4"]
    assert names(name="BOX-5") == ["box-5"]
    assert names(id=api.get("/sandbox/box-1").json()["id"][:13]) == ["box-1"]
    assert names(states=["stopped", "archived"]) == names(states="stopped,archived") == ["box-3"]
    assert names(createdAtBefore="2020-01-01T00:00:00Z") == []
    assert (
        len(names(createdAtAfter="2020-01-01T00:00:00Z", isPublic="false", regionIds="local")) == 7
    )

    # Page by page, while sandboxes come and go: none twice, and none of those that stay is missed.
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = api.get(
            "/sandbox", params={"limit": 2, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [item["name"] for item in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
        change(api, seen[-1], "delete")
        created(api)
    assert seen == [f"box-{n}" for n in reversed(range(7))]

    for query in (
        {"labels": "{"},
        {"labels": "[]"},
        {"limit": "0"},
        {"limit": "201"},
        {"cursor": "!"},
        {"cursor": "W10"},
        {"sort": "x"},
        {"states": "zzz"},
    ):
        assert api.get("/sandbox", params=query).status_code == 400, query
    assert api.get("/sandbox/paginated", params={"labels": '["a"]'}).status_code == 500
    old = api.get("/sandbox/paginated", params={"page": 2, "limit": 3}).json()
    assert (len(old["items"]), old["page"], old["totalPages"], old["total"]) == (3, 2, 3, 7)


def test_minting_ends_the_sandboxs_earlier_tokens(local: LocalDaytona, api: httpx.Client) -> None:
    one, two = created(api), created(api)

    def opened(token: str) -> str | None:
        sandbox = local._lifecycle.validate(token)
        return sandbox.id if sandbox else None

    def mint(sandbox: str, minutes: str = "10") -> str:
        access = api.post(
            f"/sandbox/{sandbox}/ssh-access", params={"expiresInMinutes": minutes}
        ).json()
        assert access["sshCommand"] == f"ssh -p {local.gateway_port} {access['token']}@127.0.0.1"
        assert access["sandboxId"] == sandbox
        assert len(access["token"]) == 32
        assert access["token"].isalnum()
        token: str = access["token"]
        return token

    first, second, other = mint(one), mint(one), mint(two)
    assert [opened(token) for token in (first, second, other)] == [None, one, two]
    assert local.live_tokens() == 2
    # A token of another sandbox is not revoked; revoking what is not there is no error.
    assert api.delete(f"/sandbox/{one}/ssh-access", params={"token": other}).status_code == 200
    assert opened(other) == two
    assert api.delete(f"/sandbox/{one}/ssh-access", params={"token": second}).status_code == 200
    assert opened(second) is None
    assert api.delete(f"/sandbox/{two}/ssh-access").status_code == 200
    assert local.live_tokens() == 0
    for expired in ("0", "-1"):
        assert opened(mint(one, expired)) is None
    for bad in ("nan", "inf", "ten"):
        answer = api.post(f"/sandbox/{one}/ssh-access", params={"expiresInMinutes": bad})
        assert (answer.status_code, answer.json()["message"]) == (
            500,
            "An unexpected error occurred.",
        )
    mint(one)
    api.delete(f"/sandbox/{one}")
    assert local.live_tokens() == 0
    assert local.counts["mint"] == 6
    assert local.counts["revoke"] == 3


def test_validating_a_token_is_for_the_gateway(api: httpx.Client) -> None:
    token = api.post(f"/sandbox/{created(api)}/ssh-access").json()["token"]
    assert api.get("/sandbox/ssh-access/validate", params={"token": token}).status_code == 403


def test_the_proxy_cannot_tell_a_wrong_key_from_no_sandbox(
    timed: LocalDaytona, clock: Clock
) -> None:
    with http(timed) as api:
        box, unseen = created(api), created(api)

        def status(sandbox: str, key: str | None = None) -> int:
            with http(timed, key) as client:
                answer = client.get(f"{timed.toolbox_url}/{sandbox}/work-dir")
            if answer.status_code == 401:
                assert (answer.json()["code"], answer.json()["path"]) == (
                    "UNAUTHORIZED",
                    f"/toolbox/{sandbox}/work-dir",
                )
            return answer.status_code

        assert [status(box, ""), status(box, "wrong"), status("none"), status(box)] == [
            401,
            401,
            401,
            200,
        ]
        for gone in (box, unseen):
            assert change(api, gone, "delete") == "gone"
        # It has been let through to one of them, and remembers that for two minutes.
        assert [status(box), status(unseen)] == [404, 401]
        clock.now += 119
        assert status(box) == 404
        clock.now += 1
        assert status(box) == 401


def test_signed_links_open_one_file(timed: LocalDaytona, clock: Clock) -> None:
    with http(timed) as api, httpx.Client(timeout=10, trust_env=False) as anybody:
        box = created(api)
        key = api.get(f"/sandbox/{box}/signing-key").json()

        def link(call: str, method: str, path: str, expires: int) -> str:
            query = {
                "path": path,
                "expires": str(expires),
                "signature": signature(key, method, path, expires),
            }
            return f"{timed.toolbox_url}/{box}/{call}?{urlencode(query)}"

        soon = int(clock.now) + 60
        up, down = (
            link("files/upload-v2", "POST", "a b", soon),
            link("files/download", "GET", "a b", 0),
        )
        assert anybody.post(up, files={"file": ("x", b"content")}).status_code == 200
        assert anybody.get(down).content == b"content"
        other = down.replace("path=a+b", "path=.profile")
        for wrong in (
            other,
            down.replace("v1_", "v1_x"),
            down.replace("expires=0", "expires=9999999999"),
            down.partition("&")[0],
        ):
            assert anybody.get(wrong).status_code == 401, wrong
        assert anybody.get(down.replace("files/download", "files/info")).status_code == 401
        clock.now += 60
        assert anybody.post(up, files={"file": ("x", b"late")}).status_code == 401
        assert api.post(f"/sandbox/{box}/signing-key/rotate").json() != key
        assert anybody.get(down).status_code == 401


def test_an_older_server_lacks_what_is_newer(root: Path) -> None:
    with LocalDaytona(root, like="0.190") as local, http(local) as api:
        config = api.get("/config").json()
        assert config["sshGatewayCommand"] == f"ssh -p {local.gateway_port} {{{{TOKEN}}}}@127.0.0.1"
        assert "sshGatewayPublicKey" in config and "rateLimit" in config
        assert not {
            "sshGatewayHost",
            "sshGatewayPort",
            "sshGatewayHostKeys",
            "sshGatewayHostKeyFingerprints",
        } & set(config)
        assert set(api.get("/sandbox/none").json()) == ENVELOPE - {"source"}
        box = created(api)
        assert not {"kvm", "spot", "daemonVersion"} & set(api.get(f"/sandbox/{box}").json())
        assert api.get(f"/sandbox/{box}/signing-key").status_code == 404


def test_config_publishes_what_tests_want(local: LocalDaytona) -> None:
    with http(local, key="") as client:

        def config() -> dict[str, object]:
            answer: dict[str, object] = client.get("/config").json()
            return answer

        truth = config()
        assert truth["sshGatewayHost"] == "127.0.0.1"
        assert truth["sshGatewayPort"] == local.gateway_port
        assert truth["sshGatewayHostKeys"] == local.gateway.presented_keys() != []
        assert all(
            str(print_).startswith("SHA256:") for print_ in truth["sshGatewayHostKeyFingerprints"]
        )  # type: ignore[attr-defined]
        assert truth["proxyToolboxUrl"] == local.toolbox_url
        local.published.host_keys = ["ssh-ed25519 AAAA", *local.gateway.presented_keys()]
        assert (
            len(config()["sshGatewayHostKeyFingerprints"])
            == len(local.gateway.presented_keys()) + 1
        )  # type: ignore[arg-type]
        local.published.nothing()
        assert config()["sshGatewayHostKeys"] == []
        for value in (None, 7, "garbage", [1]):
            local.published.members["sshGatewayHostKeys"] = value
            assert config()["sshGatewayHostKeys"] == value
        local.published.reset()
        local.published.old_server("127.0.0.1", local.gateway_port)
        old = config()
        assert old["sshGatewayCommand"] == f"ssh -p {local.gateway_port} {{{{TOKEN}}}}@127.0.0.1"
        assert "sshGatewayHostKeys" not in old
        assert "sshGatewayHost" not in old
        local.published.reset()
        assert config() == truth


def test_what_is_on_disk_is_private_and_holds_no_token(
    local: LocalDaytona, api: httpx.Client, root: Path
) -> None:
    sandbox = created(api)
    token = api.post(f"/sandbox/{sandbox}/ssh-access").json()["token"]
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "api-key").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "sandboxes" / sandbox / "sandbox.json").stat().st_mode) == 0o600
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert token.encode() not in path.read_bytes(), path


def test_snapshots(api: httpx.Client) -> None:
    listed = api.get("/snapshots").json()
    names = ["daytona-local", "daytonaio/sandbox", "daytona-vm-small"]
    assert [item["name"] for item in listed["items"]] == names
    assert listed["total"] == 3
    assert api.get("/snapshots/daytonaio/sandbox").json() == listed["items"][1]
    assert api.get("/snapshots/daytonaio%2Fsandbox").json() == listed["items"][1]
    assert api.get(f"/snapshots/{listed['items'][0]['id']}").json() == listed["items"][0]
    assert api.post("/snapshots", json={"name": "x", "imageName": "debian:12"}).status_code == 400
    assert api.delete("/snapshots/daytona-local").status_code == 403
    assert created(api, snapshot=listed["items"][0]["id"])


def test_the_keys_owner(api: httpx.Client) -> None:
    assert api.get("/api-keys/current").json()["name"] == "daytona-local"
    (organization,) = api.get("/organizations").json()
    assert api.get(f"/organizations/{organization['id']}").json() == organization
    assert api.get("/organizations/other").status_code == 404
