"""The REST API, and the proxy before the toolbox. What changes a sandbox's state:
test_life_rows.py."""

import json
import re
import uuid
from datetime import datetime
from typing import Any

import httpx

from support.account import PURPOSE, RUN, Server
from support.rows import By, Like, Row, Table, containing, having, one_of

TABLE = Table("REST")
NOBODY = "00000000-0000-4000-8000-000000000000"


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


def told(answer: httpx.Response, *names: str) -> dict[str, Any]:
    """The status and some members of an answer."""
    return {"status": answer.status_code, **{name: answer.json().get(name) for name in names}}


# Refusals.


@TABLE.row(
    "the envelope of a refusal: its path has the query string",
    By(
        cloud={
            "path": "/api/sandbox/none-such?verbose=true",
            "members": having("path", "timestamp", "statusCode", "error", "message"),
        },
        v0_190={
            "path": "/api/sandbox/none-such?verbose=true",
            "members": ["error", "message", "path", "statusCode", "timestamp"],
        },
    ),
)
def envelope(on: Server) -> Any:
    body = on.api.get("/sandbox/none-such", params={"verbose": "true"}).json()
    return {"path": body["path"], "members": sorted(body)}


@TABLE.row(
    "a body that is no JSON: message, error and statusCode only",
    {"status": 400, "members": ["error", "message", "statusCode"]},
)
def no_json(on: Server) -> Any:
    answer = on.api.post("/sandbox", content=b"{", headers={"Content-Type": "application/json"})
    return {"status": answer.status_code, "members": sorted(answer.json())}


@TABLE.row(
    "an unknown sandbox", {"status": 404, "message": "Sandbox with ID or name none-such not found"}
)
def unknown(on: Server) -> Any:
    return told(on.api.get("/sandbox/none-such"), "message")


@TABLE.row(
    "no key, another key",
    {
        "no key": {"status": 401, "message": "Invalid credentials"},
        "another": {"status": 401, "message": "Invalid credentials"},
    },
)
def keys(on: Server) -> Any:
    seen = {}
    for name, key in (("no key", None), ("another", "dtn_" + "0" * 64)):
        with on.http(on.account.api_url, key) as client:
            seen[name] = told(client.get("/sandbox"), "message")
    return seen


UNEXPECTED = {"status": 500, "message": "An unexpected error occurred."}


@TABLE.row(
    "numbers that are none are 500",
    {
        "autoStopInterval 1.5": UNEXPECTED,
        "autostop/x": UNEXPECTED,
        "expiresInMinutes=x": UNEXPECTED,
    },
)
def no_numbers(on: Server) -> Any:
    return {
        "autoStopInterval 1.5": told(on.post(autoStopInterval=1.5), "message"),
        "autostop/x": told(on.api.post(f"/sandbox/{on.box.id}/autostop/x"), "message"),
        "expiresInMinutes=x": told(
            on.api.post(f"/sandbox/{on.box.id}/ssh-access", params={"expiresInMinutes": "x"}),
            "message",
        ),
    }


# Creation.


@TABLE.row(
    "an unknown snapshot",
    {
        "status": 400,
        "message": "Snapshot no-such-snapshot not found. Did you add it through the Daytona "
        "Dashboard?",
    },
)
def unknown_snapshot(on: Server) -> Any:
    return told(on.post(snapshot="no-such-snapshot"), "message")


@TABLE.row("an unknown target", {"status": 404, "message": containing("Region not found")})
def unknown_target(on: Server) -> Any:
    return told(on.post(target="no-such-region"), "message")


@TABLE.row(
    "resources together with a snapshot",
    {"status": 400, "message": "Cannot specify Sandbox resources when using a snapshot"},
)
def resources(on: Server) -> Any:
    return told(on.post(cpu=1, memory=1, disk=1), "message")


@TABLE.row("a name that is taken", 409)
def taken(on: Server) -> Any:
    return on.post(name=on.box.name).status_code


def odd_sandbox(on: Server) -> dict[str, Any]:
    """A sandbox of whose members no client of ours would think."""
    name = f"a/b c {uuid.uuid4().hex}".ljust(300, "x")
    answer = on.post(name=name, labels={"number": 7, "Word": "One"}, env={"NUMBER": 7})
    body = answer.json()
    return {"status": answer.status_code, "asked": name, **body}


@TABLE.row("a name may be anything, 300 characters long", {"status": 200, "name": True})
def odd_name(on: Server) -> Any:
    seen = on.once(odd_sandbox)
    return {"status": seen["status"], "name": seen.get("name") == seen["asked"]}


@TABLE.row("labels and env with numbers stay as they are", {"label": 7, "env": 7})
def numbers(on: Server) -> Any:
    seen = on.once(odd_sandbox)
    return {
        "label": (seen.get("labels") or {}).get("number"),
        "env": (seen.get("env") or {}).get("NUMBER"),
    }


