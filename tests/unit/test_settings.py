"""Where each setting may come from, and a project's .env as python-dotenv reads it (cases 53
and 54)."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from git_daytona.base.errors import BadSetting, GitDaytonaError, NoKey
from git_daytona.settings import keystore, settings

NEVER = settings.NEVER_FROM_DOTENV


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path


def dotenv(project: Path, content: str | bytes) -> tuple[dict[str, str], list[str]]:
    (project / ".env").write_bytes(content.encode() if isinstance(content, str) else content)
    warnings: list[str] = []
    return settings.read_dotenv(project, warnings.append), warnings


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("KEY=value", "value"),
        ("KEY = value  \n", "value"),
        ("export KEY=value\n", "value"),
        ("export\tKEY='a b'\n", "a b"),
        ('KEY="a # b" # comment\n', "a # b"),
        ("KEY=a # comment\n", "a"),
        ("KEY=a#b\n", "a#b"),
        ("# KEY=x\nKEY=value\r\nOTHER=y\r\n", "value"),
        ("KEY=first\nKEY=last\n", "last"),
        ("KEY=first\nKEY=\n", ""),
        ("KEY\n", ""),
        ('KEY="line\\nbreak"\n', "line\nbreak"),
        ("KEY='it\\'s'\n", "it's"),
        ('KEY="two\nlines"\n', "two\nlines"),
        ("KEY=${HOME}$PATH\n", "${HOME}$PATH"),
        ("KEY=$(id)`id`\n", "$(id)`id`"),
        ("\ufeffKEY=value\n", "value"),
        ("KEY=wörld\n", "wörld"),
    ],
)
def test_case_53_dotenv_is_read_as_python_dotenv_reads_it(project, content, value):
    found, warnings = dotenv(project, content)
    assert (found["KEY"], warnings) == (value, [])
    if not content.startswith("\ufeff"):
        from dotenv import dotenv_values

        assert {
            name: text or ""
            for name, text in dotenv_values(project / ".env", interpolate=False).items()
        } == found


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("KEY=value\n".encode("utf-16"), "not UTF-8"),
        ("KEY=v\u00e4lue\n".encode("latin-1"), "not UTF-8"),
        (b"KEY=val\0ue\n", "not text"),
        (b"KEY=value\n" + b"#" * settings.DOTENV_BYTES, "larger than 1 MiB"),
    ],
)
def test_case_53_a_dotenv_that_cannot_be_used_is_a_warning(project, content, says, capfd):
    found, warnings = dotenv(project, content)
    assert found == {}
    assert len(warnings) == 1
    assert says in warnings[0]
    assert capfd.readouterr() == ("", "")


def test_a_line_that_makes_no_sense_is_named_and_the_rest_counts(project, capfd):
    found, warnings = dotenv(project, "A=1\n'KEY=dtn_secretsecret\nB=2\n")
    assert found == {"A": "1", "B": "2"}
    assert warnings == ["'.env' of the project: line 2 is not NAME=VALUE and was skipped"]
    assert capfd.readouterr() == ("", ""), "python-dotenv itself stays silent"


def made_directory(path: Path) -> None:
    path.mkdir()


def made_unreadable(path: Path) -> None:
    path.write_text("KEY=value")
    path.chmod(0)


@pytest.mark.parametrize(
    "make",
    [
        made_directory,
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
    ],
)
def test_case_53_a_dotenv_that_is_no_file_neither_hangs_nor_fails(project, make):
    make(project / ".env")
    warnings: list[str] = []
    reader = threading.Thread(
        target=settings.read_dotenv, args=(project, warnings.append), daemon=True
    )
    reader.start()
    reader.join(20)
    assert not reader.is_alive(), "a named pipe must not keep anybody waiting"
    assert len(warnings) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_dotenv_that_may_not_be_read(project):
    made_unreadable(project / ".env")
    warnings: list[str] = []
    assert settings.read_dotenv(project, warnings.append) == {}
    assert len(warnings) == 1


def test_no_dotenv(project):
    assert settings.read_dotenv(project, pytest.fail) == {}


def test_precedence(project):
    (project / ".env").write_text("DAYTONA_API_KEY=from-dotenv\nDAYTONA_SNAPSHOT=snap-dotenv\n")
    found = settings.load(project, {})
    assert (found.key.reveal(), found.key_source, found.snapshot) == (
        "from-dotenv",
        f"'.env' of '{project}'",
        "snap-dotenv",
    )
    found = settings.load(
        project, {"DAYTONA_API_KEY": " from-env\n", "DAYTONA_SNAPSHOT": "snap-env"}
    )
    assert (found.key.reveal(), found.key_source, found.snapshot) == (
        "from-env",
        "the environment variable DAYTONA_API_KEY",
        "snap-env",
    )
    found = settings.load(project, {"DAYTONA_API_KEY": "  ", "DAYTONA_SNAPSHOT": ""})
    assert (found.key.reveal(), found.snapshot) == ("from-dotenv", "snap-dotenv"), "blank is unset"
    assert settings.load(None, {}).key is None


def test_case_53_what_a_repository_may_not_choose(project):
    (project / ".env").write_text(
        "".join(f"export {name}='https://evil.example/'\n" for name in NEVER)
    )
    found = settings.load(project, {})
    assert found == settings.Settings(
        settings.DEFAULT_API_URL, None, None, None, None, True, None, None, found.warnings
    )
    assert len(found.warnings) == 1, "one warning that names them all"
    assert all(name in found.warnings[0] for name in NEVER)
    assert "evil" not in found.warnings[0]


def test_nothing_of_dotenv_is_exported(project, monkeypatch):
    (project / ".env").write_text(
        "DAYTONA_API_KEY=from-dotenv\nDAYTONA_SNAPSHOT=x\nPATH=/evil\nLD_PRELOAD=/evil.so\n"
    )
    before = dict(os.environ)
    settings.load(project)
    assert dict(os.environ) == before


@pytest.mark.parametrize("key", ["a b", "a\nb", "schlüssel", "a\tb", "a\x1bb", "a" * 4097])
def test_a_key_that_is_none(key):
    with pytest.raises(BadSetting) as refused:
        settings.load(None, {"DAYTONA_API_KEY": key})
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://a.example/api", "https://a.example/api"),
        ("http://127.0.0.1:3000/api/", "http://127.0.0.1:3000/api"),
        ("https://a.example//", "https://a.example"),
        ("http://[::1]:3000/api", "http://[::1]:3000/api"),
    ],
)
def test_case_33_api_url(text, url):
    assert settings.load(None, {"DAYTONA_API_URL": text}).api_url == url


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "app.daytona.io/api",
        "ftp://a.example",
        "file:///etc/passwd",
        "https://",
        "https://:80/x",
        "https://a.example:99999/",
        "https://a.example:0/",
        "https://a.example:port/",
        "https://a.example/api?x=1",
        "https://a.example/#x",
        "https://a .example/",
        "https://a.example/\x1b[2J",
        "http://[::1/api",
        "https://user:pass@a.example/api",
        "https://key@a.example/api",
    ],
)
def test_an_api_url_that_is_none(text):
    with pytest.raises(BadSetting) as refused:
        settings.load(None, {"DAYTONA_API_URL": text})
    assert "DAYTONA_API_URL" in str(refused.value)
    assert "pass" not in str(refused.value).replace("password", "")


@pytest.mark.parametrize(
    ("text", "on"),
    [("", True), ("true", True), ("FALSE", False), ("0", False), ("no", False), (" off ", False)],
)
def test_auto_pin(text, on):
    assert settings.load(None, {"DAYTONA_SSH_AUTO_PIN": text}).auto_pin is on


def test_no_key_anywhere():
    with pytest.raises(NoKey, match=r"app\.daytona\.io") as refused:
        settings.load(None, {}).api_key()
    assert "DAYTONA_API_KEY" in refused.value.hint


BACKENDS = """
import keyring.backend, keyring.errors, time

