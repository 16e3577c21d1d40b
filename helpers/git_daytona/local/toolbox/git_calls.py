"""The calls about repositories (git/…): the sandbox's own git does the work, as the sandbox's
user."""

import asyncio
import subprocess
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from git_daytona.local.core import pipes
from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError, Program
from git_daytona.local.toolbox.call import Call, Handler, member, optional, strings, visible

SECONDS = 300
"""How long one git command may take."""
STATES = {
    " ": "Unmodified",
    "?": "Untracked",
    "M": "Modified",
    "T": "Modified",
    "A": "Added",
    "D": "Deleted",
    "R": "Renamed",
    "C": "Copied",
    "U": "Updated but unmerged",
}
"""Daytona's names for the letters of git-status(1)."""
QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
"""git must not ask, nor lock for a look, and its messages are told apart here."""
HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$DAYTONA_GIT_USERNAME" '
    '"$DAYTONA_GIT_PASSWORD"; }; f'
)


@dataclass(frozen=True)
class Done:
    """How a git command ended."""

    status: int
    stdout: str
    stderr: str


async def git(
    call: Call, *arguments: str, path: str | None = None, env: dict[str, str] | None = None
) -> Done:
    """Run git in the sandbox, at `path` when one is given."""
    place = () if path is None else ("-C", visible(path))
    # Daytona's daemon minds nobody's ownership either.
    argv = ["git", "-c", "safe.directory=*", *place, *arguments]

    def run() -> Done:
        process = call.isolation.popen(call.sandbox, Program(argv, env={**QUIET, **(env or {})}))
        try:
            stdout, stderr = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            pipes.kill_group(process)
            process.communicate()
            raise ApiError(408, "git takes too long") from None
        return Done(
            process.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")
        )

    return await asyncio.to_thread(run)


async def must(
    call: Call, *arguments: str, path: str | None = None, env: dict[str, str] | None = None
) -> str:
    """Run git and return what it printed; ApiError when it failed."""
    done = await git(call, *arguments, path=path, env=env)
    if done.status != 0:
        raise _refusal(done)
    return done.stdout


def _refusal(done: Done) -> ApiError:
    said = done.stderr.strip() or done.stdout.strip() or f"git ended with {done.status}"
    for words, status, code in (
        ("not a git repository", 404, "GIT_REPO_NOT_FOUND"),
        ("cannot change to", 404, "GIT_REPO_NOT_FOUND"),
        ("does not exist", 404, "GIT_REPO_NOT_FOUND"),
        ("does not appear to be a git repository", 404, "GIT_REPO_NOT_FOUND"),
        ("Authentication failed", 401, "GIT_AUTH_FAILED"),
        ("could not read Username", 401, "GIT_AUTH_FAILED"),
        ("could not read Password", 401, "GIT_AUTH_FAILED"),
        ("Remote branch", 404, "GIT_BRANCH_NOT_FOUND"),
        ("invalid reference", 404, "GIT_BRANCH_NOT_FOUND"),
        ("did not match any file", 404, "GIT_BRANCH_NOT_FOUND"),
        ("already exists", 409, "GIT_BRANCH_EXISTS"),
        ("would be overwritten", 409, "GIT_DIRTY_WORKTREE"),
        ("CONFLICT", 409, "GIT_MERGE_CONFLICT"),
        ("Not possible to fast-forward", 409, "GIT_MERGE_CONFLICT"),
        ("[rejected]", 409, "GIT_PUSH_REJECTED"),
        ("[remote rejected]", 409, "GIT_REMOTE_REJECTED"),
    ):
        if words in said:
            return ApiError(status, said, code=code)
    return ApiError(400, said)


