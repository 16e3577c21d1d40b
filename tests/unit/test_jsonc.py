"""JSON with comments: what is read, what is refused, and that an edit leaves everything else
alone."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_daytona.opencode import closing, install, jsonc

# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' [1, -2.5e+3, true, null, "a\\u0041\\n"] ',
        "\ufeff{}",
        "// before\r\n{} // behind",
        "/* a\nb */{/* c */}",
        '{"a": [1, 2,], "b": {},}',
        '{"key": {env:KEY}, "text": {file:./a.txt}, "x": "{env:X}"}',
        '{"a": 1, "a": 2}',
        '{"a"/*x*/:/*y*/1/*z*/,//w\n}',
    ],
)
def test_accepted(text: str) -> None:
    assert jsonc.parse(text).text == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: a value is missing"),
        ("{", "line 1: a property name in double quotes is missing"),
        ('{"a": 1 "b": 2}', "line 1: a ',' or '}' is missing"),
        ('{"a": 1\n"b": 2}', "line 2: a ',' or '}' is missing"),
        ("[1 2]", "line 1: a ',' or ']' is missing"),
        ("[,]", "line 1: a value is missing"),
        ("{,}", "line 1: a property name in double quotes is missing"),
        ("{a: 1}", "line 1: a property name in double quotes is missing"),
        ("{'a': 1}", "line 1: a property name in double quotes is missing"),
        ('{"a" 1}', "line 1: a ':' is missing"),
        ('{"a":}', "line 1: a value is missing"),
        ("['a']", "line 1: this is not a JSON value"),
        ('["a\nb"]', "line 1: this is not a JSON value"),
        ('["\\x"]', "line 1: this is not a JSON value"),
        ("[01]", "line 1: a ',' or ']' is missing"),
        ("{}\r\n{}", "line 2: something follows the end"),
        ("{} /* open", "line 1: something follows the end"),
        ("[" * 101 + "]" * 101, "line 1: it is nested too deeply"),
        ("<<<<<<< HEAD\n{}", "line 1: this is not a JSON value"),
        ("plugin = []", "line 1: this is not a JSON value"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(jsonc.Malformed) as caught:
        jsonc.parse(text)
    assert str(caught.value) == says


def test_the_last_of_several_properties_counts() -> None:
    document = jsonc.parse('{"plug\\u0069n": ["a"], "plugin": ["b"]}')
    found = document.root.item("plugin")
    assert found is not None
    assert document.string(found.value.items[0].value) == "b"


# -- editing: where an item goes -------------------------------------------------------------------

CASES = [
    # an array of the outermost object, and the same with "x" in it
    ('{"plugin": []}', '{"plugin": [ "x" ]}'),
    ('{"plugin": [ ]}', '{"plugin": ["x" ]}'),
    ('{"plugin": ["a"]}', '{"plugin": ["a", "x"]}'),
    ('{"plugin": ["a",]}', '{"plugin": ["a", "x",]}'),
    ('{"plugin": ["a" /* of a */]}', '{"plugin": ["a" /* of a */, "x"]}'),
    ('{\n  "plugin": [\n    "a"\n  ]\n}\n', '{\n  "plugin": [\n    "a",\n    "x"\n  ]\n}\n'),
    ('{\n\t"plugin": [\n\t\t"a",\n\t]\n}', '{\n\t"plugin": [\n\t\t"a",\n\t\t"x",\n\t]\n}'),
    (
        '{\n  "plugin": [\n    "a" // of a\n    // "b"\n  ]\n}',
        '{\n  "plugin": [\n    "a", // of a\n    "x"\n    // "b"\n  ]\n}',
    ),
    (
        '{\n  "plugin": [\n    "a", // of a\n  ]\n}',
        '{\n  "plugin": [\n    "a", // of a\n    "x",\n  ]\n}',
    ),
    ('{\r\n    "plugin": [\r\n    ]\r\n}', '{\r\n    "plugin": [\r\n        "x"\r\n    ]\r\n}'),
    ('{"plugin": [ // none\n]}', '{"plugin": [\n  "x" // none\n]}'),
    ('{"plugin": ["a" // of a\n]}', '{"plugin": ["a", // of a\n  "x"\n]}'),
    ('{"plugin": [["a", {"k": 1}]]}', '{"plugin": [["a", {"k": 1}], "x"]}'),
    # no such array
    ("{}", '{"plugin": ["x"]}'),
    ("{\n}", '{\n  "plugin": ["x"]\n}'),
    ('{"model": "m"}', '{"model": "m", "plugin": ["x"]}'),
    ('{\n    "model": "m"\n}', '{\n    "model": "m",\n    "plugin": ["x"]\n}'),
    (
        '{\n  "model": "m", // the model\n}',
        '{\n  "model": "m", // the model\n  "plugin": ["x"],\n}',
    ),
    (
        '\ufeff// top\n{\n  "a": {\n    "b": 1\n  } /* end */\n}',
        '\ufeff// top\n{\n  "a": {\n    "b": 1\n  }, /* end */\n  "plugin": ["x"]\n}',
    ),
]


def added(text: str, entry: str) -> str:
    return install.added(jsonc.parse(text), json.dumps(entry))


def removed(text: str, entry: str) -> str:
    return install.removed(text, lambda spec: spec == entry)


@pytest.mark.parametrize(("without", "with_it"), CASES)
def test_append_and_remove(without: str, with_it: str) -> None:
    assert added(without, "x") == with_it
    assert removed(with_it, "x") == without


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"plugin": ["x", "a"]}', '{"plugin": ["a"]}'),
        ('{"plugin": ["a", "x", "b"]}', '{"plugin": ["a", "b"]}'),
        ('{"plugin": ["x" /* why */, "a"]}', '{"plugin": [ /* why */ "a"]}'),
        ('{"plugin": [\n  "x",\n  "a"\n]}', '{"plugin": [\n  "a"\n]}'),
        ('{"plugin": [\n  // why\n  "x"]}', '{"plugin": [\n  // why\n  ]}'),
        ('{"plugin": [\n  "a", // of a\n  "x"]}', '{"plugin": [\n  "a" // of a\n  ]}'),
        ('{"plugin": ["x",]}', '{"plugin": []}'),
        ('{"plugin": [["x", {"k": [1]}], "a"]}', '{"plugin": ["a"]}'),
        ('{"plugin": ["x"], "a": 1}', '{"a": 1}'),
        ('{\n  "plugin": ["x"],\n  "a": 1\n}', '{\n  "a": 1\n}'),
        ('{"plugin": ["x", "x"]}', "{}"),
        ('{"plugin": ["a"]}', '{"plugin": ["a"]}'),
        ('{"plugin": [1, null, {"x": 1}]}', '{"plugin": [1, null, {"x": 1}]}'),
    ],
)
def test_remove_from_where_others_have_put_it(before: str, after: str) -> None:
    assert removed(before, "x") == after


# -- editing: all that nobody thought of -----------------------------------------------------------

newlines = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def blank(draw: st.DrawFn, newline: str, tight: bool = True) -> str:
    """Blanks and comments."""
    pieces = st.one_of(
        st.sampled_from(
            [
                " ",
                "  ",
                "\t",
                newline,
                newline + "  ",
                newline + "\t\t",
                "/**/",
                "/* x, ] } */",
                f"/* a{newline} b */",
            ]
        ),
        st.sampled_from(["//", '// "a", ] [', "// ends in a blank "]).map(
            lambda comment: comment + newline
        ),
    )
    return "".join(draw(st.lists(pieces, max_size=2 if tight else 4)))


def strings() -> st.SearchStrategy[str]:
    plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(
        lambda text: json.dumps(text, ensure_ascii=len(text) > 2)
    )
    return st.one_of(
        st.sampled_from(
            ['"a"', '"@daytona/opencode"', '"//"', '"/*"', '"\\""', '"\\ud800"', '"x]"']
        ),
        plain,
    )


@st.composite
def container(draw: st.DrawFn, items: st.SearchStrategy[str], brackets: str, newline: str) -> str:
    found = draw(st.lists(items, max_size=3))
    text = brackets[0]
    for number, item in enumerate(found):
        text += draw(blank(newline)) + item + draw(blank(newline))
        if number < len(found) - 1 or draw(st.booleans()):
            text += ","
    return text + draw(blank(newline)) + brackets[1]


@st.composite
def property_(
    draw: st.DrawFn, keys: st.SearchStrategy[str], values: st.SearchStrategy[str], newline: str
) -> str:
    return draw(keys) + draw(blank(newline)) + ":" + draw(blank(newline)) + draw(values)


def values(newline: str) -> st.SearchStrategy[str]:
    scalars = st.one_of(strings(), st.sampled_from(["1", "-0.5e3", "true", "null", "{env:HOME}"]))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            container(inner, "[]", newline),
            container(property_(strings(), inner, newline), "{}", newline),
        ),
        max_leaves=4,
    )


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A configuration file, mostly with an array of plugins."""
    newline = draw(newlines)
    others = property_(
        strings().filter(lambda text: json.loads(text) != "plugin"), values(newline), newline
    )
    plugins = property_(
        st.sampled_from(['"plugin"', '"plug\\u0069n"']),
        container(values(newline), "[]", newline),
        newline,
    )
    tools = st.sampled_from(['"bash"', '"execute"', '"webfetch"', '"*"'])
    rules = container(property_(tools, values(newline), newline), "{}", newline)
    permission = property_(st.just('"permission"'), st.one_of(strings(), rules), newline)
    root = draw(container(st.one_of(others, plugins, permission), "{}", newline))
    ends = (
        draw(st.sampled_from(["", "\ufeff"])),
        draw(blank(newline, False)),
        draw(blank(newline, False)),
    )
    return ends[0] + ends[1] + root + ends[2]


