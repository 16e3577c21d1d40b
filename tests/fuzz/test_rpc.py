"""JSON-RPC lines: whatever comes, each request is answered once, in JSON that every reader takes,
and the next line is read."""

import io
import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.service.jsonrpc import Peer, Refused
from support.foreign_values import encoded, json_values, nested, objects, text

requests = objects("jsonrpc", "id", "method", "params", "result", "error") | st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": text | st.just("tool")},
    optional={"id": json_values, "params": json_values},
)
lines = (
    requests.map(encoded)
    | json_values.map(encoded)
    | st.binary(max_size=40)
    | st.integers(1, 2000).map(nested)
)


def strict(line):
    """As JavaScript's JSON.parse reads it."""

    def refuse(name):
        raise ValueError(name)

    return json.loads(line.decode("utf-8"), parse_constant=refuse)


def talk(data):
    """What is answered to these bytes, and the requests that were handled."""
    reading, writing = os.pipe()
    handled = []

    def handle(request):
        handled.append(request)
        if request.method == "refuse":
            request.refuse(Refused(-32000, "no"))
        request.answer({"echo": request.method})
        request.answer("twice")

    said = []

    def read():
        with os.fdopen(reading, "rb") as stream:
            said.append(stream.read())

    reader = threading.Thread(target=read)
    reader.start()
    Peer(io.BytesIO(data), writing, handle).serve()
    os.close(writing)
    reader.join(20)
    return [strict(line) for line in said[0].splitlines()], handled


@given(st.lists(lines.filter(lambda line: b"\n" not in line), max_size=5))
def fuzz_rpc(sent):
    ping = {"jsonrpc": "2.0", "id": "last", "method": "ping"}
    answers, handled = talk(b"\n".join([*sent, encoded(ping)]) + b"\n")
    assert answers[-1] == {"jsonrpc": "2.0", "id": "last", "result": {"echo": "ping"}}
    assert len(answers) <= len(sent) + 1
    for answer in answers:
        assert answer["jsonrpc"] == "2.0" and ("result" in answer) != ("error" in answer)
    for request in handled:
        assert isinstance(request.method, str) and isinstance(request.params, dict)


test_rpc = fuzz_rpc


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "line",
    [
        b"[" * 1_000_000,
        b"[]\n" * 50_000,
        b"9" * 1_000_000,
        b'"' + b"\\u0000" * 200_000 + b'"',
        b" " * 1_000_000,
    ],
)
def test_long_ones(line):
    answers, _ = talk(line + b"\n")
    assert all("error" in answer for answer in answers)