@TABLE.row("a creation answers creating", "creating")
def creating(on: Server) -> Any:
    return on.once(odd_sandbox).get("state")


@TABLE.row("a creation's answer has the fields that clients need", [])
def created_fields(on: Server) -> Any:
    needed = (
        "id organizationId name user env labels public target cpu gpu memory disk state "
        "desiredState autoStopInterval"
    )
    more = (
        "autoArchiveInterval autoDeleteInterval networkBlockAll createdAt updatedAt "
        "toolboxProxyUrl snapshot"
    )
    return sorted({*needed.split(), *more.split()} - {*on.once(odd_sandbox)})


@TABLE.row(
    "a creation's answer: kvm, spot, daemonVersion",
    By(cloud=Like("whichever it has", lambda members: isinstance(members, list)), v0_190=[]),
)
def newer_fields(on: Server) -> Any:
    return sorted({"kvm", "spot", "daemonVersion"} & {*on.once(odd_sandbox)})


# Lists.


def found(on: Server, **query: Any) -> httpx.Response:
    return on.api.get("/sandbox/paginated", params=query)


def ids(on: Server, labels: dict[str, Any]) -> list[str]:
    return [one["id"] for one in found(on, labels=json.dumps(labels)).json()["items"]]


@TABLE.row(
    "list by labels: all must match, exactly",
    {
        "one": True,
        "both": True,
        "one of two": False,
        "another case": False,
        "another key's case": False,
    },
)
def labels(on: Server) -> Any:
    here = on.box.id
    return {
        "one": here in ids(on, {RUN: on.run}),
        "both": here in ids(on, {RUN: on.run, **PURPOSE}),
        "one of two": here in ids(on, {RUN: on.run, "no-such": "label"}),
        "another case": here in ids(on, {RUN: on.run.upper()}),
        "another key's case": here in ids(on, {RUN.upper(): on.run}),
    }


@TABLE.row("list by a label that is a number", True)
def number_label(on: Server) -> Any:
    return on.once(odd_sandbox)["id"] in ids(on, {RUN: on.run, "number": 7})


@TABLE.row("labels that are no object", {"text": 400, "list": 500})
def bad_labels(on: Server) -> Any:
    return {
        "text": found(on, labels="{").status_code,
        "list": found(on, labels='["a"]').status_code,
    }


@TABLE.row("limits are 1 to 200", {"0": 400, "1": 200, "200": 200, "201": 400})
def limits(on: Server) -> Any:
    return {str(limit): found(on, limit=limit).status_code for limit in (0, 1, 200, 201)}


@TABLE.row(
    "pages by number: items, page, total, totalPages", ["items", "page", "total", "totalPages"]
)
def pages(on: Server) -> Any:
    return sorted(found(on, limit=1).json())


@TABLE.row("pages by cursor: items and the next cursor", having("items", "nextCursor"))
def cursors(on: Server) -> Any:
    return sorted(on.api.get("/sandbox", params={"limit": 1}).json())


@TABLE.row("list by the beginning of a name", {"beginning": True, "middle": False})
def names(on: Server) -> Any:
    def seen(name: str) -> bool:
        return on.box.id in [
            one["id"]
            for one in found(on, name=name, labels=json.dumps({RUN: on.run})).json()["items"]
        ]

    return {"beginning": seen(on.box.name[:6]), "middle": seen(on.box.name[3:])}


@TABLE.row(
    "labels that are put: the whole sandbox comes back; none and numbers are taken",
    {"none": 200, "status": 200, "id": True, "label": "new", "number": 7},
)
def put_labels(on: Server) -> Any:
    sandbox = on.once(odd_sandbox)["id"]

    def put(body: dict[str, Any]) -> httpx.Response:
        return on.api.put(f"/sandbox/{sandbox}/labels", json=body)

    try:
        none = put({})
    finally:
        # Without them, the sandbox would not be found at the end.
        answer = put({"labels": {**PURPOSE, RUN: on.run, "word": "new", "number": 7}})
    body = answer.json()
    seen = body.get("labels") or {}
    return {
        "none": none.status_code,
        "status": answer.status_code,
        "id": body.get("id") == sandbox,
        "label": seen.get("word"),
        "number": seen.get("number"),
    }


@TABLE.row("preview link of port x: 200, with NaN in its host", {"status": 200, "NaN": True})
def preview_nan(on: Server) -> Any:
    answer = on.api.get(f"/sandbox/{on.box.id}/ports/x/preview-url")
    return {"status": answer.status_code, "NaN": "nan" in str(answer.json().get("url", "")).lower()}


@TABLE.row("preview without a token: 307 to the login", {"status": 307, "location": True})
def preview(on: Server) -> Any:
    url = on.api.get(f"/sandbox/{on.box.id}/ports/3000/preview-url").json()["url"]
    with on.http(url, None) as client:
        answer = client.get("")
    return {"status": answer.status_code, "location": bool(answer.headers.get("location"))}


