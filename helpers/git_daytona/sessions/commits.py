"""What is said in the commits that are made of a session's work. Pure, but for ``text``."""

import re
from collections.abc import Mapping
from pathlib import Path

from git_daytona.base.secret import redact
from git_daytona.sandbox.report import CommitText
from git_daytona.sessions.state import Session, one_line
from git_daytona.settings import preferences

SUBJECT_LENGTH = 72
MESSAGE_LENGTH = 4000
"""The longest message, characters: it is an argument of a command in the sandbox."""


def text(session: Session | None, directory: Path) -> CommitText:
    """Word the commit of what is pending in a sandbox, as the user prefers. Raises BadSetting."""
    if session is None:
        return CommitText()
    preferred = preferences.load(directory)
    author, user = preferred.author(), preferred.user()
    trailers = provenance(session)
    if all(user) and user != author:
        trailers["Co-authored-by"] = "{} <{}>".format(*user)
    fields = {"title": subject(session), "session": session.id, "sandbox": session.sandbox_id}
    fields["number"] = str(session.number or "")
    return CommitText(message(preferred.commit_message(), fields, trailers), author)


def subject(session: Session) -> str:
    """Make a line of a session's title, which anybody may have written: printable, bounded, and the
    beginning of no trailer (git-interpret-trailers(1)), such as Signed-off-by."""
    title = re.sub(r"^([\w-]*-\w+)\s*:", r"\1", one_line(redact(session.title)))
    if len(title) > SUBJECT_LENGTH:
        title = title[: SUBJECT_LENGTH - 1].rstrip() + "…"
    return title or CommitText().message


def provenance(session: Session) -> dict[str, str]:
    """Return the trailers that say where a commit is from."""
    names = {"Daytona-Session": session.id, "Daytona-Sandbox": session.sandbox_id}
    return {key: value for key, value in names.items() if value}


def message(template: str, fields: Mapping[str, str], trailers: Mapping[str, str]) -> str:
    """Fill in a template's ``{title}``, ``{session}``, ``{sandbox}`` and ``{number}``. The trailers
    are a paragraph of their own at the end, the only one that git looks for them in."""
    filled = re.sub(r"\{(\w+)\}", lambda found: one_line(fields.get(found[1], found[0])), template)
    last = "\n".join(f"{key}: {one_line(value)}" for key, value in trailers.items())
    body = filled.strip()[: MESSAGE_LENGTH - len(last)] or CommitText().message
    return f"{body}\n\n{last}" if last else body
