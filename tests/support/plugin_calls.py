"""What the suite is compared with: the calls of the TypeScript plugin for OpenCode, one after the
other as that plugin makes them, and the bare minimum that anybody would need by hand. Plain HTTP,
git and ssh; nothing of the suite."""

import json
import os
import secrets
import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3

from support.measure import run
from support.round_trip import Repo
from support.separate_server import Apart

PROJECT = "/home/daytona/project"


class Api:
    """An HTTP client that keeps its connections, as the SDKs do."""

    def __init__(self, daytona: Apart) -> None:
        self._daytona = daytona
        self._pool = urllib3.PoolManager(
            maxsize=8, retries=False, headers={"Authorization": f"Bearer {daytona.api_key}"}
        )

    def call(self, method: str, path: str, body: object = None, /, **query: str | int) -> Any:
        """A call of the API; of a sandbox's toolbox with a path that begins there."""
        base = self._daytona.toolbox_url if path.startswith("/toolbox/") else self._daytona.api_url
        url = base + path.removeprefix("/toolbox") + (f"?{urlencode(query)}" if query else "")
        answer = (
            self._pool.request(method, url, json=body)
            if body is not None
            else self._pool.request(method, url)
        )
        assert 200 <= answer.status < 300, (method, path, answer.status, answer.data[:500])
        return json.loads(answer.data) if answer.data.strip() else None

    def create(self) -> str:
        """Create a sandbox and wait until it has started, as the SDKs do."""
        sandbox = str(self.call("POST", "/sandbox", {"labels": {"bench": "yes"}})["id"])
        while self.call("GET", f"/sandbox/{sandbox}")["state"] != "started":
            time.sleep(0.1)
        return sandbox

    def execute(self, sandbox: str, command: str, cwd: str | None = PROJECT) -> str:
        done = self.call(
            "POST",
            f"/toolbox/{sandbox}/process/execute",
            {"command": command, **({"cwd": cwd} if cwd else {})},
        )
        assert done["exitCode"] == 0 or command.startswith("git rev-parse"), done
        return str(done["result"])

    def mint(self, sandbox: str) -> str:
        return str(
            self.call("POST", f"/sandbox/{sandbox}/ssh-access", expiresInMinutes=10)["token"]
        )

    def revoke(self, sandbox: str, token: str) -> None:
        self.call("DELETE", f"/sandbox/{sandbox}/ssh-access", token=token)

    def delete(self, sandbox: str) -> None:
        self.call("DELETE", f"/sandbox/{sandbox}")


