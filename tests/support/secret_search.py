"""The canary: whether a secret stands in a file, a file's name, a text, an exception, a repr, or
the arguments or environment of a process (cases 4, 56). tests/flows/test_secrets.py
shows that each of these looks finds what is planted."""

import base64
import gc
import json
import os
import re
import threading
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

from git_daytona.base import log
from git_daytona.local.server import LocalDaytona
from support.processes import Process, descendants

MAIN = ("git-daytona", "daytona-token", "daytona-pin", "daytona-local")
"""The executables that a user starts with the key in the environment."""


def forms(secret: str) -> set[bytes]:
    """How a secret may be written down. (Of base64 the part that does not depend on what stands
    before it.)"""
    raw = secret.encode()
    encoded = {base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)}
    in_json = json.dumps(secret)[1:-1].encode()
    return {raw, in_json, quote(secret, safe="").encode(), raw.hex().encode(), raw[::-1], *encoded}


def contents(path: Path) -> Iterable[bytes]:
    """A file's bytes, and what is compressed in them (git's objects and packs)."""
    data = path.read_bytes()
    yield data
    for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            yield zlib.decompressobj().decompress(data[found.start() :], 1 << 20)
        except zlib.error:
            continue


def shown(problem: BaseException, *, frames: bool = True) -> str:
    """What an exception shows to whoever prints, logs or dumps it: its traceback, itself, and the
    values in our own frames.

    ``frames=False`` leaves those out: where a server repeats the key, some frame has to hold its
    answer.
    """
    words = [
        "".join(traceback.format_exception(problem)),
        repr(problem),
        repr(problem.args),
        repr(vars(problem)),
    ]
    each: BaseException | None = problem
    while frames and each is not None:
        for frame, _ in traceback.walk_tb(each.__traceback__):
            name = str(frame.f_globals.get("__name__", ""))
            if name.startswith("git_daytona."):
                words += [
                    f"{frame.f_code.co_qualname}: {name} = {value!r}"
                    for name, value in frame.f_locals.items()
                ]
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\n".join(words)


def reprs() -> Iterator[tuple[str, str]]:
    """The repr of every live object of the suite; the embedded Daytona is another program's
    part."""
    for each in gc.get_objects():
        module = getattr(type(each), "__module__", None)
        if (
            isinstance(module, str)
            and module.startswith("git_daytona.")
            and not module.startswith("git_daytona.local")
        ):
            yield f"repr of {type(each).__qualname__}", repr(each)


def is_main(each: Process) -> bool:
    """One of the executables, or a fork of one that has not become another program yet (it has its
    parent's command line)."""
    words = each.words
    if each.name.endswith("sh"):  # bin/NAME, before it becomes Python
        return len(words) > 1 and words[1].rsplit("/", 1)[-1] in MAIN
    return each.name.startswith("python") and any(
        "git_daytona" in code and name in MAIN for code, name in pairwise(words)
    )


@dataclass
class Canary:
    """The secrets of a test and all that it got to see. ``keys`` may stand in the environment of
    executables (the user put it there); ``tokens`` in no environment, but that of what
    ``may_have_token`` names."""

    keys: set[str] = field(default_factory=set)
    tokens: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    places: list[Path] = field(default_factory=list)
    may_have_key: Callable[[Process], bool] = is_main
    may_have_token: Callable[[Process], bool] = lambda each: False
    seen: dict[str, int] = field(default_factory=dict)
    """Names of processes that were looked at, and how often."""
    found: set[str] = field(default_factory=set)
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, name: str, text: str) -> None:
        """Remember a text that came out."""
        self.texts[f"{name} ({len(self.texts)})"] = text

    def look(self) -> None:
        """Search the arguments and environments of all processes below this one."""
        with self._looking:
            keys = {form: "key" for secret in tuple(self.keys) for form in forms(secret)}
            wanted = keys | {
                form: "token" for secret in tuple(self.tokens) for form in forms(secret)
            }
            for each in descendants():
                self.seen[each.name] = self.seen.get(each.name, 0) + 1
                self.found |= {
                    f"{what} in argv: {each.words}"
                    for form, what in wanted.items()
                    if form in each.arguments
                }
                here = {what for form, what in wanted.items() if form in each.environment}
                if "key" in here and not self.may_have_key(each):
                    self.found.add(f"key in environment: {each.words}")
                if "token" in here and not self.may_have_token(each):
                    self.found.add(f"token in environment: {each.words}")

    def watching(self) -> "Watch":
        """``with canary.watching():`` looks at the processes all the time."""
        return Watch(self)

    def leaks(self) -> list[str]:
        """Where any of the secrets stands or stood."""
        wanted = {form for secret in (*self.keys, *self.tokens) for form in forms(secret)}
        found = sorted(self.found)
        for name, text in self.texts.items():
            if any(form in text.encode("utf-8", "surrogateescape") for form in wanted):
                found.append(name)
        for place in self.places:
            for path in [place, *place.rglob("*")]:
                if any(form in os.fsencode(path) for form in wanted):
                    found.append(f"name of {path}")
                try:
                    if (
                        path.is_file()
                        and not path.is_symlink()
                        and any(form in data for data in contents(path) for form in wanted)
                    ):
                        found.append(str(path))
                # git's temporary files come and go while a transfer is held
                except FileNotFoundError:
                    continue
        return found


class Watch:
    def __init__(self, canary: Canary) -> None:
        self._canary = canary
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary")

    def _run(self) -> None:
        while not self._ending.wait(0.05):
            self._canary.look()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path) -> Iterator[Path]:
    """Debug logging, every kind of tracing that git knows, to files and to stderr; TMPDIR and umask
    as they should not be."""
    traces = tmp_path / "traces"
    traces.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("DAYTONA_DEBUG", "1")
    for name in (
        "GIT_TRACE",
        "GIT_TRACE_PACKET",
        "GIT_TRACE_SETUP",
        "GIT_TRACE_CURL",
        "GIT_TRACE2_EVENT",
    ):
        monkeypatch.setenv(name, str(traces / name))
    for name in (
        "GIT_TRACE_PERFORMANCE",
        "GIT_TRACE2_PERF",
        "GIT_CURL_VERBOSE",
        "GIT_TRANSFER_TRACE",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GIT_TRACE2_ENV_VARS", "DAYTONA_SSH_TOKEN")
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[trace2]\n\tnormalTarget = {traces}/normal\n\tenvVars = DAYTONA_SSH_TOKEN\n")
    before = os.umask(0)
    yield traces
    os.umask(before)


@pytest.fixture
def logged() -> None:
    """What this process logs goes to the log file, as in the executables."""
    log.to_file()


@pytest.fixture
def canary(
    local: LocalDaytona, traced: Path, home: Path, tmp_path: Path, logged: None
) -> Iterator[Canary]:
    """Everything on that could tell a secret, and nothing but the key and the tokens of the server
    to tell."""
    made = Canary(keys={local.api_key}, places=[home, tmp_path])
    local.watch_tokens(made.tokens.append)
    yield made
    local.watch_tokens(lambda token: None)
