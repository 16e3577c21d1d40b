"""The fixtures of rig.py and installed.py."""

from installed import installed
from rig import begin, command, coordinate, local, repo, server

__all__ = ["begin", "command", "coordinate", "installed", "local", "repo", "server"]
