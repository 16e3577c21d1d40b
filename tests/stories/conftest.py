"""The fixtures of support/round_trip.py and program.py."""

from support.program import tell
from support.round_trip import begin, command, coordinate, local, repo, server

__all__ = ["begin", "command", "coordinate", "local", "repo", "server", "tell"]
