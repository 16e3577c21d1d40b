"""Which Daytona the embedded one behaves like: the newest that is known, or the last whose source
was published."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """What differs from server to server; by default the cloud's. What all do is elsewhere."""

    name: str
    lost_statuses: float
    """The share of SSH commands whose exit status the gateway loses (daytonaio/daytona#5027), as it
    was measured."""
    publishes_host_keys: bool = True
    """`/config` has the gateway's host, port and host keys; else a command template and a key that
    is not the host's."""
    newer_calls: bool = True
    """There are files/upload-v2, signed file links, process/pty/create-connect, system/metrics and
    the later git calls."""
    coded_errors: bool = True
    """Errors name their source and a code of their own kind, and those of files and terminals have
    the envelope of all others."""
    full_listings: bool = True
    """A file's entry has its path, a list goes as deep as it is asked to, a sandbox shows what
    newer clients know of it."""
    ended_sessions_refuse: bool = True
    """A session whose shell has ended refuses commands; else they hang until it is deleted."""


CLOUD = Profile("cloud", lost_statuses=0.8)
"""Daytona's cloud, as far as its client library 0.226 and probes of it tell."""

V0_190 = Profile(
    "0.190",
    lost_statuses=0.2,
    publishes_host_keys=False,
    newer_calls=False,
    coded_errors=False,
    full_listings=False,
    ended_sessions_refuse=False,
)
"""The last published source, measured on its own components."""

PROFILES = {profile.name: profile for profile in (CLOUD, V0_190)}
