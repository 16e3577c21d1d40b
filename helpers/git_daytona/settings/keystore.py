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
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, TypeVar

from git_daytona.base import messages, threads
from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import Secret, printable

T = TypeVar("T")

SERVICE = "daytona"
SECONDS = 5.0
"""A locked keyring may wait for a prompt that nobody sees; this is how long a look-up may take."""
PATIENT_SECONDS = 60.0
"""The same for login and logout: somebody is there who types a passphrase."""
QUIET_SECONDS = 2.0
"""After this, whoever is there is told what is waited for."""
NONE_HINT = (
    "set DAYTONA_API_KEY in the environment instead, or install and start one that offers "
    "the Secret Service:"
    " gnome-keyring, KWallet, KeePassXC"
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
    key: Secret
    place: Place


def find(api_url: str, *, patient: bool = False) -> Stored | None:
    """The stored key for the API, or None, also where there is no keyring. Raises BadSetting for
    one that cannot be asked."""
    return _ask(lambda: _first(api_url), "read", patient)


def required(api_url: str) -> Stored | None:
    """As find(), for who is going to store a key: raises BadSetting, too, where there is no keyring
    that keeps anything."""

    def look() -> Stored | None:
        from keyring.backends import fail, null

        if all(isinstance(ring, (fail.Keyring, null.Keyring)) for ring in _rings()):
            raise BadSetting(
                "there is no keyring on this machine that would keep the key", hint=NONE_HINT
            )
        return _first(api_url)

    return _ask(look, "read", patient=True)


def keep(api_url: str, key: Secret) -> Place:
    """Store the key, and read it back; raises BadSetting when it is not there then."""

    def write() -> Stored | None:
        for ring in _rings():
            try:
                ring.set_password(SERVICE, api_url, key.reveal())
                break
            # one that can only be read; the next of a chain may be another
            except NotImplementedError:
                continue
        return _first(api_url)

    stored = _ask(write, "written to", patient=True)
    if stored is None or stored.key.reveal() != key.reveal():
        raise BadSetting("the keyring does not give back what was stored in it", hint=NONE_HINT)
    return stored.place


def forget(api_url: str) -> Place | None:
    """Remove the stored key, and look whether it is gone. Where it was; None if there was none.
    Raises BadSetting."""

    def drop() -> Place | None:
        where = None
        for ring in _rings():
            if _get(ring, api_url) is not None:
                ring.delete_password(SERVICE, api_url)
                where = where or _place(ring)
        if _first(api_url) is not None:
            raise BadSetting(
                "the keyring still has the key",
                hint="remove it with the keyring's own program, and revoke the key",
            )
        return where

    return _ask(drop, "written to", patient=True)


# -- inside the thread -----------------------------------------------------------------------------


def _rings() -> list[Any]:
    """The backends in use, in the order in which they are asked."""
    # Backends that cannot be loaded are reported with a traceback on stderr unless somebody
    # listens.
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
        value = (_get(ring, api_url) or "").strip()
        if value:
            return Stored(Secret(value), _place(ring))
    return None


def _place(ring: Any) -> Place:
    kind = f"{type(ring).__module__}.{type(ring).__qualname__}"
    file = getattr(ring, "file_path", None)
    name = _NAMES.get(kind) or printable(" ".join(str(ring.name).split()))
    return Place(name, printable(str(file)) if file else None, plain="plaintext" in kind.lower())


# -- outside of it ---------------------------------------------------------------------------------


def _ask(work: Callable[[], T], what: str, patient: bool) -> T:
    seconds = PATIENT_SECONDS if patient else SECONDS
    with _terminal_kept():
        answer = threads.start(work)
        wait([answer], min(QUIET_SECONDS, seconds))
        if patient and not answer.done():
            messages.note("waiting for the keyring; unlock it if it asks for that")
        wait([answer], max(0.0, seconds - QUIET_SECONDS))
    if not answer.done():
        raise BadSetting(
            f"the keyring did not answer within {seconds:.0f} seconds",
            hint="unlock the keyring, or set DAYTONA_API_KEY in the environment",
        )
    problem = answer.exception()
    if problem is None:
        return answer.result()
    if isinstance(problem, BadSetting):
        raise problem
    # Backends raise whatever their D-Bus or OS library raises, panics of Rust's, too.
    raise _told(type(problem).__name__, what)


def _told(kind: str, what: str) -> BadSetting:
    if kind in _LOCKED:
        return BadSetting(
            "the keyring is locked", hint="unlock it, or set DAYTONA_API_KEY in the environment"
        )
    if kind == "NoKeyringError":
        return BadSetting("there is no keyring on this machine", hint=NONE_HINT)
    return BadSetting(
        f"the keyring cannot be {what}: {kind}",
        hint="mend or unlock it, or set DAYTONA_API_KEY in the environment",
    )


@contextlib.contextmanager
def _terminal_kept() -> Iterator[None]:
    """Leave the terminal as it was: a backend that asks for a passphrase there, with the echo off,
    may be given up while it waits."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        before = termios.tcgetattr(terminal)
        try:
            yield
        finally:
            if termios.tcgetattr(terminal) != before:
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    finally:
        os.close(terminal)