def _credentials(body: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Options and environment for a call that brings user name and password."""
    password = optional(body, "password", str)
    if not password:
        return [], {}
    # They travel in the environment of this one git: the helper is the text of a shell function
    # (gitcredentials(7)).
    env = {
        "DAYTONA_GIT_USERNAME": optional(body, "username", str) or "git",
        "DAYTONA_GIT_PASSWORD": password,
    }
    return ["-c", "credential.helper=", "-c", f"credential.helper={HELPER}"], env


async def status(call: Call) -> web.Response:
    """GET git/status ``?path``."""
    path = call.query("path")
    await _repository(call, path)
    head = await git(call, "symbolic-ref", "--quiet", "--short", "HEAD", path=path)
    if (await git(call, "rev-parse", "--verify", "--quiet", "HEAD", path=path)).status != 0:
        raise ApiError(404, "reference not found")
    entries = (
        await must(call, "status", "--porcelain=v1", "-z", "--untracked-files=all", path=path)
    ).split("\0")
    files = []
    while entries:
        entry = entries.pop(0)
        if not entry:
            continue
        staging, worktree, name = entry[0], entry[1], entry[3:]
        extra = entries.pop(0) if staging in "RC" else ""
        files.append(
            {
                "name": name,
                "extra": extra,
                "staging": STATES.get(staging, staging),
                "worktree": STATES.get(worktree, worktree),
            }
        )
    upstream = (
        await git(
            call, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}", path=path
        )
    ).stdout.strip()
    ahead = behind = 0
    if upstream:
        counts = (
            await must(call, "rev-list", "--left-right", "--count", f"{upstream}...HEAD", path=path)
        ).split()
        behind, ahead = int(counts[0]), int(counts[1])
    answer: dict[str, Any] = {
        "currentBranch": head.stdout.strip() or "HEAD",
        "fileStatus": files,
        "ahead": ahead,
        "behind": behind,
        "branchPublished": bool(upstream),
    }
    if call.profile.newer_calls:
        answer |= {"detached": head.status != 0, "upstream": upstream}
    return json_response(answer)


async def history(call: Call) -> web.Response:
    """GET git/history ``?path``: the commits of HEAD, newest first."""
    path = call.query("path")
    await _repository(call, path)
    log = await must(call, "log", "-z", "--format=%H%x01%an%x01%ae%x01%aI%x01%B", path=path)
    commits = [entry.split("\x01", 4) for entry in log.split("\0") if entry]
    return json_response(
        [
            {"hash": one, "author": author, "email": email, "timestamp": when, "message": message}
            for one, author, email, when, message in commits
        ]
    )


async def branches(call: Call) -> web.Response:
    """GET git/branches ``?path``."""
    path = call.query("path")
    await _repository(call, path)
    names = (
        await must(call, "for-each-ref", "--format=%(refname:short)", "refs/heads", path=path)
    ).splitlines()
    answer: dict[str, Any] = {"branches": names}
    if call.profile.newer_calls:
        answer["current"] = (
            await git(call, "symbolic-ref", "--quiet", "--short", "HEAD", path=path)
        ).stdout.strip()
    return json_response(answer)


async def create_branch(call: Call) -> web.Response:
    """POST git/branches ``{path, name}``: makes it and checks it out."""
    body = await call.json()
    path, name = member(body, "path", str), _reference(member(body, "name", str))
    await _repository(call, path)
    await must(call, "checkout", "--quiet", "-b", name, path=path)
    return web.Response(status=201)


async def delete_branch(call: Call) -> web.Response:
    """DELETE git/branches ``{path, name}``: the reference alone; one that is not there is no
    error."""
    body = await call.json()
    path, name = member(body, "path", str), _reference(member(body, "name", str))
    await _repository(call, path)
    await must(call, "update-ref", "-d", f"refs/heads/{name}", path=path)
    return web.Response(status=204)


async def checkout(call: Call) -> web.Response:
    """POST git/checkout ``{path, branch}``: a branch or a commit."""
    body = await call.json()
    path, branch = member(body, "path", str), _reference(member(body, "branch", str))
    await _repository(call, path)
    await must(call, "checkout", "--quiet", "--no-guess", branch, "--", path=path)
    return web.Response(status=200)


async def clone(call: Call) -> web.Response:
    """POST git/clone ``{url, path, branch?, commit_id?, depth?, username?, password?,
    insecure_skip_tls?}``."""
    body = await call.json()
    url, path = member(body, "url", str), visible(member(body, "path", str))
    options, env = _credentials(body)
    if optional(body, "insecure_skip_tls", bool):
        options += ["-c", "http.sslVerify=false"]
    wanted = (
        ["--single-branch", "--branch", branch] if (branch := optional(body, "branch", str)) else []
    )
    if depth := optional(body, "depth", int):
        wanted += ["--depth", str(depth)]
    await must(call, *options, "clone", "--quiet", *wanted, "--", url, path, env=env)
    if commit := optional(body, "commit_id", str):
        await must(call, "checkout", "--quiet", "--detach", _reference(commit), "--", path=path)
    return web.Response(status=200)


async def add(call: Call) -> web.Response:
    """POST git/add ``{path, files}``."""
    body = await call.json()
    path, names = member(body, "path", str), strings(body.get("files"), "files")
    await _repository(call, path)
    await must(call, "add", "--all", "--", *names, path=path)
    return web.Response(status=200)


async def commit(call: Call) -> web.Response:
    """POST git/commit ``{path, message, author, email, allow_empty?}``; one without changes is a
    500, as of Daytona."""
    body = await call.json()
    path, message = member(body, "path", str), member(body, "message", str)
    author, email = member(body, "author", str), member(body, "email", str)
    await _repository(call, path)
    empty = bool(optional(body, "allow_empty", bool))
    if not empty and (await git(call, "diff", "--cached", "--quiet", path=path)).status == 0:
        raise ApiError(500, "cannot create empty commit: clean working tree")
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", author), ("EMAIL", email))
    }
    options = ["--allow-empty"] if empty else []
    await must(
        call,
        "commit",
        "--quiet",
        "--no-verify",
        *options,
        "--message",
        message,
        path=path,
        env=identity,
    )
    return json_response({"hash": (await must(call, "rev-parse", "HEAD", path=path)).strip()})


async def push(call: Call) -> web.Response:
    """POST git/push ``{path, username?, password?}``: the checked-out branch to its remote."""
    return await _transfer(call, "push", "--quiet", "--set-upstream")


async def pull(call: Call) -> web.Response:
    """POST git/pull ``{path, username?, password?}``: fast-forward only, as Daytona's library
    does."""
    return await _transfer(call, "pull", "--quiet", "--ff-only")


async def _transfer(call: Call, *command: str) -> web.Response:
    body = await call.json()
    path = member(body, "path", str)
    await _repository(call, path)
    options, env = _credentials(body)
    remote = optional(body, "remote", str) or "origin"
    branch = (
        optional(body, "branch", str)
        or (await must(call, "symbolic-ref", "--short", "HEAD", path=path)).strip()
    )
    await must(
        call, *options, *command, "--", _reference(remote), _reference(branch), path=path, env=env
    )
    return web.Response(status=200)


async def init(call: Call) -> web.Response:
    """POST git/init ``{path, bare?, initial_branch?}``."""
    body = await call.json()
    options = ["--bare"] if optional(body, "bare", bool) else []
    if branch := optional(body, "initial_branch", str):
        options += ["--initial-branch", branch]
    await must(call, "init", "--quiet", *options, "--", visible(member(body, "path", str)))
    return web.Response(status=201)


async def remotes(call: Call) -> web.Response:
    """GET git/remotes ``?path``."""
    path = call.query("path")
    await _repository(call, path)
    found = []
    for name in (await must(call, "remote", path=path)).splitlines():
        found.append(
            {"name": name, "url": (await must(call, "remote", "get-url", name, path=path)).strip()}
        )
    return json_response({"remotes": found})


async def add_remote(call: Call) -> web.Response:
    """POST git/remotes ``{path, name, url, fetch?, overwrite?}``."""
    body = await call.json()
    path, name, url = (
        member(body, "path", str),
        _reference(member(body, "name", str)),
        member(body, "url", str),
    )
    await _repository(call, path)
    there = name in (await must(call, "remote", path=path)).splitlines()
    if there and not optional(body, "overwrite", bool):
        raise ApiError(409, "remote already exists")
    await must(
        call, "remote", *(("set-url", "--") if there else ("add", "--")), name, url, path=path
    )
    if optional(body, "fetch", bool):
        await must(call, "fetch", "--quiet", "--", name, path=path)
    return web.Response(status=201)


async def reset(call: Call) -> web.Response:
    """POST git/reset ``{path, mode?, target?, files?}``."""
    body = await call.json()
    path, mode = member(body, "path", str), optional(body, "mode", str) or "mixed"
    if mode not in ("soft", "mixed", "hard", "merge", "keep"):
        raise ApiError(400, f"invalid mode: {mode}")
    await _repository(call, path)
    target, names = (
        _reference(optional(body, "target", str) or "HEAD"),
        strings(body.get("files") or [], "files"),
    )
    await must(
        call,
        "reset",
        "--quiet",
        *([target, "--", *names] if names else [f"--{mode}", target, "--"]),
        path=path,
    )
    return web.Response(status=200)


async def restore(call: Call) -> web.Response:
    """POST git/restore ``{path, files, staged?, worktree?, source?}``."""
    body = await call.json()
    path, names = member(body, "path", str), strings(body.get("files"), "files")
    await _repository(call, path)
    options = [f"--{what}" for what in ("staged", "worktree") if optional(body, what, bool)]
    if source := optional(body, "source", str):
        options.append(f"--source={source}")
    await must(call, "restore", "--quiet", *options, "--", *names, path=path)
    return web.Response(status=200)


async def get_config(call: Call) -> web.Response:
    """GET git/config ``?key&path&scope``."""
    query = call.request.query
    scope, path = _scope(query.get("scope"), query.get("path"))
    done = await git(call, "config", scope, "--get", "--", call.query("key"), path=path)
    answer = {"key": call.query("key")}
    return json_response(
        {**answer, "value": done.stdout.rstrip("\n")} if done.status == 0 else answer
    )


async def set_config(call: Call) -> web.Response:
    """POST git/config ``{key, value, path?, scope?}``."""
    body = await call.json()
    scope, path = _scope(optional(body, "scope", str), optional(body, "path", str))
    await must(
        call, "config", scope, "--", member(body, "key", str), member(body, "value", str), path=path
    )
    return web.Response(status=200)


async def configure_user(call: Call) -> web.Response:
    """POST git/config/user ``{name, email, path?, scope?}``."""
    body = await call.json()
    scope, path = _scope(optional(body, "scope", str), optional(body, "path", str))
    for key in ("name", "email"):
        await must(call, "config", scope, "--", f"user.{key}", member(body, key, str), path=path)
    return web.Response(status=200)


def _scope(scope: str | None, path: str | None) -> tuple[str, str | None]:
    scope = scope or "global"
    if scope not in ("global", "local", "system"):
        raise ApiError(400, f"invalid scope: {scope}")
    if scope == "local" and not path:
        raise ApiError(400, "path is required for the scope local")
    return f"--{scope}", path if scope == "local" else None


def _reference(name: str) -> str:
    """A name that git cannot take for an option."""
    if not name or name.startswith("-"):
        raise ApiError(400, f"invalid name: {name!r}")
    return name


async def _repository(call: Call, path: str) -> None:
    """Only the top of a working tree, or a bare repository, is one for Daytona: it does not look in
    the folders above."""
    done = await git(call, "rev-parse", "--show-prefix", path=path)
    if done.status != 0 or done.stdout.strip():
        raise ApiError(404, "repository does not exist", code="GIT_REPO_NOT_FOUND")


CALLS: list[tuple[str, str, Handler]] = [
    ("GET", "/git/status", status),
    ("GET", "/git/history", history),
    ("GET", "/git/branches", branches),
    ("POST", "/git/branches", create_branch),
    ("DELETE", "/git/branches", delete_branch),
    ("POST", "/git/checkout", checkout),
    ("POST", "/git/clone", clone),
    ("POST", "/git/add", add),
    ("POST", "/git/commit", commit),
    ("POST", "/git/push", push),
    ("POST", "/git/pull", pull),
]
NEWER_CALLS: list[tuple[str, str, Handler]] = [
    ("POST", "/git/init", init),
    ("GET", "/git/remotes", remotes),
    ("POST", "/git/remotes", add_remote),
    ("POST", "/git/reset", reset),
    ("POST", "/git/restore", restore),
    ("GET", "/git/config", get_config),
    ("POST", "/git/config", set_config),
    ("POST", "/git/config/user", configure_user),
]
