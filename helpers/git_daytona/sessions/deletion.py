"""A session's end: its work comes back, then its sandbox goes."""

from contextlib import suppress
from dataclasses import replace

from git_daytona.base import errors, log
from git_daytona.base.errors import Elsewhere, GitDaytonaError, SandboxGone
from git_daytona.git import branches, remotes
from git_daytona.git.branches import Kept
from git_daytona.sessions import state
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.state import Session
from git_daytona.sessions.sync import Syncs


class Unmerged(GitDaytonaError):
    """A session that was to go if its work is merged has more; it is kept."""


class Deletions(Syncs):
    """What ends a session, and what takes that back."""

    def delete(self, name: str, *, force: bool = False, merged: bool = False) -> Outcome | None:
        """Delete a session's sandbox once all its work is here; branch opencode/N stays. Return
        None where there was no work to bring back.

        Raises whatever keeps the work from coming back, unless ``force`` is on; then nothing is
        deleted. That the session shall go is on record until it has gone, is used again, or
        ``keep``; not that its work may be lost: a later try (recovery) brings it back first.
        With ``merged``, one that turns out to have work which is not merged is kept: Unmerged.
        """
        if self.mark(name).path.exists():
            # it is being created just now: then it is there when that has ended
            with self.one_at_a_time(name):
                pass
        session = self.find(name)
        event = log.event("session.delete", session=session.id, sandbox=session.sandbox_id)
        with self.one_at_a_time(session.id), event:
            current = self.find(session.id)
            self.state.edit(current.id, deleting=current.deleting or state.now())
            outcome, kept = None, []
            try:
                if current.number is not None:
                    outcome = self._bring_back(current, force=force)
                    if merged and not self.is_merged(current):
                        raise Unmerged(
                            f"not deleted: {current.branch} has got commits that are not merged",
                            hint=f"merge them: git daytona merge {current.name}",
                        )
                    kept = self._keep_branches(current)
                self._delete_sandbox(current)
            except (Elsewhere, Unmerged):
                self.state.edit(current.id, deleting=current.deleting)
                raise
            self._remove(current)
            return replace(outcome, kept=(*outcome.kept, *kept)) if outcome else None

    def _bring_back(self, session: Session, *, force: bool) -> Outcome | None:
        """Sync all that a session's sandbox holds; None where that is gone, or may be lost."""
        lose = f"git daytona delete --force {session.number}"
        self.tell("syncing before the deletion")
        begun = session.last_accessed
        try:
            outcome = self._sync_or_note(session, everything=True)
        except Elsewhere:
            raise
        except GitDaytonaError as problem:
            if force or isinstance(problem, SandboxGone):
                return None
            remedy = problem.hint or "the log has more"
            cancel = f"git daytona delete --cancel {session.number}"
            hint = f"nothing was deleted; {remedy}; or lose its work: {lose}; or keep it: {cancel}"
            raise problem.but(hint=hint) from problem
        if outcome.left_behind and not force:
            message = f"not deleted: {outcome.left_behind}"
            self.state.note(session.id, state.FAILED, message)
            remedy = f"let the agent move that work into the project, or lose it: {lose}"
            raise errors.TransferFailed(message, hint=remedy)
        self.state.note(session.id, state.SYNCED, outcome.message, synced_at=begun)
        return outcome

    def _keep_branches(self, session: Session) -> list[Kept]:
        repositories, names = self._repositories(session), session.names
        return [kept for each in repositories for kept in branches.keep_branches(each, names)]

    def _delete_sandbox(self, session: Session) -> None:
        """Delete a session's sandbox, on which no work depends any more."""
        try:
            with suppress(SandboxGone), self.at_home(session):
                self.sandboxes.delete(session.sandbox_id)
        except GitDaytonaError as problem:
            current = self.state.get(session.id) or session
            message = f"its sandbox was not deleted: {problem.message}"
            self.state.note(session.id, current.git_return.state, message)
            hint = (
                f"{problem.hint or 'the log has more'}; 'git daytona recover' tries again, after a "
                f"sync; or keep it: git daytona delete --cancel {session.name}"
            )
            raise problem.but(hint=hint) from problem

    def _remove(self, session: Session) -> None:
        if session.number is not None:
            for repository in self._repositories(session):
                remotes.remove_remote(repository, session.names)
        self.state.remove(session.id)

    def is_merged(self, session: Session) -> bool:
        """Tell whether what a session has committed is in HEAD, or in the upstream of HEAD. One
        that has committed nothing is not merged: it has just begun."""
        if session.number is None:
            return False
        names = session.names
        found = self.repository.refs(names.ref, names.base)
        tip = found.get(names.ref)
        if tip is None or tip == found.get(names.base):
            return False
        # git fails where HEAD has no upstream
        upstream = self.repository.git("rev-parse", "--verify", "@{upstream}^{commit}", check=False)
        tips = filter(None, (self.repository.resolve("HEAD"), upstream.text))
        return self.repository.contains(list(tips), tip)

    def keep(self, name: str) -> bool:
        """Take back a deletion that did not succeed; return whether there was one."""
        session = self.find_anywhere(name)
        with self.one_at_a_time(session.id):
            before = self.state.edit(session.id, deleting=0)
            was = before is not None and before.deleting > 0
            if was and before and before.git_return.state == state.FAILED:
                self.state.note(session.id, state.PENDING, "its deletion was taken back")
        return was

    def forget(self, name: str) -> Session | None:
        """Forget a session, wherever it lives; its sandbox and branch stay. Return it, None where
        only its start had begun."""
        mark = self.mark(name)
        if mark.path.exists() and self.state.get(name) is None:
            with self.one_at_a_time(name):
                mark.path.unlink(missing_ok=True)
            return None
        session = self.find_anywhere(name)
        with self.one_at_a_time(session.id):
            if session.number is not None:
                self._keep_branches(session)
            self._remove(session)
        return session
