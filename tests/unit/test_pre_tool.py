"""What `git daytona hook pre-tool` answers each agent, and the encoding of its command lines."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_daytona.agents import command_line, gate, places
from git_daytona.agents.table import AGENTS, TOOLS
from support.round_trip import BIN

RECORDED = json.loads((Path(__file__).parents[1] / "support" / "agent_payloads.json").read_text())
REWRITING = [name for name, agent in AGENTS.items() if agent.rewritten is not None]
HARD = (
    "it's a 'quoted' \"thing\"",
    "a\nb\r\nc\n",
    "`touch /tmp/x` $(touch /tmp/x) ${x} $x",
    "\\' ;touch x;' \\",
    "-rf --help",
    "--",
    "50% !! !$ %41 ^ # ~ * ? [a] {a,b} | & ; < > ( )",
    "caf\u00e9 \u2018quotes\u2019 \U0001f600 \u202e",
    " x ",
    "\t\x1b[31m\x7f",
    "exit 2 || { echo x; }",
)


@pytest.fixture(autouse=True)
def nothing_is_allowed(monkeypatch):
    """Said in the environment, so that git need not be asked each time."""
    monkeypatch.setenv("DAYTONA_ALLOW_HOST_TOOLS", "false")


def payload(agent, kind, here, command="make test"):
    recorded = RECORDED[agent]
    whole = json.dumps({**recorded["PreToolUse"], **recorded["calls"][kind]})
    return whole.replace('"CWD"', json.dumps(str(here))).replace('"COMMAND"', json.dumps(command))


def ask(agent, text, here):
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return gate.answer(AGENTS[agent], data, here)


def denied(agent, answer):
    """Denied in the agent's own way."""
    said = json.loads(answer.out)
    inner = said.get("hookSpecificOutput", {})
    words = {said.get("decision"), said.get("permission"), inner.get("permissionDecision")}
    assert words & {"deny", "block"} or set(said) == {"reason"}, answer
    assert answer.status == AGENTS[agent].status and answer.err.startswith("git-daytona: ")
    assert "updated" not in answer.out and "tool_input" not in answer.out
    return True


def rewritten(answer):
    said = json.loads(answer.out)
    if set(said) == {"input"}:
        return said["input"]
    inner = said.get("hookSpecificOutput", said)
    assert said.get("decision", said.get("permission", inner.get("permissionDecision"))) == "allow"
    return inner.get("updatedInput") or inner.get("tool_input") or inner["updated_input"]


def words_of(lines, shell="sh"):
    """What a shell makes of command lines, with a program that prints its words instead."""
    program = command_line.program()
    script = "\n".join(line.replace(program, "printf '%s\\0'", 1) for line in lines)
    done = subprocess.run((*shell.split(), "-c", script), capture_output=True, timeout=20)
    assert done.stderr == b""
    words = iter(done.stdout.decode().split("\0")[:-1])
    return list(zip(*[words] * 6, strict=True))


def ran(lines, shell="sh"):
    """The commands that would run in the sandbox."""
    found = []
    for verb, flag, _directory, _session, dashes, command in words_of(lines, shell):
        assert (verb, flag, dashes) == ("exec", "--for-agent", "--")
        found.append(command_line.decoded(command))
    return tuple(found)


def test_every_agent_is_recorded_with_its_source():
    assert set(RECORDED) == set(AGENTS)
    for name, recorded in RECORDED.items():
        assert "2026" in recorded["recorded"]
        assert set(AGENTS[name].events.values()) == set(recorded["events"])


