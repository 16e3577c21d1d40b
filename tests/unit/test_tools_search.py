"""Globs, the commands in a command line, and what read, list and grep make of what the sandbox
says: tables."""

import re

import pytest

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import SandboxCommandFailed
from git_daytona.tools import answers, commands, glob, grep, read
from git_daytona.tools.answers import Answer
from git_daytona.tools.context import ToolError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.js", ["a.js", "src/a.js", "./a.js", ".js"], ["a.jsx", "a.js/b", "ajs"]),
        ("/*.js", ["a.js"], ["src/a.js"]),
        ("src/*.js", ["src/a.js"], ["src/x/a.js", "x/src/a.js"]),
        ("**/*.js", ["a.js", "x/y/a.js"], ["a.ts"]),
        ("src/**/*.ts", ["src/a.ts", "src/x/y/a.ts"], ["a.ts", "xsrc/a.ts"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "a"]),
        ("**", ["a", "x/y"], []),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{src,test}/**/*.{a,b}", ["src/x.a", "test/x/y.b"], ["lib/x.a"]),
        ("{a,**/b}.c", ["a.c", "x/b.c"], ["x/a.c"]),
        ("f?.ts", ["f1.ts"], ["f.ts", "f12.ts", "f/.ts"]),
        ("[ab]*", ["a1", "b"], ["c1"]),
        ("[!ab]*", ["c1"], ["a1"]),
        ("[^a-c].x", ["d.x"], ["b.x"]),
        ("a[.]b", ["a.b"], ["axb"]),
        ("[]x]y", ["]y", "xy"], ["zy"]),
        ("a[b", ["a[b"], ["ab"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("a+b(c)$.^|", ["a+b(c)$.^|"], ["aab"]),
        ("./a.js", ["a.js"], []),
        ("a}b,c", ["a}b,c"], []),
        ("-x", ["-x"], []),
    ],
)
def test_globs(pattern: str, matching: list[str], others: list[str]) -> None:
    expression = re.compile(glob.translate(pattern))
    assert [each for each in matching if not expression.search(each)] == []
    assert [each for each in others if expression.search(each)] == []


def test_ignored_names_cover_what_is_below() -> None:
    expression = re.compile(glob.any_of(["node_modules/", "*.log", "a/b"]))
    found = [
        "node_modules/x",
        "x/node_modules/y/z",
        "a.log",
        "x/a.log",
        "a/b/c",
        "a/bc",
        "log",
        "src/node_modules.py",
    ]
    assert [each for each in found if expression.search(each)] == found[:5]


@pytest.mark.parametrize("pattern", ["", "a\0", "x" * 2000, "{{a}"])
def test_what_is_no_glob(pattern: str) -> None:
    with pytest.raises(ToolError):
        glob.translate(pattern)


P = "/home/daytona/project"


@pytest.mark.parametrize(
    ("pattern", "worktree", "expected"),
    [
        ("src/*.ts", "/repo", ("/start", "src/*.ts")),
        ("/repo/src/**/*.ts", "/repo", (f"{P}/src", "/**/*.ts")),
        ("/repo/a.ts", "/repo", (P, "/a.ts")),
        (f"{P}/x/*", "/repo", (f"{P}/x", "/*")),
        ("~/x/*", "/repo", ("~/x", "/*")),
        ("/etc/*.conf", "/repo", ("/start", "/etc/*.conf")),
        ("/etc/*.conf", "/", ("/start", "/etc/*.conf")),
    ],
)
def test_globs_with_a_folder_in_them(
    pattern: str, worktree: str, expected: tuple[str, str]
) -> None:
    assert glob.split("/start", pattern, worktree) == expected


@pytest.mark.parametrize(
    ("line", "asked", "always"),
    [
        ("ls", ["ls"], ["ls *"]),
        (
            "git push origin main && rm -rf x",
            ["git push origin main", "rm -rf x"],
            ["git push *", "rm *"],
        ),
        ("a | b; c || d & e\nf", ["a", "b", "c", "d", "e", "f"], [f"{x} *" for x in "abcdef"]),
        ("echo 'a; b' \"c && d\" e\\;f", ["echo 'a; b' \"c && d\" e\\;f"], ["echo *"]),
        ("cd src && npm run build", ["npm run build"], ["npm run build *"]),
        ("cd src", [], []),
        ("FOO=1 BAR='x y' git push", ["FOO=1 BAR='x y' git push"], ["git push *"]),
        (
            'echo $(git push) `rm x` "$(rm y)"',
            ['echo $(git push) `rm x` "$(rm y)"', "git push", "rm x", "rm y"],
            ["echo *", "git push *", "rm *"],
        ),
        ("(cd x; make all) && { touch y; }", ["touch y", "make all"], ["touch *", "make all *"]),
        ("if true; then rm x; else ls; fi", ["true", "rm x", "ls"], ["true *", "rm *", "ls *"]),
        ("for f in $(ls); do rm $f; done", ["rm $f", "ls"], ["rm *", "ls *"]),
        ("while read x; do echo $x; done <f", ["read x", "echo $x"], ["read *", "echo *"]),
        ("f() { rm x; }; f", ["rm x", "f"], ["rm *", "f *"]),
        (
            "cat <<EOF\nrm -rf /\n$(rm x)\nEOF\nls",
            ["cat <<EOF", "ls", "rm x"],
            ["cat *", "ls *", "rm *"],
        ),
        ("cat <<'EOF' | sh\nit's; rm $(x)\nEOF", ["cat <<'EOF'", "sh"], ["cat *", "sh *"]),
        ("cmd >out 2>&1 &>all", ["cmd >out 2>&1 &>all"], ["cmd *"]),
        ("diff <(a x) <(b)", ["diff <(a x) <(b)", "a x", "b"], ["diff *", "a *", "b *"]),
        ("echo $((1 + (2)))", ["echo $((1 + (2)))"], ["echo *"]),
        ("ls # ; rm x", ["ls"], ["ls *"]),
        ("echo a#b; x", ["echo a#b", "x"], ["echo *", "x *"]),
        ("docker compose up -d", ["docker compose up -d"], ["docker compose up *"]),
        ("", [], []),
        # What cannot be told apart is asked for as a whole, once.
        ("echo 'open; rm x", ["echo 'open; rm x"], []),
        ("echo $(open", ["echo $(open"], []),
        ("cat <<EOF\nno end", ["cat <<EOF\nno end"], []),
        ("(" * 5000, ["(" * 5000], []),
    ],
)
def test_commands_in_a_line(line: str, asked: list[str], always: list[str]) -> None:
    assert commands.patterns(line) == (asked, always)


