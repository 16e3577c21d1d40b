"""`git daytona install` and `uninstall`: what people see, what becomes of OpenCode's configuration
files, and what is refused."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from git_daytona.base.errors import BadSetting, NoRepository
from git_daytona.opencode import registration
from support.program import Told
from support.round_trip import Repo

Tell = Callable[..., Told]
RULES = """  "permission": {
    "execute": {"*": "deny"},
    "lsp": {"**": "deny"},
    "list": {"**": "deny"},
    "grep": {"**": "deny"},
    "glob": {"**": "deny"},
    "read": {"**": "deny"},
    "edit": {"**": "deny"},
    "bash": {"**": "deny"}
  }"""
OLD = "file:///opt/old/lib/python3.11/site-packages/git_daytona/opencode/daytona.js"


@pytest.fixture(autouse=True)
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin in a path that a URL has to quote."""
    path = tmp_path / "site packages" / "git_daytona" / "opencode" / "plugin"
    path.mkdir(parents=True)
    (path / "index.js").write_text("export default {}\n")
    monkeypatch.setattr(registration, "PLUGIN", path)
    return path


def fresh() -> str:
    """The file that is written where there is none."""
    return f"""{{
  "$schema": "https://opencode.ai/config.json",
  "plugin": ["{registration.entry()}"],
{RULES}
}}
"""


def plugins(path: Path) -> object:
    return json.loads(path.read_text())["plugin"]


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


# -- where there is nothing yet --------------------------------------------------------------------


def test_the_whole_story(tell: Tell, repo: Repo) -> None:
    before = tree(repo.path)
    config = repo.path / "opencode.json"

    shown = tell("git-daytona", "install", "--project", "--dry-run", cwd=repo.path)
    assert shown.status == 0
    assert f"+++ {config}" in shown.out
    assert f'+  "plugin": ["{registration.entry()}"],\n' in shown.out
    assert f"'{config}' would be written" in shown.err
    assert tree(repo.path) == before

    done = tell("git-daytona", "install", "--project", cwd=repo.path)
    assert (done.status, done.out) == (0, shown.out)
    assert f"written: '{config}'" in done.err
    assert "names a file of this machine" in done.err and "install --global" in done.err
    assert config.read_text() == fresh()

    again = tell("git-daytona", "install", cwd=repo.path)
    assert (again.status, again.out) == (0, "")
    assert f"nothing to do: '{config}' has it already" in again.err
    assert config.read_text() == fresh()

    shown = tell("git-daytona", "uninstall", "-n", cwd=repo.path)
    assert f"'{config}' would be removed" in shown.err
    assert config.exists()

    gone = tell("git-daytona", "uninstall", cwd=repo.path)
    assert gone.status == 0
    assert "+++ /dev/null" in gone.out
    assert tree(repo.path) == before

    more = tell("git-daytona", "uninstall", cwd=repo.path)
    assert more.status == 1
    assert more.complaint[0] == (
        "git-daytona: error: OpenCode's configuration does not name the plugin (neither the "
        "project's nor the global one) [failed]"
    )


def test_in_a_subdirectory_the_root_is_meant(tell: Tell, repo: Repo) -> None:
    (repo.path / "deep" / "er").mkdir(parents=True)
    assert tell("git-daytona", "install", "--project", cwd=repo.path / "deep" / "er").status == 0
    assert plugins(repo.path / "opencode.json") == [registration.entry()]


