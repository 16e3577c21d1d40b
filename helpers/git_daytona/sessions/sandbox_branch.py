"""The way of work between a sandbox and its branch: set-up, sync, fetch, push."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from git_daytona.api.cloud import Cloud
from git_daytona.base import log
from git_daytona.base.errors import NotFound, TransferFailed
from git_daytona.base.secret import printable
from git_daytona.base.threads import concurrently
from git_daytona.git import branches, remotes
from git_daytona.git.branches import Integrated, Kept
from git_daytona.git.refs import INVENTORY, PENDING, PROJECT, SANDBOX_BRANCH, UPDATES, Names
from git_daytona.sandbox import ownership
from git_daytona.sandbox import report as sandbox
from git_daytona.sandbox.report import CommitText, Report
from git_daytona.sessions import lfs, submodules
from git_daytona.sessions.branch import Branch, Outcome
from git_daytona.sessions.state import bounded
from git_daytona.sessions.submodules import Synced
from git_daytona.transfer.failures import RefGone

MOST_IGNORED = 5
"""How many ignored files a deletion's message names."""


class SandboxBranch(Branch):
    """What is done with a session's branch and its sandbox; ``transport`` is told each step."""

    def set_up(self, *, fresh: bool) -> None:
        """Give the session its remote, its sandbox's repository, and HEAD in it; the push checks
        that out there. A ``fresh`` sandbox will be pushed to: its token is minted meanwhile."""
        names, repository, transport = self.names, self.repository, self.transport
        endpoint = transport.check()
        refs = repository.refs(names.ref, names.base)
        # The branch: it is where the session stands, also when its sandbox is a new one. Neither: a
        # repository without commits.
        head = refs.get(names.ref) or refs.get(names.base)
        early = fresh and head is not None
        with transport.ahead(self.sandbox_id) if early else nullcontext() as ahead:
            if not self.path:  # in a submodule nobody could fetch from it
                remotes.set_remote(repository, names, endpoint, ownership.owner_here())
            transport.tell("preparing its repository")
            how = "fresh" if fresh else ""
            words = (self.cloud, self.sandbox_id, repository.object_format, how, transport.place)
            there = sandbox.prepare(*words)
            if there.head is None and head is not None:
                transport.tell(f"pushing {head[:10]}")
                refspec = f"{head}:refs/heads/{SANDBOX_BRANCH}"
                transport.push(self.sandbox_id, refspec, relaxed=there.filters, ahead=ahead)
                # As a push to a remote by name would: then a first turn without changes needs no
                # fetch.
                repository.git("update-ref", f"{names.tracking}{SANDBOX_BRANCH}", head)
                if self.with_lfs:
                    lfs.send(self, f"{head}^{{tree}}", ready=there.has_lfs)
        submodules.set_up(self)

    def sync(self, *, everything: bool = False, aside: bool = False) -> Outcome:
        """Commit what is pending in the sandbox and bring its branches back; with ``everything``,
        before a deletion, whatever the sandbox holds. ``aside``, in the middle of a turn, the
        commit is on no branch: the agent notices nothing, and here it is ``names.turn``. Raises
        SandboxCommandFailed, TransferFailed and its kinds, NotFound for a sandbox that is gone."""
        names, repository = self.names, self.repository
        with log.event("session.sync", sandbox=self.sandbox_id, number=names.number) as event:
            kept: list[Kept] = []
            inner = submodules.sync(self, everything=everything, aside=aside)
            # The refs here are looked up while the sandbox's answer is waited for.
            known = self._known() if everything else None
            with concurrently(self._here) as refs:
                try:
                    report = self._report("aside" if aside else "", known, list(inner.there))
                finally:
                    here = refs.result()
                    if names.resetting in here:
                        kept = branches.finish_reset(repository, names)
                        here = self._here()
            # Where the branch is, none of a part of its name can be.
            if names.ref not in here and (blocked := branches.in_the_way(repository, names.prefix)):
                raise blocked
            if report.missing is not None and aside:  # it may just be about to be made
                return Outcome(False, None, message=f"the sandbox's {report.missing} is not there")
            if report.missing is not None:
                branches.finish_turn(repository, names)
                if self.path:
                    return Outcome(changed=False, head=None)
                report = self._restore(report.missing, known)
            outcome = inner.joined(self._take(report, here, kept, inner, aside=aside))
            outcome = lfs.fetched(self, outcome) if self.with_lfs else outcome
            event.update(changed=outcome.changed, head=outcome.head, kept=len(outcome.kept))
            return outcome

    def fetch(self) -> Outcome:
        """Fetch the sandbox's branches into the tracking refs, and nothing else."""
        before = self.repository.refs(self.names.tracking)
        self.repository.remove_refs(self.names.incoming)
        report = sandbox.refs(self.cloud, self.sandbox_id, self.transport.place)
        turn = self.repository.refs(self.names.turn).get(self.names.turn)
        if turn and report.refs.get(PENDING) == turn:  # a turn goes on, and that is here
            del report.refs[PENDING], report.places[PENDING]
        self._fetch(report)
        kept = branches.integrate(self.repository, self.names, None, None).kept
        changed = self.repository.refs(self.names.tracking) != before
        message = "fetched" if changed else "nothing new in the sandbox"
        return Outcome(changed, None, tuple(kept), message=message)

    def push(self) -> str:
        """Push opencode/N to the branch that the sandbox has checked out, fast-forward only; return
        the commit. What is pending there is committed first. Raises NotFound, TransferFailed."""
        names, local = self.names, self._local()
        if local is None:
            raise NotFound(
                f"there is no local branch '{names.branch}'",
                hint=f"get it: git daytona sync {names.number}",
            )
        report = self._ready_for_push()
        if report.head != local:
            head, here = report.head, self.repository
            if head and not (here.resolve(head) and here.contains([local], head)):
                raise TransferFailed(
                    f"the sandbox has work that '{names.branch}' does not contain",
                    hint=f"bring it back first: git daytona sync {names.number}",
                )
            known = [head] if head else []
            refspec = f"{local}:{report.branch}"
            self.transport.push(self.sandbox_id, refspec, known, relaxed=report.filters)
            self._send_lfs(local, known)
        submodules.push(self)
        return local

    def update(self, commit: str, what: str) -> bool:
        """Merge a commit of the user's, called ``what``, into the branch that the sandbox has
        checked out; return whether that was new there. What is pending there is committed first.
        Raises TransferFailed, also for a conflict, which is left to the agent."""
        names, here = self.names, self.repository
        new = submodules.update(self, commit, what)
        report = self._ready_for_push()
        known = [report.head] if report.head and here.resolve(report.head) else []
        if known and here.contains(known, commit):
            return new
        refspec = f"{commit}:{UPDATES}{commit}"
        self.transport.push(self.sandbox_id, refspec, known, relaxed=report.filters)
        message = f"Merge {what} into the session"
        place = self.transport.place
        merged = sandbox.merge(self.cloud, self.sandbox_id, commit, message, place)
        self._send_lfs(commit, known)
        if merged.conflicts:
            raise TransferFailed(
                f"conflicts in the sandbox: {', '.join(merged.conflicts)}",
                hint="the merge is left there for the agent to finish; or give it up: git daytona "
                f"exec {names.number} -- git merge --abort",
            )
        return True

    # -- the parts ---------------------------------------------------------------------------------

    def _here(self) -> dict[str, str]:
        """Read the session's refs here, name to object id."""
        names = self.names
        return self.repository.refs(
            *(names.ref, names.tracking, names.kept, names.resetting, names.incoming, names.turn)
        )

    def _local(self) -> str | None:
        return self.repository.refs(self.names.ref).get(self.names.ref)

    def _known(self) -> list[str]:
        """List what an inventory of the sandbox may leave out: what is kept here, newest first."""
        refs = self.repository.refs(self.names.ref, self.names.base, self.names.kept)
        return list(dict.fromkeys(oid for _, oid in sorted(refs.items(), reverse=True)))

    def _report(
        self, purpose: str, known: Sequence[str] | None = None, inner: Sequence[str] = ()
    ) -> Report:
        words, place = (self.cloud, self.sandbox_id, self.commit, purpose), self.transport.place
        return sandbox.report(*words, known=known, place=place, submodules=inner)

    def _send_lfs(self, commit: str, known: Sequence[str]) -> None:
        if self.with_lfs:
            lfs.send(self, f"{commit}^{{tree}}", *(f"^{each}" for each in known))

    def _ready_for_push(self) -> Report:
        words = (self.cloud, self.sandbox_id, self.names.number, self.commit)
        return ready_for_push(*words, self.transport.place)

    def _fetch(self, report: Report) -> None:
        """Fetch what the report names, nothing else, to where ``branches.integrate`` expects it."""
        incoming = self.names.incoming
        if report.refs:
            places = report.places.items()
            refspecs = [f"+{ref}:{incoming}{place.removeprefix('refs/')}" for ref, place in places]
            here = self.repository.refs(self.names.tracking, self.names.base).values()
            self.transport.fetch(self.sandbox_id, report.refs, refspecs, here)

    def _take(
        self,
        report: Report,
        here: Mapping[str, str],
        kept: list[Kept],
        inner: Synced,
        *,
        aside: bool,
    ) -> Outcome:
        changed, where = _moved(self.names, report, here, aside=aside), ""
        if changed:
            if any(ref.startswith(self.names.incoming) for ref in here):
                self.repository.remove_refs(self.names.incoming)
            try:
                self._fetch(report)
            except RefGone:  # deleted since the report: the next one does not name it
                again = self._known() if report.inventory.complete else None
                report = self._report("aside" if aside else "", again, list(inner.there))
                self._fetch(report)
            inner.complete(self.repository, report.head, aside=aside)
            done = branches.integrate(
                *(self.repository, self.names, report.head, report.operation),
                report.inventory.held,
                aside=aside and report.operation is None,
            )
            kept, where = kept + done.kept, _where(self.names, report, done)
            self.repository.tidy()
        pending = aside and report.operation is None and PENDING in report.refs
        if self.names.turn in here and not pending:
            self.repository.remove_refs(self.names.turn)
        unnamed = report.left_count - len(report.left)
        more = [f"{unnamed} more"] if unnamed > 0 else []
        left = {
            "nested repositories do not travel": dict.fromkeys(report.nested),
            "files that cannot be committed stay in the sandbox": [*report.left, *more],
            "branches that cannot be taken stay in the sandbox": self._only_there(report.refused),
            "what cannot be read stays in the sandbox": report.inventory.unread,
        }
        behind = "; ".join(f"{what}: {', '.join(which)}" for what, which in left.items() if which)
        remarks = _remarks(self.names, report, kept, behind, with_lfs=self.with_lfs)
        if pending:
            turn = f"a turn goes on: what is not committed there is {self.names.turn}"
            remarks = bounded(turn, remarks)
        return Outcome(
            *(changed, report.head, tuple(kept), tuple(report.ports), behind),
            message=bounded(where or "nothing new in the sandbox", remarks),
            before=here.get(self.names.ref) or self.repository.resolve(self.names.base),
            remarks=remarks,
        )

    def _only_there(self, refused: Mapping[str, str]) -> list[str]:
        """Of branches that cannot be taken those whose commits are not here."""
        names, here = self.names, self.repository
        tips = [*here.refs(names.ref, names.tracking, names.kept).values()] if refused else []
        return [
            name
            for name, oid in list(refused.items())[: sandbox.NOTES]
            if not (here.resolve(oid) and here.contains(tips, oid))
        ]

    def _restore(self, missing: str, known: Sequence[str] | None = None) -> Report:
        """Give a sandbox without history (case 62) ours, so that its files come on top. Until all
        is done it counts as being without: what fails is begun again."""
        cloud, names = self.cloud, self.names
        log.logger.warning("session.restore sandbox=%s %s is missing", self.sandbox_id, missing)
        there = sandbox.prepare(cloud, self.sandbox_id, self.repository.object_format, "restore")
        ours = (names.ref, f"{names.tracking}{SANDBOX_BRANCH}", names.base)
        refs = self.repository.refs(*ours)
        local = next((refs[ref] for ref in ours if ref in refs), None)
        if local is not None:
            refspec = f"+{local}:refs/daytona/restore"
            self.transport.push(self.sandbox_id, refspec, relaxed=there.filters)
        again = self._report("new" if local is None else "adopt", known)
        if again.missing is not None:
            raise TransferFailed(
                "the repository in the sandbox could not be made again",
                hint="look into it: git daytona exec N -- ls -la",
            )
        what = ".git" if missing == "repository" else "project directory"
        if local is not None:
            again.notes.append(f"the sandbox's {what} was gone and was made again")
        if missing == "project":
            if local is not None:
                self._send_lfs(local, [])
            submodules.set_up(self)
        return again


