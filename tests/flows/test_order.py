"""What a sandbox is ordered with: what arrives in it, what is nowhere else, and what is refused
before anything is made."""

import json

import pytest
from click.testing import CliRunner

from git_daytona.base.errors import ApiUnreachable, BadSetting, GitDaytonaError, UsageError
from git_daytona.base.secret import Secret
from git_daytona.cli.git_daytona import cli
from git_daytona.git import repository as git
from git_daytona.sessions import copy
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import order, preferences
from git_daytona.settings.settings import Settings
from support.round_trip import Repo, execute
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
    file.unlink()
    names = "$VALUE|$FILED|$GIVEN|$NAMED|$ABSENT|$EXPANDED"
    expected = f"{VALUE}|{FILED}|1|by git's configuration||${{VALUE}}x"
    assert told("exec", "1", f'echo "{names}"').out == f"{expected}\n"
    ssh = command("daytona-ssh", "sandbox-1", f'echo "{names}"', cwd=repo.path)
    assert ssh.out == f"{expected}\n"
    session = coordinate(repo.path).find("1")
    cloud = coordinate(repo.path).cloud
    line = f'echo "{names}"'
    assert cloud.execute(session.sandbox_id, line, timeout=60).output == f"{expected}\n"
    record = {"inherit": ["VALUE"], "lost": ["FILED", "EXPANDED", "GIVEN"]}
    assert {name: sorted(each) for name, each in session.ordered.items()} == {
        name: sorted(each) for name, each in record.items()
    }
    with pytest.raises(UsageError) as refused:
        order.given({"cpu": "x"}, files=[{"FILED": Secret(FILED)}])
    canary.tell("refused", shown(refused.value))
    bad = tmp_path / "bad"
    bad.write_text(f"A B {FILED}\n")
    monkeypatch.chdir(repo.path)
    refused = CliRunner().invoke(cli, ("start", "--env-file", str(bad)), standalone_mode=False)
    assert "line 1 of" in str(refused.exception)
    canary.tell("bad", shown(refused.exception))
    bad.unlink()
    del refused
    canary.texts |= dict(reprs())
    assert canary.leaks() == []


@pytest.fixture
def made(local):
    """The embedded Daytona's own record of a session's sandbox."""
    return lambda session: next(each for each in local.sandboxes if each.id == session.sandbox_id)


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


def test_no_variable_breaks_a_sync(local, repo, coordinate, tmp_path):
    """Whatever names were ordered: work goes there and comes back, over ssh and through the API."""
    variables = {name: Secret(value) for name, value in HOSTILE.items()}
    coordinator = coordinate(repo.path)
    coordinator.start(order=order.given({}, files=[variables]))
    seen, _ = execute(coordinator, "1", "mkdir new; echo a >new/a; echo $GIT_DIR,$UID")
    assert seen.output.endswith("/nowhere/.git,7\n")
    coordinator.sync("1")
    assert repo.show("opencode/1", "new/a") == "a"
    repo.git("config", "daytona.transport", "api")
    repo.git("commit", "--allow-empty", "-qm", "here")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "x").write_text("x\n")
    copy.copy_in(coordinator, "1", str(tmp_path / "sent"), "sent")
    coordinator.update("1")
    assert repo.show("opencode/1", "sent/x") == "x"
    copy.copy_out(coordinator, "1", "sent", str(tmp_path / "back"))
    assert (tmp_path / "back" / "x").read_text() == "x\n"
    coordinator.delete("1")


