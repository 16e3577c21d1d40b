"""daytona-token login, logout and whoami: the key is checked, kept and named, and shown nowhere
(case 54)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona.local.api import service
from git_daytona.settings import keystore
from support import tmux
from support.processes import descendants
from support.round_trip import BIN

PROGRAM = "daytona-token"
ENVIRONMENT = "the environment variable DAYTONA_API_KEY"


@pytest.fixture
def keyless(local, monkeypatch):
    """The embedded Daytona, and no key of it anywhere."""
    monkeypatch.delenv("DAYTONA_API_KEY")
    return local


def line(key: str) -> bytes:
    return f"{key}\n".encode()


def with_profile(home: Path, config: object, mode: int = 0o600) -> Path:
    path = home / ".config" / "daytona" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    path.chmod(mode)
    return path


def profile(url: str, key: str | None, **more: object) -> dict[str, object]:
    return {
        "activeProfile": "b",
        "profiles": [
            {"id": "a", "api": {"key": "other"}},
            {"id": "b", "name": "work", "api": {"url": url, "key": key}} | more,
        ],
    }


def test_login_whoami_logout(keyless, tell, keyrings):
    key = keyless.api_key
    assert tell(PROGRAM, "whoami").status == 5
    told = tell(PROGRAM, "login", stdin=line(f"  {key} \r"))
    assert (told.status, told.out) == (0, "")
    assert (
        told.err
        == f"the key 'daytona-local' for {keyless.api_url} is in the OS keyring: a file of the "
        "test\n"
    )
    assert keyrings.keys == {keyless.api_url: key}
    assert [call.route for call in keyless.calls] == ["key"], "one call to check it"

    told = tell(PROGRAM, "whoami")
    assert (told.status, told.err) == (0, "")
    assert [row.split(None, 1) for row in told.out.splitlines()] == [
        ["organisation", f"daytona-local ({service.ORGANIZATION})"],
        ["API", keyless.api_url],
        ["key", "'daytona-local'"],
        ["source", "the OS keyring (a file of the test)"],
        ["may", "write and delete sandboxes; write and delete snapshots"],
        ["expires", "never"],
    ]
    assert tell(PROGRAM, "revoke", "--all", "sb1").status == 0, "other commands use it, too"

    assert "it replaced another" in tell(PROGRAM, "login", stdin=line(key)).err
    told = tell(PROGRAM, "logout")
    assert (told.status, told.out) == (0, "")
    assert (
        told.err
        == f"the key for {keyless.api_url} was removed from the OS keyring: a file of the test\n"
    )
    assert keyrings.keys == {}
    told = tell(PROGRAM, "logout")
    assert (told.status, told.out) == (1, "")
    assert "there is no key for http://127.0.0.1" in told.complaint[0]


def test_a_key_for_each_api(keyless, tell, keyrings):
    keyrings.keys = {"https://elsewhere.invalid/api": "dtn_elsewhere"}
    assert tell(PROGRAM, "whoami").status == 5
    assert tell(PROGRAM, "logout").status == 1
    assert tell(PROGRAM, "login", stdin=line(keyless.api_key)).status == 0
    assert tell(PROGRAM, "logout").status == 0
    assert keyrings.keys == {"https://elsewhere.invalid/api": "dtn_elsewhere"}


def test_a_key_that_the_api_does_not_take_is_not_stored(keyless, tell, keyrings, monkeypatch):
    key = keyless.api_key
    told = tell(PROGRAM, "login", stdin=b"dtn_wrong_but_well_formed\n")
    assert told.status == 6
    assert "does not accept the API key from standard input: Invalid" in told.complaint[0]
    assert "; the key was not stored" in told.complaint[0]
    assert "wrong_but" not in told.err
    for fault, status in (
        ({"status": 403}, 7),
        ({"status": 500}, 15),
        ({"drop": "before"}, 4),
        ({"drop": "after"}, 4),
    ):
        with keyless.faults.call(route="^key$", **fault):
            told = tell(PROGRAM, "login", stdin=line(key))
        assert told.status == status, told.err
        assert "the key was not stored" in told.complaint[0]
    assert keyrings.keys == {}
    with keyless.faults.call(route="^key$", status=500):
        assert tell(PROGRAM, "login", "--no-check", stdin=line(key)).status == 0
    assert keyrings.keys == {keyless.api_url: key}


def test_what_is_no_key(keyless, tell, keyrings):
    cases = [
        b"",
        b"\n",
        b" \t\r\n",
        b"\n" + line(keyless.api_key),
        b"export KEY=dtn_x\n",
        b"dtn_\x1b[2Jx\n",
        "dtn_sch\u00f6n\n".encode(),
        b"\xff\xfed\0t\0\n",
        b"a" * 4097 + b"\n",
    ]
    for stdin in cases:
        told = tell(PROGRAM, "login", stdin=stdin)
        assert (told.status, told.out) == (2, ""), stdin
        assert "standard input" in told.complaint[0]
        assert not stdin.strip() or stdin.decode("utf-8", "replace").strip()[:9] not in told.err
    assert keyless.calls == []
    assert keyrings.keys == {}
    assert tell(PROGRAM, "login", "--no-check", stdin=b"a" * 4096).status == 0, (
        "the longest, without an end of line"
    )
    assert tell(PROGRAM, "login", stdin=line(keyless.api_key) + b"more\n").status == 0, (
        "one line is read"
    )


def test_a_key_as_an_argument_is_not_repeated(keyless, tell, keyrings, home):
    secret = "a-secret-of-another-form"
    for words in (
        (secret,),
        ("--", secret),
        (f"--key={secret}",),
        (f"--{secret}",),
        (f"-k{secret}",),
        (f"--no-check={secret}",),
        (secret, secret),
    ):
        for verb in ("login", "logout", "whoami"):
            told = tell(PROGRAM, verb, *words, stdin=line(keyless.api_key))
            assert (told.status, told.out) == (2, ""), words
            assert "revoke it" in told.complaint[1]
            assert secret not in told.err, words
    assert keyless.calls == []
    assert keyrings.keys == {}
    assert secret not in everything_below(home)


def test_sources_that_come_before_the_keyring(keyless, tell, keyrings, repo, monkeypatch):
    key = keyless.api_key
    (repo.path / ".env").write_text(f"DAYTONA_API_KEY={key}\n")
    told = tell(PROGRAM, "login", stdin=line(key), cwd=repo.path)
    assert told.status == 0
    assert f"warning: here, the key from '.env' of '{repo.path}' is used instead" in told.err
    source = json.loads(tell(PROGRAM, "whoami", "--json", cwd=repo.path).out)["source"]
    assert source == f"'.env' of '{repo.path}'"
    odd = repo.path.rename(repo.path.with_name("odd\nexpires  never\x1b[2J\udcff"))
    rows = tell(PROGRAM, "whoami", cwd=odd).out.splitlines()
    assert (len(rows), rows[3].partition("odd")[2]) == (6, " expires never\\x1b[2J\\udcff'")
    monkeypatch.setenv("DAYTONA_API_KEY", key)
    assert (
        f"the key from {ENVIRONMENT} is used instead"
        in tell(PROGRAM, "login", stdin=line(key), cwd=odd).err
    )
    told = tell(PROGRAM, "logout")
    assert told.status == 0
    assert f"warning: there is still a key: the one from {ENVIRONMENT}" in told.err
    told = tell(PROGRAM, "logout")
    assert told.status == 1
    assert told.complaint[1] == f"hint: the one in use is from {ENVIRONMENT}"


def test_whoami_as_json_with_a_lesser_key(keyless, tell, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_KEY", keyless.api_key)
    monkeypatch.setattr(
        service, "PERMISSIONS", ["write:sandboxes", "read:audit_logs", "odd\x1b[2J"]
    )
    # the cloud may not tell it to a key
    with keyless.faults.call(route="^organization$", status=403):
        told = tell(PROGRAM, "whoami", "--json")
        shown = tell(PROGRAM, "whoami")
    assert json.loads(told.out) == {
        "organization": {"id": service.ORGANIZATION, "name": None},
        "apiUrl": keyless.api_url,
        "source": ENVIRONMENT,
        "key": {
            "name": "daytona-local",
            "permissions": ["write:sandboxes", "read:audit_logs", "odd\\x1b[2J"],
            "expiresAt": None,
        },
    }
    assert "warning: the key lacks the permission delete:sandboxes" in told.err
    assert f"organisation  {service.ORGANIZATION}\n" in shown.out
    assert "write sandboxes; read audit logs; odd\\x1b[2J anything" in shown.out


def test_whoami_and_odd_answers(keyless, tell, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_KEY", keyless.api_key)
    for answer, expiry, organisation in (
        (
            {"expiresAt": "2031-02-03T04:05:06Z", "organizationId": "org"},
            "2031-02-03 04:05 UTC",
            "org",
        ),
        (
            {
                "expiresAt": "tomorrow",
                "organizationId": "../../x",
                "permissions": {"a": 1},
                "name": ["\x1b[2J\nmay all"] * 9_999,
            },
            "never",
            "../../x",
        ),
        (
            {"name": None, "permissions": None, "organizationId": None, "expiresAt": 5},
            "never",
            "the API does not say",
        ),
    ):
        with keyless.faults.call(route="^key$", body=json.dumps(answer).encode()):
            told = tell(PROGRAM, "whoami")
            as_json = tell(PROGRAM, "whoami", "--json")
        assert (told.status, as_json.status) == (0, 0), answer
        rows = dict(row.split(None, 1) for row in told.out.splitlines())
        assert (rows["expires"], rows["organisation"], rows["may"]) == (
            expiry,
            organisation,
            "the API does not say",
        )
        assert "\x1b" not in told.out
        assert len(told.out.splitlines()) == 6
        assert max(map(len, told.out.splitlines())) < 300
        json.loads(as_json.out)
    for body in (b"<html>", b"[]", b"", b"[" * 5000):
        with keyless.faults.call(route="^key$", body=body):
            assert tell(PROGRAM, "whoami").status == 15


def test_whoami_that_fails(keyless, tell, monkeypatch):
    told = tell(PROGRAM, "whoami")
    assert told.status == 5
    assert "daytona-token login" in told.complaint[1]
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_refused_key")
    told = tell(PROGRAM, "whoami")
    assert told.status == 6
    assert f"does not accept the API key from {ENVIRONMENT}" in told.complaint[0]
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    assert tell(PROGRAM, "whoami").status == 4


def test_the_profile_of_the_daytona_cli(keyless, tell, keyrings, home, monkeypatch):
    url, key = keyless.api_url, keyless.api_key
    path = with_profile(home, profile(f"{url}/", key))
    source = f"profile 'work' of the Daytona CLI in '{path}'"
    told = tell(PROGRAM, "whoami", "--json")
    assert (told.status, json.loads(told.out)["source"], told.err) == (0, source, "")
    assert tell(PROGRAM, "revoke", "--all", "sb1").status == 0
    path.chmod(0o644)  # as the CLI makes it
    assert f"warning: others on this machine can read '{path}'" in tell(PROGRAM, "whoami").err
    assert tell(PROGRAM, "logout").complaint[1] == f"hint: the one in use is from {source}"
    with_profile(home, profile(url, "wrong"))
    assert f"does not accept the API key from {source}" in tell(PROGRAM, "whoami").complaint[0]
    with_profile(home, profile(url, key))
    tell(PROGRAM, "login", stdin=line(key))
    assert json.loads(tell(PROGRAM, "whoami", "--json").out)["source"].startswith(
        "the OS keyring"
    ), "the keyring comes before it"
    assert "there is still a key" in tell(PROGRAM, "logout").err

    keyless.forget_calls()
    folder = home / "elsewhere"
    folder.mkdir()
    for config, says in (
        (
            profile(url.replace("127.0.0.1", "localhost"), key),
            "is for another API: 'http://localhost:",
        ),
        (profile(url, None, token={"accessToken": "jwt-of-a-login"}), "has no API key"),
        (profile(url, "a\nb"), "holds blanks"),
        (profile(url, key) | {"activeProfile": "c"}, ""),
        (profile(url, key) | {"activeProfile": ["b"]}, ""),
        ({"activeProfile": "b", "profiles": {"b": 1}}, ""),
        (
            {"activeProfile": "b", "profiles": [7, None, {"id": "b", "name": 1, "api": []}]},
            "is for another API: ''",
        ),
        ("[]", "it is not valid"),
        ("{" * 100_000, "it is not valid"),
        ("[" * 100_000, "it is not valid"),
        ('{"a": "\ud83d"}'.encode("utf-8", "surrogatepass").decode("latin-1"), ""),
        (" " * 1024 * 1024 + "{}", "larger than 1 MiB"),
    ):
        path = with_profile(home, config)
        told = tell(PROGRAM, "whoami")
        assert told.status == 5, config
        assert says in told.complaint[1], (says, told.err)
        assert "jwt-of-a-login" not in told.err
    path.unlink()
    for make in (
        os.mkfifo,
        os.mkdir,
        lambda place: place.symlink_to("/dev/zero"),
        lambda place: place.symlink_to(place),
    ):
        make(path)
        told = tell(PROGRAM, "whoami")
        assert told.status == 5
        assert "not read" in told.complaint[1]
        path.rmdir() if path.is_dir() else path.unlink()
    assert keyless.calls == [], "no key went anywhere"
    monkeypatch.setenv("DAYTONA_CONFIG_DIR", str(folder))
    (folder / "kept").write_text(json.dumps(profile(url, key)))
    (folder / "config.json").symlink_to("kept")
    assert tell(PROGRAM, "whoami").status == 0, "a link of the user's own is followed"


def test_case_54_keyrings_in_the_way(keyless, tell, keyrings, monkeypatch):
    """Bounded, named, and never in the way of a key from the environment."""
    key, url = keyless.api_key, keyless.api_url
    monkeypatch.setattr(keystore, "LOOKUP_SECONDS", 0.2)
    monkeypatch.setattr(keystore, "PATIENT_SECONDS", 0.3)
    monkeypatch.setattr(keystore, "QUIET_SECONDS", 0.1)
    none, broken = "no keyring on this machine can keep the key", "the keyring cannot be read: "
    for name, says, hint, whoami in (
        ("keyring.backends.null.Keyring", none, "gnome-keyring", 5),
        ("keyring.backends.fail.Keyring", none, "gnome-keyring", 5),
        ("Raising", f"{broken}RuntimeError", "DAYTONA_API_KEY", 13),
        ("Panicking", f"{broken}BaseException", "DAYTONA_API_KEY", 13),
        ("Locked", "the keyring is locked", "unlock it", 13),
        ("Waiting", "did not answer within 0 seconds", "unlock", 13),
        ("NotWritable", "cannot be written to: OSError", "DAYTONA_API_KEY", 5),
        ("Forgetful", "does not give back what was stored", "DAYTONA_API_KEY", 5),
        ("Cutting", "does not give back what was stored", "DAYTONA_API_KEY", 6),
        ("Odd", "does not give back what was stored", "DAYTONA_API_KEY", 5),
    ):
        keyrings.keys = {}
        keyrings.choose(name)
        told = tell(PROGRAM, "login", stdin=line(key))
        assert (told.status, told.out) == (13, ""), name
        assert says in told.complaint[0], name
        assert hint in told.complaint[1], name
        assert ("waiting for the keyring" in told.err) == (name == "Waiting")
        assert key not in told.err
        told = tell(PROGRAM, "whoami")
        assert told.status == whoami, (name, told.err)
        with monkeypatch.context() as patch:
            patch.setenv("DAYTONA_API_KEY", key)
            assert tell(PROGRAM, "whoami").status == 0, name
        assert tell(PROGRAM, "logout").status in (0, 1, 13)

    keyrings.choose("Clinging")
    keyrings.keys = {url: key}
    assert "the keyring still has the key" in tell(PROGRAM, "logout").complaint[0]
    keyrings.keys = {url: "no key"}
    told = tell(PROGRAM, "whoami")
    assert told.status == 13
    assert "holds blanks" in told.complaint[0]

    keyrings.choose("Chain")
    keyrings.keys = {}
    assert "the OS keyring: a file of the test" in tell(PROGRAM, "login", stdin=line(key)).err, (
        "the one of a chain that keeps it"
    )
    assert tell(PROGRAM, "whoami").status == tell(PROGRAM, "logout").status == 0
    assert keyrings.keys == {}


def test_case_54_a_keyring_that_cannot_be_loaded(keyless, keyrings, tmp_path):
    """Neither the one that is chosen, nor another that is installed, shows a traceback."""
    (tmp_path / "broken.dist-info").mkdir()
    (tmp_path / "broken.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1\n"
    )
    (tmp_path / "broken.dist-info" / "entry_points.txt").write_text(
        "[keyring.backends]\nbroken = no_such_module\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "from git_daytona.__main__ import leave, main; leave(main(sys.argv[1:]))"
    )
    # only reads: without a choice it may be the machine's own keyring
    argv = (sys.executable, "-c", script, PROGRAM, "whoami")
    for choice, status, says in (
        ("no_such_module.Keyring", 13, "cannot be read: ModuleNotFoundError"),
        (None, 5, "no API key"),
    ):
        if choice:
            keyrings.choose(choice, load=False)
        else:
            keyrings.configuration.unlink()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.returncode == status
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 2, done.stderr


def test_keyrings_alt(keyless, tell, keyrings, home, tmp_path):
    """A real backend of others, which keeps plain text."""
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "--retries",
        "0",
        "--timeout",
        "10",
    )
    try:
        subprocess.run(
            (*pip, "--target", tmp_path, "keyrings.alt>=5"),
            capture_output=True,
            timeout=60,
            check=True,
        )
    except subprocess.SubprocessError:
        pytest.skip("keyrings.alt cannot be had")
    keyrings.choose("keyrings.alt.file.PlaintextKeyring")
    told = tell(PROGRAM, "login", stdin=line(keyless.api_key))
    file = home / ".local" / "share" / "python_keyring" / "keyring_pass.cfg"
    assert told.err.splitlines() == [
        f"the key 'daytona-local' for {keyless.api_url} is in the OS keyring: plain text "
        f"file '{file}'",
        f"daytona-token: warning: that is plain text: whoever reads '{file}' has the key",
    ]
    assert file.exists()
    assert f"(plain text file '{file}')" in tell(PROGRAM, "whoami").out
    assert tell(PROGRAM, "logout").status == 0
    assert tell(PROGRAM, "whoami").status == 5


def test_on_a_terminal(keyless, keyrings, home):
    """Nothing that is typed is shown; Ctrl-C stores nothing; the terminal has its echo back however
    it ends."""
    # bash would mend the echo by itself
    with tmux.start(["sh"], {"PS1": "$ ", "ENV": ""}, (100, 30)) as shown:

        def run(words: str) -> None:
            shown.type(words)
            shown.send("Enter")

        def ended(status: int) -> None:
            shown.wait_for(rf"^ended {status}$")
            run("clear; stty -a | grep -ow -e '-*echo'")
            shown.wait_for(r"^echo$")

        shown.wait_for(r"^\$")
        run(f"{BIN / PROGRAM} login; echo ended $?")
        shown.wait_for(r"^paste an API key for http://127.*\n(.*\n)?API key \(not shown\):")
        shown.type(keyless.api_key)
        shown.send("C-c")
        shown.wait_for("^interrupted")
        ended(130)
        assert keyrings.keys == {}

        run(f"{BIN / PROGRAM} login; echo ended $?")
        shown.wait_for("not shown")
        below = descendants(shown.pid)
        shown.type(keyless.api_key)
        shown.send("Enter")
        shown.wait_for("is in the OS keyring: a file of the")
        ended(0)
        assert keyrings.keys == {keyless.api_url: keyless.api_key}
        assert below and not any(
            keyless.api_key.encode() in each.arguments + each.environment for each in below
        )

        run(f"{BIN / PROGRAM} login; echo ended $?")
        shown.wait_for("not shown")
        shown.type(keyless.api_key[:9])
        os.kill(max(each.pid for each in descendants(shown.pid)), signal.SIGTERM)
        ended(128 + signal.SIGTERM)

        keyrings.choose("Asking", load=False)  # given up while it asks, with the echo off
        run(f"{BIN / PROGRAM} login; echo ended $?")
        shown.wait_for("passphrase:")
        shown.send("C-c")
        shown.wait_for("^interrupted")
        ended(130)
        assert keyless.api_key not in shown.everything()
    assert keyless.api_key not in everything_below(home, but={"keys.json"})


def test_without_standard_input(keyless, keyrings):
    done = subprocess.run(
        (BIN / PROGRAM, "login"),
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: os.close(0),
    )
    assert done.returncode == 2
    assert "standard input" in done.stderr


def test_the_key_is_nowhere(keyless, tell, keyrings, home, monkeypatch):
    """Neither in what is printed nor in the log, with every failure, and with debug logging on."""
    monkeypatch.setenv("DAYTONA_DEBUG", "1")
    for key in (keyless.api_key, "another-form-of-key-0123456789"):
        for fault in (None, {"status": 401}, {"status": 403}, {"status": 500}, {"drop": "after"}):
            with keyless.faults.call(route="^key$", **fault) if fault else contextlib.nullcontext():
                for words in (
                    ("login",),
                    ("login", key),
                    ("whoami",),
                    ("whoami", "--json"),
                    ("logout",),
                ):
                    each = tell(PROGRAM, *words, stdin=line(key))
                    assert key not in each.out + each.err, (words, fault)
        for name in ("Raising", "NotWritable", "Cutting", "Clinging"):
            keyrings.keys = {}
            keyrings.choose(name)
            for verb in (("login", "--no-check"), ("whoami",), ("logout",)):
                each = tell(PROGRAM, *verb, stdin=line(key))
                assert key not in each.out + each.err
        keyrings.choose("File")
        assert key not in everything_below(home, but={"keys.json"})


def everything_below(folder: Path, but: frozenset[str] | set[str] = frozenset()) -> str:
    return "".join(
        path.read_text("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file() and path.name not in but
    )


SECRET_SERVICE = """
printf x | gnome-keyring-daemon --unlock --components=secrets --daemonize >/dev/null 2>&1
{program} login <"$HOME/key" && {program} whoami && {program} logout &&
{program} login --no-check <"$HOME/key"
gdbus call --session --dest org.freedesktop.secrets --object-path /org/freedesktop/secrets \\
    --method org.freedesktop.Secret.Service.Lock \\
    "[objectpath '/org/freedesktop/secrets/collection/login']" >/dev/null
{program} whoami; echo "status $?"
"""


@pytest.mark.skipif(
    not all(map(shutil.which, ("gnome-keyring-daemon", "dbus-run-session", "gdbus"))),
    reason="gnome-keyring is not there",
)
def test_case_54_the_secret_service(keyless, home, monkeypatch):
    """gnome-keyring itself: unlocked, then locked, with nobody there to unlock it."""
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    (home / "run").mkdir(mode=0o700)
    (home / "key").write_text(keyless.api_key)
    env = os.environ | {"XDG_RUNTIME_DIR": str(home / "run")}
    script = ("dbus-run-session", "--", "sh", "-c", SECRET_SERVICE.format(program=BIN / PROGRAM))
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, env=env)
    assert (
        f"the key 'daytona-local' for {keyless.api_url} is in the OS keyring: Secret Service\n"
        in done.stderr
    )
    assert "source        the OS keyring (Secret Service)\n" in done.stdout
    assert (
        f"was removed from the OS keyring: Secret Service\nthe key for {keyless.api_url} is in"
        in done.stderr
    )
    assert "daytona-token: error: the keyring is locked" in done.stderr
    assert done.stdout.endswith("status 13\n")
    assert keyless.api_key not in done.stdout + done.stderr
