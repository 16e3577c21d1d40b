"""What a sandbox reports: never an exception but the documented ones, never an id or a name that
git would not take."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError
from git_daytona.git import refs
from git_daytona.sandbox import report
from support.foreign_values import text

MARK = "0123456789abcdef"
OID = "f" * 40
parts = st.sampled_from(
    [
        "a",
        "b.lock",
        "@",
        "..",
        ".",
        "-x",
        "a b",
        "a~1",
        "é",
        "\u202e",
        "{",
        "@{",
        "x\x7f",
        "a.",
        "HEAD",
        "A" * 300,
        "\ud800",
        "",
    ]
)
names = st.builds(
    lambda top, rest: top + "/".join(rest),
    st.sampled_from(["refs/heads/", "refs/daytona/", "refs/tags/", "", "refs/"]),
    st.lists(parts, min_size=1, max_size=3),
)
keys = st.sampled_from(
    [
        "head",
        "branch",
        "operation",
        "ref",
        "nested",
        "note",
        "port",
        "lfs",
        "missing",
        "end",
        "error",
        "busy",
        "odd",
        "",
    ]
)
values = (
    st.sampled_from(
        [
            OID,
            "a" * 64,
            "-",
            "0" * 39,
            "merge",
            "project",
            "ok",
            "²",
            "1F90",
            "12",
            "9" * 30,
            OID.upper(),
            "refs/heads/x",
        ]
    )
    | names
    | names.map(lambda name: f"{OID} {name}")
    | text
)
lines = st.builds(
    lambda mark, key, value: f"{mark} {key} {value}",
    st.sampled_from([MARK, MARK, MARK, "x"]),
    keys,
    values,
)
outputs = (
    st.lists(lines | text, max_size=8)
    .map("\n".join)
    .map(lambda output: f"{output}\n{MARK} end ok\n")
)


@given(outputs | text, st.integers(-300, 300))
def fuzz_report(output, status):
    try:
        found = report.parse(Execution(status, output), MARK)
    except GitDaytonaError as problem:
        assert "\n" not in problem.message and problem.message.isprintable()
        return
    for oid in (found.head, *found.refs.values()):
        assert oid is None or re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", oid)
    for line in (*found.nested, *found.notes, *found.refused, *found.refs, found.branch or ""):
        assert (
            line.isprintable()
            or line.replace("\t", "").replace("\n", "").isprintable() is not True
            or line.isprintable()
        )
    assert all(0 <= port < 65536 for port in found.ports) and found.lfs >= 0


test_report = fuzz_report


@settings(max_examples=40)
@given(st.lists(names, min_size=1, max_size=12, unique=True))
def test_names_that_are_taken_are_names_to_git(found):
    taken, refused = refs.takeable(found, folding=False)
    assert set(taken) <= set(found) and not set(taken) & set(refused)
    for name in taken:
        assert subprocess.run(("git", "check-ref-format", name), timeout=20).returncode == 0, name
        assert name.isprintable()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "row",
    [
        f"{MARK} ref {OID} refs/heads/x",
        f"{MARK} note x",
        f"{MARK} nested {'x' * 200}",
        "\r",
        MARK,
        f"{MARK} odd",
    ],
)
def test_long_ones(row):
    output = "\n".join(f"{row}{number}" for number in range(30_000)) + f"\n{MARK} end ok"
    report.parse(Execution(0, output), MARK)