class Base(keyring.backend.KeyringBackend):
    priority = 0
    def set_password(self, service, username, password):
        raise NotImplementedError

class Raising(Base):
    def get_password(self, service, username):
        raise RuntimeError(f"locked: {service} dtn_topsecret")

class Locked(Base):
    def get_password(self, service, username):
        raise keyring.errors.KeyringLocked("dtn_topsecret")

class Waiting(Base):
    def get_password(self, service, username):
        time.sleep(600)

class Holding(Base):
    def get_password(self, service, username):
        return f" {service}|{username}\\n"
"""


@pytest.fixture
def backend(tmp_path, monkeypatch):
    """Choose one of the keyring backends above, as a user does."""
    import keyring.core

    (tmp_path / "odd_keyrings.py").write_text(BACKENDS)
    monkeypatch.syspath_prepend(tmp_path)
    before = keyring.get_keyring()

    def choose(name: str) -> None:
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", name)
        keyring.core.init_backend()

    yield choose
    keyring.set_keyring(before)


def test_a_key_from_the_keyring(backend):
    backend("odd_keyrings.Holding")
    key, source = settings.load(None, {"DAYTONA_API_URL": "http://h/api/"}).api_key()
    assert key.reveal() == "daytona|http://h/api"
    assert "keyring" in source


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("odd_keyrings.Raising", "cannot be read: RuntimeError"),
        ("odd_keyrings.Waiting", "did not answer within"),
        ("odd_keyrings.Locked", "the keyring is locked"),
        ("keyring.backends.fail.Keyring", "no API key"),
        ("keyring.backends.null.Keyring", "no API key"),
        ("no_such_module.Keyring", "cannot be read|no API key"),
    ],
)
def test_case_54_a_keyring_in_the_way(backend, name, says, monkeypatch):
    """One that raises, waits for ever, stays locked; none at all: the wait is bounded, the message
    clear."""
    monkeypatch.setattr(keystore, "LOOKUP_SECONDS", 0.3)
    with contextlib.suppress(ModuleNotFoundError):
        backend(name)
    with pytest.raises(GitDaytonaError, match=says) as refused:
        settings.load(None, {}).api_key()
    assert "DAYTONA_API_KEY" in refused.value.hint
    assert "dtn_topsecret" not in str(refused.value) + (refused.value.details or "")
    assert settings.load(None, {"DAYTONA_API_KEY": "k"}).api_key()[0].reveal() == "k", (
        "the environment's key never asks it"
    )
