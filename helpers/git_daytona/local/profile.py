"""Which Daytona the embedded one behaves like: the newest that is known, or the last whose source was published."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """What differs from server to server. What all of them do is not here."""

    name: str
    lost_statuses: float
    """The share of SSH commands whose exit status the gateway loses (daytonaio/daytona#5027), as it was measured."""


CLOUD = Profile("cloud", lost_statuses=0.8)
"""Daytona's cloud, as far as its client library 0.226 and probes of it tell."""

V0_190 = Profile("0.190", lost_statuses=0.2)
"""The last published source, measured on its own components."""

PROFILES = {profile.name: profile for profile in (CLOUD, V0_190)}
