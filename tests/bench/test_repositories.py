"""5. Repositories of three shapes: the first push, and a sync of a small change, beside the same by hand."""

import functools
import subprocess

import pytest
from apart import Apart
from measure import in_turns, median, timed
from ours import Ours, coordinator
from replay import Api, Bare, ByHand, change

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


def test_the_gateway(daytona: Apart, make_repo, table) -> None:
    """What all transfers here stand on: ssh alone, with what it takes to start it. Statuses get lost, bytes do not."""
    api = Api(daytona)
    by_hand = ByHand(api, daytona, make_repo("by-hand", 1, 1), api.create())
    by_hand.meet()
    argv = (*by_hand.ssh(), "-p", str(daytona.port), f"{api.mint(by_hand.sandbox)}@127.0.0.1")
    data = bytes(100_000_000)

    def out() -> None:
        assert len(subprocess.run((*argv, f"head -c {len(data)} /dev/zero"), stdout=subprocess.PIPE).stdout) == len(data)

    def into() -> None:
        assert int(subprocess.run((*argv, "wc -c"), input=data, stdout=subprocess.PIPE).stdout) == len(data)

    spent = in_turns({"out": out, "in": into})
    part = table.part("5. the embedded gateway")
    for way, seconds in spent.items():
        part.count(f"seconds for 100 MB {way}", median(seconds), at_most=3)
