"""5. Repositories of three shapes: the first push, and a sync of a small change, beside the same by hand."""

import functools

import pytest
from apart import Apart
from measure import in_turns, timed
from ours import Ours, coordinator
from replay import Api, Bare, change

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SHAPES = {"1 MB": (50, 20_000), "100 MB": (25, 4_000_000), "20,000 files": (20_000, 100)}
"""Number of files, bytes of each."""


@pytest.mark.parametrize("shape", SHAPES)
def test_repositories(daytona: Apart, make_repo, table, shape: str) -> None:
    files, size = SHAPES[shape]
    api = Api(daytona)
    kinds = {
        "ours": Ours(coordinator(make_repo("ours", files, size))),
        "by hand": Bare(api, daytona, make_repo("by-hand", files, size)),
    }
    synced: dict[str, list[float]] = {name: [] for name in kinds}

    def first_push(name: str) -> float:
        """A new session's start; after it, a sync of a change."""
        kind = kinds[name]
        started = timed(kind.start)
        change(api, kind.sandbox)
        synced[name].append(timed(kind.sync))
        kind.delete()
        if isinstance(kind, Ours):
            kind.settle()
        return started

    # A warm process: the SDK is loaded, and the gateway's key known to both.
    ours, by_hand = kinds.values()
    ours.coordinator.cloud.load()
    ours.coordinator.transfers.check()
    by_hand.meet()
    pushed = in_turns({name: functools.partial(first_push, name) for name in kinds})
    part = table.part("5. repositories, ours : by hand")
    part.ratio(f"{shape}: a new session with its first push", pushed["ours"], pushed["by hand"])
    part.ratio(f"{shape}: sync of a small change", synced["ours"], synced["by hand"])
