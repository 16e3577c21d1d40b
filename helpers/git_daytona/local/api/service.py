"""What the server says of itself: configuration (with the gateway's endpoint and keys), health, the
key's owner."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from git_daytona.local.api.snapshots import DEFAULT_SNAPSHOT
from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.wire import ORGANIZATION, timestamp

PERMISSIONS = ["write:sandboxes", "delete:sandboxes", "write:snapshots", "delete:snapshots"]


@dataclass
class Published:
    """What `GET /config` says of the gateway. Tests change it; it need not be the truth.

    `host_keys` None: what the gateway presents at that moment. A list of `<type> <base64>` lines is
    published with its fingerprints. `members` is laid over the answer as it is (any JSON);
    `without` names members that are left out.
    """

    host_keys: list[str] | None = None
    members: dict[str, Any] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)

    def nothing(self) -> None:
        """A server that knows its gateway but publishes no keys."""
        self.members |= {"sshGatewayHostKeys": [], "sshGatewayHostKeyFingerprints": []}

    def old_server(self, host: str, port: int) -> None:
        """A server from before the keys were published: a command template, and a key that is not
        the gateway's."""
        self.without |= {
            "sshGatewayHost",
            "sshGatewayPort",
            "sshGatewayHostKeys",
            "sshGatewayHostKeyFingerprints",
        }
        self.members |= gateway_of_old(host, port)

    def reset(self) -> None:
        """The truth again."""
        self.host_keys = None
        self.members.clear()
        self.without.clear()


def gateway_of_old(host: str, port: int) -> dict[str, str]:
    """How servers say where the gateway is that publish no host keys: a template, and the key it
    logs in to runners with."""
    other = base64.b64encode(
        b"\0\0\0\x0bssh-ed25519\0\0\0 " + hashlib.sha256(b"not the host key").digest()
    ).decode()
    return {
        "sshGatewayCommand": f"ssh -p {port} {{{{TOKEN}}}}@{host}",
        "sshGatewayPublicKey": base64.b64encode(f"ssh-ed25519 {other} gateway".encode()).decode(),
    }


@dataclass(frozen=True)
class Endpoints:
    """Where things listen, asked for at each call: ports are known only once they do."""

    origin: Callable[[], str]
    toolbox: Callable[[], str]
    ssh: Callable[[], tuple[str, int]]
    presented_keys: Callable[[], list[str]]


class Service:
    """Handlers of /config, /health, /api-keys/current and /organizations."""

    def __init__(self, published: Published, endpoints: Endpoints, since: float, profile: Profile):
        self._published = published
        self._endpoints = endpoints
        self._profile = profile
        self._since = timestamp(since)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/config", self.config, name="config"),
            web.get("/api/health", self.health, name="health"),
            web.get("/api/health/ready", self.health, name="health-ready"),
            web.get("/api/api-keys/current", self.current_key, name="key"),
            web.get("/api/organizations", self.organizations, name="organizations"),
            web.get("/api/organizations/{organization}", self.organization, name="organization"),
        ]

    async def config(self, request: web.Request) -> web.Response:
        origin, (host, port) = self._endpoints.origin(), self._endpoints.ssh()
        config: dict[str, Any] = {
            "version": "local",
            "oidc": {
                "issuer": origin,
                "clientId": "daytona-local",
                "audience": "daytona-local",
                "provider": "none",
            },
            "linkedAccountsEnabled": False,
            "announcements": {},
            "proxyTemplateUrl": origin,
            "proxyToolboxUrl": self._endpoints.toolbox(),
            "defaultSnapshot": DEFAULT_SNAPSHOT,
            "dashboardUrl": origin,
            "maxAutoArchiveInterval": 30 * 24 * 60,
            "maintananceMode": False,
            "environment": "local",
            "rateLimit": dict.fromkeys(
                ("failedAuth", "authenticated", "sandboxCreate", "sandboxLifecycle")
            ),
            **gateway_of_old(host, port),
        }
        if self._profile.publishes_host_keys or self._published.host_keys is not None:
            keys = (
                self._endpoints.presented_keys()
                if self._published.host_keys is None
                else self._published.host_keys
            )
            config |= {
                "sshGatewayHost": host,
                "sshGatewayPort": port,
                "sshGatewayHostKeys": keys,
                "sshGatewayHostKeyFingerprints": [fingerprint(key) for key in keys],
            }
        config |= self._published.members
        return json_response(
            {name: config[name] for name in config if name not in self._published.without}
        )

    async def health(self, request: web.Request) -> web.Response:
        return json_response({"status": "ok", "info": {}, "error": {}, "details": {}})

    async def current_key(self, request: web.Request) -> web.Response:
        return json_response(
            {
                "name": "daytona-local",
                "value": "dtn_********",
                "createdAt": self._since,
                "permissions": PERMISSIONS,
                "lastUsedAt": None,
                "expiresAt": None,
                "userId": "local",
                "organizationId": ORGANIZATION,
            }
        )

    async def organizations(self, request: web.Request) -> web.Response:
        return json_response([self._organization()])

    async def organization(self, request: web.Request) -> web.Response:
        if request.match_info["organization"] != ORGANIZATION:
            raise ApiError(
                404, f"Organization with ID {request.match_info['organization']} not found"
            )
        return json_response(self._organization())

    def _organization(self) -> dict[str, Any]:
        limits = dict.fromkeys(
            (
                "maxCpuPerSandbox",
                "maxMemoryPerSandbox",
                "maxDiskPerSandbox",
                "secretQuota",
                "maxSecretsPerSandbox",
            ),
            0,
        )
        flags = dict.fromkeys(
            (
                "suspended",
                "sandboxLimitedNetworkEgress",
                "previewWarningEnabled",
                "ssoEnabled",
                "scimEnabled",
            ),
            False,
        )
        # Null stands for the server's default; the Python client insists that the members are
        # there.
        rates = dict.fromkeys(
            f"{what}RateLimit{unit}"
            for what in ("authenticated", "sandboxCreate", "sandboxLifecycle")
            for unit in ("", "TtlSeconds")
        )
        return {
            "id": ORGANIZATION,
            "name": "daytona-local",
            "createdBy": "local",
            "personal": True,
            "createdAt": self._since,
            "updatedAt": self._since,
            "suspendedAt": self._since,
            "suspensionReason": "",
            "suspendedUntil": self._since,
            "suspensionCleanupGracePeriodHours": 0,
            "snapshotDeactivationTimeoutMinutes": 0,
            "defaultQueueTimeout": None,
            "experimentalConfig": {},
            "otelConfig": None,
            **limits,
            **flags,
            **rates,
        }


def fingerprint(key: str) -> str:
    """`SHA256:…` of a `<type> <base64>` line, as ssh-keygen prints it; of anything else, the text
    it was made from is hashed."""
    try:
        blob = base64.b64decode(key.split()[1], validate=True)
    except (IndexError, ValueError):
        blob = key.encode()
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