@pytest.mark.parametrize("agent", REWRITING)
def test_a_command_is_rewritten_and_nothing_of_it_runs_here(agent, tmp_path):
    lines = []
    for command in HARD:
        text = payload(agent, "shell", tmp_path, command)
        answer = ask(agent, text, tmp_path)
        assert (answer.status, answer.err) == (0, "")
        found, before = rewritten(answer), json.loads(text)["tool_input"]
        (name,) = (name for name in before if before[name] != found[name])
        assert set(found) == set(before) and name == gate.COMMAND
        assert found[name].isascii() and found[name].isprintable() and "\\" not in found[name]
        lines.append(found[name])
    assert ran(lines) == HARD


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "fish", "busybox sh"])
def test_in_every_shell(shell, tmp_path):
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"no {shell}")
    odd = tmp_path / "it's \\ odd"
    lines = [command_line.exec_line("s-1", odd, command) for command in HARD]
    assert ran(lines, shell) == HARD
    assert command_line.decoded(words_of(lines[:1], shell)[0][2]) == str(odd)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1))
def test_any_text_comes_back(command):
    if "\0" not in command:
        word = command_line.encoded(command)
        assert word[0] == word[-1] == "'" and not set(word[1:-1]) & set("'\\!\n")
        assert command_line.decoded(word[1:-1]) == command


@pytest.mark.parametrize("word", ["%", "%4", "%zz", "%4a", "%FF", "a%"])
def test_what_no_hook_has_encoded(word):
    with pytest.raises(ValueError):
        command_line.decoded(word)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", ["file", "unknown", "theirs"])
def test_what_would_act_here_is_denied(agent, kind, tmp_path):
    answer = ask(agent, payload(agent, kind, tmp_path), tmp_path)
    assert denied(agent, answer)
    assert ("which acts there" in answer.err) == (kind == "file")


def test_a_shell_that_cannot_be_redirected_is_denied(tmp_path):
    for agent in set(AGENTS) - set(REWRITING):
        answer = ask(agent, payload(agent, "shell", tmp_path), tmp_path)
        assert denied(agent, answer) and f"Use {AGENTS[agent].prefix}bash" in answer.err


@pytest.mark.parametrize("agent", [name for name, agent in AGENTS.items() if agent.prefix])
def test_what_acts_elsewhere_is_left_alone(agent, tmp_path):
    allowed = AGENTS[agent].allowed
    for kind in ("harmless", "ours"):
        answer = ask(agent, payload(agent, kind, tmp_path), tmp_path)
        assert (answer.status, answer.err) == (0, "")
        if kind == "ours" and agent in REWRITING:
            session = rewritten(answer).pop("session")
            assert session in payload(agent, kind, tmp_path)
        else:
            assert answer.out == ("" if allowed is None else json.dumps(allowed))


def test_a_model_cannot_choose_the_session(tmp_path):
    text = payload("claude", "ours", tmp_path).replace(
        '"filePath"', '"session": "another", "filePath"'
    )
    assert rewritten(ask("claude", text, tmp_path))["session"].startswith("252b8f1a")


SENSELESS = (
    {"tool_name": None},
    {"tool_name": ["Bash"]},
    {"tool_input": None},
    {"tool_input": '{"command": "ls"}'},
    {"tool_input": {}},
    *(
        {"tool_input": {"command": command}}
        for command in (["ls"], " ", "a\0b", "\ud800", "'" * 50_000)
    ),
    {"cwd": "/nowhere", "workspace_roots": [], "working_dir": "\0"},
    {"cwd": "relative", "working_dir": "relative"},
    *(
        dict.fromkeys(("session_id", "sessionId", "conversation_id"), session)
        for session in ("", None, 1, "--force", "a b", "$(id)", "a'b", "a\nb", "x" * 201, "..")
    ),
)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_makes_no_sense_is_denied(agent, tmp_path):
    whole = json.loads(payload(agent, "shell", tmp_path))
    for change in SENSELESS:
        assert denied(agent, ask(agent, json.dumps(whole | change), tmp_path)), change
    for other in ({}, [whole]):
        assert denied(agent, ask(agent, json.dumps(other), tmp_path))


@pytest.mark.parametrize("agent", AGENTS)
def test_bytes_that_are_no_payload_are_denied(agent, tmp_path):
    whole = payload(agent, "shell", tmp_path).encode()
    for data in (b"", b"{", whole[:-1], b"\xff" + whole, whole + b"{}", b"[" * 100_000, b"null"):
        assert denied(agent, ask(agent, data, tmp_path))


