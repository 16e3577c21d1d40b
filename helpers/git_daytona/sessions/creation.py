"""What a session's sandbox is to be made with, from all who have a say in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from git_daytona.api.cloud import SandboxInfo
from git_daytona.sandbox.lifecycle import Mark
from git_daytona.sessions.forks import Origin
from git_daytona.settings.order import Order

LACKING = "the sandbox lacks {}: not set where it was made"
OWN_KEY = "the sandbox does not get {}, which holds Daytona's API key"


@dataclass(frozen=True)
class Wanted:
    """A sandbox to make, with what its session begins with."""

    mark: Mark
    order: Order
    origin: Origin
    """The session that it is a fork of."""
    dirty: bool
    """Whether the commit that it begins with has uncommitted work."""
    depth: int
    lost: Sequence[str]
    """What was ordered earlier, and is not known any more."""
    own: Sequence[str]
    """Variables that stay here, as they hold the API key."""

    def remark(self, info: SandboxInfo) -> str:
        """Say what a sandbox lacks of the order; empty for nothing."""
        # it may be of an earlier start, or a copy
        lost = [name for name in self.lost if name not in info.variables]
        lacks = ((LACKING, lost), (OWN_KEY, self.own))
        return "; ".join(text.format(", ".join(names)) for text, names in lacks if names)
