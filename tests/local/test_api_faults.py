"""The faults do what they say, to the calls they are for, and to no others."""

import threading
import time

import httpx
import pytest

from git_daytona.local.core.faults import CallFault, Faults
from git_daytona.local.server import LocalDaytona
from support.plain_http import created, http


def test_a_status_comes_in_the_envelope_and_the_call_is_not_processed(
    local: LocalDaytona, api: httpx.Client
) -> None:
    box = created(api)
    with local.faults.call(
        route="mint", status=429, message="slow down", code="RATE", retry_after=2
    ) as fault:
        answer = api.post(f"/sandbox/{box}/ssh-access")
        assert answer.status_code == 429
        assert answer.headers["Retry-After"] == "2"
        assert (answer.json()["message"], answer.json()["code"]) == ("slow down", "RATE")
        assert api.get(f"/sandbox/{box}").status_code == 200
    assert fault.seen == 1
    assert local.live_tokens() == 0
    assert api.post(f"/sandbox/{box}/ssh-access").status_code == 200


def test_the_second_and_third_call_of_one_sandbox(local: LocalDaytona, api: httpx.Client) -> None:
    one, two = created(api), created(api, name="two")
    with local.faults.call(method="GET", route="^get$", sandbox=one, nth=2, times=2, status=503):
        assert [api.get(f"/sandbox/{one}").status_code for _ in range(4)] == [200, 503, 503, 200]
        assert api.get(f"/sandbox/{two}").status_code == 200
    two_id = api.get("/sandbox/two").json()["id"]
    with local.faults.call(sandbox=two_id, status=503):
        assert api.get("/sandbox/two").status_code == 503  # by its name, too
        assert api.get(f"{local.toolbox_url}/{two_id}/work-dir").status_code == 503
        assert api.get(f"/sandbox/{one}").status_code == 200


def test_a_connection_is_dropped_before_or_after(local: LocalDaytona, api: httpx.Client) -> None:
    box = created(api)
    with local.faults.call(route="mint", drop="before"), pytest.raises(httpx.RemoteProtocolError):
        api.post(f"/sandbox/{box}/ssh-access")
    assert local.live_tokens() == 0
    with local.faults.call(route="mint", drop="after"), pytest.raises(httpx.RemoteProtocolError):
        api.post(f"/sandbox/{box}/ssh-access")
    assert local.live_tokens() == 1
    assert [call.status for call in local.calls if call.route == "mint"] == [0, 0]
    assert local.counts["mint"] == 0


def test_a_call_hangs_until_released_and_is_then_processed(
    local: LocalDaytona, api: httpx.Client
) -> None:
    answers: list[int] = []
    fault = local.faults.add(CallFault(route="create", hang=True))
    thread = threading.Thread(
        target=lambda: answers.append(api.post("/sandbox", json={}).status_code)
    )
    thread.start()
    assert fault.reached.wait(60)
    assert local.sandboxes == []
    with pytest.raises(httpx.ReadTimeout), http(local) as impatient:
        impatient.post("/sandbox", json={}, timeout=0.2)
    assert answers == []
    fault.release()
    thread.join(60)
    assert answers == [200]


def test_the_server_stops_while_calls_hang(local: LocalDaytona) -> None:
    fault = local.faults.add(CallFault(hang=True))

    def call() -> None:
        with http(local) as api:
            try:
                api.get("/sandbox")
            except httpx.HTTPError:
                pass  # answered or cut off, as it comes

    thread = threading.Thread(target=call)
    thread.start()
    assert fault.reached.wait(60)
    begun = time.monotonic()
    local.__exit__(None, None, None)
    assert time.monotonic() - begun < 30, "no time limit had to pass"
    thread.join(60)
    local.__enter__()


def test_a_body_of_any_kind(local: LocalDaytona, api: httpx.Client) -> None:
    for body, kind in (
        (b"<html>", "text/html"),
        (b'{"id": 7}', "application/json"),
        (b"x" * 3_000_000, "text/plain"),
        (b"", ""),
    ):
        with local.faults.call(route="list", body=body, content_type=kind):
            answer = api.get("/sandbox")
            assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (
                200,
                body,
                kind,
            )
    with local.faults.call(route="config", redirect="http://127.0.0.1:9/elsewhere"):
        answer = api.get("/config", follow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (
            302,
            "http://127.0.0.1:9/elsewhere",
        )


def test_latency_is_added_to_each_call(local: LocalDaytona, api: httpx.Client) -> None:
    local.faults.latency = 0.1
    begun = time.monotonic()
    api.get("/sandbox")
    assert time.monotonic() - begun >= 0.1
    with local.faults.call(route="list", latency=0.1):
        begun = time.monotonic()
        api.get("/sandbox")
        assert time.monotonic() - begun >= 0.2
    local.faults.latency = 1000
    local.faults.clear()
    api.get("/sandbox")


def test_calls_are_recorded_in_order(local: LocalDaytona, api: httpx.Client) -> None:
    box = created(api)
    local.forget_calls()
    api.post(f"/sandbox/{box}/ssh-access")
    api.get(f"{local.toolbox_url}/{box}/work-dir")
    api.get("/sandbox/none")
    api.get("/nothing")
    assert local.calls == [
        ("POST", "mint", box, 200),
        ("GET", "work-dir", box, 200),
        ("GET", "get", "none", 404),
        ("GET", "unknown", None, 404),
    ]
    assert local.counts == {"mint": 1, "work-dir": 1}


def test_gateway_counters_are_taken_one_by_one() -> None:
    gateway = Faults().gateway
    assert not gateway.take("hang")
    gateway.drop_before_handshake = 2
    assert [gateway.take("drop_before_handshake") for _ in range(3)] == [True, True, False]
    gateway.drop_after_handshake = -1
    assert all(gateway.take("drop_after_handshake") for _ in range(5))
    gateway.refuse_after_start = 1
    assert [
        gateway.take_start_refusal("a"),
        gateway.take_start_refusal("a"),
        gateway.take_start_refusal("b"),
    ] == [True, False, True]
    gateway.note_start("a")
    assert gateway.take_start_refusal("a")
    assert not gateway.wait_released(0)
    gateway.release()
    assert gateway.wait_released(0)