@dataclass
class ByHand:
    """A repository here and its sandbox there. ``start``, ``call``, ``sync`` and ``delete`` are
    what is measured."""

    api: Api
    daytona: Apart
    repo: Repo
    sandbox: str = ""
    number: int = 0

    def git(self, command: str) -> str:
        """Through a shell, as the plugin's execSync does."""
        env = os.environ | {"GIT_SSH_COMMAND": shlex.join(self.ssh())}
        done = subprocess.run(
            ("/bin/sh", "-c", command),
            cwd=self.repo.path,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 or "||" in command or "show-ref" in command, done.stderr
        return done.stdout.strip()

    def ssh(self) -> list[str]:
        """The client of a user who has met the gateway before: a run's first connection, which is
        not measured, notes its key."""
        known_hosts = f"UserKnownHostsFile={os.environ['HOME']}/known_hosts"
        return [
            "ssh",
            "-F",
            "/dev/null",
            "-o",
            known_hosts,
            "-o",
            "StrictHostKeyChecking=accept-new",
            "-o",
            "LogLevel=ERROR",
        ]

    def meet(self) -> None:
        """Note the gateway's key."""
        run((*self.ssh(), "-p", str(self.daytona.port), "nobody@127.0.0.1", "true"))

    def url(self, token: str) -> str:
        return f"ssh://{token}@127.0.0.1:{self.daytona.port}{PROJECT}"


class Plugin(ByHand):
    """The TypeScript plugin's calls, as they were seen."""

    def start(self) -> None:
        self.number += 1
        self.git("git rev-parse --is-inside-work-tree")
        self.git("git for-each-ref --format='%(refname:strip=3)' refs/heads/opencode/")
        self.git(f"git show-ref --verify --quiet refs/heads/opencode/{self.number}")
        self.git("git rev-parse HEAD")
        self.git(f"git update-ref refs/heads/opencode/{self.number} HEAD")
        self.sandbox = self.api.create()
        self.git("git rev-parse --is-inside-work-tree")
        self._need_repository()
        token = self.api.mint(self.sandbox)
        self.git("git rev-parse --is-inside-work-tree")
        self.git("git status --porcelain")
        self._set_remote(token)
        self.git(f"git push -q sandbox-{self.number} HEAD:opencode")
        self.api.revoke(self.sandbox, token)
        for command in (
            "git checkout -B opencode",
            "git reset --hard",
            "git clean -fd",
            "git status --porcelain",
        ):
            self.api.execute(self.sandbox, command)
        self.api.execute(self.sandbox, "true")

    def call(self) -> None:
        self._look_up()
        self.api.execute(self.sandbox, "true")

    def sync(self) -> None:
        self._look_up()
        self.git("git rev-parse --is-inside-work-tree")
        self._need_repository()
        changed = bool(self.api.execute(self.sandbox, "git status --porcelain").strip())
        if changed:
            self.api.execute(self.sandbox, "git add .")
            self.api.execute(self.sandbox, "git commit -q -am 'Auto-commit'")
        self.api.execute(self.sandbox, "git rev-parse HEAD")
        if changed:
            self.api.execute(self.sandbox, "git rev-parse --abbrev-ref HEAD")
            token = self.api.mint(self.sandbox)
            self._set_remote(token)
            self.git(f"git fetch -q sandbox-{self.number} opencode")
            self.git(f"git update-ref refs/heads/opencode/{self.number} FETCH_HEAD")
            self.git("git rev-parse --abbrev-ref HEAD")
            self.api.revoke(self.sandbox, token)

    def delete(self) -> None:
        self.sync()
        self.api.delete(self.sandbox)

    def _look_up(self) -> None:
        self.api.call("GET", f"/sandbox/{self.sandbox}")

    def _need_repository(self) -> None:
        self.api.call("POST", f"/toolbox/{self.sandbox}/files/folder", path=PROJECT, mode="755")
        if self.api.execute(self.sandbox, "git rev-parse --is-inside-work-tree").strip() != "true":
            for command in (
                "git init -q",
                "git config user.email a@example.com",
                "git config user.name Sandbox",
            ):
                self.api.execute(self.sandbox, command)

    def _set_remote(self, token: str) -> None:
        self.git(f"git remote remove sandbox-{self.number} || true")
        self.git(f"git remote add sandbox-{self.number} {self.url(token)}")


class Bare(ByHand):
    """What cannot be left out: one command in the sandbox, one token, one transfer, one
    revocation."""

    PREPARE = (
        f"mkdir -p {PROJECT} && cd {PROJECT} && git init -q -b opencode && git config "
        "receive.denyCurrentBranch updateInstead"
        " && git config user.name Sandbox && git config user.email a@example.com"
    )
    COMMIT = (
        'if [ -n "$(git status --porcelain)" ]; then git add -A && git commit -q -m Changes; '
        "fi; git rev-parse HEAD"
    )

    def start(self) -> None:
        self.number += 1
        self.sandbox = self.api.create()
        self.api.execute(self.sandbox, self.PREPARE, cwd=None)
        token = self.api.mint(self.sandbox)
        self.git(f"git push -q {self.url(token)} HEAD:refs/heads/opencode")
        self.api.revoke(self.sandbox, token)
        self.api.execute(self.sandbox, "true")
        self.git(f"git update-ref refs/heads/opencode/{self.number} HEAD")

    def call(self) -> None:
        self.api.execute(self.sandbox, "true")

    def sync(self) -> None:
        ref = f"refs/heads/opencode/{self.number}"
        if self.api.execute(self.sandbox, self.COMMIT).strip() != self.git(f"git rev-parse {ref}"):
            token = self.api.mint(self.sandbox)
            self.git(f"git fetch -q {self.url(token)} +opencode:{ref}")
            self.api.revoke(self.sandbox, token)

    def delete(self) -> None:
        self.sync()
        self.api.delete(self.sandbox)


def change(api: Api, sandbox: str, size: int = 100) -> None:
    """The agent changes something."""
    api.execute(sandbox, f"head -c {size} /dev/urandom >changed-{secrets.token_hex(4)}")
