"""Where things are kept. Pure lookups: nothing is created here."""

import os
import sys
from pathlib import Path
from urllib.parse import quote

import platformdirs

APP = "git-daytona"


def opencode_data() -> Path:
    """OpenCode's data directory: ``$XDG_DATA_HOME/opencode``, ``~/.local/share/opencode`` on every
    system.

    An empty or relative XDG_DATA_HOME counts as unset, as the XDG base directory specification says
    (CASES 55).
    """
    named = os.environ.get("XDG_DATA_HOME", "").strip()
    base = Path(named) if named and Path(named).is_absolute() else Path.home() / ".local" / "share"
    return base / "opencode"


def opencode_config() -> Path:
    """OpenCode's configuration for all projects: ``$XDG_CONFIG_HOME/opencode``,
    ``~/.config/opencode`` on every system. As OpenCode has it: any value but the empty one
    counts."""
    named = os.environ.get("XDG_CONFIG_HOME")
    return (Path(named).absolute() if named else Path.home() / ".config") / "opencode"


def daytona_cli_config() -> Path:
    """The file with the Daytona CLI's profiles: ``$DAYTONA_CONFIG_DIR``, else ``daytona`` in the
    directory that Go's os.UserConfigDir gives."""
    if named := os.environ.get("DAYTONA_CONFIG_DIR"):
        return Path(named) / "config.json"
    base = os.environ.get("XDG_CONFIG_HOME")
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".config"
    return folder / "daytona" / "config.json"


def storage() -> Path:
    """State files and the pin file; shared with the existing TypeScript plugin."""
    return opencode_data() / "storage" / "daytona"


def state_file(project_id: str) -> Path:
    """The state file of an OpenCode project. The encoding is JavaScript's encodeURIComponent, which
    the existing plugin uses."""
    return storage() / (quote(project_id, safe="-_.!~*'()") + ".json")


def pin_file() -> Path:
    return storage() / "gateway_known_hosts"


def log_file() -> Path:
    return opencode_data() / "log" / "daytona.log"


def own_state() -> Path:
    """What only this suite uses: locks and the lease journal."""
    return Path(platformdirs.user_state_dir(APP, appauthor=False))


def locks() -> Path:
    return own_state() / "locks"


def leases() -> Path:
    return own_state() / "leases"


def local_root() -> Path:
    """Default root of the embedded Daytona."""
    return own_state() / "local"
