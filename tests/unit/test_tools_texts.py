"""Edits, differences and patches on texts, as tables."""

import difflib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.tools import apply_patch, edit, texts, write
from git_daytona.tools.context import ToolError

# -- edit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "old", "new", "every", "expected"),
    [
        ("one two", "two", "2", False, "one 2"),
        ("a a a", "a", "b", True, "b b b"),
        ("aaaa", "aa", "b", True, "bb"),
        ("x", "x", r"$& $1 \1 \n $$ $`", False, r"$& $1 \1 \n $$ $`"),
        (r"a\nb", r"\n", "N", False, "aNb"),
        ("a.b", ".", "", False, "ab"),
        # \n matches \r\n, and the file keeps its ending.
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", False, "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", False, "x\r\ny\r\n"),
        ("a\r\nb\r\n", "b\n", "b", False, "a\r\nb"),
        ("a\nb\n", "a\r\nb", "x\r\ny", False, "x\ny\n"),
        # Mixed endings: all that is not replaced stays.
        ("a\nb\r\nc\r\nd\n", "b\nc", "x\ny", False, "a\nx\ny\r\nd\n"),
        ("\r\nx\r\n\r\ny\n", "x", "1\n2", False, "\r\n1\r\n2\r\n\r\ny\n"),
        ("a\rb", "a\rb", "c", False, "c"),
        ("caf\udce9 x", "x", "y", False, "caf\udce9 y"),
        ("", "a", "b", False, None),
        ("b", "a", "b", False, None),
    ],
)
def test_case_68_replace(raw: str, old: str, new: str, every: bool, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ToolError, match="Could not find oldString"):
            edit.replaced(raw, old, new, every=every)
    else:
        assert edit.replaced(raw, old, new, every=every) == expected


@pytest.mark.parametrize(
    ("raw", "old", "new", "complaint"),
    [
        ("a\nb a\na", "a", "x", "Found multiple matches for oldString: 3, at lines 1, 2, 3. "),
        ("a\n" * 20, "a", "x", "oldString: 20, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …. "),
        ("a", "a", "a", edit.IDENTICAL),
        ("a", "a\r\n", "a\n", edit.IDENTICAL),
        ("a", "", "b", edit.EMPTY),
        (
            "if x:\n\treturn 1\n",
            "if x:\n    return 1",
            "y",
            "Lines 1-2 differ from it in whitespace only",
        ),
        ("a  b", "a b", "y", "Line 1 differs"),
        ("a", "  ", "y", "Could not find oldString"),
    ],
)
def test_replace_says_what_is_wrong(raw: str, old: str, new: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=re.escape(complaint)):
        edit.replaced(raw, old, new)


@given(
    st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=40).map("".join),
    st.text("ab\n", min_size=1, max_size=4),
    st.text("xy\n", max_size=4),
)
def test_replacing_changes_nothing_else(raw: str, old: str, new: str) -> None:
    try:
        after = edit.replaced(raw, old, new, every=True)
    except ToolError:
        return
    assert texts.unified(after) == texts.unified(raw).replace(old, new)
    if "\r" not in raw:
        assert after == raw.replace(old, new)


@given(st.binary(max_size=60))
def test_a_difference_of_any_bytes_can_be_sent(content: bytes) -> None:
    texts.compare("f", "", content.decode("utf-8", "surrogateescape")).patch.encode()


def test_marks_and_endings() -> None:
    assert texts.ending("a\r\nb\r\nc\n") == "\r\n"
    assert texts.ending("a\r\nb\nc\n") == texts.ending("") == "\n"
    assert "+x\n" in texts.compare("f", "", "\ufeffx\r\n").patch
    assert applied("\ufeffa\r\nb\r\n", "@@\n-a\n+A\n") == "\ufeffA\r\nb\r\n"
    assert write.adapted("x\ny\n", "\ufeffa\r\n") == "\ufeffx\r\ny\r\n"
    assert write.adapted("x\ny\n", "a\r\nb\n") == "x\ny\n"


