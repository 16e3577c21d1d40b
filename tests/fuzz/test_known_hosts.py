"""known_hosts files: never an exception, and the lines that ssh-keygen -F finds. (The verdicts on
keys: tests/unit/test_hostkeys.py.)"""

import re
import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from git_daytona.trust import host_keys, known_hosts

KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtQ0PqEZy5MuVzGLDLOq5vpUlBJ5CbS3PHqiyn9Zq5V"
NAMES = [
    "host",
    "[host]:2222",
    "a.example",
    "*.example",
    "!a.example",
    "h?st",
    "HOST",
    "|1|x|y",
    "host,other",
    "*",
    "10.0.0.1",
]
lines = st.builds(
    lambda marker, hosts, space, key, end: marker + ",".join(hosts).encode() + space + key + end,
    st.sampled_from([b"", b"@revoked ", b"@cert-authority ", b"@odd ", b"#", b" ", b"\t"]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    st.sampled_from([b" ", b"\t", b"  ", b""]),
    st.sampled_from(
        [KEY, KEY + b" comment", KEY[:40], b"ssh-rsa AAAA", b"", KEY.replace(b"ed25519 ", b"rsa ")]
    ),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
)
files = st.binary(max_size=300) | st.lists(lines, max_size=6).map(b"".join)


@given(files, st.sampled_from(["host", "[host]:2222", "a.example", "|1|x|y", "10.0.0.1"]))
def fuzz_known_hosts(data, name):
    parsed = known_hosts.parse(data)
    assert parsed == known_hosts.parse(data)
    assert [line.number for line in parsed] == sorted({line.number for line in parsed})
    assert all((line.key is None) == (line.problem is not None) for line in parsed)
    serving = known_hosts.serving(parsed, name)
    assert set(serving) <= set(parsed)
    for line in serving:
        assert host_keys.parse_line(line.key.line) == line.key, "what is shown is what was read"
        assert known_hosts.verdict(serving, line.key) in (
            known_hosts.Verdict.OK,
            known_hosts.Verdict.REVOKED,
            known_hosts.Verdict.NEW,
        )
    known_hosts.preference(serving)
    known_hosts.negotiated(serving, [line.key for line in serving])


test_known_hosts = fuzz_known_hosts


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("known_hosts") / "file"


@given(
    st.lists(lines, min_size=1, max_size=5).map(b"".join),
    st.sampled_from(["host", "[host]:2222", "a.example"]),
)
def test_it_finds_what_ssh_keygen_finds(place, data, name):
    place.write_bytes(data)
    said = subprocess.run(
        ("ssh-keygen", "-F", name, "-f", str(place)), capture_output=True, timeout=20
    )
    assume(said.returncode in (0, 1))
    found = re.findall(rb"found: line (\d+)", said.stdout)
    # It looks at names alone: a key that cannot be read is no matter to it.
    parsed = known_hosts.parse(data)
    serving = {line.number for line in known_hosts.serving(parsed, name)}
    named = {line.number for line in parsed if known_hosts.names_match(line.hosts, name)}
    assert serving <= set(map(int, found)) <= named, said.stdout


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "data",
    [
        b"*" * 1000 + b" " + KEY,
        b"*a" * 500_000 + b" " + KEY,
        b"host " * 200_000,
        b"@revoked " * 100_000,
        b"\n" * 1_000_000,
    ],
)
def test_long_ones(data):
    known_hosts.serving(known_hosts.parse(data), "a" * 200)