@pytest.mark.parametrize("named", [True, False])
def test_for_all_projects(
    tell: Tell, home: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Outside a repository, too. XDG_CONFIG_HOME counts unless it is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere") if named else "")
    done = tell("git-daytona", "install", "--global")
    config = home / ("elsewhere" if named else ".config") / "opencode" / "opencode.json"
    assert config.read_text() == fresh()
    assert stat.S_IMODE(config.stat().st_mode) == 0o666 & ~_umask()
    assert "this machine" not in done.err
    assert tell("git-daytona", "uninstall", "--global").status == 0
    assert not config.exists()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def test_without_a_word_it_is_for_all_projects_unless_the_project_has_a_configuration(
    tell: Tell, repo: Repo, home: Path, tmp_path: Path
) -> None:
    everywhere = home / ".config" / "opencode" / "opencode.json"
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    for place in (tmp_path, tmp_path / "bare.git", repo.path):
        told = tell("git-daytona", "install", cwd=place)
        assert told.status == 0 and f"written: '{everywhere}'" in told.err
        assert "this machine" not in told.err
        if place != repo.path:
            refused = tell("git-daytona", "install", "--project", cwd=place)
            assert refused.status == NoRepository.status
        told = tell("git-daytona", "uninstall", cwd=place)
        assert told.status == 0 and f"removed: '{everywhere}'" in told.err
    config = repo.path / "opencode.json"
    config.write_text("{}\n")
    assert f"changed: '{config}'" in tell("git-daytona", "install", cwd=repo.path).err
    assert not everywhere.exists()
    # Where it is already, it stays.
    tell("git-daytona", "uninstall", cwd=repo.path)
    tell("git-daytona", "install", "--global")
    assert "nothing to do" in tell("git-daytona", "install", cwd=repo.path).err
    assert config.read_text() == "{}\n"
    assert f"removed: '{everywhere}'" in tell("git-daytona", "uninstall", cwd=repo.path).err
    assert tell("git-daytona", "uninstall", cwd=repo.path).status == 1


# -- where there is something ----------------------------------------------------------------------

LIVED_IN = """\
// Ours.
{
\t"$schema": "https://opencode.ai/config.json",
\t"plugin": [
\t\t"opencode-helicone-session", // who asked for this?
\t\t// "opencode-notifier",
\t],
\t/* Keep this last. */
\t"model": "anthropic/claude-sonnet-4-5",
}"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_everything_else_stays(tell: Tell, repo: Repo, newline: str, mark: str) -> None:
    config = repo.path / ".opencode" / "opencode.jsonc"
    config.parent.mkdir()
    before = (mark + LIVED_IN.replace("\n", newline)).encode()
    config.write_bytes(before)
    config.chmod(0o640)

    done = tell("git-daytona", "install", cwd=repo.path)
    assert f"changed: '{config}'" in done.err
    assert f'\n+\t\t"{registration.entry()}",\n' in done.out
    assert [
        line
        for line in done.out.splitlines()
        if line.startswith("-") and not line.startswith("---")
    ] == []
    entry = f'{newline}\t\t"{registration.entry()}",'
    rules = RULES.replace("    ", "\t\t").replace("  ", "\t").replace("\n", newline)
    after = before.decode()
    after = after.replace("// who asked for this?", f"// who asked for this?{entry}")
    after = after.removesuffix("}") + rules + f",{newline}}}"
    assert config.read_bytes() == after.encode()
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert not (repo.path / "opencode.json").exists()

    assert tell("git-daytona", "uninstall", cwd=repo.path).status == 0
    assert config.read_bytes() == before
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert [path.name for path in config.parent.iterdir()] == ["opencode.jsonc"]


def test_which_file_of_a_project(tell: Tell, repo: Repo) -> None:
    """opencode.json before opencode.jsonc, the root before .opencode; but where the plugin is
    already, it stays."""
    (repo.path / ".opencode").mkdir()
    files = [
        repo.path / name
        for name in (
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/opencode.jsonc",
        )
    ]
    for path in reversed(files):
        path.write_text("{}")
        assert tell("git-daytona", "install", "--dry-run", cwd=repo.path).out.startswith(
            f"--- {path}\n"
        )
    files[3].write_text(json.dumps({"plugin": [registration.entry()]}))
    tell("git-daytona", "install", cwd=repo.path)
    assert f"nothing to do: '{files[3]}'" in tell("git-daytona", "install", cwd=repo.path).err


def test_of_the_global_files_the_one_whose_plugins_count(tell: Tell, home: Path) -> None:
    """There OpenCode takes the last array alone: one in opencode.jsonc hides that in opencode.json,
    and both hide config.json's."""
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"plugin": ["a"]}')
    (folder / "opencode.jsonc").write_text('{"model": "m"}')
    tell("git-daytona", "install", "--global")
    assert plugins(folder / "config.json") == ["a", registration.entry()]
    (folder / "opencode.jsonc").write_text('{"plugin": []}')
    tell("git-daytona", "install", "--global")
    assert plugins(folder / "opencode.jsonc") == [registration.entry()]
    assert tell("git-daytona", "uninstall", "--global").status == 0
    assert (folder / "config.json").read_text() == '{"plugin": ["a"]}'
    assert (folder / "opencode.jsonc").read_text() == '{"plugin": []}'


def test_a_link_stays_a_link(tell: Tell, home: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "oc.json").write_text("{}\n")
    config = home / ".config" / "opencode" / "opencode.json"
    config.parent.mkdir(parents=True)
    config.symlink_to(dotfiles / "oc.json")
    tell("git-daytona", "install", "--global")
    assert config.is_symlink()
    assert plugins(dotfiles / "oc.json") == [registration.entry()]
    tell("git-daytona", "uninstall", "--global")
    assert config.is_symlink()
    assert (dotfiles / "oc.json").read_text() == "{}\n"
    assert [path.name for path in dotfiles.iterdir()] == ["oc.json"]
    # What looks as if we had made it is the user's own if it lies behind a link.
    (dotfiles / "oc.json").write_text(fresh())
    tell("git-daytona", "uninstall", "--global")
    assert json.loads((dotfiles / "oc.json").read_text()) == {
        "$schema": "https://opencode.ai/config.json"
    }


def test_an_older_installation_is_replaced(tell: Tell, repo: Repo) -> None:
    config = repo.path / "opencode.json"
    config.write_text(
        f'{{"plugin": ["a", ["{OLD}", {{"x": 1}}], "/opt/b/git_daytona/opencode/daytona.js", "b"]}}'
    )
    done = tell("git-daytona", "install", cwd=repo.path)
    assert f"replaced: '{OLD}', a plugin of another installation" in done.err
    entry = registration.entry()
    assert config.read_text().startswith(f'{{"plugin": ["a", ["{entry}", {{"x": 1}}], "b"], "per')
    tell("git-daytona", "uninstall", cwd=repo.path)
    assert config.read_text() == '{"plugin": ["a", "b"]}'