@settings(max_examples=60, deadline=None)
@given(agent=st.sampled_from(sorted(AGENTS)), data=st.data())
def test_any_object_is_denied_or_rewritten(agent, data):
    here = Path("/")
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=6,
    )
    known = AGENTS[agent]
    names = [*known.shells.split(), *(f"{known.prefix}{tool}x" for tool in TOOLS[:2])]
    whole = {
        "session_id": data.draw(st.just("s1") | values),
        "tool_name": data.draw(st.sampled_from(names) | values),
        "tool_input": data.draw(
            st.fixed_dictionaries({"command": st.text(max_size=30) | values}) | values
        ),
        "cwd": data.draw(st.just("/") | values),
    }
    answer = ask(agent, json.dumps(whole), here)
    if answer.err:
        assert denied(agent, answer)
    else:
        line = rewritten(answer)["command"]
        word = line.split(" -- ", 1)[1]
        assert command_line.decoded(word[1:-1]) == whole["tool_input"]["command"]


def test_what_is_too_deep_or_changes_under_us(tmp_path, monkeypatch):
    """Whatever goes wrong inside, the call is denied."""
    whole = json.loads(payload("claude", "shell", tmp_path))
    text = json.dumps({**whole, "tool_input": {"command": "ls", "more": "DEEP"}})
    for depth in (200, 500, 900, 980, 1500, 100_000):
        answer = ask("claude", text.replace('"DEEP"', "[" * depth + "]" * depth), tmp_path)
        assert answer.status == 0 or denied("claude", answer)
    monkeypatch.setattr(command_line, "program", lambda: 1 / 0)
    answer = ask("claude", payload("claude", "shell", tmp_path), tmp_path)
    assert denied("claude", answer) and "ZeroDivisionError" in answer.err


def test_names_that_look_like_ours(tmp_path):
    whole = json.loads(payload("pi", "ours", tmp_path))
    assert denied("pi", ask("pi", json.dumps(whole), tmp_path)), "pi has no servers"
    for agent, table in AGENTS.items():
        for tool in (
            ()
            if not table.prefix
            else (
                table.prefix,
                f"{table.prefix}bash ",
                f" {table.prefix}bash",
                f"{table.prefix}BASH",
                f"{table.prefix}bash\n",
                f"{table.prefix}{table.prefix}bash",
                f"x{table.prefix}bash",
                "bash",
            )
        ):
            whole = json.loads(payload(agent, "ours", tmp_path))
            answer = ask(agent, json.dumps({**whole, "tool_name": tool}), tmp_path)
            assert denied(agent, answer), tool


def test_a_server_of_a_stranger_with_our_name(tmp_path):
    """Gemini CLI says what a server is."""
    whole = json.loads(payload("gemini", "ours", tmp_path))
    assert "git-daytona" in whole["mcp_context"]["command"]
    for command, args in (("/opt/daytona", ["mcp"]), ("/opt/git-daytona", ["x"]), (1, 2)):
        whole["mcp_context"] |= {"command": command, "args": args}
        assert denied("gemini", ask("gemini", json.dumps(whole), tmp_path))


