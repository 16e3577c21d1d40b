"""``git daytona ssh-config, ssh-proxy, code``: sandboxes for programs that bring an ssh of their
own, or read ~/.ssh/config."""

import os
import shlex
import shutil
import signal
from pathlib import Path

import click

from git_daytona import ssh
from git_daytona.base import files, messages, paths, run, signals
from git_daytona.base.errors import BadSetting, GitDaytonaError, MissingProgram, UsageError
from git_daytona.cli import common, options
from git_daytona.git.refs import PROJECT
from git_daytona.sessions import ssh_config
from git_daytona.settings import preferences, settings

EDITORS = ("code", "code-insiders", "codium", "cursor", "windsurf")
SSH_SECONDS = 30.0
"""How long ``ssh -G`` may take: it runs the commands of ``Match exec``."""


@click.command("ssh-config")
@options.flag("--install", help="Put them into ~/.ssh/config, and show the change.")
@options.flag("--uninstall", help="Take them out of it again.")
@options.dry_run
def ssh_config_(install: bool, uninstall: bool, dry_run: bool) -> None:
    """Print entries for ~/.ssh/config by which ssh, and what reads that, reaches sandboxes.

    A sandbox is sandbox-N, of the repository that you are in, or sandbox-ID, from anywhere.
    """
    if install and uninstall:
        raise click.UsageError("--install and --uninstall exclude each other")
    if not (install or uninstall):
        if dry_run:
            raise click.UsageError("--dry-run is for --install and --uninstall")
        click.echo(_entries(), nl=False)
        return
    path = paths.home() / ".ssh" / "config"
    with files.lock(paths.locks() / "ssh-config"):
        before = files.read_configuration(path)
        after = _removed(before) if uninstall else ssh_config.installed(before, _entries())
        made = options.make(_Change(path, before, after), dry_run, already="them")
    if made and install:
        _check_effect()


def _entries() -> str:
    from git_daytona.sessions import ssh_server  # not at the top: it takes long to load

    ssh_server.host_key()
    return ssh_config.directives(ssh_server.known_hosts(), ssh_server.NAME)


def _removed(before: bytes | None) -> bytes | None:
    if before is None or not ssh_config.is_in(before):
        hint = "they are in ~/.ssh/config if 'git daytona ssh-config --install' put them there"
        raise GitDaytonaError("ssh's configuration has no entries of git-daytona", hint=hint)
    return ssh_config.uninstalled(before)


class _Change(files.Change):
    def make(self) -> None:
        """Make it where the file really is."""
        real = Path(os.path.realpath(self.path))
        if self.after is None:
            real.unlink()
        elif real.exists():
            files.rewrite(real, self.after)
        else:  # ssh refuses one that others may write to, whatever the umask
            files.write_whole(real, self.after)


def _openssh() -> str:
    try:
        return ssh.find_ssh(settings.load(None).ssh_binary or "", os.environ.get("PATH", ""))
    except ssh.Refusal as problem:
        raise MissingProgram(problem.message, hint=problem.hint) from problem


def _check_effect() -> None:
    """Raise BadSetting if something else in ssh's configuration counts more than our entries."""
    program, host = _openssh(), f"{ssh_config.PREFIX}1"
    with ssh.private_file(_entries()) as ours:
        shown, theirs = [], paths.home() / ".ssh" / "config"
        for place in (ours, str(theirs) if theirs.exists() else os.devnull):
            argv = (program, "-F", place, "-G", "--", host)
            asked = run.run(argv, env=ssh.scrubbed(dict(os.environ)), timeout=SSH_SECONDS)
            if asked.status != 0:
                raise BadSetting(
                    "ssh does not take its configuration",
                    hint=f"see: ssh -G {host}",
                    details=asked.complaint,
                )
            shown.append(asked.text)
    if missing := ssh_config.overruled(*shown):
        raise BadSetting(
            f"ssh's configuration has no entries for sandboxes, or others count more"
            f" ({', '.join(missing)})",
            hint="git daytona ssh-config --install",
        )


@click.command("ssh-proxy")
@click.argument("host")
def ssh_proxy(host: str) -> int:
    """Be the SSH server of a sandbox on standard input and output. ssh runs this, by the entries
    that 'git daytona ssh-config' writes."""
    from git_daytona.sessions import ssh_server  # not at the top: it takes long to load

    if os.isatty(0):
        hint = f"ssh {host}, behind: git daytona ssh-config --install"
        raise UsageError("ssh starts this, and speaks SSH with it", hint=hint)
    program = _openssh()
    ends = signals.handling((signal.SIGTERM, signal.SIGHUP), signals.unwind)
    with ends, ssh_server.Server(program) as server:
        name = common.go_to(host.removeprefix(ssh_config.PREFIX))
        with common.coordinator(anywhere=True) as coordinator:
            return ssh_server.connect_through(coordinator, name, server)


@click.command()
@common.session
@click.argument("path", default=PROJECT)
def code(name: str, path: str) -> int:
    """Open VS Code on PATH in the session's sandbox, by default its project.

    It is the first of code, code-insiders, codium, cursor and windsurf that is there, or the one
    that 'git config --global daytona.editor' names.
    """
    with common.coordinator(anywhere=True) as coordinator:
        session = coordinator.find(name)
        program = _editor(preferences.load(coordinator.directory).editor())
        _check_effect()
        if os.environ.get("DAYTONA_API_KEY", "").strip():
            common.warn(
                "the editor does not get the key of this environment: unless it is in the keyring"
                " or the project's '.env', its connections have none; try: daytona-token login"
            )
    host = f"{ssh_config.PREFIX}{session.sandbox_id}"
    command = (program, "--remote", f"ssh-remote+{host}", path)
    messages.note(f"+ {shlex.join(command)}")
    env = {name: value for name, value in os.environ.items() if name != "DAYTONA_API_KEY"}
    return run.foreground(command, env)


def _editor(named: str) -> str:
    path = ssh.search_path(os.environ.get("PATH", ""))
    for each in (named,) if named else EDITORS:
        if found := shutil.which(each, path=path):
            return found
    raise MissingProgram(
        f"there is no '{named}' on PATH" if named else f"none of {', '.join(EDITORS)} is on PATH",
        hint="install one, or name it: git config --global daytona.editor PROGRAM; any editor"
        " reaches the host that 'git daytona ssh-config' describes",
    )
