"""What a sandbox is ordered with: one table of options, for command lines, git's configuration and
the API's request.

Of the places where a user orders, each later one wins: the snapshot of ``.env``, git's
configuration, the environment, the command line. Nothing else of a repository's files decides.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, TypeVar
from urllib.parse import urlsplit

from git_daytona.base.errors import BadSetting, GitDaytonaError, UsageError
from git_daytona.base.secret import Secret, printable
from git_daytona.settings.preferences import ENV, SECRETS, Preferences
from git_daytona.settings.settings import Settings

T = TypeVar("T")
Kind = type[UsageError] | type[BadSetting]
"""What is raised: of a command line the one, of a setting the other."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""A variable's name, as Daytona takes it."""
KEY = "DAYTONA_API_KEY"
OWN_OF_SANDBOX = ("HOME", "PATH")


# -- how a text is read: ValueError says what is wrong with it ------------------------------------


def _whole(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"is no whole number from {least} to {most}")
    return int(text)


def _word(text: str) -> str:
    if not re.fullmatch(r"[!-~]{1,500}", text):
        raise ValueError("is empty, too long, or holds blanks")
    return text


def _switch(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() not in ("false", "no", "off", "0", ""):
        raise ValueError("is neither true nor false")
    return False


def _list(text: str, each: str = ".+", what: str = "") -> list[str]:
    """Read words of a form, separated by blanks or commas."""
    found = text.replace(",", " ").split()
    if not found:
        raise ValueError("names nothing")
    if not all(re.fullmatch(each, word) for word in found):
        raise ValueError(f"is no list of {what}")
    return found


def _image(text: str) -> dict[str, str]:
    return {"dockerfileContent": f"FROM {_word(text)}\n"}


def _gpu_types(text: str) -> list[str]:
    return _list(text.upper(), "[A-Z0-9-]{1,40}", "types such as H100 or RTX-4090")


def _networks(text: str) -> str:
    import ipaddress  # which few starts need

    try:
        return ",".join(str(ipaddress.IPv4Network(each)) for each in _list(text))
    except ValueError as problem:
        raise ValueError(f"is no list of IPv4 networks such as 10.0.0.0/8: {problem}") from None


def _domains(text: str) -> str:
    label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    what = "domains such as example.com or *.example.com"
    return ",".join(_list(text, rf"(\*\.)?({label}\.)*{label}", what))


def _proxy(text: str) -> str | Secret:
    """Read a URL; one that holds a password is a Secret."""
    parts = urlsplit(_word(text))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no http(s) URL")
    return Secret(text) if "@" in text else text


@dataclass(frozen=True)
class Option:
    """One thing that can be ordered."""

    name: str
    """On command lines, without its dashes."""
    key: str
    """In git's configuration."""
    member: str
    """In the API's request to create a sandbox."""
    metavar: str
    help: str
    read: Callable[[str], Any]
    """Makes the member's value of a text; raises ValueError with what is wrong with that."""
    variable: str = ""
    """The environment variable that comes before git's configuration."""

    @property
    def is_switch(self) -> bool:
        return self.read is _switch


def _number(least: int, most: int) -> Callable[[str], int]:
    return partial(_whole, least=least, most=most)


YEAR = 366 * 24 * 60
OPTIONS = (
    Option(
        *("snapshot", "daytona.snapshot", "snapshot", "NAME"),
        *("The snapshot that the sandbox is made from.", _word, "DAYTONA_SNAPSHOT"),
    ),
    Option(
        *("image", "daytona.image", "buildInfo", "IMAGE"),
        *("The image that the sandbox is made from, instead of a snapshot.", _image),
    ),
    Option(
        *("target", "daytona.target", "target", "REGION"),
        *("The region that the sandbox is in.", _word, "DAYTONA_TARGET"),
    ),
    Option("cpu", "daytona.cpu", "cpu", "COUNT", "Cores; with --image.", _number(1, 1024)),
    Option("memory", "daytona.memory", "memory", "GB", "Memory; with --image.", _number(1, 65536)),
    Option("disk", "daytona.disk", "disk", "GB", "Disk; with --image.", _number(1, 65536)),
    Option("gpu", "daytona.gpu", "gpu", "COUNT", "GPUs; with --image.", _number(0, 64)),
    Option(
        *("gpu-type", "daytona.gpuType", "gpuType", "TYPES"),
        *("Types of GPU, the preferred one first: H100,H200.", _gpu_types),
    ),
    Option(
        *("spot", "daytona.spot", "spot", ""),
        *("A GPU sandbox that may be destroyed for those who pay more.", _switch),
    ),
    Option(
        *("auto-stop", "daytona.autoStop", "autoStopInterval", "MINUTES"),
        *("Idle minutes after which it stops; 0: never.", _number(0, YEAR)),
    ),
    Option(
        *("auto-archive", "daytona.autoArchive", "autoArchiveInterval", "MINUTES"),
        *("Minutes after its stop when it is archived; 0: as late as may be.", _number(0, 43200)),
    ),
    Option(
        *("auto-delete", "daytona.autoDelete", "autoDeleteInterval", "MINUTES"),
        *("Minutes after its stop when it is deleted; 0: at once; -1: never.", _number(-1, YEAR)),
    ),
    Option(
        *("ttl", "daytona.ttl", "ttlMinutes", "MINUTES"),
        *("Minutes after which it is destroyed, in use or not; 0: never.", _number(0, YEAR)),
    ),
    Option(
        *("block-network", "daytona.blockNetwork", "networkBlockAll", ""),
        *("No connections from the sandbox to anywhere.", _switch),
    ),
    Option(
        *("allow-networks", "daytona.allowNetworks", "networkAllowList", "CIDRS"),
        *("The only networks it may connect to: 10.0.0.0/8,192.0.2.7/32.", _networks),
    ),
    Option(
        *("allow-domains", "daytona.allowDomains", "domainAllowList", "DOMAINS"),
        *("The only domains it may connect to: example.com,*.example.org.", _domains),
    ),
    Option(
        *("outbound-proxy", "daytona.outboundProxy", "outboundProxyUrl", "URL"),
        *("The proxy for its HTTP connections.", _proxy, "DAYTONA_OUTBOUND_PROXY"),
    ),
)
BY_MEMBER = {each.member: each for each in OPTIONS}
KEYS = (*(each.key for each in OPTIONS), ENV, SECRETS)
SIZES = ("cpu", "memory", "disk", "gpu", "gpuType", "spot")
_OUSTS = {"snapshot": ("buildInfo", *SIZES), "buildInfo": ("snapshot",)}
"""What the later one of two orders takes away of the earlier one."""


@dataclass(frozen=True)
class Order:
    """What of a sandbox was ordered. Values of variables are never shown."""

    members: Mapping[str, Any] = field(default_factory=dict)
    """Of the API's request; a Secret where it may hold a password."""
    env: Mapping[str, Secret] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    """Variables to take from the user's environment, when the sandbox is made."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variable → the name of a secret in Daytona's vault."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Member → where it was ordered, as messages name that."""

    def __bool__(self) -> bool:
        return bool(self.members or self.env or self.inherit or self.secrets)

    def over(self, earlier: "Order") -> "Order":
        """Return both in one; where they differ, this one counts."""
        ousted = {name for each in self.members for name in _OUSTS.get(each, ())}
        own = {*self.env, *self.inherit, *self.secrets}
        inherit = (name for name in earlier.inherit if name not in own)
        return Order(
            {**_without(earlier.members, ousted), **self.members},
            {**_without(earlier.env, own), **self.env},
            (*inherit, *self.inherit),
            {**_without(earlier.secrets, own), **self.secrets},
            {**earlier.sources, **self.sources},
        )

    def with_env(self, more: Mapping[str, Secret]) -> "Order":
        """Return it with more variables, which count. Raises UsageError for a bad name or value."""
        for name, value in more.items():
            _check_variable(name, value)
        return Order(env=dict(more)).over(self)

    def body(self) -> dict[str, Any]:
        """Return what the API's request says of it. Values are revealed where that is written."""
        more = {"env": dict(self.env), "secrets": [dict([each]) for each in self.secrets.items()]}
        return {**self.members, **{name: each for name, each in more.items() if each}}

    def record(self) -> dict[str, Any]:
        """Return all of it but values that may be secret, as JSON; ``Order.recorded`` reads it."""
        hidden = [name for name, each in self.members.items() if isinstance(each, Secret)]
        members = {name: each for name, each in self.members.items() if name not in hidden}
        found = {"members": members, "inherit": list(self.inherit), "secrets": dict(self.secrets)}
        found["lost"] = [*self.env, *hidden]
        return {name: each for name, each in found.items() if each}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> "tuple[Order, list[str]]":
        """Read a record; return the order, and the names of what it lacks."""

        def part(name: str, kind: type[T]) -> T:
            found = record.get(name)
            return found if isinstance(found, kind) else kind()

        members = {name: each for name, each in part("members", dict).items() if name in BY_MEMBER}
        inherit = tuple(filter(VARIABLE.fullmatch, map(str, part("inherit", list))))
        secrets = {name: str(each) for name, each in part("secrets", dict).items()}
        return cls(members, {}, inherit, secrets), list(map(str, part("lost", list)))

    def settled(self) -> "tuple[Order, list[str]]":
        """Take the variables to inherit from the environment; return the order, and the names of
        those that are unset. Raises UsageError for what cannot be ordered."""
        self._check()
        if KEY in self.inherit:
            raise UsageError(
                f"{KEY} is not taken along: whatever runs in a sandbox could use your account",
                hint="make a key for that alone, and give it by --env-file",
            )
        unset = [name for name in self.inherit if name not in os.environ]
        found = {name: Secret(os.environ[name]) for name in self.inherit if name not in unset}
        return replace(self, inherit=()).with_env(found), unset

    def without(self, key: Secret) -> "tuple[Order, list[str]]":
        """Leave out variables that hold the API key, as many a .env does; return which."""
        found = [name for name, each in self.env.items() if key.reveal() in each.reveal()]
        kept = {name: each for name, each in self.env.items() if name not in found}
        return replace(self, env=kept), found

    def applied(self, found: Settings) -> Settings:
        """Return the settings with the snapshot and target that count."""
        changes: dict[str, Any] = {name: self.members.get(name) for name in ("snapshot", "target")}
        told = changes.keys() & self.sources.keys()
        sources = {BY_MEMBER[name].variable: self.sources[name] for name in told}
        return replace(found, **changes, sources={**found.sources, **sources})

    def _check(self) -> None:
        sizes = [BY_MEMBER[name] for name in SIZES if self.members.get(name)]
        if sizes and "buildInfo" not in self.members:
            raise UsageError(
                f"{sizes[0].name} cannot be ordered for a snapshot, which has its own size",
                hint="name an image: --image IMAGE, or git config daytona.image IMAGE",
            )
        if "buildInfo" in self.members and "snapshot" in self.members:
            raise UsageError(
                "a sandbox is made from a snapshot or from an image, not from both",
                hint="leave one of them out: 'git daytona config' shows where each is set",
            )


NOTHING = Order()


def seen(answer: Mapping[str, Any]) -> dict[str, str | int | bool]:
    """Read what an API's description of a sandbox says of an order, but passwords."""
    found = {name: answer.get(name) for name, each in BY_MEMBER.items() if each.read is not _proxy}
    return {
        name: printable(each)[:500] if isinstance(each, str) else each
        for name, each in found.items()
        if isinstance(each, str | int) and each not in ("", False)
    }


def line(members: Mapping[str, str | int | bool]) -> str:
    """Return what ``seen`` found as people order it: ``cpu 2, auto-stop 15, block-network``."""
    words = {BY_MEMBER[name].name: each for name, each in members.items() if name in BY_MEMBER}
    return ", ".join(name if each is True else f"{name} {each}" for name, each in words.items())


def _without(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _check_variable(name: str, value: Secret) -> None:
    if not VARIABLE.fullmatch(name):
        raise UsageError(
            f"'{printable(name)[:80]}' is no name of an environment variable",
            hint="letters, digits and _ make one, and no digit is its first",
        )
    if name in OWN_OF_SANDBOX:
        raise UsageError(
            f"the variable {name} is the sandbox's own: without it nothing runs there",
            hint=f"leave it out; change it there, in a command: {name}=… COMMAND",
        )
    if re.search("[\0\ud800-\udfff]", value.reveal()):
        hint = "it has to be UTF-8 without NUL"
        raise UsageError(f"the value of the variable {name} is no text", hint=hint)


# -- where orders come from ------------------------------------------------------------------------


def given(
    options: Mapping[str, str],
    *,
    env: Iterable[str] = (),
    files: Iterable[Mapping[str, Secret]] = (),
    secrets: Iterable[str] = (),
) -> Order:
    """Read what a command line orders: texts by the names of OPTIONS, words ``NAME=VALUE`` or
    ``NAME``, what files held, and words ``NAME`` or ``NAME=SECRET``. Raises UsageError."""
    members, sources = {}, {}
    for each in OPTIONS:
        if each.name in options:
            members[each.member] = _read(each, options[each.name], f"--{each.name}", UsageError)
            sources[each.member] = f"--{each.name}"
    order = reduce(Order.with_env, files, Order(members, sources=sources))
    for word in env:
        name, is_given, value = word.partition("=")
        more = NOTHING.with_env({name: Secret(value)})
        if not is_given and name not in os.environ:
            hint = "set it and export it; or put its value into a file, for --env-file"
            raise UsageError(f"the environment variable {name} is not set here", hint=hint)
        order = (more if is_given else Order(inherit=(name,))).over(order)
    return Order(secrets=_vault(secrets, UsageError)).over(order)


def configured(preferred: Preferences) -> Order:
    """Read what git's configuration orders. Raises BadSetting."""
    members, sources = {}, {}
    for each in OPTIONS:
        if preference := preferred.get(each.key):
            if not preference.value.strip() and not each.is_switch:
                continue  # as git has it: an empty value takes back what a wider scope says
            members[each.member] = _read(each, preference.value, each.key, BadSetting)
            sources[each.member] = f"{each.key}, {preference.source}"
    secrets = _vault(_words(preferred, SECRETS), BadSetting)
    return Order(members, {}, _names(preferred), secrets, sources)


def problems(preferred: Preferences) -> list[GitDaytonaError]:
    """Return what is wrong with git's configuration, of what it orders first."""
    try:
        configured(preferred)
    except GitDaytonaError as problem:
        return [problem, *preferred.check()]
    return preferred.check()


def may_be_secret(key: str, text: str) -> bool:
    """Whether git's configuration has a value where it should not be."""
    return "=" in text if key == ENV else "@" in text


def _words(preferred: Preferences, key: str) -> list[str]:
    preference = preferred.get(key)
    return preference.value.replace(",", " ").split() if preference else []


def _names(preferred: Preferences) -> tuple[str, ...]:
    found = _words(preferred, ENV)
    for each in found:
        if not VARIABLE.fullmatch(each):
            hint = "git's configuration is no place for values: set them in your environment"
            raise BadSetting(f"{ENV} holds more than names of environment variables", hint=hint)
    return tuple(dict.fromkeys(found))


def _vault(words: Iterable[str], kind: Kind) -> dict[str, str]:
    found = {}
    for word in words:
        name, _, secret = word.partition("=")
        secret = secret or name
        if not VARIABLE.fullmatch(name) or not re.fullmatch("[A-Za-z0-9_-]{1,200}", secret):
            hint = "name one: NAME, or VARIABLE=NAME"
            raise kind(f"'{printable(word)[:80]}' names no secret of Daytona's vault", hint=hint)
        found[name] = secret
    return found


def _read(option: Option, text: str, source: str, kind: Kind) -> Any:
    try:
        value = option.read(text.strip())
    except ValueError as problem:
        hidden = may_be_secret(option.key, text)
        shown = "not to be shown" if hidden else f"'{printable(text)[:80]}'"
        hint = f"see {option.key} in git-daytona(1)"
        raise kind(f"{source} is {shown}, which {problem}", hint=hint) from None
    if isinstance(value, Secret) and source != option.variable:
        raise kind(
            f"{source} holds a user name or password", hint=f"set it in {option.variable} instead"
        )
    return value


def combined(preferred: Preferences, found: Settings, ordered: Order = NOTHING) -> Order:
    """Return all that a user orders. Raises BadSetting."""
    members, sources = {}, {}
    for each in OPTIONS:
        if each.variable and (text := os.environ.get(each.variable, "").strip()):
            members[each.member] = _read(each, text, each.variable, BadSetting)
            sources[each.member] = f"the environment variable {each.variable}"
    dotenv = NOTHING
    if found.snapshot and "snapshot" not in members:
        dotenv = Order({"snapshot": found.snapshot})
    environment = Order(members, sources=sources)
    return ordered.over(environment.over(configured(preferred).over(dotenv)))


def applied(found: Settings, preferred: Preferences) -> Settings:
    """Return the settings with the snapshot and region that count, if those can be read."""
    with suppress(GitDaytonaError):
        return combined(preferred, found).applied(found)
    return found
