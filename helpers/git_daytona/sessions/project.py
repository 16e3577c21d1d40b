"""What a repository is called: OpenCode's id of its project, and a name for people."""

from contextlib import suppress
from hashlib import sha1
from urllib.parse import urlsplit

from git_daytona.git.repository import Repository

NO_PROJECT = "global"
"""OpenCode's project id of a directory without a repository, or of one without commits."""


def project_of(repository: Repository | None) -> str:
    """Return OpenCode's id of a project, as 1.18.33 and 2.0.14 were seen to form it: of ``origin``,
    else what it wrote into ``.git/opencode``, else the first root of HEAD in order, else
    ``global``."""
    if repository is None:
        return NO_PROJECT
    if place := _place(_origin(repository)):
        return sha1(f"git-remote:{place}".encode(), usedforsecurity=False).hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        cached = (repository.common_dir / "opencode").read_text()[:200].strip()
        if cached.isalnum():
            return cached
    roots = repository.git("rev-list", "--max-parents=0", "HEAD", check=False)
    return min(roots.text.split() if roots.status == 0 else (), default=NO_PROJECT)


def name_of(repository: Repository) -> str:
    """Return what a person calls a repository: the last part of origin's place, or its folder's."""
    own = repository.common_dir
    folder = own.parent if own.name == ".git" else own
    return _place(_origin(repository)).rpartition("/")[2] or folder.name


def _origin(repository: Repository) -> str:
    return repository.section("remote.origin").get("url", "").strip()


def _place(url: str) -> str:
    """Return host and path of a remote's URL, whatever its form; empty for one of this machine."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
        host = f"[{host}]" if ":" in host else host
        if parts.scheme == "file":
            return ""
    else:  # git's short form of ssh, USER@HOST:PATH; OpenCode takes none without a user
        user, _, place = url.partition("@")
        host, _, path = place.partition(":")
        if not user:
            return ""
    path = path.strip("/").removesuffix(".git").rstrip("/")
    return f"{host.lower()}/{path}" if host and path else ""
