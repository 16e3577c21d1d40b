"""Patches of a model: only ToolError, and a patch that was made from two texts turns one into the
other."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.tools import apply_patch
from git_daytona.tools.context import ToolError

HEADERS = [
    "*** Begin Patch",
    "*** End Patch",
    "*** Add File: a",
    "*** Delete File: b",
    "*** Update File: c",
    "*** Update File:",
]
LINES = [
    "*** Move to: d",
    "@@",
    "@@ def f():",
    "*** End of File",
    "+new",
    "-old",
    " same",
    "",
    "***",
    "odd",
    "+",
    "- ",
    "\r",
    "é\u2028",
]
rows = st.sampled_from([*HEADERS, *LINES, "<<'EOF'", "EOF", "cat <<EOF"])
patches = st.lists(rows, max_size=12).map("\n".join) | st.lists(rows, max_size=8).map(
    lambda body: "\n".join(["*** Begin Patch", "*** Update File: c", *body, "*** End Patch"])
)
plain = st.lists(
    st.sampled_from(["a", "b", "  a", "", "x = 1", "é", "@@", "*** odd", "-", "+"]), max_size=10
)


@given(patches | st.text(max_size=80), plain)
def fuzz_patch(text, lines):
    try:
        sections = apply_patch.parse(text)
    except ToolError:
        return
    assert sections
    for section in sections:
        assert section.action in ("add", "delete", "update") and section.path
        if section.action == "update":
            try:
                apply_patch.update(section.path, "\n".join(lines), section.chunks)
            except ToolError:
                continue


test_patch = fuzz_patch


@given(plain, plain, st.sampled_from(["\n", "\r\n"]))
def test_a_patch_of_two_texts_makes_the_second(before, after, ending):
    """Every line of the first is in it as context, so that there is one place only for it."""
    body = [
        line[:1] + line[2:] for line in difflib.ndiff(before, after) if not line.startswith("?")
    ]
    if not before or before == after:
        return
    written = "".join(
        f"{line}\n"
        for line in ["*** Begin Patch", "*** Update File: c", "@@", *body, "*** End Patch"]
    )
    [section] = apply_patch.parse(written)
    raw = "".join(line + ending for line in before)
    done = apply_patch.update("c", raw, section.chunks)
    assert done == "".join(line + ending for line in after)


@given(plain)
def test_an_added_file_has_its_lines(lines):
    body = "".join(f"+{line}\n" for line in lines)
    [section] = apply_patch.parse(f"*** Begin Patch\n*** Add File: a\n{body}*** End Patch")
    assert "".join(section.added) == "".join(f"{line}\n" for line in lines)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "<<a" + "\n" * 100_000 + "b",
        "<<a\n" + "a\n" * 50_000 + "b",
        "cat" + " " * 100_000 + "<",
        "<<" + "a" * 100_000,
    ],
)
def test_long_ones(text):
    with pytest.raises(ToolError):
        apply_patch.parse(text)