# -- diff ------------------------------------------------------------------------------------------


def test_a_diff_as_opencode_shows_it() -> None:
    found = texts.compare("/p/f", "one\ntwo\nthree\n", "one\n2\nthree\nfour")
    assert found.patch == (
        "Index: /p/f\n"
        + "=" * 67
        + "\n--- /p/f\n+++ /p/f\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n\\ No "
        "newline at end of file\n"
    )
    assert (found.additions, found.deletions) == (2, 1)
    assert texts.compare("f", "", "a\nb\n").patch.endswith("@@ -0,0 +1,2 @@\n+a\n+b\n")
    assert texts.compare("f", "a\n", "").patch.endswith("@@ -1,1 +0,0 @@\n-a\n")
    assert texts.compare("f", "a\n", "a\n").additions == 0
    # The indentation that all lines have is left out, and a form feed is no line's end.
    assert texts.compare("f", "    a\n    b\n", "    a\n      c\n").patch.endswith(
        "\n a\n-b\n+  c\n"
    )
    assert texts.compare("f", "a\x0cb\n", "a\x0cc\n").deletions == 1


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{row}\n" for row in old), "".join(f"{row}\n" for row in new)
    found = texts.compare("f", before, after)
    rows = old.copy()
    for hunk in reversed(re.split(r"^(?=@@ )", found.patch, flags=re.MULTILINE)[1:]):
        header, *lines = hunk.splitlines()
        start, count = map(int, re.match(r"@@ -(\d+),(\d+) ", header).groups())  # type: ignore[union-attr]
        at = start - 1 if count else start
        assert rows[at : at + count] == [line[1:] for line in lines if line[0] != "+"]
        rows[at : at + count] = [line[1:] for line in lines if line[0] != "-"]
    assert rows == new
    assert found.additions - found.deletions == len(new) - len(old)
    assert difflib.SequenceMatcher(None, old, new).ratio() <= 1


def test_a_large_difference_takes_no_time() -> None:
    begun = time.monotonic()
    found = texts.compare(
        "f",
        "".join(f"{n}\n" for n in range(60_000)),
        "".join(f"{n * 7 % 60_000}\n" for n in range(60_000)),
    )
    assert time.monotonic() - begun < 30
    assert len(found.patch) < 1000 and found.additions > 50_000
    long = "".join(f"{n}\n" for n in range(60_000))
    assert (
        "@@ -29998,8 +29998,9 @@"
        in texts.compare("f", long, long.replace("\n30000\n", "\n30000\nnew\n")).patch
    )


# -- apply_patch -----------------------------------------------------------------------------------


