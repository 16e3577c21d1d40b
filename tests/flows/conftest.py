"""The fixtures of rig.py and wrapping.py."""

from leaks import canary, logged, traced
from rig import begin, command, coordinate, local, repo, server
from wrapping import agent, config, sandbox, wrapper

__all__ = [
    "agent",
    "begin",
    "canary",
    "command",
    "config",
    "coordinate",
    "local",
    "logged",
    "repo",
    "sandbox",
    "server",
    "traced",
    "wrapper",
]