# -- read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "offset", "total", "shown", "note"),
    [
        (b"a\nb\n", 1, 2, ["1: a", "2: b"], "(End of file - total 2 lines)"),
        (b"a\nb", 9, 10, ["9: a", "10: b"], "(End of file - total 10 lines)"),
        (b"a\n\n", 1, 2, ["1: a", "2: "], "(End of file - total 2 lines)"),
        (b"a\n", 1, 5, ["1: a"], "(Showing lines 1-1 of 5. Use offset=2 to continue.)"),
        (b"", 1, 0, [], "(End of file - total 0 lines)"),
        (b"\xef\xbb\xbfa\r\nb\r\n", 1, 2, ["1: a", "2: b"], "(End of file - total 2 lines)"),
        (b"caf\xe9 \x1b[1mx\x0c\n", 1, 1, ["1: caf\ufffd x"], "(End of file - total 1 lines)"),
        (
            b"y" * 2001 + b"\n",
            1,
            1,
            ["1: " + "y" * 2000 + read.CUT],
            "(End of file - total 1 lines)",
        ),
        ("ü".encode() * 2000 + b"\n", 1, 1, ["1: " + "ü" * 2000], "(End of file - total 1 lines)"),
    ],
)
def test_read_shows_numbered_lines(
    content: bytes, offset: int, total: int, shown: list[str], note: str
) -> None:
    result = read.page("/p/f", "f", content, offset, total)
    assert result.output == "\n".join(
        ["<path>/p/f</path>", "<type>file</type>", "<content>", *shown, "", note, "</content>"]
    )
    assert result.metadata["truncated"] is note.startswith("(Showing")


def test_read_stays_below_what_opencode_cuts() -> None:
    many = read.page("/p/f", "f", b"x" * 30 + b"\n", 1, 10**6)
    assert many.metadata["truncated"]
    wide = read.page(
        "/" + "p" * 1000, "f", b"\n".join([b"x" * 1000] * answers.MOST_LINES), 1, answers.MOST_LINES
    )
    assert "(Output capped at 50 KB. Showing lines 1-" in wide.output
    assert len(wide.output.encode()) <= 51_200
    with pytest.raises(ToolError, match=r"Offset 3 is out of range for this file \(2 lines\)"):
        read.page("/p/f", "f", b"", 3, 2)


@pytest.mark.parametrize(
    ("path", "head", "binary"),
    [
        ("a.txt", b"text\n", False),
        ("a.txt", b"", False),
        ("a.ZIP", b"text", True),
        ("a", b"a\0b", True),
        ("a", b"\x01\x02\x03abc", True),
        ("a", "ünï".encode(), False),
        ("a", b"\x1b[0m coloured text", False),
    ],
)
def test_binary_files(path: str, head: bytes, binary: bool) -> None:
    assert read.is_binary(path, head) is binary


def test_read_suggests_three_names_at_most() -> None:
    message = read.missing(
        "/p/button", ["Button.tsx", "button.css", "Button.test.tsx", "buttons/", "other"]
    )
    assert (
        message == "File not found: /p/button\n\nDid you mean one of these?\n/p/Button.test.tsx\n"
        "/p/Button.tsx\n/p/button.css"
    )
    assert read.missing("/p/x", ["a"]) == "File not found: /p/x"


# -- list, grep ------------------------------------------------------------------------------------


def test_a_tree() -> None:
    assert (
        glob.tree(["b/c/d", "b/a", "z", "a\nb"]) == "  b/\n    c/\n      d\n    a\n  a\\nb\n  z\n"
    )
    assert glob.tree([]) == ""


def test_matches_are_parsed() -> None:
    answer = b"./a\nb\x011:x: y\nsrc/c\x0122:caf\xe9\ngrep: binary file matches\nd\x01none\n"
    assert grep.parse(answer) == [("a\nb", 1, "x: y"), ("src/c", 22, "caf\ufffd")]
    assert grep.parse(b"") == []


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        (r"a\d+\s", "a[0-9]+[[:space:]]"),
        (r"(?:x|y)", "(x|y)"),
        (r"\\d", r"\\d"),
        (r"\w\.", r"\w\."),
    ],
)
def test_patterns_for_plain_grep(pattern: str, plain: str) -> None:
    assert grep.extended(pattern) == plain


@pytest.mark.parametrize("output", ["", "Traceback", "directory\n", "end\nmore\n"])
def test_answers_that_are_none(output: str) -> None:
    with pytest.raises(SandboxCommandFailed, match="it said: "):
        Answer("t", Execution(0, output))


def test_answers_with_broken_base64() -> None:
    with pytest.raises(SandboxCommandFailed, match="cannot be read"):
        Answer("t", Execution(0, "no base64!\nend\n")).content()
