"""Remotes that earlier tools wrote with a token in their URL (CASES 42)."""

import re
from pathlib import Path

from git_daytona.base import files, log
from git_daytona.base.secret import REDACTED
from git_daytona.git import branches
from git_daytona.git.repository import Repository

_TOKEN_URL = re.compile(r"ssh://(?P<token>[^/@\s]+)@(?P<rest>[^/\s]+/home/daytona/.*)")


def rewrite(repository: Repository) -> str:
    """Take the tokens out of URLs that earlier tools wrote (``ssh://TOKEN@host/home/daytona/…``),
    wherever they stand (CASES 42)."""
    listing = repository.git("config", "--local", "--list", "-z").text
    tokens: set[str] = set()
    changed = 0
    for entry in listing.split("\0"):
        key, _, value = entry.partition("\n")
        old = _TOKEN_URL.fullmatch(value)
        if old is None or not re.fullmatch(
            r"(remote\..*\.(url|pushurl)|branch\..*\.(remote|pushremote))", key
        ):
            continue
        with branches.changing(repository):
            pattern = f"^{re.escape(value)}$"
            if (
                repository.set_config("--replace-all", key, f"ssh://{old['rest']}", pattern).status
                == 0
            ):
                changed += 1
                tokens.add(old["token"])
    if tokens:
        _scrub(repository.common_dir, tokens)
    return f"{changed} URLs of earlier tools rewritten without their tokens" if changed else ""


def _scrub(folder: Path, tokens: set[str]) -> None:
    """The same tokens in what git noted of transfers: FETCH_HEAD and the reflogs."""
    for path in [
        folder / "FETCH_HEAD",
        *folder.glob("worktrees/*/FETCH_HEAD"),
        *(folder / "logs").rglob("*"),
    ]:
        try:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            clean = content
            for token in tokens:
                clean = clean.replace(token.encode(), REDACTED.encode())
            if clean != content:
                files.write_whole(path, clean)
        except OSError as problem:
            log.logger.warning("'%s' could not be scrubbed: %s", path, problem.strerror)
