"""Each row is held against the twin in both profiles, or against the server of an account that
variables name (README.md)."""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from git_daytona.local.core.profile import PROFILES
from git_daytona.local.server import LocalDaytona
from support import account, rows

try:
    ACCOUNT = account.from_variables(os.environ)
except ValueError as error:
    raise pytest.UsageError(str(error)) from None
REPORT = Path(
    os.environ.get(account.VARIABLES + "REPORT")
    or Path(__file__).parents[2] / "build" / "cloud" / "differences.json"
)
DIFFERENCE = "difference"
"""The property of a test's report that holds its row, what was expected and what was seen."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        metafunc.parametrize(
            "server", [ACCOUNT.like] if ACCOUNT else list(PROFILES), indirect=True, scope="session"
        )
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", [_param(row) for row in metafunc.module.TABLE])


def _param(row: rows.Row) -> Any:
    # A twin that can do it after all fails, too: the reason is out of date then.
    marks = [pytest.mark.xfail(reason=row.twin, strict=True)] if row.twin and not ACCOUNT else []
    return pytest.param(row, id=row.name, marks=marks)


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[account.Server]:
    """The server that the rows are held against."""
    if ACCOUNT:
        with account.Server(ACCOUNT) as server:
            yield server
        return
    with LocalDaytona(tmp_path_factory.mktemp("daytona"), like=request.param) as twin:
        with account.Server(
            account.Account(twin.api_url, twin.api_key, request.param), twin
        ) as server:
            yield server
        assert twin.sandboxes == [], "a run leaves nothing behind"


@pytest.fixture
def twin(server: account.Server) -> LocalDaytona:
    """The twin, for what only it can be asked for."""
    if server.twin is None:
        pytest.skip("about the twin's own faults")
    return server.twin


@pytest.fixture
def hold(server: account.Server, record_property: Any) -> Any:
    """A function that holds a row against the server, and fails with the differences."""

    def hold(table: rows.Table, row: rows.Row) -> None:
        expected = rows.by_profile(row.expected, server.like)
        seen = json.loads(server.scrubbed(json.dumps(server.once(row.probe))))
        found = list(rows.differences(expected, seen))
        if found:
            record_property(
                DIFFERENCE,
                _difference(table, row, server.like, rows.shown(expected), rows.shown(seen)),
            )
            pytest.fail("\n".join(found), pytrace=False)

    return hold


def _difference(
    table: rows.Table, row: rows.Row, like: str, expected: str, seen: str
) -> dict[str, str | None]:
    twin = f"differs: {row.twin}" if row.twin else expected
    return {
        "table": table.name,
        "row": row.name,
        "like": like,
        "expected": expected,
        "twin": twin,
        "server": seen,
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On an account: take the secrets out of what is printed, and make a probe that failed a
    difference."""
    report = yield
    if ACCOUNT and report.failed:
        server = getattr(item, "funcargs", {}).get("server")
        # Where the server's fixture failed, no token has been minted yet.
        scrubbed = (
            server.scrubbed
            if server
            else lambda text: text.replace(ACCOUNT.api_key, account.SECRET)
        )
        head = (
            []
            if call.excinfo is None or call.excinfo.errisinstance(pytest.fail.Exception)
            else [call.excinfo.exconly(), ""]
        )
        report.longrepr = scrubbed("\n".join([*head, str(report.longrepr)]))
        report.sections = [(title, scrubbed(text)) for title, text in report.sections]
        row = item.funcargs.get("row") if call.when == "call" else None
        if row and DIFFERENCE not in dict(report.user_properties):
            expected = rows.shown(rows.by_profile(row.expected, server.like))
            seen = f"the probe failed: {scrubbed(str(call.excinfo.value if call.excinfo else ''))}"
            report.user_properties.append(
                (DIFFERENCE, _difference(item.module.TABLE, row, server.like, expected, seen))
            )
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say on which rows the twin and the account's server differ, and write it down."""
    if not ACCOUNT:
        return
    reports = [
        one
        for kind in ("passed", "failed")
        for one in terminalreporter.stats.get(kind, [])
        if one.when == "call"
    ]
    found = [
        value for report in reports for name, value in report.user_properties if name == DIFFERENCE
    ]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    terminalreporter.section(
        f"differences from the twin of '{ACCOUNT.like}': {len(found)} of {len(reports)} rows"
    )
    for one in found:
        terminalreporter.write_line(
            f"{one['table']}: {one['row']}\n  twin:   {one['twin']}\n  server: {one['server']}"
        )
    terminalreporter.write_line(f"written to {REPORT}")
