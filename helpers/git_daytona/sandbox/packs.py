"""Commits between a sandbox and the repository here without SSH: as packs, through the toolbox's
file calls. No token is minted.

Each side takes a pack into a repository of its own first, and moves it on from there with the git
command, and so the checks, of a transfer over SSH. It is no git bundle: that cannot have a branch
whose commits the other side has already.
"""

import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from git_daytona.base import log
from git_daytona.base.errors import TransferFailed
from git_daytona.base.run import run
from git_daytona.base.secret import printable
from git_daytona.git import environment
from git_daytona.git.repository import LOCAL_SECONDS, Repository, failure
from git_daytona.sandbox.parts import PART_BYTES, Parts
from git_daytona.transfer import failures, transfer
from git_daytona.transfer.transfer import Transfers

HAVES = 500
"""How many commits a sandbox is told that are here: the most recently synced."""


@dataclass(frozen=True)
class Packs:
    """Fetches and pushes through the API, of the repository at a ``place`` in a sandbox."""

    transfers: Transfers
    repository: Repository
    sandbox_id: str
    place: str

    def fetch(
        self, refs: Mapping[str, str], refspecs: Sequence[str], here: Collection[str], show: bool
    ) -> None:
        """Fetch the sandbox's refs, name to object id, by explicit refspecs, objects checked;
        ``here`` are commits of its that the repository has. Raises TransferFailed, RefGone for a
        ref that has gone on meanwhile, and what the API's calls raise."""
        most, parts = transfer.most_bytes(self.repository), self._parts()
        event = log.event("packs.fetch", sandbox=self.sandbox_id)
        with apart_from(self.repository) as apart, event:
            try:
                haves = list(here)[:HAVES]
                arguments = (parts.folder, str(PART_BYTES), str(most + 1), *haves)
                kind, *lines = parts.run("pack-objects", *arguments)
                if kind == "large" or len(lines) * PART_BYTES > most + PART_BYTES:
                    raise transfer.too_large(most)
                with tempfile.TemporaryFile() as pack:
                    parts.download(lines, pack)
                    pack.seek(0)
                    self._unpack(apart, pack, most)
            finally:
                parts.remove()
            if not apart.update_refs([f"create {ref} {oid}" for ref, oid in refs.items()]):
                raise failures.RefGone(
                    "a ref of the sandbox's has changed meanwhile", hint="try again"
                )
            self.transfers.take(self.repository, apart.git_dir, refspecs, show=show)

    def _parts(self) -> Parts:
        return Parts(self.transfers.cloud, self.sandbox_id, place=self.place)

    def _unpack(self, apart: Repository, pack: IO[bytes], most: int) -> None:
        """Index a pack. Not strictly: the fetch from the repository checks the objects."""
        result = run(
            ("git", "--git-dir", str(apart.git_dir), "index-pack", "--stdin", "--fix-thin"),
            env=environment.base(),
            timeout=transfer.TRANSFER_SECONDS,
            stdin=pack,
            limits=transfer.limits(most),
        )
        if result.status != 0:
            raise failure(result, "the sandbox sent no pack that git can read")

    def push(self, refspec: str, there: Collection[str], relaxed: Sequence[str]) -> None:
        """Push by one explicit refspec, ``[+]OID:REF``; ``there`` are commits that the sandbox has.
        Raises TransferFailed."""
        oid, parts = refspec.removeprefix("+").partition(":")[0], self._parts()
        event = log.event("packs.push", sandbox=self.sandbox_id)
        with tempfile.TemporaryDirectory(prefix="git-daytona-") as folder, event:
            revisions = "".join(f"{each}\n" for each in (oid, *(f"^{have}" for have in there)))
            name = str(Path(folder) / "new")
            options = ("-c", "pack.packSizeLimit=0", "pack-objects", "--revs", "-q", name)
            self.repository.git(*options, stdin=revisions.encode())
            try:
                for pack in Path(folder).glob("*.pack"):
                    with pack.open("rb") as source:
                        parts.upload(source)
                form = self.repository.object_format
                words = (parts.folder, form, transfer.receive_pack(relaxed), refspec)
                [*_, status], output = parts.run_loud("receive-objects", *words)
            except BaseException:
                parts.remove()
                raise
            if status != "status 0":
                details = printable(output)
                raise failures.of_push(output, details) or TransferFailed(
                    "the sandbox did not take the commits",
                    hint="the log has all that its git printed",
                    details=details,
                )


@contextmanager
def apart_from(repository: Repository) -> Iterator[Repository]:
    """Make a repository that has all objects of another one, for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="git-daytona-") as folder:
        path = Path(folder)
        format_ = f"--object-format={repository.object_format}"
        argv = ("git", "init", "-q", "--bare", "--template=", format_, folder)
        made = run(argv, env=environment.base(), timeout=LOCAL_SECONDS)
        if made.status != 0:
            raise failure(made, "git init failed")
        objects = str(repository.common_dir / "objects").encode("utf-8", "surrogateescape")
        quoted = re.sub(rb'["\\]', rb"\\\g<0>", objects).replace(b"\n", b"\\n")
        (path / "objects/info/alternates").write_bytes(b'"' + quoted + b'"\n')
        yield Repository(path, path, None, repository.object_format)