# SSH access.


@TABLE.row(
    "minting: a token of 32 letters and digits, for an hour",
    {
        "token": True,
        "minutes": 60,
        "command": True,
        "members": having("id", "sandboxId", "token", "expiresAt", "createdAt", "sshCommand"),
    },
)
def mint(on: Server) -> Any:
    sandbox = on.once(odd_sandbox)["id"]
    access = on.api.post(f"/sandbox/{sandbox}/ssh-access").json()
    on.secrets.add(access["token"])
    lasts = datetime.fromisoformat(access["expiresAt"]) - datetime.fromisoformat(
        access["createdAt"]
    )
    return {
        "token": re.fullmatch(r"[A-Za-z0-9_-]{32}", access["token"]) is not None,
        "minutes": round(lasts.total_seconds() / 60),
        "command": f"{access['token']}@" in access["sshCommand"],
        "members": sorted(access),
    }


@TABLE.row(
    "minting for 0 or -1 minutes: a token that has expired",
    {"0": {"status": 200, "expired": True}, "-1": {"status": 200, "expired": True}},
)
def mint_expired(on: Server) -> Any:
    sandbox = on.once(odd_sandbox)["id"]
    seen = {}
    for minutes in (0, -1):
        answer = on.api.post(f"/sandbox/{sandbox}/ssh-access", params={"expiresInMinutes": minutes})
        access = answer.json()
        on.secrets.update({access["token"]} if "token" in access else ())
        expired = "expiresAt" in access and access["expiresAt"] <= access["createdAt"]
        seen[str(minutes)] = {"status": answer.status_code, "expired": expired}
    return seen


@TABLE.row("revoking an unknown token: 200, without effect", {"status": 200, "still in": "in\n"})
def revoke_unknown(on: Server) -> Any:
    answer = on.api.delete(f"/sandbox/{on.box.id}/ssh-access", params={"token": "0" * 32})
    # The token is minted before that, if it was not yet.
    return {"status": answer.status_code, "still in": on.box.ssh.out("echo in")}


@TABLE.row("validating a token needs the gateway's key: 403", 403)
def validate(on: Server) -> Any:
    return on.api.get("/sandbox/ssh-access/validate", params={"token": "0" * 32}).status_code


# What it says of itself.

GATEWAY = {
    "sshGatewayHost",
    "sshGatewayPort",
    "sshGatewayHostKeys",
    "sshGatewayHostKeyFingerprints",
}


@TABLE.row(
    "/config: the gateway",
    By(cloud=sorted(GATEWAY), v0_190=["rateLimit", "sshGatewayCommand", "sshGatewayPublicKey"]),
)
def config(on: Server) -> Any:
    config = on.api.get("/config").json()
    older = {"sshGatewayCommand", "sshGatewayPublicKey", "rateLimit"}
    return sorted((GATEWAY if on.like == "cloud" else GATEWAY | older) & {*config})


@TABLE.row("/config needs no key; /health neither", {"config": 200, "health": 200})
def open_calls(on: Server) -> Any:
    with on.http(on.account.api_url, None) as client:
        return {name: client.get(f"/{name}").status_code for name in ("config", "health")}


@TABLE.row(
    "the gateway presents a key that is published, if any is",
    By(cloud=True, v0_190="none is published"),
)
def published_keys(on: Server) -> Any:
    published = on.api.get("/config").json().get("sshGatewayHostKeys") or []
    if not published:
        return "none is published"
    with on.box.ssh.transport() as transport:
        key = transport.get_remote_server_key()
    return f"{key.get_name()} {key.get_base64()}" in published


@TABLE.row(
    "/config: sshGatewayPublicKey is not the key that the gateway presents",
    By(cloud=one_of("not there", False), v0_190=False),
)
def public_key(on: Server) -> Any:
    public = on.api.get("/config").json().get("sshGatewayPublicKey")
    if public is None:
        return "not there"
    with on.box.ssh.transport() as transport:
        return transport.get_remote_server_key().get_base64() in public


# The proxy before the toolbox.

UNAUTHORIZED = {"status": 401, "code": "UNAUTHORIZED"}


@TABLE.row(
    "toolbox: no key, another key, no such sandbox: 401, all three",
    {"no key": UNAUTHORIZED, "another": UNAUTHORIZED, "no sandbox": UNAUTHORIZED},
)
def toolbox_refusals(on: Server) -> Any:
    nobody = on.box.toolbox_url.replace(on.box.id, NOBODY)
    tried = {
        "no key": (on.box.toolbox_url, None),
        "another": (on.box.toolbox_url, "dtn_" + "1" * 64),
        "no sandbox": (nobody, on.account.api_key),
    }
    seen = {}
    for name, (url, key) in tried.items():
        with on.http(url, key) as client:
            answer = client.get("/work-dir")
        seen[name] = {
            "status": answer.status_code,
            "code": answer.json().get("code") if answer.content else None,
        }
    return seen
