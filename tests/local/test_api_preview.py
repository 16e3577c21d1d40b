"""Preview links: a web server in a sandbox is reached from outside, with the token only."""

import re
import socket
from collections.abc import Iterator

import aiohttp
import httpx
import pytest

from git_daytona.local.server import LocalDaytona
from support.plain_http import Clock, change, created, http

# Echoes the request, streams, answers in pieces and with odd headers; and echoes websocket
# messages. In a sandbox, by its python.
APP = r"""
import asyncio, base64, hashlib, sys
async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = [line.partition(": ") for line in head.split("\r\n")]
    headers = {name.lower(): value for name, _, value in fields}
    if key := headers.get("sec-websocket-key"):
        joined = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(joined.encode()).digest()).decode()
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                     f"Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        while True:
            first, second = await reader.readexactly(2)
            mask, data = await reader.readexactly(4), await reader.readexactly(second & 127)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            writer.write(bytes((first, len(data))) + data)
            if first & 15 == 8: break
    else:
        length = int(headers.get("content-length", 0))
        body = head.encode("latin-1") + await reader.readexactly(length)
        # Not read, it would be cut off before the answer has arrived.
        while "transfer-encoding" in headers and (size := int(await reader.readline(), 16)):
            await reader.readexactly(size + 2)
        writer.write(b"HTTP/1.1 203 Odd\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        for part in (body[:10], body[10:]):
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        writer.write(b"0\r\n\r\n")
    await writer.drain(); writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        print("up", flush=True); await server.serve_forever()
asyncio.run(main())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def app(local: LocalDaytona, api: httpx.Client) -> Iterator[tuple[str, int]]:
    """A sandbox and the port its web server listens on."""
    box, port = created(api), free_port()
    (local.root / "sandboxes" / box / "home" / "app.py").write_text(APP)
    script = f"nohup python3 app.py {port} >log 2>&1 & until grep -q up log; do sleep 0.02; done"
    answer = api.post(
        f"{local.toolbox_url}/{box}/process/execute", json={"command": script, "timeout": 10}
    )
    assert answer.json()["exitCode"] == 0, answer.text
    yield box, port


def test_the_token_opens_it(api: httpx.Client, app: tuple[str, int]) -> None:
    box, port = app
    link = api.get(f"/sandbox/{box}/ports/{port}/preview-url").json()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", link["url"])
    assert api.get(f"/sandbox/{box}/ports/{port}/preview-url").json() == link
    with httpx.Client(base_url=link["url"], trust_env=False) as browser:
        for nothing in ({}, {"X-Daytona-Preview-Token": ""}):
            login = browser.get("/", headers=nothing)
            assert (login.status_code, login.headers["Location"].startswith("http")) == (307, True)
        assert browser.get("/", headers={"X-Daytona-Preview-Token": "wrong"}).status_code == 401
        right = {"X-Daytona-Preview-Token": link["token"]}
        answer = browser.post("/a%2Fb/c?q=%20x&y", headers=right, content=b"body")
        assert answer.status_code == 203
        assert answer.text.startswith("POST /a%2Fb/c?q=%20x&y HTTP/1.1\r\n")
        assert answer.text.endswith("body")
        assert link["token"] not in answer.text
        assert answer.headers.get_list("Set-Cookie") == ["a=1", "b=2"]
        assert (
            browser.post("/", headers=right, content=iter([b"x" * 100_000] * 20)).status_code == 203
        )
        # By parameter, as in an address: the token moves to a cookie and out of the address.
        moved = browser.get("/page", params={"DAYTONA_SANDBOX_AUTH_KEY": link["token"], "q": "1"})
        assert (moved.status_code, moved.headers["Location"]) == (307, "/page?q=1")
        followed = browser.get("/page?q=1")
        assert followed.status_code == 203
        assert link["token"] not in followed.text
    api.post(f"/sandbox/{box}/public/true")
    assert httpx.get(link["url"], trust_env=False).status_code == 203
    silent = api.get(f"/sandbox/{box}/ports/{free_port()}/preview-url").json()
    assert httpx.get(silent["url"], trust_env=False).status_code == 502
    change(api, box, "stop")
    assert httpx.get(link["url"], trust_env=False).status_code == 400
    change(api, box, "delete")
    with pytest.raises(httpx.ConnectError):
        httpx.get(link["url"], trust_env=False)


def test_signed_links_expire(api: httpx.Client, app: tuple[str, int]) -> None:
    box, port = app
    signed = f"/sandbox/{box}/ports/{port}/signed-preview-url"
    link = api.get(signed, params={"expiresInSeconds": 100}).json()
    assert (link["sandboxId"], link["port"]) == (box, port)
    assert httpx.get(link["url"], trust_env=False).status_code == 307
    other = api.get(f"/sandbox/{box}/ports/{free_port()}/preview-url").json()
    assert (
        httpx.get(
            other["url"], headers={"X-Daytona-Preview-Token": link["token"]}, trust_env=False
        ).status_code
        == 401
    )
    assert api.post(f"{signed}/{link['token']}/expire").status_code == 200
    assert httpx.get(link["url"], trust_env=False).status_code == 401
    for seconds in ("0", "86401", "x"):
        assert api.get(signed, params={"expiresInSeconds": seconds}).status_code == 400
    for number in ("0", "65536"):
        assert api.get(f"/sandbox/{box}/ports/{number}/preview-url").status_code == 400
    assert "NaN" in api.get(f"/sandbox/{box}/ports/http/preview-url").json()["url"]


def test_a_signed_link_ends_by_the_clock(timed: LocalDaytona, clock: Clock) -> None:
    with http(timed) as api:
        box = created(api)
        link = api.get(f"/sandbox/{box}/ports/{free_port()}/signed-preview-url").json()
        assert httpx.get(link["url"], trust_env=False).status_code == 307
        clock.now += 61
        assert httpx.get(link["url"], trust_env=False).status_code == 401


def test_websockets_pass(api: httpx.Client, app: tuple[str, int]) -> None:
    import asyncio

    box, port = app
    link = api.get(f"/sandbox/{box}/ports/{port}/preview-url").json()

    async def talk() -> None:
        headers = {"X-Daytona-Preview-Token": link["token"]}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(link["url"] + "/ws", headers=headers) as socket_,
        ):
            await socket_.send_str("hello")
            assert await socket_.receive_str(timeout=30) == "hello"
            await socket_.send_bytes(b"\0\xff")
            assert await socket_.receive_bytes(timeout=30) == b"\0\xff"

    asyncio.run(talk())
