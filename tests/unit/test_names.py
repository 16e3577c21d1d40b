"""Names and addresses: endpoints, refs, sandbox ids; and secrets that do not show."""

import copy
import json
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.api import account
from git_daytona.api.failures import said
from git_daytona.base import secret
from git_daytona.base.endpoint import Endpoint, endpoint, from_ssh_command
from git_daytona.base.errors import BadAnswer, NotFound
from git_daytona.base.secret import Secret, one_line, printable, redact
from git_daytona.git import refs
from git_daytona.sandbox import report


@pytest.mark.parametrize(
    ("host", "port", "name", "authority"),
    [
        ("ssh.app.daytona.io", 22, "ssh.app.daytona.io", "ssh.app.daytona.io"),
        ("Host.Example", 2222, "[host.example]:2222", "host.example:2222"),
        ("127.0.0.1", 22.0, "127.0.0.1", "127.0.0.1"),
        ("::1", 22, "::1", "[::1]"),
        ("[2001:DB8::1]", 2222, "[2001:db8::1]:2222", "[2001:db8::1]:2222"),
        (" host ", 65535, "[host]:65535", "host:65535"),
    ],
)
def test_endpoints(host, port, name, authority):
    found = endpoint(host, port)
    assert (found.known_hosts_name, found.url_authority, str(found)) == (name, authority, authority)
    assert refs.url(found) == f"ssh://{authority}/home/daytona/project"


@pytest.mark.parametrize(
    "host",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "a\nb",
        "a/b",
        "a@b",
        "a*",
        "$(x)",
        "`x`",
        "a%h",
        "a.",
        ".a",
        "ö.example",
        "x" * 300,
        None,
        7,
        ["a"],
    ],
)
def test_hosts_that_are_none(host):
    with pytest.raises(BadAnswer):
        endpoint(host)


@pytest.mark.parametrize("port", [0, -1, 65536, 22.5, True, "22", None, [22]])
def test_ports_that_are_none(port):
    with pytest.raises(BadAnswer):
        endpoint("host", port)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ssh tok@host", Endpoint("host")),
        ("ssh -p 2222 tok@host", Endpoint("host", 2222)),
        ("ssh -p2222 {{TOKEN}}@localhost", Endpoint("localhost", 2222)),
        ("ssh tok@host -p 2222", Endpoint("host", 2222)),
        ("/usr/bin/ssh -o StrictHostKeyChecking=no -p 1 a@b@host", Endpoint("host", 1)),
        ("ssh -p 2222 tok@::1", Endpoint("::1", 2222)),
        (None, None),
        ("", None),
    ],
)
def test_ssh_commands(line, found):
    assert from_ssh_command(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "ssh",
        "scp tok@host",
        "ssh -p x tok@host",
        "ssh -p",
        "ssh -p 2222",
        "ssh tok@-oX",
        "ssh 'a",
        "ssh tok@host;id",
        "ssh -p ² h",
        7,
        "ssh " + "x" * 5000,
        "ssh -p 0 h",
    ],
)
def test_ssh_commands_that_make_no_sense(line):
    with pytest.raises(BadAnswer):
        from_ssh_command(line)


@given(st.one_of(st.text(), st.text("ssh -p@[]:'\"$.;\n0129ab")))
def test_no_ssh_command_is_taken_for_more_than_a_plain_host(line):
    try:
        found = from_ssh_command(line)
    except BadAnswer:
        return
    if found is not None:
        assert not found.host.startswith("-")
        assert not set(found.host) - set("abcdefghijklmnopqrstuvwxyz0123456789._-:")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("sandbox-3", 3),
        ("opencode/3", 3),
        ("refs/heads/opencode/3", 3),
        ("999999999999999", 999999999999999),
        *(
            (text, None)
            for text in (
                "0",
                "03",
                "-3",
                "+3",
                "3 ",
                " 3",
                "3\n",
                "³",
                "1000000000000000",
                "sandbox-",
                "opencode/",
                "opencode/x",
                "Sandbox-3",
                "",
            )
        ),
    ],
)
def test_numbers_of_sessions(text, number):
    assert refs.number_in(text) == number


