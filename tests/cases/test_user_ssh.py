"""What users have in their ssh configuration and environment, beyond flows/test_ssh_wrapper.py
(cases 20 and 23)."""

import os
import subprocess
from contextlib import ExitStack

import pytest

from support.round_trip import BIN, program
from support.waiting import until
from support.wrapper import Wrapper, tiny


def test_case_20_none_of_many_keys_is_offered(local, home, tmp_path):
    """Eight keys in the agent would use up a server's patience before the token's turn; here the
    agent is not even asked. The API key is not in ssh's environment."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700)
    names = [str(ssh / name) for name in ("id_ed25519", *(f"key{number}" for number in range(7)))]
    for name in names:
        subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name), check=True)
    subprocess.run(
        ("ssh-keygen", "-q", "-s", names[0], "-I", "id", "-n", "any", f"{names[1]}.pub"), check=True
    )
    socket = tmp_path / "agent"
    several = "".join(f"  IdentityFile {name}\n" for name in names)
    examples = {
        "in the agent": ("", {"SSH_AUTH_SOCK": str(socket)}),
        "files": (f"Host *\n{several}", {}),
        "an agent of the configuration": (
            f"Host *\n  IdentityAgent {socket}\n  IdentitiesOnly no\n  AddKeysToAgent yes\n",
            {},
        ),
        "a certificate": (
            f"Host *\n  IdentityFile {names[1]}\n  CertificateFile {names[1]}-cert.pub\n  "
            "PubkeyAuthentication unbound\n",
            {},
        ),
        "Match final": (
            f"Match final\n  PubkeyAuthentication yes\n  IdentityAgent {socket}\n{several}",
            {"SSH_AUTH_SOCK": str(socket)},
        ),
    }
    client = program(
        tmp_path / "client",
        f"#!/bin/sh\ntr '\\0' '\\n' </proc/$$/environ >>'{tmp_path}/environment'\nexec ssh "
        '"$@"\n',
    )
    with ExitStack() as stack:
        agent = stack.enter_context(
            subprocess.Popen(("ssh-agent", "-D", "-a", socket), stdout=subprocess.DEVNULL)
        )
        stack.callback(agent.terminate)
        until(socket.exists)
        subprocess.run(
            ("ssh-add", "-q", *names), env=os.environ | {"SSH_AUTH_SOCK": str(socket)}, check=True
        )
        server = stack.enter_context(tiny(admits=False))
        (tmp_path / "pins").write_text(
            f"[127.0.0.1]:{server.port} {server.key.get_name()} {server.key.get_base64()}\n"
        )
        ours = {
            "DAYTONA_SSH_GATEWAY": f"127.0.0.1:{server.port}",
            "DAYTONA_SSH_TRUST_FILE": str(tmp_path / "pins"),
            "DAYTONA_SSH_TRUST_NAME": f"[127.0.0.1]:{server.port}",
            "DAYTONA_SSH_BINARY": str(client),
            "DAYTONA_API_KEY": "dtn_key",
        }
        for name, (text, environment) in examples.items():
            (ssh / "config").write_text(text)
            with Wrapper("TheToken1234", ours, server.port).popen(
                "true", env=environment
            ) as process:
                process.communicate(timeout=60)
            assert process.returncode == 255, name
            assert (server.users.pop(), server.offers) == ("TheToken1234", []), name
        assert "dtn_key" not in (tmp_path / "environment").read_text()
        # The last of them does offer its keys to a plain ssh: the test would see it.
        plain = (
            "ssh",
            "-F",
            str(ssh / "config"),
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oBatchMode=yes",
        )
        subprocess.run(
            (*plain, "-p", str(server.port), "127.0.0.1", "true"),
            env=os.environ | environment,
            capture_output=True,
        )
        assert server.offers.count("publickey") > 1


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONWARNINGS": "default"},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONDEVMODE": "1"},
        {"PYTHONVERBOSE": "1", "PYTHONDEBUG": "1"},
        {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-16"},
        {"PYTHONUTF8": "0", "LC_ALL": "ja_JP.eucJP"},
        {"PYTHONPROFILEIMPORTTIME": "1"},
        {"PYTHONINSPECT": "1", "PYTHONSTARTUP": "{tmp}/talks.py"},
        {"PYTHONPATH": "{tmp}", "PYTHONBREAKPOINT": "talks.now"},
    ],
    ids=" ".join,
)
def test_case_23_stdout_is_the_stream_alone(tmp_path, environment):
    """Byte for byte what the client wrote, and not a byte when there is a reason not to run it."""
    for name in ("talks.py", "sitecustomize.py", "usercustomize.py"):
        (tmp_path / name).write_text("print('talk')\n")
    stream = bytes(range(256)) * 3
    (tmp_path / "stream").write_bytes(stream)
    # What stands for the gateway: it runs what it is asked to, where git-upload-pack is a cat.
    program(tmp_path / "bin" / "git-upload-pack", f"#!/bin/sh\ncat '{tmp_path}/stream'\n")
    asked = "for word do command=$word; case $word in -G) exit 0 ;; esac; done"
    client = program(
        tmp_path / "client",
        f"#!/bin/sh\n{asked}\nPATH='{tmp_path}/bin':$PATH /bin/sh -c \"$command\"\n",
    )
    ours = {
        "DAYTONA_SSH_GATEWAY": "host.invalid",
        "DAYTONA_SSH_BINARY": str(client),
        "DAYTONA_SSH_TOKEN": "TheToken1234",
    }
    env = (
        os.environ
        | ours
        | {name: value.format(tmp=tmp_path) for name, value in environment.items()}
    )

    def run(**more: str) -> "subprocess.CompletedProcess[bytes]":
        argv = (str(BIN / "daytona-ssh"), "host.invalid", "git-upload-pack 'x'")
        return subprocess.run(
            argv,
            env=env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
        )

    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, stream, b"")
    refused = run(DAYTONA_SSH_TOKEN="not a token")
    assert (refused.returncode, refused.stdout) == (13, b"")
    assert refused.stderr.startswith(b"daytona-ssh: error: ") and refused.stderr.count(b"\n") == 2
