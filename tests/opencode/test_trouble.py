"""What the user sees when something is wrong: asserted where the user sees it, in the tool's result
and the toasts."""

import json
import subprocess

from support.opencode_hosts import each_major, mostly_opencode_2, service_decides

LOOK = [[("bash", {"command": "ls", "description": "look"})], "ok"]


def run(opencode, model, repo):
    model.scripts["please"] = LOOK
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
    [said] = model.results()
    return said


@each_major
def test_no_key(opencode, model, repo, monkeypatch, sandboxes):
    monkeypatch.delenv("DAYTONA_API_KEY")
    said = run(opencode, model, repo)
    assert "there is no API key" in said
    assert "set DAYTONA_API_KEY (https://app.daytona.io/dashboard/keys)" in said
    assert sandboxes() == []
    shown = opencode.toast("Daytona is not available")
    assert "there is no API key" in shown and "set DAYTONA_API_KEY" in shown, "to the user himself"


@mostly_opencode_2
def test_case_70_a_key_in_dotenv(canary, opencode, model, repo, monkeypatch, local):
    """It is in no process's environment, and nobody but the service gets to see it."""
    canary.may_have_key = lambda each: False
    monkeypatch.delenv("DAYTONA_API_KEY")
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\nDAYTONA_API_URL=http://127.0.0.1:1/\n")
    with canary.watching():
        assert run(opencode, model, repo) == "README"
    assert "DAYTONA_API_URL in '.env' ignored" in opencode.toast("Settings")
    (repo.path / ".env").unlink()
    canary.tell("what the model was told", json.dumps(model.asked))
    canary.tell("toasts", json.dumps(opencode.toasts()))
    assert canary.tokens and canary.seen
    assert canary.leaks() == []


@service_decides
def test_the_api_is_down(opencode, model, repo, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:1/api")
    said = run(opencode, model, repo)
    assert "cannot reach Daytona at http://127.0.0.1:1/api" in said
    assert "check the network and DAYTONA_API_URL" in said
    assert "nothing listens there" in opencode.toast("Daytona is not available")


@service_decides
def test_the_gateways_key_changed(opencode, model, repo, local, home, tmp_path):
    subprocess.run(
        ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", tmp_path / "other"),
        check=True,
    )
    pins = home / ".local/share/opencode/storage/daytona/gateway_known_hosts"
    pins.parent.mkdir(parents=True, exist_ok=True)
    pins.write_text(f"[127.0.0.1]:{local.gateway_port} {(tmp_path / 'other.pub').read_text()}")
    before = pins.read_text()
    said = run(opencode, model, repo)
    assert str(pins) in said and "SHA256:" in said
    assert pins.read_text() == before
    assert local.counts["mint"] == 0