def test_what_others_added_since_stays(tell: Tell, repo: Repo) -> None:
    config = repo.path / "opencode.json"
    tell("git-daytona", "install", cwd=repo.path)
    config.write_text(fresh().replace('"]', '", "theirs"]'))
    tell("git-daytona", "uninstall", cwd=repo.path)
    bare = fresh().replace(f",\n{RULES}", "")
    assert config.read_text() == bare.replace(registration.entry(), "theirs")
    config.write_text(fresh().replace('"]', '"],\n  "model": "m"'))
    tell("git-daytona", "uninstall", cwd=repo.path)
    assert (
        config.read_text()
        == '{\n  "$schema": "https://opencode.ai/config.json",\n  "model": "m"\n}\n'
    )


@pytest.mark.parametrize(
    "spec", ["@daytona/opencode", "@daytona/opencode@1.2.3", "@daytonaio/opencode@latest"]
)
def test_beside_the_other_plugin_of_daytona(tell: Tell, repo: Repo, home: Path, spec: str) -> None:
    shared = home / ".config" / "opencode" / "opencode.jsonc"
    shared.parent.mkdir(parents=True)
    shared.write_text(json.dumps({"plugin": [spec]}))
    done = tell("git-daytona", "install", cwd=repo.path)
    assert done.status == 0
    assert (
        f"warning: '{shared}' also names Daytona's other plugin, '{spec}', and both would run"
        in done.err
    )
    assert "warning" not in tell("git-daytona", "uninstall", cwd=repo.path).err


def test_beside_plugins_that_lie_in_a_folder_or_belong_to_another_installation(
    tell: Tell, repo: Repo, home: Path
) -> None:
    loose = repo.path / ".opencode" / "plugin" / "daytona.ts"
    loose.parent.mkdir(parents=True)
    loose.write_text("")
    shared = home / ".config" / "opencode" / "opencode.json"
    shared.parent.mkdir(parents=True)
    shared.write_text(json.dumps({"plugin": [OLD, "opencode-notifier"]}))
    done = tell("git-daytona", "install", "--project", cwd=repo.path)
    assert f"warning: '{loose}' may be Daytona's other plugin" in done.err
    assert f"warning: '{shared}' names the plugin of another installation" in done.err
    assert done.err.count("warning") == 2


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"{\n  'plugin': []\n}",
            "is not JSON with comments: line 2: a property name in double quotes is missing",
        ),
        (b'{"plugin": "x"}', "\"plugin\" in '{}' is not an array"),
        (b'{"plugin": {"a": 1}}', "\"plugin\" in '{}' is not an array"),
        (b"[]", "does not hold a JSON object"),
        (b" \n", "is empty"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"<<<<<<< HEAD\n{}\n", "is not JSON with comments: line 1: this is not a JSON value"),
        (b'{"plugin": [' + b"[" * 200 + b"]" * 200 + b"]}", "nested too deeply"),
    ],
)
@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_files_that_cannot_be_edited(
    tell: Tell, repo: Repo, verb: str, content: bytes, says: str
) -> None:
    config = repo.path / "opencode.json"
    config.write_bytes(content)
    done = tell("git-daytona", verb, cwd=repo.path)
    assert done.status == BadSetting.status
    assert says.format(config) in done.complaint[0]
    assert done.out == ""
    assert config.read_bytes() == content


def test_a_link_to_nowhere(tell: Tell, repo: Repo) -> None:
    (repo.path / "opencode.json").symlink_to("gone.json")
    done = tell("git-daytona", "install", cwd=repo.path)
    assert done.status == BadSetting.status
    assert "is a link to nowhere" in done.complaint[0]
    assert not (repo.path / "gone.json").exists()


def test_a_directory_in_its_place(tell: Tell, repo: Repo) -> None:
    (repo.path / "opencode.json").mkdir()
    assert tell("git-daytona", "install", cwd=repo.path).status == BadSetting.status


def test_an_installation_without_its_plugin_file(tell: Tell, repo: Repo, shim: Path) -> None:
    (shim / "index.js").unlink()
    done = tell("git-daytona", "install", cwd=repo.path)
    assert done.status == BadSetting.status
    assert "is missing" in done.complaint[0]
    assert not (repo.path / "opencode.json").exists()


def test_a_path_that_a_url_has_to_quote(tell: Tell, repo: Repo, shim: Path) -> None:
    tell("git-daytona", "install", "--project", cwd=repo.path)
    (entry,) = plugins(repo.path / "opencode.json")
    assert entry.startswith("file:///") and "site%20packages" in entry
    assert registration.target(entry) == str(shim)
    assert "nothing to do" in tell("git-daytona", "install", cwd=repo.path).err
    tell("git-daytona", "uninstall", cwd=repo.path)
    assert not (repo.path / "opencode.json").exists()