def ready_for_push(
    cloud: Cloud, sandbox_id: str, session: int | str, commit: CommitText, place: str = PROJECT
) -> Report:
    """Commit what is pending in a sandbox that is to be pushed to; return its report. Raises
    TransferFailed where a push would be in the agent's way."""
    report = sandbox.report(cloud, sandbox_id, commit, "push", place=place)
    if report.missing is not None:
        raise TransferFailed(
            "the sandbox has no repository any more",
            hint=f"'git daytona sync {session}' makes it again",
        )
    if report.operation is not None:
        raise TransferFailed(
            f"nothing was pushed: {branches.running(report.operation)} in the sandbox",
            hint="let the agent finish or abort it, then push again",
        )
    if report.branch is None:
        raise TransferFailed(
            "the sandbox has no branch checked out", hint="check one out there, then push again"
        )
    return report


def _moved(names: Names, report: Report, here: Mapping[str, str], *, aside: bool) -> bool:
    """Tell whether anything in the sandbox is not where it belongs here."""
    # What is there only until the next sync is not kept.
    passing = names.incoming if aside else (names.incoming, names.turn)
    there = {
        names.tracking + place.removeprefix("refs/heads/"): report.refs[ref]
        for ref, place in report.places.items()
        if ref.startswith("refs/heads/")
    }
    tracking = {ref: oid for ref, oid in here.items() if ref.startswith(names.tracking)}
    known = {oid for ref, oid in here.items() if not ref.startswith(passing)}
    return (
        report.head not in (None, here.get(names.ref))
        or there != tracking
        or not _besides_branches(report) <= {*known, report.head}
    )


