"""Tab, in real shells on a terminal: commands, options and sessions of `git daytona`, and those of
the other programs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from git_daytona.git import repository as git
from git_daytona.sessions import state
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import settings
from support import tmux
from support.installation import Installed
from support.round_trip import Repo

BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")


@dataclass(frozen=True)
class Shell:
    """How a shell is started with its completions, and with a prompt that can be waited for."""

    argv: tuple[str, ...]
    configuration: str
    text: str
    described: str
    """How a candidate's value and help are shown when there are several."""


SHELLS = {
    "bash": Shell(
        ("bash", "--rcfile", "{home}/.bashrc", "-i"),
        ".bashrc",
        f"source {BASH_COMPLETION}\nbind 'set show-all-if-ambiguous on'\nPS1='READY> '\n",
        r"{} +\({}",
    ),
    "zsh": Shell(
        ("zsh", "-i"),
        ".zshrc",
        "fpath=({share}/zsh/site-functions $fpath)\nautoload -Uz compinit\ncompinit -u\n"
        "unsetopt list_ambiguous\nPS1='READY> '\n",
        r"{} +-- {}",
    ),
    "fish": Shell(
        ("fish", "-i"),
        ".config/fish/config.fish",
        "set -g fish_greeting\nfunction fish_prompt; echo 'READY> '; end\n",
        r"{} +\({}",
    ),
}


@pytest.fixture
def sessions(repo: Repo) -> Repo:
    """A repository with sessions 3, 31 and 47 on record; no sandbox is needed to complete their
    names."""
    repository = git.discover(repo.path)
    coordinator = Coordinator(repository, settings.load(repository.worktree))
    for number, how in ((3, state.SYNCED), (31, state.FAILED), (47, state.PENDING)):
        session = state.Session(
            f"ses_{number}",
            f"sandbox-{number}",
            number,
            str(repo.path),
            1,
            1,
            state.GitReturn(how),
            git_dir=coordinator.git_dir,
        )
        coordinator.state.put(session)
    coordinator.close()
    return repo


@pytest.fixture(params=SHELLS)
def shell(request, installed: Installed, sessions: Repo, home: Path) -> tmux.Terminal:
    """Start a shell in that repository."""
    kind = SHELLS[request.param]
    if request.param == "bash" and not BASH_COMPLETION.exists():
        pytest.skip("bash-completion is not installed (Debian: apt install bash-completion)")
    configuration = home / kind.configuration
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(kind.text.replace("{share}", str(installed.share)))
    argv = tuple(word.replace("{home}", str(home)) for word in kind.argv)
    return tmux.start(
        argv, installed.environment | {"ZDOTDIR": str(home)}, (100, 40), cwd=sessions.path
    )


def test_completion(shell: tmux.Terminal, request) -> None:
    described = SHELLS[request.node.callspec.params["shell"]].described
    with shell as screen:
        screen.wait_for("READY>")

        def tab(typed: str, *expected: str) -> None:
            """Type, press Tab until the line is completed or the candidates stand below it, and
            clear the line."""
            screen.type(typed)
            screen.send("Tab")
            for pattern in expected:
                screen.wait_for(pattern)
            screen.send("C-u", "C-l")
            screen.wait_for(r"\AREADY>\s*\Z")

        # Commands with what they are for, and of those of git itself.
        tab(
            "git daytona st", described.format("start", "Start"), described.format("status", "List")
        )
        tab("git daytona fetc", r"git daytona fetch\b")
        tab("git -c a.b=c daytona fetc", r"daytona fetch\b")
        # Options.
        tab("git daytona status --off", r"status --offline\b")
        # Sessions with their branch and how their last sync went.
        tab(
            "git daytona sync 3",
            described.format("3", "opencode/3, synced"),
            described.format("31", "opencode/31, failed"),
        )
        tab("git daytona sync 4", r"sync 47\b")
        # The other programs.
        tab("daytona-token mi", r"daytona-token mint\b")
        tab("daytona-pin verify --li", r"verify --live\b")


def test_ports(begin, repo: Repo, command) -> None:
    session = begin(repo)
    server = (
        "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), None); "
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    port = session.agent(
        f'nohup python3 -c "{server}" >port 2>&1 & until [ -s port ]; do sleep 0.05; done; cat port'
    ).strip()
    asked = {"_GIT_DAYTONA_COMPLETE": "lines_complete", "COMP_CWORD": "3"}
    done = command(
        "git-daytona",
        cwd=repo.path,
        env=asked | {"COMP_WORDS": f"git-daytona open {session.number} {port[:2]}"},
    )
    assert f"plain\t{port}\t" in done.out.splitlines()
    nothing = asked | {"COMP_WORDS": "git-daytona open 77 "}
    assert command("git-daytona", cwd=repo.path, env=nothing).out.strip() == ""
    assert (
        command(
            "git-daytona", cwd=repo.path, env=nothing | {"DAYTONA_API_URL": "http://127.0.0.1:9"}
        ).err
        == ""
    )