def test_names_of_a_session():
    names = refs.Names(3)
    assert refs.number_of_remote(names.remote) == 3
    assert refs.number_of_remote("sandbox-0") is None
    places = (names.ref, names.tracking, names.incoming, names.kept, names.resetting, names.base)
    places += (names.dirty, names.turn)
    assert not any(a.startswith(b) for a in places for b in places if a != b)


@pytest.mark.parametrize(
    "text", ["", "../x", "a/b", "a?b", "a#b", "-x", "a b", "a\nb", "x" * 200, "%2e", ".."]
)
def test_sandbox_ids_that_are_none(text):
    with pytest.raises(NotFound):
        account.check_sandbox_id(text)


TOKEN = "To-ken_.~+=1234"


def test_a_secret_does_not_show():
    hidden = Secret(TOKEN)
    try:
        raise ValueError(hidden)
    except ValueError as problem:
        shown = "".join(traceback.format_exception(problem))
    forms = (
        repr(hidden),
        str(hidden),
        f"{hidden}",
        f"{hidden!r:>40}",
        "%s %r" % (hidden, hidden),  # noqa: UP031
        repr([hidden]),
        shown,
    )
    assert not any(TOKEN in form for form in forms)
    assert not hasattr(hidden, "__dict__")
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            way(hidden)
    assert hidden.reveal() == TOKEN


@pytest.mark.parametrize("form", ["{}", "ssh://{}@host/x", "user={}&", "'{}'"])
def test_redaction_of_what_is_alive(form):
    value = "a/b c+d=é"
    hidden = Secret(value)
    for written in (
        value,
        "a%2Fb%20c%2Bd%3D%C3%A9",
        "a/b%20c%2Bd%3D%C3%A9",
        "a%2Fb+c%2Bd%3D%C3%A9",
    ):
        clean = redact(form.format(written))
        assert written not in clean
        assert secret.REDACTED in clean
    del hidden
    assert value not in redact(value), "a server may repeat a token whose lease has ended"
    for number in range(100):
        Secret(f"a later one {number}")
    assert redact(value) == value, "nor is it kept for ever"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ssh://tok@host/x", "ssh://[redacted]@host/x"),
        ("https://user:pass@host/x", "https://[redacted]@host/x"),
        ("ssh://host/a@b", "ssh://host/a@b"),
        ("mail me@host", "mail me@host"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("'authorization': 'bearer abc'", "'authorization': 'bearer [redacted]'"),
        ("key dtn_0123456789abcdef.", "key [redacted]."),
        ("DELETE /x?token=abc&y=1", "DELETE /x?token=[redacted]&y=1"),
        ("nothing here", "nothing here"),
    ],
)
def test_redaction_of_what_looks_like_a_secret(text, clean):
    assert redact(text) == clean


def test_a_text_of_lines_is_not_told_by_who_repeats_a_request():
    """A key in PEM, say: whether the server has it as it was sent, or as it came."""
    hidden = Secret('line one "x"\n second\tline ä\udcff')
    request = json.dumps({"env": {"A": hidden.reveal()}})
    command = "true"
    for _ in range(3):
        command = report.line("true", hidden.reveal(), command)
    readable = json.dumps(json.loads(request), ensure_ascii=False)
    for body in (hidden.reveal(), request, readable, command, json.dumps({"command": command})):
        told = said(json.dumps({"message": f"not valid: {body}"}))
        assert secret.REDACTED in told
        assert "line" not in told


def test_a_value_of_quotes_alone_does_not_redact_all_quotes_nor_take_long():
    hidden = [Secret("''"), Secret("''a canary''")]
    assert redact("it's \\" + "\\" * 300_000) == "it's \\" + "\\" * 300_000
    assert "canary" not in redact("''a canary''")
    assert hidden


def test_short_values_are_not_redacted():
    hidden = Secret("abc")
    assert redact("abc abcd") == "abc abcd"
    assert hidden


@given(st.text())
def test_one_line_is_one_line(text):
    assert one_line(text).isprintable()


@given(st.text())
def test_printable_moves_no_cursor(text):
    assert all(c in "\n\t" or c.isprintable() for c in printable(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\rb", "a\\rb"),
        ("a\u202eb", "a\\u202eb"),
        ("ä\n\t漢", "ä\n\t漢"),
        ("a\udcffb", "a\\udcffb"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown
