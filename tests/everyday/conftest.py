"""The fixtures of support/round_trip.py and support/installation.py."""

from support.installation import installed
from support.round_trip import begin, command, coordinate, local, repo, server

__all__ = ["begin", "command", "coordinate", "installed", "local", "repo", "server"]