def meaning(text: str) -> object:
    """What a document says, by another way than ours: without comments and trailing commas, through
    json."""
    string = r'"(?:[^"\\]|\\.)*"'
    text = re.sub(
        rf"({string})|//[^\r\n]*|/\*.*?\*/",
        lambda found: found[1] or " ",
        text.removeprefix("\ufeff"),
        flags=re.DOTALL,
    )
    text = re.sub(r"\{env:[^}]+\}", "3", text)
    text = re.sub(rf"({string})|,(?=\s*[\]}}])", lambda found: found[1] or "", text)
    return json.loads(text)


@settings(max_examples=40, deadline=None)
@given(documents())
def test_install_then_uninstall_is_identity(text: str) -> None:
    after = added(text, "file:///new/x.js")
    expected = meaning(text)
    assert isinstance(expected, dict)
    expected["plugin"] = [*expected.get("plugin", []), "file:///new/x.js"]
    assert meaning(after) == expected
    assert removed(after, "file:///new/x.js") == text


@settings(max_examples=40, deadline=None)
@given(documents())
def test_close_then_reopen_is_identity(text: str) -> None:
    after = closing.add(text)
    rules = meaning(after)["permission"]  # type: ignore[index]
    for tool in list(closing.RULES)[:-1]:
        assert rules[tool]["**"] == "deny"
    for tool, rule in rules.items():
        if tool in closing.RULES and tool != "execute":
            assert list(rule)[-1] == "**", "the last rule is the one that counts"
    assert closing.missing(jsonc.parse(after)) in ([], ["execute"])
    assert closing.remove(after) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"permission": ' + closing._ON_ONE_LINE + "}"),
        ('{"permission": "ask"}', '{"permission": {"*":"ask",' + closing._ON_ONE_LINE[1:] + "}"),
    ],
)
def test_closed(before: str, after: str) -> None:
    assert closing.add(before) == after
    assert closing.remove(after) == before


@settings(max_examples=40, deadline=None)
@given(documents())
def test_removing_any_plugin_leaves_the_others(text: str) -> None:
    document = jsonc.parse(text)
    found = document.root.item("plugin")
    for number in range(len(found.value.items) if found else 0):
        assert found is not None
        after = jsonc.remove(document, found.value, number)
        expected = meaning(text)
        assert isinstance(expected, dict)
        del expected["plugin"][number]
        assert meaning(after) == expected
        comments = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
        outside = (
            document.text[: found.value.items[number].start]
            + document.text[found.value.items[number].value.end :]
        )
        assert len(comments.findall(outside)) == len(comments.findall(after))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='{}[],:"/*\\ \n\ra1', max_size=30))
def test_whatever_is_read_can_be_refused_but_nothing_else(text: str) -> None:
    try:
        document = jsonc.parse(text)
    except jsonc.Malformed:
        return
    assert meaning(text) is not None or document.root.kind == "scalar"
