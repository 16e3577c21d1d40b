"""OpenCode's id of a project with an origin: as 1.18.33 and 2.0.14 were measured to form it."""

from hashlib import sha1

import pytest

from git_daytona.git import repository
from git_daytona.sessions import project
from support.round_trip import Repo

FORMS = {
    "git@example.com:some/Project.git": "example.com/some/Project",
    "ssh://git@Example.com/some/Project.git/": "example.com/some/Project",
    "ssh://git@example.com:2222/some/Project": "example.com/some/Project",
    "https://user:word@EXAMPLE.com/some/Project.git": "example.com/some/Project",
    "https://example.com:8443/a/b/c": "example.com/a/b/c",
    "https://example.com/x//y.git.git": "example.com/x//y.git",
    "https://example.com/p%20q": "example.com/p%20q",
    "git://example.com/p.GIT": "example.com/p.GIT",
    "ssh://example.com/~u/p": "example.com/~u/p",
    "http://[::1]:80/p": "[::1]/p",
    "git@example.com:/abs/p.git": "example.com/abs/p",
    "user@host:22/p/q": "host/22/p/q",
    "example.com:some/Project": "",
    "file:///srv/some/project.git": "",
    "/srv/some/project.git": "",
    "../project": "",
    "https://example.com/": "",
    "ext::sh -c x": "",
}


@pytest.mark.parametrize(("url", "place"), FORMS.items())
def test_the_id_of_a_project(url: str, place: str, repo: Repo) -> None:
    repo.git("remote", "add", "origin", url)
    root = repo.git("rev-parse", "HEAD")
    expected = sha1(f"git-remote:{place}".encode()).hexdigest() if place else root
    assert project.project_of(repository.discover(repo.path)) == expected


def test_what_opencode_wrote_counts_where_there_is_no_origin(repo: Repo) -> None:
    (repo.path / ".git" / "opencode").write_text("0123abc\n")
    assert project.project_of(repository.discover(repo.path)) == "0123abc"
