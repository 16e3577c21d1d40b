"""Entries of ours in configurations that nobody foresaw: in and out again is the identity, in every
format, and everything else means what it meant."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_daytona.agents import entries, in_yaml, places
from git_daytona.agents.entries import Unfit
from git_daytona.agents.in_json import Json
from git_daytona.agents.table import AGENTS
from unit.test_jsonc import container, meaning, property_, strings, values

CLAUDE, GEMINI, CODEX, GOOSE = (AGENTS[name] for name in ("claude", "gemini", "codex", "goose"))


def of(agent, worktree, number=0):
    return places.places(agent, worktree)[number]


@pytest.fixture(scope="module")
def worktree(tmp_path_factory):
    return tmp_path_factory.mktemp("project")


def there_and_back(text, place):
    """Put in and take out; the text with it, or None for one that cannot take it."""
    try:
        after = entries.checked(text, place.entries, place.kind)
    except Unfit:
        return None
    assert place.kind.has(after, place.entries) and place.kind.found(after, place.entries)
    assert entries.checked(after, place.entries, place.kind) == after, "twice is once"
    assert place.kind.remove(after, place.entries) == text
    return after


# -- JSON ------------------------------------------------------------------------------------------

HOOK = json.dumps({"hooks": [{"type": "command", "command": "mine"}]})


@st.composite
def documents(draw):
    newline = draw(st.sampled_from(["\n", "\r\n"]))

    def thing(*keys, inner):
        own = st.sampled_from([json.dumps(key) for key in keys])
        return container(property_(own | strings(), inner, newline), "{}", newline)

    words = container(strings() | st.sampled_from(['"Read"', '"glob"']), "[]", newline)
    hooks = container(st.just(HOOK) | values(newline), "[]", newline)
    keys = st.sampled_from(["hooks", "permissions", "tools", "mcpServers", "model"])
    inner = st.one_of(
        thing("PreToolUse", "BeforeTool", "Stop", inner=hooks),
        thing("deny", "exclude", "allow", inner=words),
        thing("daytona", "other", inner=values(newline)),
        values(newline),
    )
    root = draw(
        container(property_(keys.map(json.dumps) | strings(), inner, newline), "{}", newline)
    )
    return (
        draw(st.sampled_from(["", "\ufeff", "// mine\n"]))
        + root
        + draw(st.sampled_from(["", "\n"]))
    )


@settings(max_examples=25)
@given(text=documents(), agent=st.sampled_from([CLAUDE, GEMINI]))
def test_json(text, agent, worktree):
    place = of(agent, worktree)
    after = there_and_back(text, place)
    if after is not None:
        before, meant = meaning(text), meaning(after)
        for entry in place.entries:
            inner = meant
            for key in entry.keys[:-1]:
                inner = inner[key]
            if entry.listed:
                assert inner[entry.keys[-1]].pop() is not None
            else:
                assert inner.pop(entry.keys[-1]) == entry.value
        assert without_empty(meant) == without_empty(before)


def without_empty(value):
    """Containers that hold nothing count as nothing: there may be one more of ours."""
    if isinstance(value, dict):
        found = {key: without_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner not in ({}, [])}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"hooks": []}',
        '{"hooks": {"PreToolUse": {}}}',
        '{"permissions": {"deny": "Read"}}',
    ],
)
def test_json_that_cannot_take_them(text, worktree):
    assert there_and_back(text, of(CLAUDE, worktree)) is None


def test_a_server_of_a_stranger_stays(worktree):
    strange = '{"mcpServers": {"daytona": {"command": "daytona", "args": ["mcp", "start"]}}}'
    assert there_and_back(strange, of(CLAUDE, worktree, 1)) is None
    assert Json.remove(strange, of(CLAUDE, worktree, 1).entries) == strange


def test_what_the_user_has_too_stays(worktree):
    text = '{"permissions": {"deny": ["Read", "Bash(rm *)"]}, "hooks": {}, "x": {} }'
    place = of(CLAUDE, worktree)
    after = there_and_back(text, place)
    assert json.loads(after)["permissions"]["deny"].count("Read") == 2
    assert Json.remove(text, place.entries) == text, "nothing of ours is there"


def test_another_installation_is_replaced(worktree):
    place = of(CLAUDE, worktree)
    program = places.command_line.program()
    after = there_and_back("{}\n", place)
    old = after.replace(program, "/opt/old one/bin/git-daytona")
    assert entries.checked(old, place.entries, Json) == after
    edited = after.replace('"Stop": [', '"Stop": [{"hooks": []}, ')
    assert json.loads(Json.remove(edited, place.entries)) == {"hooks": {"Stop": [{"hooks": []}]}}


# -- TOML ------------------------------------------------------------------------------------------

LINES = (
    *("", "# mine", "  # indented", 'model = "x"', "a.b = 1", "[features]", "hooks = true"),
    *('[mcp_servers.other]\ncommand = "x"', "[[hooks.PreToolUse]]", "[[hooks.Stop.hooks]]"),
    *("text = '''\n# git-daytona: nothing\n'''", "list = [\n  1, # one\n]", "[mcp_servers]"),
    *('"quoted key" = 2', "mcp_servers = {}", "[mcp_servers.daytona]", "[hooks]"),
)


@settings(max_examples=60)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=7),
    newline=st.sampled_from(["\n", "\r\n"]),
    end=st.booleans(),
)
def test_toml(lines, newline, end, worktree):
    text = newline.join(lines).replace("\r\n", "\n").replace("\n", newline)
    text += newline if end else ""
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert there_and_back(text, of(CODEX, worktree)) is None
        return
    after = there_and_back(text, of(CODEX, worktree))
    if after is not None:
        meant = tomllib.loads(after)
        assert meant["mcp_servers"].pop("daytona")["args"] == ["mcp", "--hooked"]
        for name in ("PreToolUse", "SessionStart", "Stop"):
            assert "git-daytona" in json.dumps(meant["hooks"][name].pop())
        assert without_empty(meant) == without_empty(before)


def test_what_was_written_behind_it_stays(worktree):
    place = of(CODEX, worktree)
    for before in ("a = 1\n", "a = 1", ""):
        after = there_and_back(before, place).rstrip("\n") + "\n[projects.x]\ntrust = 1\n"
        left = place.kind.remove(after, place.entries)
        assert tomllib.loads(left) == {**tomllib.loads(before), "projects": {"x": {"trust": 1}}}


def test_lines_that_an_editor_has_ended_otherwise(worktree):
    for place in (of(CODEX, worktree), of(GOOSE, None, 2)):
        after = there_and_back("", place).replace("\n", "\r\n")
        assert place.kind.found(after, place.entries)
        assert place.kind.remove(after, place.entries) == ""


# -- YAML ------------------------------------------------------------------------------------------

PARTS = (
    *("", "# mine", "GOOSE_MODEL: x", "list:\n- a\n- b: 1", "text: |\n  # git-daytona\n  two"),
    *("extensions:", "extensions: {}", "extensions: {a: {b: 1}}", "extensions: # none yet"),
    *("extensions:\n  developer:\n    enabled: true # yes\n\n  # of mine\n  other: {a: 1}",),
    *(
        "extensions:\n    deep:\n        a: 'x'",
        "extensions:\n  daytona:\n    cmd: daytona",
    ),
    *("anchored: &a {x: 1}", "again: *a", "extensions: &e\n  x: 1", "? odd\n: key", "..."),
    *("a: {", "- list", 'quoted: "a: b"', "extensions:\n- list"),
)


@settings(max_examples=60)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=5), end=st.booleans())
def test_yaml(parts, end):
    text = "\n".join(parts) + ("\n" if end else "")
    place = of(GOOSE, None, 2)
    after = there_and_back(text, place)
    if after is not None:
        before, meant = (in_yaml.Yaml.parse(each) for each in (text, after))
        assert meant["extensions"].pop("daytona")["args"] == ["mcp"]
        assert without_empty(meant) == without_empty(
            {**(before or {}), "extensions": (before or {}).get("extensions") or {}}
        )


def test_yaml_that_goose_has_written_anew():
    """Without comments, and in its own style."""
    place = of(GOOSE, None, 2)
    (entry,) = place.entries
    values = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in entry.value.items())
    for before, between, behind in (
        ("GOOSE_MODEL: x\n", "extensions:\n", "last: 1\n"),
        ("", "extensions:\n", ""),
        ("extensions:\n  a:\n    enabled: true\n", "", "  z:\n    text: |\n      two\n"),
        ("extensions:\n  a:\n    enabled: true\n", "", "last: 1\n"),
    ):
        text = f"{before}{between}  daytona:\n{values}{behind}"
        assert place.kind.found(text, place.entries)
        assert place.kind.remove(text, place.entries) == before + behind


def test_entries_of_every_agent_are_found_again(worktree):
    for agent in AGENTS.values():
        for place in places.places(agent, None if agent is GOOSE else worktree):
            if place.entries:
                assert there_and_back(place.beginning, place) is not None