def test_what_the_user_allows(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYTONA_ALLOW_HOST_TOOLS", "Write, mcp__github__*")
    assert ask("claude", payload("claude", "file", tmp_path), tmp_path).status == 0
    whole = json.loads(payload("claude", "ours", tmp_path))
    for tool, status in (("mcp__github__search", 0), ("mcp__other__x", 2), ("Edit", 2)):
        answer = ask("claude", json.dumps({**whole, "tool_name": tool}), tmp_path)
        assert answer.status == status


def test_what_a_repository_inside_of_another_allows(tmp_path, monkeypatch):
    """A bare one is files that a stranger may have committed."""
    monkeypatch.delenv("DAYTONA_ALLOW_HOST_TOOLS")
    inner = tmp_path / "inner"
    for words in (("init", "-q", tmp_path), ("init", "-q", "--bare", inner)):
        subprocess.run(("git", *words), check=True, timeout=30)
    allow = ("config", "daytona.allowHostTools", "Write")
    subprocess.run(("git", "-C", inner, *allow), check=True, timeout=30)
    assert denied("claude", ask("claude", payload("claude", "file", inner), inner))
    subprocess.run(("git", "-C", tmp_path, *allow), check=True, timeout=30)
    assert ask("claude", payload("claude", "file", tmp_path), tmp_path).status == 0


def test_the_page_names_every_agent():
    page = (Path(__file__).parents[2] / "man" / "git-daytona-agents.7").read_text()
    for name, agent in AGENTS.items():
        entry = page.partition(f".TP\n.B {name}\n")[2].partition(".TP\n")[0]
        assert entry, name
        assert (", run (" in entry) == ("run" in agent.read), name
        assert (", read (" in entry) == ("run" not in agent.read), name


# -- the process -----------------------------------------------------------------------------------


def hook(line, data=b"", **environment):
    return subprocess.run(
        ("sh", "-c", line),
        input=data,
        capture_output=True,
        timeout=60,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "pi"])
def test_the_configured_hook(agent, tmp_path):
    line = places.pre_tool(AGENTS[agent])
    for data in (payload(agent, "file", tmp_path).encode(), b"{"):
        done = hook(line, data)
        assert json.loads(done.stdout) and done.stderr.count(b"git-daytona:") == 1
        assert done.returncode == AGENTS[agent].status
    broken = line.replace(str(BIN / "git-daytona"), "/nowhere/git-daytona")
    if agent != "claude":
        return
    for worse in (broken, line.replace("--agent", "--bogus"), line.replace("$0", "/bin/false")):
        done = hook(worse)
        assert done.returncode == 2 and done.stderr and not done.stdout


def test_a_hook_that_is_killed():
    killed = places.pre_tool(AGENTS["claude"]).replace('"$0"', 'sh -c "kill -9 \\$\\$"')
    assert hook(killed).returncode == 2


def test_a_hook_of_no_agent(tell):
    told = tell("git-daytona", "hook", "pre-tool", stdin=b"{}")
    assert told.status == 2 and "needs an agent" in told.err


@pytest.mark.npm
def test_the_extension_of_pi(tmp_path, monkeypatch):
    """In Node.js, with events as pi has them: rewritten in place, blocked, and blocked without an
    answer."""
    if shutil.which("node") is None:
        pytest.skip("no Node.js")
    source = Path(gate.__file__).with_name("pi") / "index.js"
    shutil.copy(source, tmp_path / "index.mjs")
    (tmp_path / "ask.mjs").write_text("""
        import extension from "./index.mjs"
        const handlers = {}
        extension({ on: (name, handler) => (handlers[name] = handler) })
        const context = { cwd: process.cwd(), sessionManager: { getSessionId: () => "s1" } }
        const found = []
        for (const [toolName, input] of [["bash", { command: "ls", timeout: 5 }], ["read", {}]]) {
          const event = { toolName, input }
          found.push([(await handlers.tool_call(event, context)) ?? null, event.input])
        }
        console.log(JSON.stringify([Object.keys(handlers).sort(), found]))
    """)

    def run():
        words = ("node", str(tmp_path / "ask.mjs"))
        done = subprocess.run(words, capture_output=True, timeout=60, cwd=tmp_path)
        return json.loads(done.stdout)

    monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
    names, ((ran_on, changed), (blocked, _)) = run()
    assert names == sorted(["tool_call", *AGENTS["pi"].events])
    assert ran_on is None and changed["timeout"] == 5 and "exec --for-agent" in changed["command"]
    assert blocked["block"] and "Use bash" in blocked["reason"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git-daytona").write_text("#!/bin/sh\nexit 0 | cat nothing\nexit 3\n")
    (tmp_path / "bin" / "git-daytona").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    _, found = run()
    assert all(answer["block"] and answer["reason"] for answer, _ in found)
