"""git daytona ssh-config on the files that people have."""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def config(home: Path) -> Path:
    return home / ".ssh" / "config"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def shown(config: Path, host: str = "sandbox-1") -> dict[str, str]:
    """What OpenSSH makes of it."""
    done = subprocess.run(
        ("ssh", "-F", config, "-G", host), capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stderr
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_print(tell, config):
    told = tell("git-daytona", "ssh-config")
    assert told.status == 0 and told.out.startswith("Host sandbox-* ")
    assert not config.exists()


def test_there_and_back(tell, config):
    """A missing folder; whatever the umask, ssh takes the file."""
    was = os.umask(0o000)
    try:
        dry = tell("git-daytona", "ssh-config", "--install", "--dry-run")
        assert dry.status == 0 and "+Host sandbox-*" in dry.out
        assert f"'{config}' would be written" in dry.err and not config.parent.exists()
        told = tell("git-daytona", "ssh-config", "--install")
    finally:
        os.umask(was)
    assert (told.status, told.out) == (0, dry.out)
    assert (mode(config.parent), mode(config)) == (0o700, 0o600)
    assert "nothing to do" in tell("git-daytona", "ssh-config", "--install").err
    dry = tell("git-daytona", "ssh-config", "--uninstall", "-n")
    assert f"'{config}' would be removed" in dry.err and config.exists()
    assert tell("git-daytona", "ssh-config", "--uninstall").status == 0
    assert not config.exists()
    again = tell("git-daytona", "ssh-config", "--uninstall")
    assert again.status == 1 and "has no entries" in again.err


@pytest.mark.parametrize("bits", [0o600, 0o644, 0o400])
def test_a_file_of_the_users(tell, config, tmp_path, bits):
    """Behind a link, in Latin-1, with CR LF; its first lines go on to be for all hosts."""
    real = tmp_path / "dotfiles"
    before = "User m\xfcller\r\n# caf\xe9\r\nHost *\r\n  Port 2200".encode("latin-1")
    real.write_bytes(before)
    real.chmod(bits)
    config.parent.mkdir()
    config.symlink_to(real)
    assert tell("git-daytona", "ssh-config", "--install").status == 0
    assert config.is_symlink() and mode(real) == bits
    other, sandbox = shown(config, "other"), shown(config)
    assert (other["port"], other.get("proxycommand")) == ("2200", None)
    assert other["user"].startswith("m")
    assert "ssh-proxy" in sandbox["proxycommand"] and sandbox["user"] == "daytona"
    assert tell("git-daytona", "ssh-config", "--uninstall").status == 0
    assert real.read_bytes() == before and mode(real) == bits and config.is_symlink()


def test_a_link_to_nothing(tell, config, tmp_path):
    config.parent.mkdir()
    config.symlink_to(tmp_path / "nothing yet")
    assert tell("git-daytona", "ssh-config", "--install").status == 0
    assert config.is_symlink() and mode(config) == 0o600
    assert tell("git-daytona", "ssh-config", "--uninstall").status == 0
    assert config.is_symlink() and not config.exists()


HOSTILE = """\
Host sandbox-*
    HostName evil.invalid
    User evil
    ProxyCommand touch {0}
    ProxyUseFdpass yes
    LocalCommand touch {0}
    PermitLocalCommand yes
    KnownHostsCommand /bin/echo %H ssh-ed25519 AAAA
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking no
    HostKeyAlias evil
    ForwardAgent yes
    ForwardX11 yes
    RemoteCommand touch {0}
    ControlMaster auto
    ControlPath /tmp/%h
    GatewayPorts yes
    CanonicalizeHostname always
    CanonicalizePermittedCNAMEs *:*
    IdentityAgent SSH_AUTH_SOCK
"""


@pytest.mark.parametrize("where", ["behind", "included behind", "match"])
def test_directives_of_others_do_not_count(tell, config, tmp_path, where):
    pwned = tmp_path / "pwned"
    theirs = HOSTILE.format(pwned)
    config.parent.mkdir()
    (config.parent / "more").write_text(theirs)
    config.write_text(
        {
            "behind": theirs,
            "included behind": f"Include {config.parent}/more\n",
            "match": theirs.replace("Host sandbox-*", 'Match originalhost "sandbox-*" exec true'),
        }[where]
    )
    assert tell("git-daytona", "ssh-config", "--install").status == 0
    found = shown(config)
    assert "ssh-proxy" in found["proxycommand"]
    assert {name: found.get(name) for name in SAFE} == SAFE
    assert not pwned.exists()


SAFE = {
    "hostname": "sandbox-1",
    "hostkeyalias": "git-daytona",
    "stricthostkeychecking": "true",
    "permitlocalcommand": "no",
    "forwardagent": "no",
    "forwardx11": "no",
    "controlmaster": "false",
    "controlpath": None,
    "remotecommand": None,
    "gatewayports": "no",
    "canonicalizehostname": "false",
    "globalknownhostsfile": "/dev/null",
    "knownhostscommand": None,
    "identityagent": "none",
    "proxyusefdpass": "no",
}


def test_what_counts_more_is_named(tell, config, tmp_path):
    """Lines that something has put in front of ours."""
    assert tell("git-daytona", "ssh-config", "--install").status == 0
    ours = config.read_text()
    (config.parent / "first").write_text("Host *\n  StrictHostKeyChecking no\n")
    config.write_text(f"Include {config.parent}/first\n{ours}")
    told = tell("git-daytona", "ssh-config", "--install")
    # the entries go to the front again
    assert told.status == 0 and config.read_text().startswith(ours.splitlines()[0])
    config.write_text(f"NoSuchDirective x\n{ours.partition('# <<<')[0]}")
    for words in (["--install"], ["--uninstall"]):
        told = tell("git-daytona", "ssh-config", *words)
        assert told.status == 13 and "not one beginning and one end" in told.err
    config.write_text("NoSuchDirective x\n")
    told = tell("git-daytona", "ssh-config", "--install")
    assert told.status == 13 and "ssh does not take its configuration" in told.err


def test_a_name_that_would_be_a_command(tell, config, tmp_path):
    """The host of a URL may be anybody's words (CVE-2023-51385)."""
    assert tell("git-daytona", "ssh-config", "--install").status == 0
    pwned = tmp_path / "pwned"
    for name in (f"sandbox-';touch {pwned};'", f"sandbox-`touch {pwned}`", "sandbox-$(id >&2)"):
        done = subprocess.run(("ssh", "-F", config, name, "true"), capture_output=True, text=True)
        assert done.returncode == 255 and "uid=" not in done.stderr
    assert not pwned.exists()


@pytest.mark.parametrize("words", [["--install", "--uninstall"], ["--dry-run"]])
def test_no_such_combination(tell, words):
    assert tell("git-daytona", "ssh-config", *words).status == 2
