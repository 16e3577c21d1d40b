"""Agents that are not OpenCode: their hooks, and their configuration."""
