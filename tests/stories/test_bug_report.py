"""``git daytona version --verbose`` and ``doctor --bundle``: all that a bug report needs, and no
secret."""

import re
from pathlib import Path

from git_daytona import __version__
from git_daytona.base import log, paths, secret
from support.secret_search import forms

CANARY = "canary-Zk4+odd/form%2F=="
OTHER = "dtn_0123456789abcdefcanary"


def test_versions(tell):
    assert tell("git-daytona", "version").out == f"git-daytona {__version__}\n"
    lines = dict(
        line.split(": ", 1) for line in tell("git-daytona", "version", "--verbose").out.splitlines()
    )
    assert (
        lines["git-daytona"] == __version__
        and lines["git"].startswith("git version 2.")
        and "OpenSSH_" in lines["ssh"]
    )
    assert {
        "Python",
        "system",
        "OpenCode",
        "click",
        "asyncssh",
        "urllib3",
    } <= lines.keys()
    assert re.match(r"\d+\.\d+", lines["click"])


def test_a_bundle_holds_what_happened_and_no_secret(
    local, repo, begin, tell, monkeypatch, tmp_path, home
):
    log.to_file()
    session = begin(repo)
    session.sync()
    file = session.coordinator.state
    found = session.coordinator.find("1")
    file.set_title(found.id, "Something private")
    file.note(
        found.id, "failed", f"the server said {local.api_key} and ssh://{OTHER}@host to {CANARY}"
    )
    with paths.log_file().open("a") as handle:  # as an earlier tool would have written it
        handle.write(
            f"2026-01-01 INFO old line with {CANARY} and Bearer {OTHER} in {home}/somewhere\n"
        )
    (repo.path / ".env").write_text(f"DAYTONA_API_KEY={CANARY}\n")
    repo.git("config", "daytona.snapshot", OTHER)
    monkeypatch.setenv("DAYTONA_ODD", CANARY)
    held = secret.Secret(local.api_key)
    for key in (local.api_key, CANARY):
        monkeypatch.setenv("DAYTONA_API_KEY", key)
        report = tmp_path / f"report {len(key)}"
        told = tell("git-daytona", "doctor", "--bundle", str(report), cwd=repo.path)
        assert f"written: '{report}'" in told.err
        content = report.read_bytes()
        assert report.stat().st_mode & 0o777 == 0o600
        for private in (key, OTHER, local.api_key):
            assert not [form for form in forms(private) if form in content], private
        assert b"Something private" not in content and str(home).encode() not in content
        text = content.decode()
        for expected in (
            f"git-daytona: {__version__}",
            f"{local.api_url} answers",
            "DAYTONA_API_KEY: (set, not shown) (the environment variable DAYTONA_API_KEY)",
            "\nDAYTONA_ODD\n",
            f'"sandbox": "{session.sandbox_id}"',
            '"title": "(17 characters)"',
            "token.mint",
            "in ~/somewhere",
        ):
            assert expected in text, expected
    assert CANARY.encode() not in content
    again = tell("git-daytona", "doctor", "--bundle", str(report), cwd=repo.path)
    assert again.status == 13 and "exists already" in again.err
    assert held


def test_a_bundle_where_nothing_is_well(tell, tmp_path, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_URL", "no url")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    told = tell("git-daytona", "doctor", "--bundle")
    assert told.status == 1
    assert not list(Path.cwd().iterdir()), "a commit would take it along"
    (report,) = paths.own_state().glob("git-daytona-report-*.txt")
    assert f"written: '{report}'" in told.err
    assert "problem: DAYTONA_API_URL is not an http(s) URL" in report.read_text()
    missing = tell("git-daytona", "doctor", "--bundle", "no/such/file")
    assert missing.status == 13 and "hint: make it first" in missing.err
