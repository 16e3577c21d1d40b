"""The remote sandbox-N of a session, in git's configuration."""

from collections.abc import Mapping

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import TransferFailed
from git_daytona.git import new_keys
from git_daytona.git.branches import changing
from git_daytona.git.configuration import section
from git_daytona.git.refs import SANDBOX_BRANCH, Names, url
from git_daytona.git.repository import Repository


def set_remote(repository: Repository, names: Names, endpoint: Endpoint, owner: str) -> None:
    """Add or correct remote sandbox-N, write down whose it is, and make opencode/N track the
    sandbox's branch. Other keys that the user put into these sections stay."""
    wanted = {
        "url": url(endpoint),
        "fetch": f"+refs/heads/*:{names.tracking}*",
        # The user's own `git fetch --all` and `git remote update` are not for sandboxes, which may
        # be asleep (case 18).
        "skipFetchAll": "true",
        "skipDefaultUpdate": "true",
        "tagOpt": "--no-tags",
        # git-remote-daytona leases a token for the user's own `git fetch sandbox-N`.
        "vcs": "daytona",
        "push": f"{names.ref}:refs/heads/{SANDBOX_BRANCH}",
        "daytonaOwner": owner,
    }
    remote, branch = f"remote.{names.remote}", f"branch.{names.branch}"
    with changing(repository):
        entries = repository.configuration(now=True)
        new = {remote: _corrected(repository, remote, section(entries, remote), wanted)}
        if not {"remote", "merge"} & section(entries, branch).keys():  # one of the user's own
            new[branch] = _upstream(names)
        if new := {name: values for name, values in new.items() if values}:
            try:
                new_keys.add(repository, new)
            except OSError as problem:
                raise _not_set(next(iter(new)), problem.strerror or str(problem)) from problem


def _upstream(names: Names) -> dict[str, str]:
    return {"remote": names.remote, "merge": f"refs/heads/{SANDBOX_BRANCH}"}


def _corrected(
    repository: Repository, name: str, there: Mapping[str, str], wanted: Mapping[str, str]
) -> dict[str, str]:
    """Correct the keys that a section has; return those that it has not."""
    for key, value in wanted.items():
        if there.get(key.lower(), value) != value:
            result = repository.set_config("--replace-all", f"{name}.{key}", value)
            if result.status != 0:
                reason = (result.complaint.splitlines() or ["git config failed"])[-1]
                raise _not_set(f"{name}.{key}", reason)
    return {key: value for key, value in wanted.items() if key.lower() not in there}


def _not_set(what: str, reason: str) -> TransferFailed:
    hint = "another program may hold .git/config.lock; remove it if none does"
    return TransferFailed(f"cannot set '{what}': {reason}", hint=hint)


def owner(repository: Repository, remote: str) -> str:
    """Return whose a remote is; empty for one of an earlier version."""
    return repository.section(f"remote.{remote}").get("daytonaowner", "")


def remove_remote(repository: Repository, names: Names) -> None:
    """Remove remote sandbox-N and all of session N's refs but its branch and what was kept."""
    with changing(repository):
        there = section(repository.configuration(now=True), f"branch.{names.branch}")
        ours = _upstream(names)
        if there == ours:
            repository.set_config("--remove-section", f"branch.{names.branch}")
        elif ours.items() <= there.items():
            for key in ours:
                repository.set_config("--unset", f"branch.{names.branch}.{key}")
        repository.set_config("--remove-section", f"remote.{names.remote}")
        repository.remove_refs(names.tracking)  # by itself: the user's git may be moving one
        repository.remove_refs(
            *(names.incoming, names.resetting, names.base, names.dirty, names.turn)
        )
