"""The calls about a sandbox as a whole: its directories, the version of what serves it, and what it
uses."""

import asyncio
import os
import shutil
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import HOME
from git_daytona.local.toolbox.call import Call


async def home(call: Call) -> web.Response:
    """GET work-dir and user-home-dir."""
    return json_response({"dir": HOME})


async def server_version(call: Call) -> web.Response:
    """GET version: of git-daytona, marked as local."""
    try:
        number = version("git-daytona")
    except PackageNotFoundError:
        number = "0"
    return json_response({"version": f"v{number}-local"})


async def metrics(call: Call) -> web.Response:
    """GET system/metrics: of the machine that the sandbox shares. Bytes; what is not measured is
    0."""
    disk = await asyncio.to_thread(shutil.disk_usage, call.sandbox.home)
    page = os.sysconf("SC_PAGE_SIZE")
    memory = os.sysconf("SC_PHYS_PAGES") * page
    free = os.sysconf("SC_AVPHYS_PAGES") * page if "SC_AVPHYS_PAGES" in os.sysconf_names else memory
    now = datetime.now(UTC)
    return json_response(
        {
            "cpuCount": os.cpu_count() or 1,
            "cpuUsedPct": 0.0,
            "memTotal": memory,
            "memUsed": memory - free,
            "memCache": 0,
            "diskTotal": disk.total,
            "diskUsed": disk.used,
            "diskFree": disk.free,
            "timestamp": now.isoformat().replace("+00:00", "Z"),
            "timestampUnix": int(now.timestamp()),
        }
    )
