"""2. What daytona-ssh adds to the ssh that it runs: the same options, token and host key, by
hand."""

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from git_daytona import ssh
from git_daytona.transfer.environment import ssh_environment
from support.measure import ROUNDS, in_turns, median, memory, run
from support.plugin_calls import PROJECT, Api
from support.round_trip import BIN
from support.separate_server import Apart
from support.suite import coordinator

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

MEGABYTE = 1_000_000
PACK = 100 * MEGABYTE


@dataclass
class Connections:
    """Ways to the same sandbox with the same token."""

    env: dict[str, str]
    """What git gets from the coordinator for the wrapper, and the token."""
    port: int
    by_hand: list[str]
    """The command line of ssh up to the host's name."""
    cpu: dict[str, list[float]] = field(default_factory=dict)

    @property
    def wrapper(self) -> list[str]:
        """As git calls it."""
        return [*shlex.split(self.env["GIT_SSH_COMMAND"]), "-p", str(self.port), "127.0.0.1"]

    @property
    def program(self) -> list[str]:
        return [str(BIN / "daytona-ssh"), "-p", str(self.port), "127.0.0.1"]

    def work(self, name: str, argv: list[str]) -> Callable[[], float]:
        """Connect, do nothing, end; the CPU time of it all is kept."""

        def connect() -> float:
            used = run([*argv, "true"], env=self.env)
            assert used.status == 0
            self.cpu.setdefault(name, []).append(used.cpu)
            return used.wall

        return connect

    def fetch(self, command: list[str], place: Path) -> Callable[[], float]:
        """Fetch everything into a new repository."""

        def fetch() -> float:
            subprocess.run(("git", "init", "-q", "--bare", place), check=True)
            env = self.env | {"GIT_SSH_COMMAND": shlex.join(command), "GIT_SSH_VARIANT": "ssh"}
            url = f"ssh://127.0.0.1:{self.port}{PROJECT}"
            used = run(
                ("git", "--git-dir", str(place), "fetch", "-q", url, "+refs/heads/*:refs/heads/*"),
                env=env,
            )
            assert used.status == 0
            subprocess.run(("rm", "-rf", place), check=True)
            self.cpu.setdefault(place.name, []).append(used.cpu)
            return used.wall

        return fetch


@pytest.fixture
def connections(daytona: Apart, make_repo, home: Path) -> Iterator[Connections]:
    """To a sandbox that holds a pack of 100 MB."""
    found = coordinator(make_repo("repository", files=1))
    api = Api(daytona)
    sandbox = api.create()
    api.execute(
        sandbox,
        f"mkdir -p {PROJECT} && cd {PROJECT} && git init -q -b main && git config "
        "core.compression 0 && git config gc.auto 0"
        f" && for n in $(seq 25); do head -c {PACK // 25} /dev/urandom >$n; done && git add ."
        " && git -c user.name=S -c user.email=s@example.com commit -q -m all && git -c "
        "pack.window=0 repack -q -a -d && rm -f [0-9]*",
        cwd=None,
    )
    with found.transfers.lease(sandbox) as (access, trust):
        token = access.token.reveal()
        env = os.environ | ssh_environment(found.settings, trust, ()) | {"DAYTONA_SSH_TOKEN": token}
        settings = home / "by-hand"
        settings.touch(0o600)
        settings.write_text(
            f"User {token}\nInclude ~/.ssh/config\nInclude /etc/ssh/ssh_config\nSendEnv "
            "GIT_PROTOCOL\n"
        )
        options = ssh.options(
            "127.0.0.1",
            env.get("DAYTONA_SSH_TRUST_FILE"),
            env.get("DAYTONA_SSH_TRUST_NAME"),
            ssh.left_out(ssh.find_ssh("", os.environ["PATH"]), env),
        )
        yield Connections(
            env,
            daytona.port,
            ["ssh", "-F", str(settings), *options, "-p", str(daytona.port), "127.0.0.1"],
        )
    api.delete(sandbox)


def test_an_empty_connection(daytona: Apart, connections: Connections, table) -> None:
    ways = {
        "by hand": connections.by_hand,
        "as git calls it": connections.wrapper,
        "bin/daytona-ssh": connections.program,
    }
    for milliseconds in (0, 50, 100):
        daytona.latency(milliseconds)
        for argv in ways.values():
            run([*argv, "true"], env=connections.env)
        connections.cpu.clear()
        spent = in_turns(
            {name: connections.work(name, argv) for name, argv in ways.items()}, 2 * ROUNDS - 1
        )
        part = table.part(
            f"2. daytona-ssh : ssh by hand, a connection that does nothing, at {milliseconds} ms"
        )
        for name in list(ways)[1:]:
            part.ratio(
                f"wall time, {name}",
                spent[name],
                spent["by hand"],
                1.25 if milliseconds == 50 else None,
            )
            cpu, bare = (
                median(connections.cpu[name]) * 1000,
                median(connections.cpu["by hand"]) * 1000,
            )
            part.count(
                f"milliseconds of CPU, its ssh included, {name}",
                cpu,
                at_most=60 if milliseconds == 50 else None,
                detail=f"ssh by hand {bare:.1f}",
            )


def test_its_memory(connections: Connections, table) -> None:
    """The most that it ever took, looked at while it waits for the end of a connection."""
    part = table.part("2. daytona-ssh: peak memory of the wrapper itself, MB")
    pack = f"cat {PROJECT}/.git/objects/pack/*.pack; cat"
    for what, argv, command, size, rounds in (
        ("as git calls it", connections.wrapper, "cat", 0, ROUNDS),
        ("bin/daytona-ssh", connections.program, "cat", 0, ROUNDS),
        (
            "as git calls it, after a pack of 100 MB",
            connections.wrapper,
            pack,
            PACK,
            (ROUNDS + 2) // 3,
        ),
    ):
        peaks = []
        for _ in range(rounds):
            with subprocess.Popen(
                [*argv, command], env=connections.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process:
                passed = 0
                while passed < size:
                    passed += len(process.stdout.read1(MEGABYTE))
                process.stdin.write(b"there and back\n")
                process.stdin.flush()
                while not process.stdout.readline().endswith(b"there and back\n"):
                    pass
                peaks.append(memory(process.pid, "VmHWM"))
                process.stdin.close()
        part.count(what, max(peaks) / MEGABYTE, at_most=16)


def test_a_pack_of_100_megabytes(
    daytona: Apart, connections: Connections, table, tmp_path: Path
) -> None:
    daytona.latency(50)
    by_hand = connections.by_hand[:-3]  # git names port and host itself
    wrapper = shlex.split(connections.env["GIT_SSH_COMMAND"])
    works = {
        "by hand": connections.fetch(by_hand, tmp_path / "by hand"),
        "wrapper": connections.fetch(wrapper, tmp_path / "wrapper"),
    }
    works["wrapper"]()
    connections.cpu.clear()
    spent = in_turns(works)
    part = table.part("2. daytona-ssh : ssh by hand, git fetch of a pack of 100 MB, at 50 ms")
    part.ratio("wall time", spent["wrapper"], spent["by hand"], 1.02)
    part.ratio(
        "CPU time of git and all below it", connections.cpu["wrapper"], connections.cpu["by hand"]
    )
