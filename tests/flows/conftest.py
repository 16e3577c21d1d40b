"""The fixtures of support/round_trip.py, secret_search.py and wrapper.py."""

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
