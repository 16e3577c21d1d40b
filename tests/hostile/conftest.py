"""The fixtures of rig.py."""

from rig import begin, command, coordinate, local, repo, server

__all__ = ["begin", "command", "coordinate", "local", "repo", "server"]