def test_orders_are_kept_for_a_sandbox_that_replaces_another(
    made, repo, told, coordinate, monkeypatch
):
    """By git's configuration for tool calls, too; what was said on the command line stays said, but
    for values, which are nowhere."""
    repo.git("config", "daytona.autoStop", "33")
    repo.git("config", "daytona.autoArchive", "600")
    repo.git("config", "daytona.env", "NAMED")
    monkeypatch.setenv("NAMED", "one")
    words = ("--auto-stop", "44", "--auto-delete", "90", "--env", "TOOL", "--env", "GIVEN=1")
    ran = told("start", "--session", "mine", *words, env={"TOOL": "x"})
    assert "warning: session 1: its sandbox is deleted 90 minutes after it stops" in ran.err
    coordinator = coordinate(repo.path)
    first = made(coordinator.find("1"))
    assert (first.auto_stop_interval, first.auto_archive_interval) == (44, 600)
    assert first.env == {"NAMED": "one", "TOOL": "x", "GIVEN": "1"}
    line = "session 1: snapshot daytona-local, target local, cpu 1, memory 1, disk 3, auto-stop 44"
    assert f"{line}, auto-archive 600, auto-delete 90\n" in told("status", "-v").err
    assert json.loads(told("status", "--json").out)[0]["ordered"]["autoStopInterval"] == 44
    told("start", "--session", "mine", "--cpu", "1", status=2)  # it is there already

    monkeypatch.setenv("TOOL", "y")
    coordinator.sandboxes.delete(first.id)
    _, session, notice = coordinator.within(
        "mine", lambda sandbox_id: coordinator.cloud.execute(sandbox_id, "true", timeout=60)
    )
    second = made(session)
    assert second.id != first.id
    assert (second.auto_stop_interval, second.auto_delete_interval) == (44, 90)
    assert second.env == {"NAMED": "one", "TOOL": "y"}
    assert "lacks GIVEN" in notice
    third = made(coordinator.ensure("another").session)
    assert (third.auto_stop_interval, third.env) == (33, {"NAMED": "one"})


@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_interrupted_start_goes_on_as_ordered(local, made, repo, coordinate, lost):
    """Whether the sandbox was made or not; one that was has its variables."""
    with (
        local.faults.call(route="^(create|list)$", drop=lost),
        pytest.raises(ApiUnreachable),
    ):
        coordinate(repo.path).start("cut", order=order.given({"auto-stop": "44"}, env=["GIVEN=1"]))
    started = coordinate(repo.path).start("cut")
    assert made(started.session).auto_stop_interval == 44
    assert ("lacks GIVEN" in started.remark) == (lost == "before")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--allow-domains", "example.com"), 13, "not support domainAllowList"),
        (("--block-network",), 13, "ordered by --block-network"),
        (("--secret", "TOKEN=vault-name"), 13, "not support secrets"),
        (("--target", "mars"), 13, "Region not found"),
        (("--cpu", "2"), 2, "cpu cannot be ordered for a snapshot"),
        (("--image", "a", "--snapshot", "b"), 2, "not from both"),
        (("--env", "DAYTONA_API_KEY"), 2, "DAYTONA_API_KEY is not taken along"),
        (("--env", "HOME"), 2, "the variable HOME is the sandbox's own"),
        (("--env", "MISSING"), 2, "MISSING is not set here"),
        (("--ttl", "soon"), 2, "--ttl is 'soon', which is no whole number"),
        (("--outbound-proxy", "http://me:secret@p"), 2, "DAYTONA_OUTBOUND_PROXY instead"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_what_cannot_be_ordered(local, repo, monkeypatch, words, status, says):
    """Nothing is made; what the server refuses is said in its words."""
    monkeypatch.chdir(repo.path)
    before = len(local.sandboxes)
    told = CliRunner().invoke(cli, ("start", *words), standalone_mode=False)
    assert isinstance(told.exception, GitDaytonaError), told.exception
    assert told.exception.status == status
    assert says in f"{told.exception.message} {told.exception.hint}"
    assert "secret@p" not in f"{told.exception.message} {told.exception.hint}"
    assert len(local.sandboxes) == before


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("daytona.env", "TOKEN=abcdef", "no place for values"),
        ("daytona.cpu", "many", "daytona.cpu is 'many', which is no whole number from 1 to 1024"),
        ("daytona.allowNetworks", "10.0.0.1/8", "has host bits set"),
        ("daytona.spot", "maybe", "is neither true nor false"),
        ("daytona.outboundProxy", "http://me:secret@p", "holds a user name or password"),
    ],
)
def test_what_cannot_be_configured(repo, key, value, says):
    repo.git("config", key, value)
    with pytest.raises(BadSetting) as refused:
        order.configured(preferences.load(repo.path))
    assert says in f"{refused.value.message} {refused.value.hint}"
    told = shown(refused.value, frames=False)
    assert "abcdef" not in told and "secret@p" not in told


