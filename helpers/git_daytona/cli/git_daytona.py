"""``git daytona …``, for people and for the programs that run agents: which commands there are, and
where each stands."""

import click

from git_daytona import __version__
from git_daytona.cli.lazy import LazyGroup

SECTIONS = {
    "Work in sessions": (
        "start",
        "exec",
        "shell",
        "cp",
        "sync",
        "fetch",
        "push",
        "merge",
        "apply",
        "wait",
        "delete",
    ),
    "Look": ("status", "log", "diff", "open", "logs"),
    "Mend": ("doctor", "version", "recover", "adopt", "prune"),
    "Set up": ("install", "uninstall", "config", "completion", "serve", "hook"),
}
PLACES = {
    "start": "sessions",
    "exec": "sessions:exec_",
    "shell": "inside",
    "cp": "inside",
    "sync": "sessions",
    "fetch": "sessions",
    "push": "sessions",
    "merge": "review",
    "apply": "review",
    "wait": "sessions",
    "delete": "sessions",
    "status": "listing",
    "log": "review",
    "diff": "review",
    "open": "inside:open_",
    "doctor": "setup",
    "version": "setup",
    "logs": "repair",
    "recover": "repair",
    "adopt": "repair",
    "prune": "repair",
    "install": "setup",
    "uninstall": "setup",
    "config": "configuring",
    "completion": "completion",
    "serve": "clients",
    "hook": "clients",
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    places=PLACES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="N is a number, sandbox-N, opencode/N, a sandbox id or a session id. See git-daytona(1) "
    "for exit statuses and files.",
)
@click.version_option(__version__, "--version", message="git-daytona %(version)s")
def cli() -> None:
    """Run OpenCode sessions in Daytona sandboxes and get their work back through git."""
