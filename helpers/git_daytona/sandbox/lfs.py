"""LFS objects between a sandbox and the repository here, through the toolbox's file calls. Each is
what its name, a digest, says, or is not taken."""

import io
import re
import tarfile
import tempfile
from collections.abc import Mapping

from git_daytona.api.cloud import Cloud
from git_daytona.base import log
from git_daytona.git.lfs import Store
from git_daytona.sandbox.parts import PART_BYTES, Parts
from git_daytona.transfer.transfer import too_large


def send(
    cloud: Cloud, sandbox_id: str, place: str, store: Store, wanted: Mapping[str, int]
) -> None:
    """Send objects to the repository at a place, and put them into the files that point to them.
    Raises SandboxCommandFailed."""
    parts = Parts(cloud, sandbox_id, place=place)
    with tempfile.TemporaryFile() as archive, log.event("lfs.send", sandbox=sandbox_id):
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for oid in wanted:
                path = store.path(oid)
                tar.add(path, str(path.relative_to(store.folder)), recursive=False)
        archive.seek(0)
        try:
            parts.upload(archive)
            parts.run("receive-lfs", parts.folder)
        except BaseException:
            parts.remove()
            raise


def fetch(
    cloud: Cloud,
    sandbox_id: str,
    place: str,
    store: Store,
    wanted: Mapping[str, int],
    most: int,
) -> set[str]:
    """Fetch those of the wanted objects, sizes by digest, that the repository at a place has;
    return which came. Raises TransferFailed for more than ``most`` bytes, SandboxCommandFailed."""
    parts = Parts(cloud, sandbox_id, place=place)
    listing = "".join(f"{oid} {size}\n" for oid, size in wanted.items()).encode()
    with tempfile.TemporaryFile() as content, log.event("lfs.fetch", sandbox=sandbox_id):
        try:
            parts.upload(io.BytesIO(listing))
            lines = parts.run("send-lfs", parts.folder, str(PART_BYTES), str(most + 1))
            sent = [line for line in lines if line.startswith("part ")]
            if len(sent) * PART_BYTES > most + PART_BYTES:
                raise too_large(most)
            parts.download(sent, content)
            if content.tell() > most:
                raise too_large(most)
        finally:
            parts.remove()
        content.seek(0)
        found = (re.fullmatch(r"object ([0-9a-f]{64})", line) for line in lines)
        there = dict.fromkeys(each[1] for each in found if each and each[1] in wanted)
        return store.take([(oid, wanted[oid]) for oid in there], content)
