"""5. Repositories of three shapes: the first push, and a sync of a small change, beside the same by
hand."""

import functools
import itertools
import subprocess

import pytest

from git_daytona.git import environment
from git_daytona.git.environment import TRANSFER_CONFIG
from git_daytona.sandbox import report as sandbox
from support.measure import in_turns, median, timed
from support.plugin_calls import Api, Bare, ByHand, change
from support.separate_server import Apart
from support.suite import Ours, coordinator

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
    """What all transfers here stand on: ssh alone, with what it takes to start it. Statuses get
    lost, bytes do not."""
    api = Api(daytona)
    by_hand = ByHand(api, daytona, make_repo("by-hand", 1, 1), api.create())
    by_hand.meet()
    argv = (*by_hand.ssh(), "-p", str(daytona.port), f"{api.mint(by_hand.sandbox)}@127.0.0.1")
    data = bytes(100_000_000)

    def out() -> None:
        assert len(
            subprocess.run((*argv, f"head -c {len(data)} /dev/zero"), stdout=subprocess.PIPE).stdout
        ) == len(data)

    def into() -> None:
        assert int(
            subprocess.run((*argv, "wc -c"), input=data, stdout=subprocess.PIPE).stdout
        ) == len(data)

    spent = in_turns({"out": out, "in": into})
    part = table.part("5. the embedded gateway")
    for way, seconds in spent.items():
        part.count(f"seconds for 100 MB {way}", median(seconds), at_most=3)


def test_many_refs(daytona: Apart, make_repo, table, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 refs in the sandbox: git's protocol v2, which the wrapper asks for in the command, has
    only those sent that are wanted; a push knows no v2, and is told all of them."""
    found = coordinator(make_repo("refs", 1, 1))
    started = found.start("ses_refs").session
    Api(daytona).execute(
        started.sandbox_id,
        'head=$(git rev-parse HEAD); seq -f "create '
        'refs/tags/a-name-as-long-as-names-are/%g $head" 5000 | git update-ref --stdin && '
        "git pack-refs --all",
    )
    transfers, repository, count = found.transfers, found.repository, itertools.count()

    def fetch(version: int) -> None:
        config = tuple(
            f"protocol.version={version}" if each.startswith("protocol.version=") else each
            for each in TRANSFER_CONFIG
        )
        monkeypatch.setattr(environment, "TRANSFER_CONFIG", config)
        transfers.fetch(repository, started.sandbox_id, ["+refs/heads/opencode:refs/bench/fetched"])

    def push() -> None:
        transfers.push(repository, started.sandbox_id, [f"HEAD:refs/heads/pushed-{next(count)}"])

    spent = in_turns({"v2": lambda: fetch(2), "v0": lambda: fetch(0), "push": push})
    part = table.part("5. a sandbox with 5,000 refs")
    part.ratio("fetch of one branch, protocol v2 : v0", spent["v2"], spent["v0"])
    part.ratio("push of one branch : fetch of one, v2", spent["push"], spent["v2"])


def test_inventory(daytona: Apart, make_repo, table) -> None:
    """The report before a deletion, in a sandbox with 100,000 objects and 5,000 entries of a
    reflog: beside a sync that finds nothing, and where each entry is a commit of its own."""
    found = coordinator(make_repo("inventory", 1, 1))
    started = found.start("ses_inventory").session
    api = Api(daytona)
    api.execute(
        started.sandbox_id,
        """awk 'BEGIN {
          for (c = 0; c < 3000; c++) {
            print "commit refs/heads/opencode\\ncommitter a <a@b> " c " +0000\\ndata 0"
            for (f = 0; f < 15; f++)
              print "M 100644 inline d" c % 100 "/e" f "/f" c "\\ndata <<E\\n" c f "\\nE"
          }
          for (c = 0; c < 5000; c++)
            print "commit refs/x\\nmark :" c + 1 "\\ncommitter a <a@b> " c " +0000\\ndata 0\\n"\\
              "from refs/heads/opencode"
        }' | git fast-import --quiet --force --export-marks=../marks; git update-ref -d refs/x
        git reset -q --hard; git rev-list --objects --all | wc -l; head=$(git rev-parse HEAD)
        for n in $(seq 5000); do echo "$head $head a <a@b> 1 +0000	x"; done >>.git/logs/HEAD""",
    )
    found.sync("ses_inventory")

    def report(known: list[str] | None) -> None:
        sandbox.report(found.cloud, started.sandbox_id, sandbox.CommitText(), known=known)

    spent = in_turns({"sync": lambda: report(None), "nothing": lambda: report([])})
    api.execute(
        started.sandbox_id,
        """awk '{ print $2, $2, "a <a@b> 1 +0000\\tx" }' ../marks >>.git/logs/HEAD""",
    )
    spent |= in_turns({"commits": lambda: report([])})
    part = table.part("5. an inventory of 100,000 objects and 5,000 entries of a reflog")
    part.ratio("nothing new : a sync without changes", spent["nothing"], spent["sync"], 5)
    part.ratio("5,000 commits of a reflog : the same", spent["commits"], spent["sync"], 10)
