"""A stranger's .env: only BadSetting, and python-dotenv's own values."""

import tempfile
from pathlib import Path

import dotenv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.base.errors import BadSetting
from git_daytona.settings import settings

names = st.sampled_from(
    [
        "DAYTONA_API_KEY",
        "DAYTONA_SNAPSHOT",
        "DAYTONA_API_URL",
        "OTHER",
        "export DAYTONA_API_KEY",
        "É",
        "'A B'",
        "",
    ]
)
values = st.sampled_from(
    [
        "x",
        "'x y'",
        '"a\\nb"',
        "${HOME}",
        "$HOME",
        "`id`",
        "'open",
        '"open',
        "a # b",
        "",
        "\\",
        "'\\''",
        "\u2028",
        "\x0b",
        "²",
    ]
)
rows = st.builds(
    lambda name, sign, value, end: name + sign + value + end,
    names,
    st.sampled_from(["=", " = ", "", ":"]),
    values,
    st.sampled_from(["\n", "\r\n", "\r", "", " \n"]),
)
contents = (
    st.lists(rows, max_size=6).map("".join).map(str.encode)
    | st.text(max_size=80).map(lambda t: t.encode("utf-8", "replace"))
    | st.binary(max_size=80)
)
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-dotenv-"))


def teardown_module():
    for path in FOLDER.iterdir():
        path.unlink()
    FOLDER.rmdir()


@given(contents)
def fuzz_dotenv(data):
    (FOLDER / ".env").write_bytes(data)
    warnings = []
    found = settings.read_dotenv(FOLDER, warnings.append)
    assert all(line.isprintable() for line in warnings)
    try:
        loaded = settings.load(FOLDER, {})
    except BadSetting as problem:
        assert "\n" not in problem.message
    else:
        assert loaded.api_url == settings.DEFAULT_API_URL, "never from here"
        assert (loaded.ssh_binary, loaded.ssh_known_hosts, loaded.target) == (None, None, None)
        assert (loaded.key.reveal() if loaded.key else "") == found.get(
            "DAYTONA_API_KEY", ""
        ).strip()
    if not warnings:
        expected = dotenv.dotenv_values(FOLDER / ".env", interpolate=False, encoding="utf-8-sig")
        assert found == {name: value or "" for name, value in expected.items()}


test_dotenv = fuzz_dotenv


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "row", ["a='\\'\n", 'a="\\"\n', "a='\n", "=\n", " ", "\\", "a", "#", "a=b\n"]
)
def test_long_ones(tmp_path, row):
    (tmp_path / ".env").write_text(row * (200_000 // len(row)))
    settings.read_dotenv(tmp_path, lambda line: None)
