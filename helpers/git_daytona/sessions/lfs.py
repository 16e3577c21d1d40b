"""LFS objects, where daytona.lfs asks for them: what a commit points to goes and comes after it."""

from dataclasses import replace

from git_daytona.git import lfs
from git_daytona.sandbox import lfs as objects
from git_daytona.sessions.branch import Branch, Outcome
from git_daytona.sessions.state import bounded
from git_daytona.transfer.transfer import most_bytes


def send(branch: Branch, *revisions: str, ready: bool = True) -> None:
    """Send what revisions point to and is here, to a sandbox that is ``ready``: git-lfs is there.
    Raises SandboxCommandFailed."""
    repository, tell = branch.repository, branch.transport.tell
    wanted = lfs.pointers(repository, *revisions)
    store = lfs.store(repository)
    missing = store.missing(wanted)
    if wanted and not ready:
        tell("the sandbox has no git-lfs: LFS files are pointers there")
        return
    here = {oid: size for oid, size in wanted.items() if oid not in missing}
    if missing:
        tell(f"{len(missing)} LFS objects are not here: their files are pointers there")
    if sum(here.values()) > most_bytes(repository):
        tell("the LFS objects are more than daytona.maxFetchSize: they are pointers there")
    elif here:
        tell(f"sending {len(here)} LFS objects")
        objects.send(branch.cloud, branch.sandbox_id, branch.transport.place, store, here)


def fetched(branch: Branch, outcome: Outcome) -> Outcome:
    """Fetch what the session's commits point to and is not here; say how much of it did not come.
    Raises TransferFailed, SandboxCommandFailed."""
    repository, names = branch.repository, branch.names
    refs = repository.refs(names.ref, names.tracking, names.kept, names.turn)
    base = repository.refs(names.base).values()
    wanted = lfs.pointers(repository, *set(refs.values()), *(f"^{oid}" for oid in base))
    store = lfs.store(repository)
    missing = store.missing(wanted)
    if not missing:
        return outcome
    words = (branch.cloud, branch.sandbox_id, branch.transport.place, store, missing)
    came = objects.fetch(*words, most_bytes(repository))
    lacking = len(missing) - len(came)
    lack = f"LFS objects that are not in the sandbox, or not what they should be: {lacking}"
    lack = lack if lacking else ""
    parts = (
        outcome.message if outcome.changed or not came else "",
        f"LFS objects that came: {len(came)}" if came else "",
        lack,
    )
    return replace(
        outcome,
        changed=outcome.changed or bool(came),
        message=bounded(*parts),
        remarks=bounded(outcome.remarks, lack),
    )
