"""Other agents than OpenCode, from their hooks to a branch: real processes, an embedded Daytona."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from git_daytona.agents import command_line, gate
from git_daytona.agents.table import AGENTS
from support.round_trip import BIN

RECORDED = json.loads((Path(__file__).parents[1] / "support" / "agent_payloads.json").read_text())


def event(command, name, agent, repo, session):
    """Send a recorded event of an agent."""
    recorded = json.dumps(RECORDED[agent]["events"][name]).replace('"CWD"', json.dumps(str(repo)))
    whole = json.loads(recorded)
    (key, *_) = (each for each in ("conversation_id", "session_id", "sessionId") if each in whole)
    whole |= {key: session, **({"session_id": session} if "session_id" in whole else {})}
    return command("git-daytona", "hook", name, "--agent", agent, cwd="/", stdin=json.dumps(whole))


def shell(line, cwd):
    """Run a command line as an agent's shell does."""
    return subprocess.run(
        ("sh", "-c", line), cwd=cwd, env=os.environ, capture_output=True, text=True, timeout=90
    )


def call(command, agent, repo, session, line, cwd=None):
    """Let an agent's hook rewrite a command, and run what comes of it."""
    recorded = RECORDED[agent]
    whole = json.dumps({**recorded["PreToolUse"], **recorded["calls"]["shell"]})
    whole = json.loads(whole.replace('"CWD"', json.dumps(str(repo))))
    (name,) = (each for each in whole if each in ("session_id", "sessionId", "conversation_id"))
    whole |= {name: session}
    assert whole["tool_name"] in AGENTS[agent].shells.split()
    whole["tool_input"][gate.COMMAND] = line
    done = command(
        "git-daytona", "hook", "pre-tool", "--agent", agent, cwd=repo, stdin=json.dumps(whole)
    )
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    inner = answer.get("hookSpecificOutput", answer)
    names = ("updatedInput", "tool_input", "updated_input", "input")
    (found,) = (inner[name] for name in names if name in inner)
    return shell(found[gate.COMMAND], cwd or repo)


def test_several_agents_at_once_have_sessions_of_their_own(command, local, repo, coordinate):
    """Case by case: the first call makes the sandbox, the end of a turn brings the work back."""
    names = [name for name, agent in AGENTS.items() if agent.rewritten is not None]

    def work(agent):
        session = f"session-of-{agent}"
        begun = event(command, "session.created", agent, repo.path, session)
        assert begun.status == 0, begun.err
        assert "sandbox" in json.dumps(json.loads(begun.out)) if begun.out else agent == "pi"
        done = call(command, agent, repo.path, session, f"echo 'of {agent}' >mine; ls; exit 3")
        assert (done.returncode, done.stdout) == (3, "README\nmine\n"), done.stderr
        assert "in a sandbox of session" in done.stderr
        ended = event(command, "session.idle", agent, repo.path, session)
        assert (ended.status, ended.out) == (0, ""), ended.err

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, names))
    sessions = coordinate(repo.path).sessions()
    assert {each.id for each in sessions} == {f"session-of-{name}" for name in names}
    assert len({each.sandbox_id for each in sessions}) == len(names)
    for session in sessions:
        branch = f"opencode/{session.number}"
        assert repo.show(branch, "mine") == f"of {session.id.removeprefix('session-of-')}"
        assert repo.git("rev-list", "--count", f"HEAD..{branch}").strip() == "1"
    assert repo.git("status", "--porcelain") == ""


def test_where_a_command_runs(command, local, repo, tmp_path):
    (repo.path / "sub dir").mkdir()
    first = call(command, "codex", repo.path, "7", "mkdir 'sub dir'; pwd", cwd=tmp_path)
    assert first.stdout == "/home/daytona/project\n", first.stderr
    local.forget_calls()
    inside = call(command, "codex", repo.path, "7", "pwd", cwd=repo.path / "sub dir")
    assert len(local.calls) == 2, "where its toolbox is, and the command"
    assert inside.stdout == "/home/daytona/project/sub dir\n", inside.stderr
    (repo.path / "missing").mkdir()
    missing = call(command, "codex", repo.path, "7", "pwd", cwd=repo.path / "missing")
    assert missing.returncode != 0 and missing.stderr.count("\n") == 1, missing
    status = command("git-daytona", "status", "--json", cwd=repo.path)
    assert status.out.count('"branch": "opencode/') == 1, status.out


def test_calls_of_one_session_at_once_share_a_sandbox(command, local, repo, coordinate):
    """Claude Code runs several at a time; the first ones meet while the sandbox is made."""
    with ThreadPoolExecutor(3) as pool:
        work = [
            pool.submit(call, command, "claude", repo.path, "s1", f"echo {number}; ls README")
            for number in range(3)
        ]
        done = [each.result() for each in work]
    assert sorted(each.stdout for each in done) == [f"{number}\nREADME\n" for number in range(3)]
    (session,) = coordinate(repo.path).sessions()
    assert session.id == "s1"


def test_nothing_runs_here_without_daytona(command, repo, tmp_path, monkeypatch):
    """No network, no key, no settings: the rewritten command fails."""
    trace = tmp_path / "ran"
    line = f"touch {shlex.quote(str(trace))}"
    for name, value in (
        ("DAYTONA_API_URL", "http://127.0.0.1:1/api"),
        ("DAYTONA_API_KEY", ""),
        ("DAYTONA_API_URL", "nonsense"),
    ):
        monkeypatch.setenv("DAYTONA_API_KEY", "a-key-that-opens-nothing")
        monkeypatch.setenv(name, value)
        done = call(command, "claude", repo.path, "s1", line)
        assert done.returncode != 0 and "error: " in done.stderr
        assert not trace.exists()


def test_what_is_not_encoded_is_refused(command, repo):
    words = ("git-daytona", "exec", "--for-agent")
    for rest in (("%", "s1", "true"), ("/", "s1", "100%")):
        done = command(*words, *rest, cwd=repo.path)
        assert done.status == 2 and "is not encoded" in done.err
    assert command_line.program() == str(BIN / "git-daytona")
