"""``daytona-token mint``, ``revoke``, ``exec`` and ``reap``: the SSH access tokens of sandboxes."""

import json
import os
import sys
from functools import partial
from pathlib import Path

import click

from git_daytona.api.cloud import Cloud
from git_daytona.base import log, messages
from git_daytona.base.errors import GitDaytonaError, RepositoryRefused, UsageError
from git_daytona.base.run import foreground
from git_daytona.base.secret import Secret
from git_daytona.cli import options
from git_daytona.cli.options import flag, number
from git_daytona.git import version
from git_daytona.git.repository import Repository, discover
from git_daytona.settings import settings
from git_daytona.transfer import leases
from git_daytona.transfer.environment import ssh_environment
from git_daytona.transfer.transfer import Transfers, configuration
from git_daytona.trust.gateway import Policy

PROGRAM = "daytona-token"
warn = partial(messages.warning, PROGRAM)


def settings_here() -> tuple[settings.Settings, Repository | None]:
    """The settings here, and the repository that they may have come from."""
    log.to_file()
    repository: Repository | None
    try:
        repository = discover(Path.cwd())
    # outside a repository, or of any directory, there is no .env to read, and no need for git
    except (GitDaytonaError, OSError) as problem:
        repository = None
        if isinstance(problem, RepositoryRefused):
            warn(f"{problem.message}; its .env is not read")
    found = settings.load(repository.worktree if repository else None)
    for line in found.warnings:
        warn(line)
    return found, repository


@click.command()
@click.argument("sandbox")
@number("--minutes", metavar="N", within=(1, 1440), default=10, help="How long the token lives.")
@options.as_json
def mint(sandbox: str, minutes: int, as_json: bool) -> None:
    """Mint a token for SANDBOX and print it on stdout.

    It is yours to revoke. A lease ('daytona-token exec', 'git daytona sync') of the same sandbox
    ends it.
    """
    cloud = Cloud(settings_here()[0])
    access = leases.patiently(lambda: cloud.mint(sandbox, minutes))
    if not as_json:
        click.echo(access.token.reveal())
        return
    place = access.endpoint
    answer = {
        "token": access.token.reveal(),
        "expiresAt": access.expires_at.isoformat(),
        "host": place.host if place else None,
        "port": place.port if place else None,
    }
    click.echo(json.dumps(answer))


@click.command()
@click.argument("sandbox")
@flag("--all", "all_", help="Revoke every token of the sandbox.")
def revoke(sandbox: str, all_: bool) -> None:
    """Revoke the token that is read from standard input, or all tokens of SANDBOX."""
    token = None if all_ else _piped_token(sandbox)
    cloud = Cloud(settings_here()[0])
    leases.patiently(lambda: cloud.revoke(sandbox, token))
    click.echo("revoked", err=True)


def _piped_token(sandbox: str) -> Secret:
    if sys.stdin is None or sys.stdin.isatty():
        hint = f'printf %s "$TOKEN" | {PROGRAM} revoke {sandbox}'
        raise UsageError("the token is read from standard input", hint=hint)
    # Bytes: what is no text is no token either, and must not end in a decoder's traceback.
    text = sys.stdin.buffer.read(8192).decode("utf-8", "replace").strip()
    if len(text.split()) != 1 or not text.isascii():
        hint = "pipe exactly one token into it, or use --all"
        raise UsageError("there is no token on standard input", hint=hint)
    return Secret(text)


@click.command("exec", context_settings=options.PASSING_ON)
@click.argument("sandbox")
@options.command
def exec_(sandbox: str, command: tuple[str, ...]) -> int:
    """Lease a token, run COMMAND with it, revoke it, and exit with COMMAND's status.

    COMMAND, and nothing else, gets the token (DAYTONA_SSH_TOKEN) and an environment in which git
    and daytona-ssh use it for the sandbox's gateway: git ls-remote
    "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/project" works as it is.
    """
    if Path(command[0]).name == "git":
        version.check()
    found, repository = settings_here()
    cloud = Cloud(found)
    policy = Policy(found, cloud.config)
    warned = 0
    try:
        with Transfers(found, cloud, policy).lease(sandbox) as (access, trust):
            for line in policy.warnings:
                warn(line)
            warned = len(policy.warnings)
            env = {name: value for name, value in os.environ.items() if name != "DAYTONA_API_KEY"}
            configured = configuration(repository) if repository else ()
            env |= ssh_environment(found, trust, configured)
            return foreground(command, env | {"DAYTONA_SSH_TOKEN": access.token.reveal()})
    finally:
        for line in policy.warnings[warned:]:
            warn(line)


@click.command()
def reap() -> None:
    """Revoke what killed leases left behind. Every start of a session does this by itself."""
    cloud = Cloud(settings_here()[0])
    left = len(leases.stale(cloud.settings.api_url))
    done = leases.reap(cloud)
    click.echo(f"{done} of {left} stale leases revoked" if left else "no stale leases")
