"""4. What grows: with the sessions on record, with the sandboxes that sync at once, with the calls
that the service has answered."""

import base64
import functools
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.measure import in_turns, launch, median, memory, timed
from support.plugin_calls import PROJECT, Api, change
from support.population import populate
from support.separate_server import Apart
from support.service import Service
from support.suite import coordinator

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

SIZES = (10, 100, 1000, 5000)
AT_ONCE = (1, 8, 32)
MEGABYTE = 1_000_000


def test_with_many_sessions(daytona: Apart, make_repo, table) -> None:
    api = Api(daytona)
    repos = {size: make_repo(f"with-{size}") for size in SIZES}
    coordinators = {size: populate(repo, size) for size, repo in repos.items()}

    def start(size: int) -> float:
        """And delete it, which is not measured."""
        spent = timed(lambda: coordinators[size].start("ses_new"))
        coordinators[size].delete("ses_new")
        coordinators[size].close()
        return spent

    def sync(size: int) -> float:
        session = coordinators[size].state.get("ses_kept")
        assert session is not None
        change(api, session.sandbox_id)
        spent = timed(lambda: coordinators[size].sync("ses_kept"))
        coordinators[size].close()
        return spent

    for size in SIZES:
        coordinators[size].start("ses_kept")
        sync(size)
    operations = {
        "state update": lambda size: coordinators[size].state.touch("ses_old5"),
        "status": lambda size: launch("git-daytona", "status", "--offline", cwd=repos[size].path),
        "start": start,
        "sync with changes": sync,
    }
    spent = {
        name: in_turns({str(size): functools.partial(work, size) for size in SIZES})
        for name, work in operations.items()
    }
    part = table.part("4. growth: with so many sessions, branches and remotes : with 10")
    for name in operations:
        for size in SIZES[1:]:
            bound = 3 if (name, size) == ("state update", SIZES[-1]) else None
            part.ratio(
                f"{name} with {size}", spent[name][str(size)], spent[name][str(SIZES[0])], bound
            )


def test_many_sandboxes_at_once(daytona: Apart, make_repo, table) -> None:
    """Syncs with changes at 100 ms, in one process as the service makes them."""
    api, found = Api(daytona), coordinator(make_repo("repository"))
    names = [f"ses_{number}" for number in range(max(AT_ONCE))]
    with ThreadPoolExecutor(8) as pool:
        sandboxes = list(pool.map(lambda name: found.start(name).session.sandbox_id, names))

    def seconds_each(count: int) -> float:
        """Of so many at once; one after another, of six."""
        chosen = range(6) if count == 1 else range(count)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: change(api, sandboxes[number]), chosen))
        daytona.latency(100)
        begun = own_cpu(), daytona.cpu
        with ThreadPoolExecutor(count) as pool:
            spent = timed(lambda: list(pool.map(lambda number: found.sync(names[number]), chosen)))
        found.close()
        cpu.append(((own_cpu() - begun[0]) / len(chosen), (daytona.cpu - begun[1]) / len(chosen)))
        daytona.latency(0)
        return spent / len(chosen)

    cpu: list[tuple[float, float]] = []
    seconds_each(8)
    cpu.clear()
    spent = in_turns({str(count): functools.partial(seconds_each, count) for count in AT_ONCE})
    part = table.part("4. growth: throughput of syncs with changes at 100 ms : one after another")
    for count in AT_ONCE[1:]:
        value = median(a / b for a, b in zip(spent["1"], spent[str(count)], strict=True))
        rates = f"{1 / median(spent[str(count)]):.1f} : {1 / median(spent['1']):.1f} a second"
        part.count(
            f"{count} sandboxes at once", value, at_least=6 if count == 32 else None, detail=rates
        )
    # What bounds it: all of this runs on the same processors.
    ours, theirs = (median(each) * 1000 for each in zip(*cpu, strict=True))
    part.count("milliseconds of CPU for one sync, git and ssh included", ours)
    part.count("milliseconds of CPU that the embedded Daytona takes for it", theirs)


def own_cpu() -> float:
    """Seconds of CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def test_memory_of_the_service(daytona: Apart, make_repo, table) -> None:
    """After 1,000 and 10,000 calls. The sandbox's answers are made up, so that the service is what
    is busy."""
    service = Service(make_repo("repository", files=3))
    path, names = (
        base64.b64encode(each).decode() for each in (PROJECT.encode(), b"README\0src/code.py\0")
    )
    try:
        service.calls(1)
        answer = {"exitCode": 0, "result": f"directory\n{path}\n{names}\nend\n"}
        daytona.answer("^process/execute$", json.dumps(answer).encode())
        service.calls(999)
        # what the calls left behind is put away: nothing tells when, and it is a measurement, not a
        # check
        time.sleep(1)
        begun, first = time.perf_counter(), memory(service.process.pid, "VmRSS")
        service.calls(9000)
        spent = time.perf_counter() - begun
        time.sleep(1)
        last = memory(service.process.pid, "VmRSS")
    finally:
        daytona.forget()
        service.close()
    part = table.part("4. growth: memory of the service")
    detail = f"{first / MEGABYTE:.1f} to {last / MEGABYTE:.1f} MB, {spent / 9:.2f} ms a call"
    part.count(
        "MB from tool call 1,000 to 10,000", (last - first) / MEGABYTE, at_most=5, detail=detail
    )
