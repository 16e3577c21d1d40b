"""``daytona-token``: its commands, and the module of each."""

from git_daytona.cli.program import program

SECTIONS = {
    "Your API key": {
        "login": ("api_key", "Store an API key in the keyring of the system"),
        "logout": ("api_key", "Remove the API key from the keyring of the system"),
        "whoami": ("api_key", "Show whose API key is used, and what it may do"),
    },
    "A sandbox's tokens": {
        "mint": ("sandbox_tokens", "Mint a token for a sandbox and print it"),
        "revoke": ("sandbox_tokens", "Revoke a token, or all tokens of a sandbox"),
        "exec": ("sandbox_tokens", "Run a command with a token that is revoked after it"),
        "reap": ("sandbox_tokens", "Revoke what killed leases left behind"),
    },
}


@program("daytona-token", SECTIONS)
def cli() -> None:
    """Keep your API key; mint, revoke and lease the SSH access tokens of Daytona sandboxes.

    Minting ends the sandbox's earlier tokens: that is how Daytona works. See daytona-token(1).
    """
