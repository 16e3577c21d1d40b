"""The entries for sandboxes in ssh's configuration: in and out again, byte for byte."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from git_daytona.base.errors import BadSetting
from git_daytona.sessions import ssh_config
from git_daytona.sessions.ssh_config import BEGIN, END, installed, overruled, uninstalled

ENTRIES = ssh_config.directives(Path("/state/known_hosts"), "git-daytona")
LINES = st.lists(
    st.sampled_from(
        [b"Host *", b"  User me", b"Include x", b"# \xe9", b"", b"\t", b"\xef\xbb\xbf", b"a\rb"]
    ),
    max_size=6,
)


@settings(max_examples=60)
@given(LINES, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@example([], b"\n", False)
def test_there_and_back(lines, newline, ends):
    before = newline.join(lines) + (newline if ends else b"")
    there = installed(before, ENTRIES)
    assert there.startswith(BEGIN) and there.endswith(before)
    assert installed(there, ENTRIES) == there
    assert uninstalled(there) == before
    # another installation's entries are replaced
    other = ssh_config.directives(Path("/other/known_hosts"), "git-daytona")
    assert installed(installed(before, other), ENTRIES) == there


def test_a_file_that_was_made_for_them():
    there = installed(None, ENTRIES)
    assert uninstalled(there) is None
    assert uninstalled(installed(there, ENTRIES + "# newer\n")) is None
    assert uninstalled(there + b"Host x\n") == b"Host x\n"


def test_what_an_editor_makes_of_them():
    """All line ends changed, lines put in front: they are found all the same."""
    there = installed(b"Host x\n", ENTRIES)
    assert uninstalled(there.replace(b"\n", b"\r\n")) == b"Host x\r\n"
    assert uninstalled(b"Include first\n" + there) == b"Include first\nHost x\n"


@pytest.mark.parametrize(
    "broken",
    [
        BEGIN,
        END,
        END + b"\n" + BEGIN,
        BEGIN + b"\n" + BEGIN + b"\n" + END,
        BEGIN + b"\n" + END + b"\n" + BEGIN + b"\n" + END,
    ],
)
def test_half_a_block_is_left_alone(broken):
    content = b"Host a\n" + broken + b"\nHost b\n"
    for change in (uninstalled, lambda it: installed(it, ENTRIES)):
        with pytest.raises(BadSetting):
            change(content)


def test_what_counts_more():
    ours = "proxycommand us\nstricthostkeychecking true\nport 22\nidentityfile ~/.ssh/id\n"
    assert overruled(ours, ours.replace("port 22", "port 23")) == []
    other = ours.replace("us", "them").replace("true", "false")
    assert overruled(ours, other) == ["proxycommand", "stricthostkeychecking"]
    assert overruled(ours, "") == ["proxycommand", "stricthostkeychecking"]


@pytest.mark.parametrize("path", ['/a"b', "/a\nProxyCommand x", "/${HOME}/x"])
def test_a_path_that_cannot_be_named(path):
    with pytest.raises(BadSetting):
        ssh_config.directives(Path(path), "git-daytona")
