"""Answers of the API: whatever it sends, a value of ours or one of our errors in one line, with no
key in it."""

import json

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.api import failures, http, unreachable
from git_daytona.api.account import Account
from git_daytona.api.toolbox import described
from git_daytona.base import endpoint
from git_daytona.base.errors import GitDaytonaError
from git_daytona.settings import settings
from git_daytona.trust import published
from support.foreign_values import encoded, json_values, nested, objects, text

ENV = {
    "DAYTONA_API_KEY": "dtn_0123456789abcdef",
    "DAYTONA_API_URL": "http://127.0.0.1:1/api",
    "DAYTONA_SNAPSHOT": "mine",
}
SETTINGS = settings.load(None, ENV)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtQ0PqEZy5MuVzGLDLOq5vpUlBJ5CbS3PHqiyn9Zq5V"
HOSTS = [
    "gate.example",
    "[::1]",
    "-oProxyCommand=x",
    "a b",
    "GATE",
    "",
    "127.0.0.1",
    "\u0130",
    "x" * 300,
]
hosts = st.sampled_from(HOSTS) | text
ports = st.sampled_from([22, 2222, 0, 65536, "22", "²", 22.0, 1e999, True]) | json_values
commands = st.builds(
    " ".join,
    st.lists(
        st.sampled_from(
            ["ssh", "-p", "2222", "-p²", "TOKEN@gate", "gate", "-oX=y", "'", "-l", "\\", "--"]
        ),
        max_size=6,
    ),
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "sshGatewayHost": hosts | json_values,
        "sshGatewayPort": ports,
        "sshGatewayHostKeys": st.lists(
            st.sampled_from([KEY, KEY[:50], "", "x y"]) | json_values, max_size=4
        )
        | st.just(KEY)
        | json_values,
        "sshGatewayHostKeyFingerprints": json_values,
        "sshGatewayCommand": commands | json_values,
        "sshGatewayPublicKey": text | json_values,
    },
) | objects("sshGatewayHost")


def told(problem):
    """An error as people see it."""
    shown = f"{problem.message}\n{problem.hint or ''}"
    assert shown.count("\n") == 1 and ENV["DAYTONA_API_KEY"] not in shown + str(problem.details)
    return shown


def plain(place):
    """An endpoint that ssh, git and known_hosts can take for nothing else."""
    assert 0 < place.port < 65536 and place.host.isascii() and place.host == place.host.lower()
    assert not place.host.startswith("-") and not set(place.host) & set(" \t\n/@[]%,*?!#\"'\\")


@given(configs)
def fuzz_configuration(config):
    try:
        found = published.read(config)
    except GitDaytonaError as problem:
        told(problem)
        return
    plain(found.endpoint)
    assert len(found.keys) == len(set(found.keys)) <= published.MOST_KEYS
    assert set(found.contradicted) <= set(found.keys)


test_configuration = fuzz_configuration


@given(commands | json_values)
def fuzz_ssh_command(command):
    try:
        found = endpoint.from_ssh_command(command)
    except GitDaytonaError as problem:
        told(problem)
        return
    if found is not None:
        plain(found)


test_ssh_command = fuzz_ssh_command

sandboxes = objects(
    "id", "state", "labels", "createdAt", "errorReason", "recoverable", "toolboxProxyUrl", "public"
)


@given(sandboxes | json_values)
def fuzz_sandbox(answer):
    try:
        found = described(answer, "find it")
    except GitDaytonaError as problem:
        told(problem)
        return
    assert found.id and not set(found.id) & set("/?#% ") and isinstance(found.state, str)
    assert all(
        isinstance(name, str) and isinstance(value, str) for name, value in found.labels.items()
    )


test_sandbox = fuzz_sandbox


@given(
    st.integers(100, 599),
    json_values.map(encoded)
    | sandboxes.map(encoded)
    | st.binary(max_size=60)
    | st.integers(1, 3000).map(nested),
)
def fuzz_body(status, body):
    try:
        account = Account(SETTINGS)
        answer = account._object(account._checked(http.Answer("look", status, {}, body)))
    except GitDaytonaError as problem:
        told(problem)
        return
    assert (
        answer == json.loads(body)
        or any(value != value for value in answer.values())
        or b"NaN" in body
    )


test_body = fuzz_body


@given(
    st.integers(-1, 999),
    text,
    st.dictionaries(
        st.sampled_from(["Retry-After", "retry-after", "Date"]),
        text | st.sampled_from(["3", "²", "1e9", "-1"]),
    ),
)
def fuzz_status(status, words, headers):
    problem = failures.from_status(
        status, failures.said(encoded({"message": words})), "mint an SSH token", SETTINGS, headers
    )
    told(problem)
    after = getattr(problem, "retry_after", None)
    assert after is None or after >= 0


test_status = fuzz_status


@given(text, st.sampled_from([ValueError, OSError, TimeoutError, urllib3.exceptions.HTTPError]))
def test_exceptions(words, kind):
    url = SETTINGS.api_url
    told(unreachable.explain(kind(words), "look", url, url, None))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "word",
    ["ssh " + "'" * 4000, "ssh " + "-p " * 1300, "ssh -p" + "9" * 4000 + " h", "a" * 1_000_000],
)
def test_long_ones(word):
    with pytest.raises(GitDaytonaError):
        endpoint.from_ssh_command(word)
    with pytest.raises(GitDaytonaError):
        published.read({"sshGatewayHost": word, "sshGatewayHostKeys": [word] * 1000})
