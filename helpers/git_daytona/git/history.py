"""Where the history that a sandbox gets ends, if it is not to get all of it."""

from collections.abc import Collection

from git_daytona.git.repository import Repository


def boundary(repository: Repository, commit: str, depth: int) -> list[str]:
    """List the commits behind which a history of so many generations ends, as 'git clone --depth'
    counts them; none where the whole history is no longer."""
    seen: set[str] = set()
    generation = {commit: _parents(repository, [commit])[commit]}
    for _ in range(depth - 1):
        seen |= generation.keys()
        generation = _parents(
            repository, {each for parents in generation.values() for each in parents} - seen
        )
    return [each for each, parents in generation.items() if parents]


def _parents(repository: Repository, commits: Collection[str]) -> dict[str, list[str]]:
    if not commits:
        return {}
    listing = repository.git(
        "rev-list", "--no-walk", "--parents", "--stdin", stdin="\n".join(commits).encode()
    )
    found = (line.split(" ") for line in listing.text.splitlines())
    return {each: parents for each, *parents in found}
