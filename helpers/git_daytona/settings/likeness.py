"""What a sandbox was ordered with, read from the API's description of it, as another order."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from git_daytona.base.secret import Secret
from git_daytona.settings.order import SIZES, Order, seen

INTERVALS = ("autoStopInterval", "autoArchiveInterval", "autoDeleteInterval")


def like(answer: Mapping[str, Any]) -> Order:
    """Return what makes another sandbox like the one that is described, but for its variables."""
    members: dict[str, Any] = dict(seen(answer))
    build = answer.get("buildInfo")
    content = build.get("dockerfileContent") if isinstance(build, dict) else None
    if isinstance(content, str) and content:
        members["buildInfo"] = {"dockerfileContent": content}
        members.pop("snapshot", None)
    else:  # a snapshot has its own size
        members = {name: each for name, each in members.items() if name not in SIZES}
    if "gpuType" in members:
        members["gpuType"] = [members["gpuType"]]
    for name in INTERVALS:
        minutes = answer.get(name)
        if isinstance(minutes, int | float) and not isinstance(minutes, bool):
            members[name] = int(minutes)
    if minutes := _lifetime(answer):
        members["ttlMinutes"] = minutes
    proxy = answer.get("outboundProxyUrl")
    if isinstance(proxy, str) and proxy:
        members["outboundProxyUrl"] = Secret(proxy)
    return Order(members)


def _lifetime(answer: Mapping[str, Any]) -> int:
    """Return how many minutes a sandbox has from its creation to its end; 0 for no end."""
    try:
        end, begin = (
            datetime.fromisoformat(answer[name]) for name in ("autoDestroyAt", "createdAt")
        )
        return max(1, round((end - begin).total_seconds() / 60))
    except (KeyError, TypeError, ValueError):
        return 0
