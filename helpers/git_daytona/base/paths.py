"""Where things are kept. Pure lookups: nothing is created here."""

import os
import sys
from pathlib import Path
from urllib.parse import quote

import platformdirs

from git_daytona.base.errors import BadSetting

APP = "git-daytona"


def home() -> Path:
    """The user's home directory. Raises BadSetting where there is none to be found."""
    named = os.environ.get("HOME")
    found = Path(os.path.expanduser("~"))  # noqa: PTH111 — pathlib's raises RuntimeError
    if named == "" or not found.is_absolute():
        unset = f"HOME is not set, and user id {os.getuid()} has no name"
        why = unset if named is None else "HOME is not an absolute path"
        hint = "set HOME to the absolute path of a directory that you may write to"
        raise BadSetting(f"there is no home directory: {why}", hint=hint)
    return found


def opencode_data() -> Path:
    """OpenCode's data directory: ``$XDG_DATA_HOME/opencode``, on macOS, too."""
    return xdg("XDG_DATA_HOME", ".local/share") / "opencode"


def xdg(name: str, default: str) -> Path:
    """A base directory; a relative one counts as unset (XDG base directory specification)."""
    named = Path(os.environ.get(name, "").strip())
    return named if named.is_absolute() else home() / default


def opencode_config() -> Path:
    """OpenCode's configuration for all projects; a relative directory counts, as it has it."""
    named = os.environ.get("XDG_CONFIG_HOME")
    return (Path(named).absolute() if named else home() / ".config") / "opencode"


def daytona_cli_config() -> Path:
    """The Daytona CLI's profiles, where it looks for them itself (Go's os.UserConfigDir)."""
    if named := os.environ.get("DAYTONA_CONFIG_DIR"):
        return Path(named) / "config.json"
    apple = home() / "Library" / "Application Support"
    folder = apple if sys.platform == "darwin" else xdg("XDG_CONFIG_HOME", ".config")
    return folder / "daytona" / "config.json"


def storage() -> Path:
    """State files and the pin file; shared with the existing TypeScript plugin."""
    return opencode_data() / "storage" / "daytona"


def state_file(project_id: str) -> Path:
    """The state file of an OpenCode project, named by JavaScript's encodeURIComponent of its id."""
    return storage() / (quote(project_id, safe="-_.!~*'()") + ".json")


def pin_file() -> Path:
    return storage() / "gateway_known_hosts"


def log_file() -> Path:
    return opencode_data() / "log" / "daytona.log"


def own_state() -> Path:
    """What only this suite uses: locks and the lease journal."""
    if not os.environ.get("XDG_STATE_HOME"):
        home()  # what platformdirs does without one depends on its version
    return Path(platformdirs.user_state_dir(APP, appauthor=False))


def locks() -> Path:
    return own_state() / "locks"


def leases() -> Path:
    return own_state() / "leases"


def local_root() -> Path:
    """Default root of the embedded Daytona."""
    return own_state() / "local"
