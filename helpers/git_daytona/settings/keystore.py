"""The OS keyring: one entry per API URL under the service ``daytona``.

A backend is a stranger's program: it may wait for ever, raise anything, or keep nothing (case 54).
It is asked in a thread of its own, for a bounded time, and of what it raises only the class is
told: its message may quote what it was given.
"""

import contextlib
import logging
import os
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from git_daytona.base import messages, threads
from git_daytona.base.errors import BadSetting
from git_daytona.base.progress import Patience
from git_daytona.base.secret import Secret, one_line, printable

T = TypeVar("T")

SERVICE = "daytona"
LOOKUP_SECONDS = 5.0
"""A locked keyring may wait for a prompt that nobody sees; this is how long a look-up may take."""
PATIENT_SECONDS = 60.0
"""The same for login and logout: somebody is there who types a passphrase."""
QUIET_SECONDS = 2.0
"""After this, whoever is there is told what is waited for."""
NONE_HINT = (
    "set DAYTONA_API_KEY in the environment instead, or install and start one that offers "
    "the Secret Service: gnome-keyring, KWallet, KeePassXC"
)

_NAMES = {
    "keyring.backends.SecretService.Keyring": "Secret Service",
    "keyring.backends.libsecret.Keyring": "Secret Service",
    "keyring.backends.kwallet.DBusKeyring": "KWallet",
    "keyring.backends.kwallet.DBusKeyringKWallet4": "KWallet",
    "keyring.backends.macOS.Keyring": "macOS Keychain",
    "keyring.backends.Windows.WinVaultKeyring": "Windows Credential Locker",
    "keyrings.alt.file.PlaintextKeyring": "plain text file",
    "keyrings.alt.file.EncryptedKeyring": "encrypted file",
}
_LOCKED = {"KeyringLocked", "LockedException", "PromptDismissedException"}
"""keyring's own class, and those of SecretStorage that it lets through."""


@dataclass(frozen=True)
class Place:
    """What keeps a key: its name as people know it, and its file if it says that it keeps one."""

    name: str
    file: str | None = None
    plain: bool = False
    """Whether the file holds the key as it is."""

    def __str__(self) -> str:
        return f"{self.name} '{self.file}'" if self.file else self.name


@dataclass(frozen=True)
class Stored:
    """A key, and where the keyring has it."""

    key: Secret
    place: Place


def find(api_url: str) -> Stored | None:
    """Look for the API's key; None also without a keyring. Raises BadSetting for a broken one."""
    return _within(LOOKUP_SECONDS, lambda: _first(api_url), "read")


def required(api_url: str) -> Stored | None:
    """Look as find() does before another is stored; raises BadSetting if none would keep it."""

    def look() -> Stored | None:
        from keyring.backends import fail, null

        if all(isinstance(ring, (fail.Keyring, null.Keyring)) for ring in _rings()):
            raise BadSetting("no keyring on this machine can keep the key", hint=NONE_HINT)
        return _first(api_url)

    return _patiently(look, "read")


def keep(api_url: str, key: Secret) -> Place:
    """Store the key, and read it back; raises BadSetting when it is not there then."""

    def write() -> Stored | None:
        for ring in _rings():
            # one that can only be read; the next of a chain may be another
            with contextlib.suppress(NotImplementedError):
                ring.set_password(SERVICE, api_url, key.reveal())
                break
        return _first(api_url)

    stored = _patiently(write, "written to")
    if stored is None or stored.key.reveal() != key.reveal():
        raise BadSetting("the keyring does not give back what was stored in it", hint=NONE_HINT)
    return stored.place


def forget(api_url: str) -> Place | None:
    """Remove the key; return where it was. Raises BadSetting, also if it is still there."""

    def drop() -> Place | None:
        rings = [ring for ring in _rings() if _get(ring, api_url) is not None]
        for ring in rings:
            ring.delete_password(SERVICE, api_url)
        if _first(api_url) is not None:
            hint = "remove it with the keyring's own program, and revoke the key"
            raise BadSetting("the keyring still has the key", hint=hint)
        return _place(rings[0]) if rings else None

    return _patiently(drop, "written to")


# -- inside the thread -----------------------------------------------------------------------------


def _name_the_bus() -> None:
    """Where systemd has the user's D-Bus, for a start without the variable that says so: many MCP
    clients hand on HOME, PATH and little else."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if (bus := Path(runtime) / "bus").is_socket():
        os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", f"unix:path={bus}")


def _rings() -> list[Any]:
    """The backends in use, in the order in which they are asked."""
    _name_the_bus()
    # keyring prints a traceback for backends that cannot be loaded unless somebody listens
    logging.getLogger("keyring").addHandler(logging.NullHandler())
    import keyring
    from keyring.backends.chainer import ChainerBackend

    ring = keyring.get_keyring()
    return list(ring.backends) if isinstance(ring, ChainerBackend) else [ring]


def _get(ring: Any, api_url: str) -> str | None:
    from keyring.errors import NoKeyringError

    try:
        value = ring.get_password(SERVICE, api_url)
    except NoKeyringError:
        return None
    return value if isinstance(value, str) else None


def _first(api_url: str) -> Stored | None:
    for ring in _rings():
        if value := (_get(ring, api_url) or "").strip():
            return Stored(Secret(value), _place(ring))
    return None


def _place(ring: Any) -> Place:
    kind = f"{type(ring).__module__}.{type(ring).__qualname__}"
    file = getattr(ring, "file_path", None)
    name = _NAMES.get(kind) or one_line(str(ring.name))
    return Place(name, printable(str(file)) if file else None, plain="plaintext" in kind.lower())


def _translated(kind: str, what: str) -> BadSetting:
    instead = "set DAYTONA_API_KEY in the environment"
    if kind in _LOCKED:
        return BadSetting("the keyring is locked", hint=f"unlock it, or {instead}")
    if kind == "NoKeyringError":
        return BadSetting("there is no keyring on this machine", hint=NONE_HINT)
    hint = f"mend or unlock it, or {instead}"
    return BadSetting(f"the keyring cannot be {what}: {kind}", hint=hint)


# -- outside of it ---------------------------------------------------------------------------------


def _patiently(work: Callable[[], T], what: str) -> T:
    patience = Patience(messages.note, seconds=QUIET_SECONDS)
    with patience.waiting("waiting for the keyring; unlock it if it asks for that"):
        return _within(PATIENT_SECONDS, work, what)


def _within(seconds: float, work: Callable[[], T], what: str) -> T:
    def guarded() -> T:
        try:
            return work()
        except BadSetting:
            raise
        # whatever their D-Bus or OS library raises, panics of Rust's, too
        except BaseException as problem:  # noqa: BLE001
            raise _translated(type(problem).__name__, what) from None

    try:
        with _terminal_kept():
            return threads.within(seconds, guarded)
    except threads.Late:
        raise BadSetting(
            f"the keyring did not answer within {seconds:.0f} seconds",
            hint="unlock the keyring, or set DAYTONA_API_KEY in the environment",
        ) from None


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Leave the terminal as it was: a backend may be given up while it asks with the echo off."""
    try:
        terminal = Path("/dev/tty").open("rb", buffering=0)  # noqa: SIM115 — closed below
    except OSError:
        yield
        return
    with terminal:
        before = termios.tcgetattr(terminal)
        try:
            yield
        finally:
            if termios.tcgetattr(terminal) != before:
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)
