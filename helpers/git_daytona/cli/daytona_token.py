"""``daytona-token``: which commands there are, and where each stands."""

import click

from git_daytona import __version__
from git_daytona.cli.lazy import LazyGroup

SECTIONS = {
    "Your API key": ("login", "logout", "whoami"),
    "A sandbox's tokens": ("mint", "revoke", "exec", "reap"),
}
PLACES = {
    "login": "login",
    "logout": "login",
    "whoami": "login",
    "mint": "tokens",
    "revoke": "tokens",
    "exec": "tokens:exec_",
    "reap": "tokens",
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    places=PLACES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", message="daytona-token %(version)s")
def cli() -> None:
    """Keep your API key; mint, revoke and lease the SSH access tokens of Daytona sandboxes.

    Minting ends the sandbox's earlier tokens: that is how Daytona works. See daytona-token(1).
    """
