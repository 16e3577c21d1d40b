"""The fixtures of rig.py and wrapping.py."""

from support.round_trip import begin, command, coordinate, local, repo, server
from support.secret_search import canary, logged, traced
from support.wrapper import agent, config, sandbox, wrapper

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
