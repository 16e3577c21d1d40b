"""Where a session lives: the API and the organisation that its sandbox was seen on first.

Another API, or another organisation's key, does not know its sandbox: what that says of it, and a
404 above all, is nothing that anybody may act on.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from git_daytona.base.errors import CutShort, Elsewhere, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.sandbox.lifecycle import Mark
from git_daytona.sessions.state import Session


def elsewhere(session: Session, api_url: str, organization_id: str = "") -> Elsewhere | None:
    """Return what to raise for a session under an API and an organisation (empty: not known) where
    it does not live; None where it does, or may."""
    name, place = printable(session.name), printable(session.api_url)
    if session.api_url not in ("", api_url):
        return Elsewhere(
            f"session {name} lives on {place}, and this is {api_url}",
            hint=f"nothing was changed; go there: DAYTONA_API_URL={place}; if that is no more: git"
            f" daytona delete --forget {name}; if it has moved here: git daytona adopt"
            f" {printable(session.sandbox_id)}",
        )
    if organization_id and session.organization_id not in ("", organization_id):
        return Elsewhere(
            f"session {name} lives in organisation '{printable(session.organization_id)}' of"
            f" {api_url}, and the API key is of organisation '{organization_id}'",
            hint="nothing was changed; use a key of that organisation",
        )
    return None


def check_begun(mark: Mark, api_url: str) -> None:
    """Raise Elsewhere for a start that was interrupted on another API."""
    if mark.api_url in ("", api_url):
        return
    name, place = printable(mark.session_id), printable(mark.api_url)
    raise Elsewhere(
        f"the start of session {name} was interrupted on {place}, and this is {api_url}",
        hint=f"nothing was changed; finish it there: DAYTONA_API_URL={place} git daytona recover;"
        f" if that is no more: git daytona delete --forget {name}",
    )


def unknown(session: Session, api_url: str) -> Elsewhere:
    """Return what to raise for a sandbox that is not found, if nobody recorded where it lives."""
    name = printable(session.name)
    return Elsewhere(
        f"the sandbox of session {name} is not on {api_url}, and it is not known where it was made",
        hint="nothing was changed; set DAYTONA_API_URL and the key to those it was made with; if it"
        f" is gone: git daytona delete --forget {name}",
    )


def deleted(session: Session) -> CutShort:
    """Return what to raise for a session that was deleted while it was in use."""
    return CutShort(f"session {session.name} was deleted while this ran")


@contextmanager
def naming(session: Session) -> Iterator[None]:
    """Let what fails in the block name the session, by what its user knows it by."""
    try:
        yield
    except GitDaytonaError as problem:
        raise problem.but(session=session.name) from problem
