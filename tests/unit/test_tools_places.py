"""Where the model's paths lie, what of foreign text is shown, and how much; arguments as a model
may write them."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from git_daytona.tools import answers, files
from git_daytona.tools.context import (
    Argument,
    Result,
    Tool,
    ToolError,
    flag,
    objects,
    text,
    texts,
    whole,
)
from git_daytona.tools.registry import TOOLS

P = "/home/daytona/project"


@pytest.mark.parametrize(
    ("path", "worktree", "expected"),
    [
        ("a.py", "/repo", f"{P}/a.py"),
        ("./sub/../a.py", "/repo", f"{P}/a.py"),
        (".", "/repo", P),
        ("/repo", "/repo", P),
        ("/repo/", "/repo/", P),
        ("/repo/src/a b.py", "/repo", f"{P}/src/a b.py"),
        ("/repository/a.py", "/repo", "/repository/a.py"),
        ("/repo/../etc/passwd", "/repo", "/etc/passwd"),
        ("../x", "/repo", "/home/daytona/x"),
        ("../../../../../etc/passwd", "/repo", "/etc/passwd"),
        ("/etc/passwd", "/repo", "/etc/passwd"),
        ("//etc//passwd", "/repo", "/etc/passwd"),
        (f"{P}/a.py", "/repo", f"{P}/a.py"),
        # No worktree: OpenCode says "/".
        ("/etc/passwd", "/", "/etc/passwd"),
        ("a.py", "/", f"{P}/a.py"),
        ("a.py", "", f"{P}/a.py"),
        # The host's worktree above or below the place of the project.
        (f"{P}/a.py", "/home/daytona", f"{P}/a.py"),
        ("/home/daytona/a.py", "/home/daytona", f"{P}/a.py"),
        (f"{P}/a.py", P, f"{P}/a.py"),
        (f"{P}/sub/a.py", f"{P}/sub", f"{P}/a.py"),
        # Home.
        ("~", "/repo", "~"),
        ("~/x", "/repo", "~/x"),
        ("~/../../etc", "/repo", "~/etc"),
        ("~user/x", "/repo", f"{P}/~user/x"),
        # Nothing of it becomes an option or another word.
        ("-rf", "/repo", f"{P}/-rf"),
        ("--", "/repo", f"{P}/--"),
        ("new\nline", "/repo", f"{P}/new\nline"),
        ("$(x) 'y' \"z\"", "/repo", f"{P}/$(x) 'y' \"z\""),
    ],
)
def test_case_68_paths(path: str, worktree: str, expected: str) -> None:
    assert files.resolve(path, worktree) == expected


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ToolError):
        files.resolve(path, "/repo")


@pytest.mark.parametrize(
    ("path", "shown"), [(f"{P}/a/b", "a/b"), (P, ""), ("/etc/x", "../../../etc/x"), ("~/x", "~/x")]
)
def test_shown_paths(path: str, shown: str) -> None:
    assert files.relative(path) == shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x1b(B\x1b=\x1b>\x1bcx", "x"),
        ("\x1bP1;2q...\x1b\\x", "x"),
        ("\x9b31mred\x9d0;t\x07x", "redx"),
        ("cut \x1b[", "cut "),
        ("10%\r20%\r100%\n", "100%\n"),
        ("10%\r100%\r", "100%"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\r\r\n", "\n"),
        ("abc\x08\x08\x08xyz", "xyz"),
        ("\x08\x08a\x00\x07\x7f\x85b", "ab"),
        ("ünï 日本 🎉", "ünï 日本 🎉"),
    ],
)
def test_output_is_cleaned(said: str, shown: str) -> None:
    assert answers.output(said) == shown


def test_cleaning_takes_time_by_length_only() -> None:
    answers.output("\x1b]" * 50_000)
    answers.output("a\x08" * 50_000)
    answers.output("ab" * 20_000 + "\x08" * 2_000)
    answers.output("\x1b[" + "1;" * 50_000)


def test_names_stay_on_one_line() -> None:
    assert answers.name("a\nb\x1b[0m\udcff") == "a\\nb\\x1b[0m\\udcff"


@pytest.mark.parametrize(
    ("given", "lines", "most", "kept", "cut"),
    [
        ("", 3, 10, "", False),
        ("a\nb\nc", 3, 10, "a\nb\nc", False),
        ("a\nb\nc\nd", 3, 10, "b\nc\nd", True),
        ("aaaa\nbbbb\ncccc", 9, 9, "bbbb\ncccc", True),
        ("0123456789abc", 9, 10, "3456789abc", True),
        ("ü" * 10, 9, 5, "üü", True),
    ],
)
def test_tail(given: str, lines: int, most: int, kept: str, cut: bool) -> None:
    assert answers.tail(given, lines, most) == kept
    assert (kept != given) is cut


@pytest.mark.parametrize(
    ("rows", "lines", "most", "kept", "cut"),
    [
        ([], 2, 9, [], False),
        (["a", "b"], 2, 9, ["a", "b"], False),
        (["a", "b", "c"], 2, 9, ["a", "b"], True),
        (["aaaa", "bbbb"], 9, 9, ["aaaa"], True),
    ],
)
def test_head(rows: list[str], lines: int, most: int, kept: list[str], cut: bool) -> None:
    assert answers.head(rows, lines, most) == kept
    assert (kept != rows) is cut


# -- arguments -------------------------------------------------------------------------------------

STEP = {"a": text("A"), "b": text("B", "default")}


def given(declared: Argument, **values: Any) -> Any:
    """What a tool gets as its argument ``x``."""
    found: list[Any] = []

    def keep(_context: Any, value: Any) -> Result:
        found.append(value)
        return Result("", "")

    context: Any = SimpleNamespace(cancelled=threading.Event())
    Tool("t", "", keep, {"x": declared}).run(context, values)
    return found[0]


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        (text("X"), {"x": "y"}, "y"),
        (text("X"), {"x": ""}, ""),
        (text("X", "default"), {"x": None}, "default"),
        (text("X", "default"), {}, "default"),
        (whole("X", 1, 9), {"x": 5}, 5),
        (whole("X", 1, 9), {"x": 5.0}, 5),
        (whole("X", 1, 9, 7), {}, 7),
        (flag("X"), {"x": True}, True),
        (flag("X"), {"other": 1}, False),
        (texts("X"), {"x": ["a"]}, ["a"]),
        (texts("X"), {}, []),
        (objects("X", STEP), {"x": [{"a": "x", "c": 1}]}, [["x", "default"]]),
    ],
)
def test_arguments_are_read(declared: Argument, values: dict[str, Any], expected: Any) -> None:
    assert given(declared, **values) == expected


@pytest.mark.parametrize(
    ("declared", "values", "complaint"),
    [
        (text("X"), {}, "'x' is missing"),
        (text("X"), {"x": 5}, "'x' must be a string, not 5"),
        (text("X"), {"x": "\ud800"}, "'x' holds half of a surrogate pair"),
        (text("X", empty=False), {"x": ""}, "'x' must not be empty"),
        (
            whole("X", 1, 9, unit="milliseconds"),
            {"x": "y"},
            "'x' must be a whole number of milliseconds from 1 to 9, not 'y'",
        ),
        (whole("X", 1, 9), {"x": 5.5}, "not 5.5"),
        (whole("X", 0, 9), {"x": True}, "not True"),
        (whole("X", 6, 9), {"x": 5}, "from 6 to 9, not 5"),
        (flag("X"), {"x": "y"}, "'x' must be true or false, not 'y'"),
        (flag("X"), {"x": "y" * 100}, r"not 'y{76}\.\.\."),
        (texts("X"), {"x": "y"}, "'x' must be a list of strings"),
        (texts("X"), {"x": ["a", 1]}, r"'x\[1\]' must be a string, not 1"),
        (objects("X", STEP), {}, "'x' is missing"),
        (objects("X", STEP), {"x": []}, "'x' must be a list with at least one object"),
        (objects("X", STEP), {"x": [1]}, r"'x\[0\]' must be an object"),
        (objects("X", STEP), {"x": [{}]}, r"'x\[0\].a' is missing"),
    ],
)
def test_wrong_arguments_are_named(
    declared: Argument, values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ToolError, match=complaint) as caught:
        given(declared, **values)
    assert caught.value.message.startswith("The t tool was called with invalid arguments: ")


def test_schemas_are_what_models_are_sent() -> None:
    names = [tool.name for tool in TOOLS]
    assert names == [
        "bash",
        "read",
        "write",
        "edit",
        "multiedit",
        "apply_patch",
        "glob",
        "grep",
        "list",
        "ls",
        "getPreviewURL",
        "gitSync",
    ]
    for tool in TOOLS:
        parameters = json.loads(json.dumps(tool.parameters))
        assert parameters["type"] == "object"
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert all(each.get("description") for each in parameters["properties"].values()), tool.name
        assert len(tool.description) > 80
    required = {tool.name: tool.parameters["required"] for tool in TOOLS}
    assert (
        required["bash"] == ["command"]
        and required["read"] == ["filePath"]
        and required["list"] == []
    )
