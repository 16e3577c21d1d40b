"""The OS keyring: one entry per API URL under the service ``daytona``."""

import threading
from collections.abc import Callable

from git_daytona.errors import BadSetting
from git_daytona.secret import Secret

SERVICE = "daytona"
SECONDS = 5.0
"""A locked keyring may wait for a prompt that nobody sees; this is how long a look-up may take (CASES 54)."""


def get(api_url: str) -> Secret | None:
    """The stored key for the API, or None, also where there is no keyring. Raises BadSetting for one that cannot be asked."""

    def read() -> str | None:
        import keyring
        import keyring.errors

        try:
            return keyring.get_password(SERVICE, api_url)
        except keyring.errors.NoKeyringError:
            return None

    value = _ask(read, "read")
    return Secret(value.strip()) if value and value.strip() else None


def put(api_url: str, key: Secret) -> None:
    """Store the key; raises BadSetting when there is no keyring that keeps it."""

    def write() -> str | None:
        import keyring

        keyring.set_password(SERVICE, api_url, key.reveal())
        return None

    _ask(write, "written to")


def forget(api_url: str) -> bool:
    """Remove the stored key; whether there was one."""

    def drop() -> str | None:
        import keyring
        import keyring.errors

        try:
            keyring.delete_password(SERVICE, api_url)
        except keyring.errors.PasswordDeleteError:
            return None
        return "gone"

    return _ask(drop, "written to") is not None


def backend() -> str:
    """The name of the keyring in use, for messages."""
    import keyring

    return str(keyring.get_keyring().name)


def _ask(work: Callable[[], str | None], what: str) -> str | None:
    answer: list[str | None] = []
    problem: list[Exception] = []

    def attempt() -> None:
        try:
            answer.append(work())
        except Exception as error:  # noqa: BLE001 — backends raise whatever their D-Bus or OS library raises
            problem.append(error)

    # A daemon thread: a backend that waits for ever must not keep the process from ending either.
    thread = threading.Thread(target=attempt, name="keyring", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if answer:
        return answer[0]
    hint = "unlock the keyring, or set DAYTONA_API_KEY in the environment"
    if problem:
        # The class alone: a backend's message may quote what it was given.
        raise BadSetting(f"the keyring cannot be {what}: {type(problem[0]).__name__}", hint=hint)
    raise BadSetting(f"the keyring did not answer within {SECONDS:.0f} seconds", hint=hint)
