"""Keyrings as tests choose them: by keyring's own configuration file, as a user does, which works
for child processes, too."""

import json
from pathlib import Path

import keyring.core
import pytest

MODULE = '''
import getpass, json, os, time
import keyring.backend, keyring.errors
from keyring.backends.chainer import ChainerBackend

FILE = os.path.join(os.environ["HOME"], "keys.json")

class File(keyring.backend.KeyringBackend):
    """Keeps keys, across processes."""
    name = "a file of the test"
    priority = 0
    def _all(self):
        try:
            with open(FILE) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}
    def _save(self, keys):
        with open(FILE, "w") as file:
            json.dump(keys, file)
    def get_password(self, service, username):
        return self._all().get(f"{service} {username}")
    def set_password(self, service, username, password):
        self._save(self._all() | {f"{service} {username}": password})
    def delete_password(self, service, username):
        keys = self._all()
        if keys.pop(f"{service} {username}", None) is None:
            raise keyring.errors.PasswordDeleteError("not there")
        self._save(keys)

class Raising(File):
    def get_password(self, service, username):
        raise RuntimeError(f"broken: {self._all()}")

class NotWritable(File):
    def set_password(self, service, username, password):
        raise OSError(f"cannot write {password}")

class Panicking(File):
    def get_password(self, service, username):
        raise BaseException("a panic of Rust's")

class Locked(File):
    def get_password(self, service, username):
        raise keyring.errors.KeyringLocked("dismissed")

class Waiting(File):
    def get_password(self, service, username):
        time.sleep(600)

class Asking(File):
    def get_password(self, service, username):
        return getpass.getpass("passphrase: ")

class Forgetful(File):
    def set_password(self, service, username, password):
        pass

class Cutting(File):
    def set_password(self, service, username, password):
        super().set_password(service, username, password[:8])

class Clinging(File):
    def delete_password(self, service, username):
        pass

class Odd(File):
    def get_password(self, service, username):
        return b"bytes"

class ReadOnly(File):
    def get_password(self, service, username):
        return None
    def set_password(self, service, username, password):
        raise NotImplementedError

class Chain(ChainerBackend):
    priority = 0
    backends = [ReadOnly(), File()]
'''


class Keyrings:
    """``choose()`` one by the name of its class above, or by its whole name; ``keys`` is what File
    keeps, by API URL."""

    def __init__(self, home: Path, folder: Path, patch: pytest.MonkeyPatch):
        self._home, self._folder = home, folder
        patch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
        # Where python-keyring looks on Linux and on macOS.
        self.configuration = home / ".config" / "python_keyring" / "keyringrc.cfg"
        self.configuration.parent.mkdir(parents=True, exist_ok=True)

    def choose(self, name: str, *, load: bool = True) -> None:
        # A module of its own for each HOME, which Python would otherwise keep loaded.
        module = f"keyrings_{self._home.name}".replace("-", "_")
        (self._folder / f"{module}.py").write_text(MODULE)
        name = name if "." in name else f"{module}.{name}"
        self.configuration.write_text(
            f"[backend]\ndefault-keyring={name}\nkeyring-path={self._folder}\n"
        )
        if load:
            keyring.core.init_backend()

    @property
    def keys(self) -> dict[str, str]:
        file = self._home / "keys.json"
        stored = json.loads(file.read_text()) if file.exists() else {}
        assert all(name.startswith("daytona ") for name in stored)
        return {name.removeprefix("daytona "): key for name, key in stored.items()}

    @keys.setter
    def keys(self, keys: dict[str, str]) -> None:
        (self._home / "keys.json").write_text(
            json.dumps({f"daytona {url}": key for url, key in keys.items()})
        )


@pytest.fixture
def keyrings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = keyring.get_keyring()
    # keyring puts its keyring-path there
    monkeypatch.setattr("sys.path", __import__("sys").path.copy())
    made = Keyrings(home, tmp_path, monkeypatch)
    made.choose("File")
    yield made
    keyring.set_keyring(before)
