"""What the commits of a sync say: a title is one line, and forges no trailer."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from git_daytona.sessions import commits
from git_daytona.sessions.state import SYNCED, GitReturn, Session

TRAILERS = {"Daytona-Session": "ses_1", "Co-authored-by": "A <a@b.invalid>"}


def named(title: str) -> Session:
    return Session("ses_1", "box", 1, "/w", 1, 1, GitReturn(SYNCED), title=title)


def parsed(message: str) -> list[str]:
    """The trailers that git finds."""
    done = subprocess.run(
        ("git", "interpret-trailers", "--parse"),
        input=message,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.splitlines()


def test_a_title_forges_no_trailer():
    for title, line in {
        "Fix it": "Fix it",
        "fix(api): a colon": "fix(api): a colon",
        "x\n\nCo-authored-by: Eve <eve@x>": "x Co-authored-by: Eve <eve@x>",
        "Co-authored-by: Eve <eve@x>": "Co-authored-by Eve <eve@x>",
        "  Signed-off-by : Eve": "Signed-off-by Eve",
        "a\x1b[31mb\u202ec": "a[31mbc",
        "": "Changes of the OpenCode session",
        "y" * 90: "y" * 71 + "…",
    }.items():
        assert commits.subject(named(title)) == line
        for template in ("{title}", "{number}: work\n\n{title}", "{title}\n\nSee-also: {title}"):
            fields = {"title": commits.subject(named(title)), "number": "1"}
            text = commits.message(template, fields, TRAILERS)
            assert parsed(text) == [f"{key}: {value}" for key, value in TRAILERS.items()]


@given(st.text())
def test_any_title_is_one_printable_line(title):
    line = commits.subject(named(title))
    assert line and line.isprintable() and len(line) <= commits.SUBJECT_LENGTH


def test_templates_and_what_they_do_not_know():
    fields = {"title": "T {session}", "session": "s", "sandbox": "b", "number": "1"}
    text = commits.message("[{number}] {title} {what} {sandbox}", fields, {})
    assert text == "[1] T {session} {what} b"
    assert commits.message(" \n", {}, {}) == "Changes of the OpenCode session"