def test_which_order_counts(repo, monkeypatch, tmp_path):
    """Each later place wins: .env's snapshot, git's configuration, the environment, the command
    line; lists of names add up."""

    def body(**options):
        found = Settings(snapshot="from .env")
        given = order.given({name.replace("_", "-"): each for name, each in options.items()})
        return order.combined(preferences.load(repo.path), found, given).body()

    assert body() == {"snapshot": "from .env"}
    repo.git("config", "--global", "daytona.cpu", "2")
    repo.git("config", "--global", "daytona.image", "debian:13")
    repo.git("config", "--global", "daytona.env", "A")
    repo.git("config", "--add", "daytona.env", "B C")
    image = {"dockerfileContent": "FROM debian:13\n"}
    assert body() == {"cpu": 2, "buildInfo": image}
    assert body(cpu="4") == {"cpu": 4, "buildInfo": image}
    assert order.configured(preferences.load(repo.path)).inherit == ("A", "B", "C")
    monkeypatch.setenv("DAYTONA_SNAPSHOT", "environment")
    assert body() == {"snapshot": "environment"}
    monkeypatch.setenv("DAYTONA_OUTBOUND_PROXY", "http://me:secret@p")
    assert body()["outboundProxyUrl"].reveal() == "http://me:secret@p"
    assert body(outbound_proxy="http://p:3128")["outboundProxyUrl"] == "http://p:3128"
    monkeypatch.delenv("DAYTONA_OUTBOUND_PROXY")
    assert body(image="alpine")["buildInfo"] == {"dockerfileContent": "FROM alpine\n"}
    repo.git("config", "daytona.image", "")
    repo.git("config", "daytona.env", "")
    assert order.configured(preferences.load(repo.path)).inherit == ()
    assert body(allow_networks="10.0.0.0/8 192.0.2.1", spot="false") == {
        "snapshot": "environment",
        "networkAllowList": "10.0.0.0/8,192.0.2.1/32",
        "spot": False,
    }


def test_the_key_in_a_project_s_file_of_variables_stays_here(local, made, repo, told, coordinate):
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\nA=1\nB='key: {local.api_key}'\n")
    ran = told("start", "--env-file", ".env")
    assert "does not get DAYTONA_API_KEY, B, which holds Daytona's API key" in ran.err
    assert made(coordinate(repo.path).find("1")).env == {"A": "1"}


def test_what_a_repository_orders(repo, coordinate, monkeypatch, tmp_path):
    """Neither its files nor a bare repository among them take anything of ours along."""
    monkeypatch.setenv("TOKEN", VALUE)
    repo.write(".env", "DAYTONA_ENV=TOKEN\nDAYTONA_IMAGE=theirs\nDAYTONA_OUTBOUND_PROXY=http://p\n")
    repo.write(".gitconfig", "[daytona]\n\tenv = TOKEN\n")
    assert coordinate(repo.path).ordered(order.NOTHING)[0].body() == {}
    repo.git("clone", "-q", "--bare", ".", "theirs")
    theirs = Repo(repo.path / "theirs")
    theirs.git("config", "daytona.env", "TOKEN")
    theirs.git("config", "daytona.image", "theirs")
    bare = git.discover(theirs.path)
    assert Coordinator(bare, Settings()).ordered(order.NOTHING)[0].body() == {}
    theirs.git("config", "--global", "daytona.env", "TOKEN")
    assert set(Coordinator(bare, Settings()).ordered(order.NOTHING)[0].env) == {"TOKEN"}
