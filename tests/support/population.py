"""Repositories with many sessions that nobody started: the state file, the branches and the
remotes, as years of use would leave them."""

import json
import secrets

from git_daytona.sessions import state
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import GitReturn, Session
from support.round_trip import Repo
from support.suite import coordinator


def populate(repo: Repo, count: int) -> Coordinator:
    """A coordinator of the repository, which has so many sessions now."""
    found = coordinator(repo)
    # One through the suite itself, the others in its image.
    found.state.put(_session(repo, found, 1))
    document = json.loads(found.state.path.read_bytes())
    [pattern] = document["sessions"].values()
    document["sessions"] = {
        f"ses_old{number}": pattern | {"sandboxId": secrets.token_hex(16), "branchNumber": number}
        for number in range(1, count + 1)
    }
    found.state.path.write_text(json.dumps(document, indent=2))
    head = repo.git("rev-parse", "HEAD")
    refs = (
        f"create refs/heads/opencode/{number} {head}\ncreate "
        f"refs/remotes/sandbox-{number}/opencode {head}\n"
        for number in range(1, count + 1)
    )
    repo.git("update-ref", "--stdin", stdin="".join(refs))
    repo.git("pack-refs", "--all")
    with (repo.path / ".git/config").open("a") as config:
        for number in range(1, count + 1):
            config.write(
                f'[remote "sandbox-{number}"]\n\turl = ssh://127.0.0.1:2222/home/daytona/project\n'
                f"\tfetch = +refs/heads/*:refs/remotes/sandbox-{number}/*\n\tskipFetchAll = "
                "true\n\tskipDefaultUpdate = true\n"
                "\ttagOpt = --no-tags\n"
            )
    return found


def _session(repo: Repo, found: Coordinator, number: int) -> Session:
    now = state.now()
    return Session(
        id=f"ses_old{number}",
        sandbox_id="5c2e7d3a-0000-4000-8000-000000000000",
        number=number,
        worktree=str(repo.path),
        created=now,
        last_accessed=now,
        git_return=GitReturn(state.SYNCED, f"opencode/{number} is at 4a77f3cd7e", now),
        git_dir=found.git_dir,
    )