def wrapped(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch"


def applied(raw: str, body: str) -> str:
    (section,) = apply_patch.parse(wrapped("*** Update File: f\n" + body))
    return apply_patch.update("f", raw, section.chunks)


def test_a_patch_is_parsed() -> None:
    sections = apply_patch.parse(
        wrapped(
            "*** Add File: a b.txt\n+one\n+\n+two\n*** Delete File: gone\n*** Update File: "
            "x\n*** Move to: y\n@@ def f():\n a\n-b\n+c\n\n@@\n+d\n*** End of File\n"
        )
    )
    assert [(each.action, each.path, "".join(each.added), each.target) for each in sections] == [
        ("add", "a b.txt", "one\n\ntwo\n", "a b.txt"),
        ("delete", "gone", "", "gone"),
        ("update", "x", "", "y"),
    ]
    first, second = sections[2].chunks
    assert (first.context, first.lines) == (
        "def f():",
        [(" ", "a"), ("-", "b"), ("+", "c"), (" ", "")],
    )
    assert (second.lines, second.at_end) == ([("+", "d")], True)


@pytest.mark.parametrize(
    "text",
    [
        wrapped("*** Delete File: f\n"),
        "cat <<'EOF'\n" + wrapped("*** Delete File: f\n") + "\nEOF",
        "\r\n" + wrapped("*** Delete File: f\n").replace("\n", "\r\n") + "\r\n",
        "Here it is:\n" + wrapped("*** Delete File: f\n") + "\nDone.",
    ],
)
def test_what_surrounds_a_patch_does_not_matter(text: str) -> None:
    assert [(each.action, each.path) for each in apply_patch.parse(text)] == [("delete", "f")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "missing Begin/End markers"),
        ("*** Begin Patch\n", "missing Begin/End markers"),
        ("*** End Patch\n*** Begin Patch\n", "missing Begin/End markers"),
        (wrapped(""), "patch rejected: empty patch"),
        (wrapped("text\n"), "line 2 stands before the first header: text"),
        (wrapped("*** Add File:\n+x\n"), r"'\*\*\* Add File:' without a path"),
        (wrapped("*** Add File: a\nx\n"), r"line 3 of a new file must begin with '\+': x"),
        (wrapped("*** Delete File: a\nx\n"), "nothing may follow"),
        (wrapped("*** Update File: a\n"), "no hunks found for a"),
        (wrapped("*** Update File: a\n@@\nx\n"), "line 4 must begin with ' ', '-' or"),
        (wrapped("*** Rename File: a\n"), "line 2 is not a header of a patch"),
    ],
)
def test_a_patch_that_is_none(text: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        apply_patch.parse(text)


@pytest.mark.parametrize(
    ("raw", "body", "expected"),
    [
        ("a\nb\nc\n", "@@\n a\n-b\n+B\n c\n", "a\nB\nc\n"),
        ("a\nb\nc\n", "-b\n+B\n", "a\nB\nc\n"),
        ("a\nx\nb\nx\n", "@@ b\n-x\n+X\n", "a\nx\nb\nX\n"),
        ("a\nb\n", "@@\n-a\n+A\n@@\n-b\n+B\n", "A\nB\n"),
        # Nothing but new lines: after the named line, else at the end.
        ("a\nb\n", "@@ a\n+x\n", "a\nx\nb\n"),
        ("a\nb\n", "@@\n+x\n", "a\nb\nx\n"),
        ("", "@@\n+x\n", "x\n"),
        # The last line without an ending.
        ("a\nb", "@@\n-b\n+B\n", "a\nB\n"),
        ("a\nb", "@@\n-a\n+A\n b\n", "A\nb"),
        ("a\nb", "@@\n b\n+c\n", "a\nb\nc\n"),
        # The file's own endings and bytes.
        ("a\r\nb\r\nc\n", "@@\n a\n-b\n+B\n", "a\r\nB\r\nc\n"),
        ("caf\udce9\nx\n", "@@\n-x\n+y\n", "caf\udce9\ny\n"),
        # Blanks that models get wrong; what stays keeps its own.
        ("\tif x:  \n\t\ty\n", "@@\n if x:\n-    y\n+\t\tz\n", "\tif x:  \n\t\tz\n"),
        (
            "say \u201chi\u201d \u2013 now\nx\n",
            '@@\n say "hi" - now\n-x\n+y\n',
            "say \u201chi\u201d \u2013 now\ny\n",
        ),
        # The end of the file is looked at first where the patch says so.
        ("x\na\nx\n", "@@\n-x\n+y\n*** End of File\n", "x\na\ny\n"),
        # An empty line before the next header.
        ("a\nb\n", "@@\n-a\n+A\n\n", "A\nb\n"),
        ("a\n\nb\n", "@@\n a\n\n-b\n+B\n", "a\n\nB\n"),
    ],
)
def test_a_patch_is_applied(raw: str, body: str, expected: str) -> None:
    assert applied(raw, body) == expected


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("@@\n-missing\n+x\n", "Failed to find expected lines in f:\nmissing"),
        ("@@ nowhere\n-a\n+x\n", "Failed to find context 'nowhere' in f"),
        ("@@\n-b\n+x\n@@\n-a\n+y\n", "Failed to find expected lines in f:\na"),
    ],
)
def test_a_patch_that_does_not_fit(body: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        applied("a\nb\n", body)
