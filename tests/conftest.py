"""What every test stands on: a HOME, XDG directories and git configuration of its own, and nothing
of the developer's environment."""

import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from git_daytona.base import log

# No timing is asserted in a test: a machine may be busy. Few examples, other ones in each run.
settings.register_profile(
    "busy", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")

pytest_plugins = [
    "support.whole_run",
    # Fixtures of more than one folder.
    "support.crashes",
    "support.installation",
    "support.keyrings",
    "support.program",
    "support.round_trip",
    "support.secret_search",
    "support.wrapper",
]

KEPT = {
    "PATH",
    "LANG",
    "TERM",
    "TMPDIR",
    "CI",
    "COVERAGE_PROCESS_START",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "npm_config_cache",
}
"""Of the developer's environment; npm's and pip's own settings are kept by prefix."""


@pytest.fixture(autouse=True)
def _log_closed() -> Iterator[None]:
    """The log that a test opens in this process is closed at its end."""
    yield
    for handler in list(log.logger.handlers):
        if not isinstance(handler, logging.NullHandler):
            log.logger.removeHandler(handler)
    log.logger.setLevel(logging.NOTSET)


@pytest.fixture
def home_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `home`. A file whose tests share what runs in it has one of its own."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def home(home_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HOME. Every default path of the suite, git and ssh lies under it; the working
    directory is outside any repository."""
    place = home_folder
    for name in list(os.environ):
        if name not in KEPT and not name.upper().startswith(
            ("NPM_CONFIG_", "PIP_", "PYTEST_", "COV_")
        ):
            monkeypatch.delenv(name)
    for name, folder in {
        "HOME": "",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
        "XDG_CONFIG_HOME": ".config",
        "XDG_CACHE_HOME": ".cache",
    }.items():
        monkeypatch.setenv(name, str(place / folder) if folder else str(place))
    (place / ".gitconfig").write_text(
        "[user]\n\tname = A Developer\n\temail = dev@example.invalid\n[init]\n"
        "\tdefaultBranch = main\n"
    )
    (place / "cwd").mkdir(exist_ok=True)
    monkeypatch.chdir(place / "cwd")
    # No keyring of the machine is ever asked (it might prompt); tests of the keyring choose a
    # backend themselves.
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    return place


END_TO_END = {"cases", "cloud", "everyday", "flows", "hostile", "opencode"}
"""Folders whose tests .ci/run needs, as it does those marked npm: there a skipped one is a
failure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew", action="store_true", help="write man/tour.svg anew instead of comparing it"
    )
    parser.addoption(
        "--complete",
        action="store_true",
        help="run those marked complete, too; fail where an end-to-end test is skipped",
    )


SLOWEST = ("opencode", "flows", "hostile", "stories", "everyday", "local", "cloud")
"""Folders whose files take longest: begun first, none of them is left alone at the end."""


INSTALLING = {"installed", "binary"}
"""Fixtures of a whole run: what they install takes the time of the test that happens to be first,
or of those that wait for it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(config.rootpath).parts[1]
        return SLOWEST.index(folder) if folder in SLOWEST else len(SLOWEST)

    items.sort(key=rank)
    from support.whole_run import is_whole  # here: pytest loads it as a plugin first

    sample = is_whole(config) and not config.getoption("--complete")
    for item in items:
        if (more := item.get_closest_marker("complete")) and sample:
            reason = f"{more.args[0]}; bin/test --complete runs it"
            item.add_marker(pytest.mark.skip(reason=reason))
        if INSTALLING & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    needed = item.get_closest_marker("npm") or END_TO_END & set(
        item.path.relative_to(item.config.rootpath).parts
    )
    if (
        needed
        and report.skipped
        and not hasattr(report, "wasxfail")
        and item.config.getoption("--complete")
    ):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason} (may not happen with --complete)"
    return report
