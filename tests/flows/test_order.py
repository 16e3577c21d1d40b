"""What a sandbox is ordered with: what arrives in it, what is nowhere else, and what is refused
before anything is made."""

import pytest

from git_daytona.base.errors import UsageError
from git_daytona.base.secret import Secret
from git_daytona.settings import order
from support.secret_search import reprs, shown

VALUE = "Planted+Ordered=Canary/0123456789 'x'"
FILED = "Filed+Ordered=Canary/9876543210"


@pytest.fixture
def told(command, repo):
    """Run git-daytona as a user does in the repository."""

    def run(*words: str, status: int = 0, **how):
        ran = command("git-daytona", *words, cwd=repo.path, **how)
        assert ran.status == status, ran.err
        return ran

    return run


def test_variables_reach_every_command_and_stay_nowhere_here(
    local, repo, told, command, canary, tmp_path, home, coordinate, monkeypatch
):
    """From the environment, a file and git's configuration; the file is the user's own."""
    canary.keys.add(FILED)
    canary.may_have_key = lambda each: b"DAYTONA_SANDBOX_ID=" in each.environment
    canary.keys.discard(local.api_key)
    canary.tokens.append(VALUE)
    canary.may_have_token = lambda _: True  # of the user's own, what is started has each variable
    file = tmp_path / "mine" / "variables"
    file.parent.mkdir()
    file.write_text(f'# mine\nFILED="{FILED}"\nexport EXPANDED=${{VALUE}}x\n')
    repo.git("config", "daytona.env", "NAMED, ABSENT")
    own = {"GIVEN": "not this", "NAMED": "by git's configuration", "VALUE": VALUE}
    with canary.watching():
        ran = told("start", "--env", "VALUE", "--env", "GIVEN=1", "--env-file", str(file), env=own)
        assert "lacks ABSENT" in ran.err
        canary.tell("start", ran.out + ran.err)
        canary.tell("status", told("status", "-v", "--json").out)
        canary.tell("sync", told("sync", "1").err)
        bad = tmp_path / "bad"
        bad.write_text(f"A B {FILED}\n")
        canary.tell("bad", told("start", "--env-file", str(bad), status=2).err)
    file.unlink()
    bad.unlink()
    names = "$VALUE|$FILED|$GIVEN|$NAMED|$ABSENT|$EXPANDED"
    expected = f"{VALUE}|{FILED}|1|by git's configuration||${{VALUE}}x"
    assert told("exec", "1", f'echo "{names}"').out == f"{expected}\n"
    ssh = command("daytona-ssh", "sandbox-1", f'echo "{names}"', cwd=repo.path)
    assert ssh.out == f"{expected}\n"
    session = coordinate(repo.path).find("1")
    cloud = coordinate(repo.path).cloud
    line = f'echo "{names}"'
    assert cloud.execute(session.sandbox_id, line, timeout=9).output == f"{expected}\n"
    record = {"inherit": ["VALUE"], "lost": ["FILED", "EXPANDED", "GIVEN"]}
    assert {name: sorted(each) for name, each in session.ordered.items()} == {
        name: sorted(each) for name, each in record.items()
    }
    with pytest.raises(UsageError) as refused:
        order.given({"cpu": "x"}, files=[{"FILED": Secret(FILED)}])
    canary.tell("refused", shown(refused.value))
    canary.texts |= dict(reprs())
    assert canary.leaks() == []


HOSTILE = {
    "GIT_DIR": "/nowhere/.git",
    "GIT_WORK_TREE": "/tmp",
    "GIT_INDEX_FILE": "/tmp/index",
    "GIT_OBJECT_DIRECTORY": "/tmp/objects",
    "GIT_NAMESPACE": "theirs",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.bare",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_EXEC_PATH": "/nowhere",
    "GIT_TRACE": "2",
    "GIT_EXTERNAL_DIFF": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_AUTHOR_DATE": "nonsense",
    "LD_PRELOAD": "/nowhere.so",
    "BASH_ENV": "/home/daytona/profile",
    "ENV": "/home/daytona/profile",
    "CDPATH": "/tmp:/usr",
    "IFS": "gitdayon/-",
    "TAR_OPTIONS": "--nonsense",
    "POSIXLY_CORRECT": "1",
    "TMPDIR": "/nowhere",
    "SHELLOPTS": "xtrace",
    "PS4": "$(touch /tmp/ran)",
    "UID": "7",
}


def test_no_variable_breaks_a_sync(local, repo, told, tmp_path):
    """Whatever names were ordered: work goes there and comes back, over ssh and through the API."""
    file = tmp_path / "variables"
    file.write_text("".join(f"{name}='{value}'\n" for name, value in HOSTILE.items()))
    told("start", "--env-file", str(file))
    assert told("exec", "1", "mkdir new; echo a >new/a; echo $GIT_DIR,$UID").out == (
        "/nowhere/.git,7\n"
    )
    told("sync", "1")
    assert repo.show("opencode/1", "new/a") == "a"
    repo.git("config", "daytona.transport", "api")
    repo.git("commit", "--allow-empty", "-qm", "here")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "x").write_text("x\n")
    told("cp", str(tmp_path / "sent"), "1:sent")
    told("update", "1")
    assert repo.show("opencode/1", "sent/x") == "x"
    told("cp", "1:sent", str(tmp_path / "back"))
    assert (tmp_path / "back" / "x").read_text() == "x\n"
    told("delete", "1")
