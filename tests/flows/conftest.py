"""The fixtures of rig.py and wrapping.py."""

from rig import begin, command, coordinate, local, repo, server
from wrapping import agent, config, sandbox, wrapper

__all__ = ["agent", "begin", "command", "config", "coordinate", "local", "repo", "sandbox", "server", "wrapper"]
