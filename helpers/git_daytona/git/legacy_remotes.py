"""Remotes that earlier tools wrote with a token in their URL (case 42)."""

import re
from collections.abc import Iterable
from pathlib import Path

from git_daytona.base import files, log
from git_daytona.base.secret import REDACTED
from git_daytona.git import branches
from git_daytona.git.repository import Repository

_KEY = re.compile(r"(remote\..*\.(url|pushurl)|branch\..*\.(remote|pushremote))")
_TOKEN_URL = re.compile(r"ssh://(?P<token>[^/@\s]+)@(?P<rest>[^/\s]+/home/daytona/.*)")


def rewrite(repository: Repository) -> str:
    """Take the tokens out of such URLs, and say how many there were (empty: none)."""
    tokens: list[str] = []
    if not any(_TOKEN_URL.fullmatch(each.value or "") for each in repository.configuration()):
        return ""
    for entry in repository.git("config", "--local", "--list", "-z").text.split("\0"):
        key, _, value = entry.partition("\n")
        if (old := _TOKEN_URL.fullmatch(value)) and _KEY.fullmatch(key):
            change = ("--replace-all", key, f"ssh://{old['rest']}", f"^{re.escape(value)}$")
            with branches.changing(repository):
                if repository.set_config(*change).status == 0:
                    tokens.append(old["token"])
    if not tokens:
        return ""
    _scrub(repository.common_dir, tokens)
    return f"{len(tokens)} URLs of earlier tools rewritten without their tokens"


def _scrub(folder: Path, tokens: Iterable[str]) -> None:
    """Take the same tokens out of what git noted of transfers: FETCH_HEAD and the reflogs."""
    token = re.compile("|".join(map(re.escape, tokens)).encode())
    heads = (folder / "FETCH_HEAD", *folder.glob("worktrees/*/FETCH_HEAD"))
    for path in (*heads, *(folder / "logs").rglob("*")):
        try:
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            if token.search(content):
                files.write_whole(path, token.sub(REDACTED.encode(), content))
        except OSError as problem:
            log.logger.warning("'%s' could not be scrubbed: %s", path, problem.strerror)
