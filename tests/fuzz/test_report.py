"""What a sandbox reports: never an exception but the documented ones, never an id or a name that
git would not take."""

import base64
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
        "refused",
        "moved",
        "left",
        "left-count",
        "filter",
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
lines = st.builds("{} {}".format, keys, values)


def printed(records, mark=MARK):
    """What scripts/records.sh prints of records."""
    data = "".join(f"{record}\0" for record in records).encode("utf-8", "surrogatepass")
    return f"{mark} {base64.b64encode(data).decode()}"


whole = st.lists(lines | text, max_size=8).map(lambda records: [*records, "end ok"]).map(printed)
outputs = st.lists(whole | text, max_size=3).map("\n".join)


@given(outputs | text, st.integers(-300, 300))
def fuzz_report(output, status):
    try:
        found = report.parse(Execution(status, output), MARK)
    except GitDaytonaError as problem:
        assert "\n" not in problem.message and problem.message.isprintable()
        return
    for oid in (found.head, *found.refs.values()):
        assert oid is None or re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", oid)
    for line in (*found.nested, *found.left, *found.notes, *found.refused, *found.filters):
        assert line.replace("\t", "").replace("\n", "").isprintable()
    assert found.refs.keys() == found.places.keys()
    assert all(0 <= port < 65536 for port in found.ports) and found.lfs >= 0


test_report = fuzz_report


@settings(max_examples=40)
@given(st.lists(names, min_size=1, max_size=12, unique=True))
def test_names_that_are_taken_are_names_to_git(found):
    """Just those that git takes, but for length; and each has a name of its own here."""
    found = [name.encode("utf-8", "surrogatepass") for name in found]
    found = list(dict.fromkeys(name.decode("utf-8", "surrogateescape") for name in found))
    places = refs.places(found, folding=False)
    assert len(set(places.values())) == len(places)
    for name in found:
        good = (
            subprocess.run(
                ("git", "check-ref-format", name.encode("utf-8", "surrogateescape")), timeout=20
            ).returncode
            == 0
        )
        assert refs.is_ref(name) == (good and name.startswith(("refs/heads/", "refs/daytona/")))
    for place in places.values():
        assert subprocess.run(("git", "check-ref-format", place), timeout=20).returncode == 0, place


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "row",
    [f"ref {OID} refs/heads/x", "note x", f"nested {'x' * 200}", f"left x\t{'x' * 200}", "odd"],
)
def test_long_ones(row):
    report.parse(
        Execution(0, printed([*(f"{row}{number}" for number in range(30_000)), "end ok"])), MARK
    )
    report.parse(Execution(0, f"{MARK}\n\r" * 30_000 + "\n" + printed(["end ok"])), MARK)