def _where(names: Names, report: Report, done: Integrated) -> str:
    """Say where the branch is after a sync; empty where the sandbox has no commit."""
    if done.in_use:
        return f"{names.branch} stays where it is: {done.in_use}"
    return f"{names.branch} is at {report.head[:10]}" if report.head else ""


def _besides_branches(report: Report) -> set[str]:
    """The objects that are kept: an operation in progress, a stash, an inventory."""
    kept = (PENDING, "refs/daytona/stash")
    return {oid for ref, oid in report.refs.items() if ref in kept or ref.startswith(INVENTORY)}


def _ignored(names: Sequence[str]) -> str:
    more = " and more" if len(names) > MOST_IGNORED else ""
    return f"ignored files do not travel: {', '.join(names[:MOST_IGNORED])}{more}" if names else ""


def _renamed(names: Names, report: Report) -> str:
    renamed = ", ".join(
        f"'{printable(ref.removeprefix('refs/heads/'))[:100]}' is"
        f" {names.remote}/{place.removeprefix('refs/heads/')}"
        for ref, place in report.places.items()
        if ref != place
    )
    return renamed and f"branches that cannot have their own names here: {renamed}"


def _remarks(names: Names, report: Report, kept: list[Kept], left: str, *, with_lfs: bool) -> str:
    return bounded(
        f"{branches.running(report.operation)} in the sandbox" if report.operation else "",
        *report.notes,
        branches.describe(kept) if kept else "",
        _renamed(names, report),
        left,
        f"{report.lfs} LFS objects stay in the sandbox" if report.lfs and not with_lfs else "",
        _ignored(report.inventory.ignored),
    )
