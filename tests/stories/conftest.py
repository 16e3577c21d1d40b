"""The fixtures of rig.py and told.py."""

from rig import begin, command, coordinate, local, repo, server
from told import tell

__all__ = ["begin", "command", "coordinate", "local", "repo", "server", "tell"]
