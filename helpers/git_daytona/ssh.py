"""``daytona-ssh``: a GIT_SSH wrapper that runs OpenSSH with a sandbox's token as the user, and
nothing else but what is pinned. Where nobody has told it a gateway and the host is a sandbox's
name, it becomes the program that finds, starts and leases that (cli/daytona_ssh.py), and is started
by it again.

Standard library only, nothing of this package, one file: git starts it for every connection. The
coordinator tells it what to do through the environment:

- ``DAYTONA_SSH_GATEWAY``: ``host[:port]`` (IPv6 in brackets) of the gateway; other destinations are
  left to the user's own ssh
- ``DAYTONA_SSH_TOKEN_FD``: an inherited descriptor that holds the token (read from its start), or
  ``DAYTONA_SSH_TOKEN``: the token itself (``daytona-token exec``)
- ``DAYTONA_SSH_LIFELINE_FD``: an inherited pipe whose other end the coordinator holds: when that is
  killed, ssh is ended
- ``DAYTONA_SSH_REPORT_FD``: an inherited pipe for what became of the connection (``_Report``)
- ``DAYTONA_SSH_TRUST_FILE``: the only known_hosts file to trust; unset: ssh's own verification
- ``DAYTONA_SSH_TRUST_NAME``: the name to look up in it (HostKeyAlias)
- ``DAYTONA_SSH_SESSION``: ssh's options for what is no command (``-s``, ``-W PLACE``), as words of
  a shell
- ``DAYTONA_SSH_MORE``: further options of ssh, as words of a shell, which count before ours
- ``DAYTONA_SSH_BINARY``: absolute path of the OpenSSH client, else ``ssh`` on PATH
- ``DAYTONA_SSH_CLIENT_FILE``: keeps which options that client does not know (``left_out``)
- ``DAYTONA_SSH_OTHER_COMMAND``: the user's own GIT_SSH_COMMAND or core.sshCommand (a shell command)
  for other destinations, or ``DAYTONA_SSH_OTHER_PROGRAM``: the user's own GIT_SSH (a program)
- ``DAYTONA_SSH_OTHER_VARIANT``: the user's own GIT_SSH_VARIANT or ssh.variant

Every ``DAYTONA_*`` variable ends here: neither ssh nor anything it starts sees one.

The gateway often loses a command's exit status (daytonaio/daytona#5027: all output, a clean end,
and OpenSSH's 255), drops its stderr and takes no environment. So the remote command reports itself
how it ended: behind its output comes a mark that nobody can guess, its status, and the end of its
stderr (``remote_command``), which are taken off the stream here (``Ending``). A stream without them
was cut, whatever ssh's own status is.
"""

import contextlib
import errno
import os
import pwd
import re
import select
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

# What is seldom needed is imported where it is: this starts for every connection.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

EXIT_USAGE = 2
EXIT_MISSING = 12
EXIT_SETTING = 13
EXIT_UNKNOWN = 255
"""As of ssh itself: the connection did not come about, or ended before the command did."""

# As base/errors.py has them; see git-daytona-errors(7).
_ENTRIES = {
    EXIT_USAGE: "usage",
    EXIT_MISSING: "missing-program",
    EXIT_SETTING: "bad-setting",
    EXIT_UNKNOWN: "connection-closed",
}

STDERR_BYTES = 8192
"""How much of a remote command's stderr is brought back: the end of it."""
SSH_STDERR_BYTES = 16 * 1024
"""How much of ssh's own stderr is reported: the end of it."""
HOLD_SECONDS = 0.2
"""How long a few bytes that may begin the mark are held back from whoever waits for output."""
CHUNK_BYTES = 256 * 1024

# Options of ssh that take a value. git uses -4, -6, -o, -p and, as a probe, -G (connect.c,
# push_ssh_options); the others are for people who use the wrapper by hand.
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"

# Everything that an option could do to this connection and must not: the command line beats every
# configuration file. None of it is secret. OpenSSH 8.7 is the oldest that knows them all.
_OPTIONS = (
    # no prompts, no other way in than the token
    "BatchMode=yes PreferredAuthentications=none PubkeyAuthentication=no"
    " PasswordAuthentication=no KbdInteractiveAuthentication=no IdentitiesOnly=yes"
    " IdentityAgent=none IdentityFile=none"
    " EscapeChar=none"
    # no more trust than we were given
    " StrictHostKeyChecking=yes UpdateHostKeys=no CheckHostIP=no"
    # ends, if nobody answers
    " ConnectTimeout=30 ServerAliveInterval=15 ServerAliveCountMax=4"
    # -v and LogLevel DEBUG print the user name, which is the token
    " LogLevel=ERROR"
)
# The same of what is OpenSSH's default anyway: one plain session over a connection of its own. A
# client that does not know one of these is not given it (``unknown``), and loses nothing by it.
_DEFAULTS = (  # noqa: SIM905 — a list of words
    "GSSAPIAuthentication=no HostbasedAuthentication=no PKCS11Provider=none AddKeysToAgent=no"
    " ControlMaster=no ControlPath=none ControlPersist=no RemoteCommand=none RequestTTY=no"
    " SessionType=default StdinNull=no ForkAfterAuthentication=no PermitLocalCommand=no"
    " ClearAllForwardings=yes ExitOnForwardFailure=no ForwardAgent=no ForwardX11=no Tunnel=no"
    " CanonicalizeHostname=no VerifyHostKeyDNS=no NoHostAuthenticationForLocalhost=no"
    " ConnectionAttempts=1 LogVerbose=none VisualHostKey=no"
).split()

# Trust in the pinned modes: one file and one name. (In inherited mode the user's own files and
# KnownHostsCommand count.)
_PINNED = ("GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none")

# What a user's configuration does have a say in, by the names that `ssh -G` prints: the way to the
# gateway, the algorithms and the line's quality. Nothing else has an effect, whatever a later
# OpenSSH invents. Not HostKeyAlgorithms: naming some makes ssh offer them in that order instead of
# the trusted keys' types first, and so refuse a gateway that has several keys.
_HONOURED = (
    "addressfamily bindaddress bindinterface casignaturealgorithms ciphers compression ipqos"
    " kexalgorithms macs proxyusefdpass rekeylimit requiredrsasize tcpkeepalive"
)

# How a person names a sandbox: 1, sandbox-1, opencode/1 (no host has a slash), an id.
_SANDBOX = re.compile(
    r"(sandbox-|[^/\s]+/)?[1-9][0-9]{0,8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)

# Signals that end ssh along with us.
_PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Refusal(Exception):
    """Something that is wrong before ssh runs: exit status, what happened, what to do."""

    def __init__(self, status: int, message: str, hint: str):
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


class CommandLine:
    """git's arguments, taken apart: options as (letter, value), host, remote command."""

    def __init__(self, argv: list[str]):
        self.argv = argv
        self.options, self.operands = options_and_operands(argv)
        words = self.operands[1:] if self.operands[:1] == ["--"] else self.operands
        self.host = words[0].rsplit("@", 1)[-1] if words else ""
        # `ssh host -- command` is how people write it by hand.
        self.rest = words[2:] if words[1:2] == ["--"] else words[1:]
        last = dict(self.options)
        self.port = last.get("p", "22")
        self.probe = "G" in last
        self.terminal = "t" in last
        self.family = [f"-{letter}" for letter, _ in self.options if letter in "46"][-1:]
        spelled = [(letter, value.replace(" ", "=", 1).lower()) for letter, value in self.options]
        self.sends_protocol = ("o", "sendenv=git_protocol") in spelled

    def is_for(self, gateway: str) -> bool:
        """Tell whether the destination is the gateway (``host[:port]``)."""
        host, port = split_authority(gateway)
        return bool(host) and self.host.strip("[]").lower() == host.lower() and self.port == port


def options_and_operands(argv: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split ssh's arguments as its getopt(3) does, up to the first that is no option."""
    options, words = [], list(argv)
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        letters = words.pop(0)[1:]
        while letters:
            letter, value, letters = letters[0], "", letters[1:]
            if letter in _WITH_VALUE:
                value = letters or (words.pop(0) if words else "")
                letters = ""
            options.append((letter, value))
    return options, words


def split_authority(text: str) -> tuple[str, str]:
    """Split ``host[:port]`` or ``[host]:port`` into (host, port); port 22 by default."""
    host, _, port = text[1:].partition("]") if text.startswith("[") else text.partition(":")
    return host, port.lstrip(":") or "22"


def find_ssh(named: str, path: str) -> str:
    """Find DAYTONA_SSH_BINARY, unless blank, or else ``ssh`` on PATH. Raises Refusal."""
    if named := named.strip():
        hint = "set DAYTONA_SSH_BINARY to the absolute path of an OpenSSH client, or unset it"
        if not os.path.isabs(named):
            raise Refusal(EXIT_MISSING, "DAYTONA_SSH_BINARY is not an absolute path", hint)
        if os.path.isdir(named):
            raise Refusal(EXIT_MISSING, "DAYTONA_SSH_BINARY is a directory", hint)
        if not os.path.exists(named):
            raise Refusal(EXIT_MISSING, "DAYTONA_SSH_BINARY names a file that does not exist", hint)
        if not os.access(named, os.X_OK):
            raise Refusal(
                EXIT_MISSING, "DAYTONA_SSH_BINARY names a file that cannot be executed", hint
            )
        return named
    for folder in filter(None, search_path(path).split(os.pathsep)):
        found = os.path.join(folder, "ssh")
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    hint = "install it (Debian: apt install openssh-client), or set DAYTONA_SSH_BINARY"
    raise Refusal(EXIT_MISSING, "no OpenSSH client found on PATH", hint)


def search_path(path: str) -> str:
    """Leave out of PATH what is relative, since that means the repository in which we are, and what
    is Windows' in WSL: a program there knows no path of ours."""
    folders = list(filter(os.path.isabs, (path or os.defpath).split(os.pathsep)))
    if "microsoft" in os.uname().release.lower():
        folders = [each for each in folders if not re.match(r"/mnt/[a-z](/|$)", each)]
    return os.pathsep.join(folders)


def nameless() -> Refusal | None:
    """Return why OpenSSH does not run at all where our user id has no name (ssh.c, main)."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return Refusal(
            EXIT_SETTING,
            f"OpenSSH does not run for user id {os.getuid()}, which has no name here",
            "run this as a user with a name, or give that id one in /etc/passwd",
        )
    return None


def quoted(path: str) -> str:
    """Write a path as one argument of ssh_config: in quotes, with ``%`` doubled.

    ssh_config(5): arguments are split on blanks, ``%`` and ``${`` expand in UserKnownHostsFile, and
    there is no escape for the latter. Raises Refusal for what cannot be written there.
    """
    if re.search(r'["\x00-\x1f\x7f]|\$\{', path):
        raise Refusal(
            EXIT_SETTING,
            "the known_hosts file's path holds a quote, '${' or a control character",
            "move it to a plainer path",
        )
    return _argument(path.replace("%", "%%"))


def included(path: str) -> str:
    """Write a path as the argument of Include, which takes a pattern (glob(7)): its special
    characters escaped; any one character for those of newer OpenSSH's tokens and variables."""
    pattern = re.sub(r"[\[*?\\]", r"\\\g<0>", path)
    return _argument(re.sub(r'[%$"\x00-\x1f]', "?", pattern))


def _argument(text: str) -> str:
    """Write a text without quotes as one argument of ssh_config (misc.c, argv_split)."""
    return '"' + text.replace("\\", "\\\\") + '"'


def options(
    host: str, trust_file: str | None, trust_name: str | None, without: Sequence[str] = ()
) -> list[str]:
    """Build the ``-o`` options for a connection to the gateway, none of them secret."""
    chosen = [*_OPTIONS.split(), *(each for each in _DEFAULTS if each not in without)]
    chosen.append("HostName=" + host)
    if trust_file is not None:
        chosen += [*_PINNED, "UserKnownHostsFile=" + quoted(trust_file)]
        if trust_name is not None:
            chosen.append("HostKeyAlias=" + trust_name)
    return [word for option in chosen for word in ("-o", option)]


def unknown(program: str, environ: dict[str, str], guess: list[str] | None) -> list[str]:
    """Find those of _DEFAULTS that a client complains about, because it is too new for them, or was
    built without what they are about (GSSAPI, PKCS#11)."""

    def said(chosen: Sequence[str]) -> tuple[int, bytes]:
        words = [word for each in ("LogLevel=ERROR", *chosen) for word in ("-o", each)]
        answer = _answer([program, "-F", "none", *words, "-G", "--", "host"], environ)
        return answer.returncode, answer.stderr

    def search(chosen: list[str]) -> list[str]:
        if said(chosen) == nothing:
            return []
        half = len(chosen) // 2
        return chosen if not half else search(chosen[:half]) + search(chosen[half:])

    nothing = said(())
    if guess is not None and said([each for each in _DEFAULTS if each not in guess]) == nothing:
        return guess
    return search([*_DEFAULTS])


def left_out(program: str, environ: dict[str, str], *, doubted: bool = False) -> list[str]:
    """Recall from DAYTONA_SSH_CLIENT_FILE what ``unknown`` found for this very file; ask if it is
    not there, or see whether it holds if it is ``doubted``.

    Nothing hangs on that file: what is left out by it is a default.
    """
    place = environ.get("DAYTONA_SSH_CLIENT_FILE", "")
    file = os.stat(program)
    key = f"{os.path.realpath(program)!a} {file.st_size} {file.st_mtime_ns} {file.st_ctime_ns}"
    recalled = None
    with contextlib.suppress(OSError, ValueError):
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as kept:
            asked, found, found_for = (kept.read(16384) or b"").decode("ascii").split("\n")
        if (asked, found_for) == (" ".join(_DEFAULTS), key):
            recalled = found.split()
    if recalled is not None and not doubted:
        return recalled
    result = unknown(program, scrubbed(environ), recalled)
    if place and result != recalled:
        # in place: what two write at once, or half, has another key at its end
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError), open(os.open(place, flags, 0o600), "wb") as kept:
            kept.write("\n".join((" ".join(_DEFAULTS), " ".join(result), key)).encode("ascii"))
    return result


def honoured(shown: str, client: list[str], *, inherited: bool) -> list[str]:
    """Take over lines of the user's configuration, given what ``ssh -G`` shows of it.

    The token is the user name of the connection, so no ``%r`` of theirs may meet it: they would put
    it into an argument list, or send it to a jump host as a name. It means the user that their
    configuration names. ``client`` is the ssh command for jumps, with their configuration: an own
    one, because ssh hands its ``-F`` on to the ssh of a ProxyJump, and ours holds the token.
    """
    pairs = [line.partition(" ")[::2] for line in shown.splitlines()]
    user = dict(pairs).get("user", "").replace("%", "%%")

    def as_user(text: str) -> str:
        return "%%".join(part.replace("%r", user) for part in text.split("%%"))

    def paths(text: str, write: Callable[[str], str]) -> str:
        # blanks are between them and, alas, in them: each begins with a slash (or is `none`)
        return " ".join(map(write, re.split(r" (?=/)", text)))

    rules: dict[str, Callable[[str], str]] = dict.fromkeys(_HONOURED.split(), str)
    rules["revokedhostkeys"] = _argument  # shown as it is written there, tokens and all
    rules["proxycommand"] = as_user
    if inherited:
        rules["hostkeyalias"] = str
        rules["globalknownhostsfile"] = lambda text: paths(text, _argument)  # has no tokens
        rules["userknownhostsfile"] = lambda text: paths(text, quoted)  # shown expanded
        rules["knownhostscommand"] = as_user
    lines = []
    for name, value in pairs:
        if name == "proxyjump":
            lines.append(f"proxycommand {jump(as_user(value), client)}")
        elif name in rules:
            lines.append(f"{name} {rules[name](value)}")
    return lines


def jump(spec: str, client: list[str]) -> str:
    """Write the ProxyCommand that ssh makes of a ProxyJump ``[FIRST,…,][USER@]HOST[:PORT]``."""
    first, _, last = spec.rpartition(",")
    user, _, place = last.rpartition("@")
    host, _, port = place[1:].partition("]") if place.startswith("[") else place.partition(":")
    values = (("-J", first), ("-l", user), ("-p", port.lstrip(":")))
    words = shlex.join(word for option in values if option[1] for word in option)
    start = shlex.join(client).replace("%", "%%")
    return f"{start} {words} -W '[%h]:%p' -- {shlex.quote(host)}"


def configuration(token: str | None, lines: list[str]) -> str:
    """Write the private configuration; the token, which is the user, is None for a probe."""
    return "".join(f"{line}\n" for line in ([f"User {token}"] if token else []) + lines)


def take_token(environ: dict[str, str]) -> str:
    """Read the token from the inherited descriptor or the environment. Raises Refusal."""
    token = environ.get("DAYTONA_SSH_TOKEN", "")
    if (descriptor := _inherited(environ, "DAYTONA_SSH_TOKEN_FD")) is not None:
        with contextlib.suppress(OSError):
            # pread: git may connect twice, and whoever inherited the descriptor shares its offset
            token = os.pread(descriptor, 4096, 0).decode("ascii", "replace")
        os.close(descriptor)
    token = token.strip()
    if not token:
        hint = "use 'git daytona fetch N', or 'daytona-token exec SANDBOX -- git …'"
        raise Refusal(EXIT_SETTING, "there is no token for this sandbox", hint)
    if not re.fullmatch(r"(?!-)[A-Za-z0-9_.~+=-]{1,512}", token):
        hint = "mint a new one, and report it to Daytona"
        raise Refusal(EXIT_SETTING, "the token is not valid and was not used", hint)
    return token


@contextlib.contextmanager
def private_file(content: str) -> Iterator[str]:
    """Give the content a path that ssh can open as often as it likes, while the block runs.

    On Linux it never is in a file system: anonymous memory of this process, opened through /proc.
    ssh closes inherited descriptors, so /dev/fd does not do; with ``Match final`` in the user's
    configuration it reads that twice, so a plain pipe does not either. Elsewhere a file of mode
    0600 in a folder of mode 0700.
    """
    with contextlib.ExitStack() as stack:
        if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
            descriptor = os.memfd_create("daytona-ssh", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{descriptor}"
        else:
            import tempfile

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="daytona-ssh-"))
            path = os.path.join(folder, "config")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = stack.enter_context(open(descriptor, "wb", buffering=0))
        os.fchmod(descriptor, 0o600)
        file.write(content.encode("utf-8", "surrogateescape"))
        yield path


# What runs in the sandbox. The gateway's shell is /bin/sh, which is all that this needs besides
# tail(1): a first mark, to show that it runs; the command in a shell of its own, whatever it does
# to that (exit, exec, a quote too many), its stderr into a pipe that keeps the end of it (without
# tail, that is read to no end: nothing must break off for want of a reader); then, in one write,
# its status and that between two more marks. The status does not pass through tail: what the
# background still writes to stderr comes behind it. In $(…) newlines at the end and NULs are lost.
_REMOTE = (
    "{ printf '\\373%s';"
    ' r=$({ { %s/bin/sh -c %s >&3 3>&- 4>&-; echo "$?" >&4; } 2>&1 |'
    " { tail -c %d || while read -r r; do :; done; }; } 4>&1);"
    " printf '\\373%s%%s\\373%s' \"$r\"; } 3>&1"
)
WAITING = "while read -r r; do :; done"
"""A command that lasts as long as its input, for what needs a connection and no command."""
_MARK = b"\xfb"
"""What the mark begins with (octal 373): in no text in UTF-8, and at the end of no message that
git's protocols wait for (those end in "0" or a newline), so that next to nothing is held back."""
_LIKELY = 4
"""So many bytes of the mark are no coincidence."""


def remote_command(command: str, protocol: str, nonce: str) -> str:
    """Wrap a command so that it reports its end; ``protocol`` is git's GIT_PROTOCOL, or empty."""
    valid = re.fullmatch(r"[A-Za-z0-9=:._-]+", protocol)
    variables = f"GIT_PROTOCOL={protocol} " if valid else ""
    return _REMOTE % (nonce, variables, shlex.quote(command), STDERR_BYTES, nonce, nonce)


class Ending:
    """Takes what ``remote_command`` adds to a command's output off it.

    ``begun``: the command has been started. ``status`` is the command's, None as long as that is
    unknown; ``stderr`` the end of what it wrote there.
    """

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.begun = False
        self.status: int | None = None
        self.stderr = b""
        self._mark = _MARK + nonce.encode()
        self._held = b""
        self._released = 0
        self._tail: bytes | None = None

    @property
    def holds(self) -> bool:
        """Whether output is held back that may be the beginning of the mark, but need not."""
        return self._tail is None and self._released < len(self._held) < _LIKELY

    def feed(self, data: bytes) -> bytes:
        """Return the command's output in the next piece of the stream."""
        data, skip = self._held + data, self._released
        output = b""
        while (at := data.find(self._mark)) >= 0:
            output += self._between(data[skip:at])
            self._pass_mark()
            data, skip = data[at + len(self._mark) :], 0
        at = data.rfind(_MARK, max(0, len(data) - len(self._mark) + 1))
        if at < 0 or not self._mark.startswith(data[at:]):
            at = len(data)
        self._held, self._released = data[at:], max(0, skip - at)
        return output + self._between(data[skip:at])

    def release(self) -> bytes:
        """Return what is held back, for whoever waits for it; a mark is recognised all the same."""
        data = self._held[self._released :] if self._tail is None else b""
        self._released = len(self._held)
        return data

    def rest(self) -> bytes:
        """Return what is held back at the end of the stream, unless it plainly begins a mark."""
        return self.release() if self.begun and len(self._held) < _LIKELY else b""

    def _between(self, data: bytes) -> bytes:
        """Return what came between two marks, if it is output."""
        if self._tail is None:
            return data
        # no more than that comes from a command that keeps to the rules
        self._tail = (self._tail + data)[: 2 * STDERR_BYTES]
        return b""

    def _pass_mark(self) -> None:
        if not self.begun:
            self.begun = True
        elif self._tail is None:
            self._tail = b""
        else:
            digits, _, rest = self._tail.partition(b"\n")
            if digits.isdigit() and len(digits) <= 3:
                self.status, self.stderr = int(digits), rest
            self._tail = None  # a process that the command left in the background may still write


class _Report:
    """What the coordinator learns of a connection, over a pipe that nothing else can write to:
    git's stderr, where people read it, has the sandbox's words, too.

    ``begun`` and NUL once the command runs; at the end ``ended`` and four texts, each with a NUL
    behind it: the entry of what went wrong (as base/errors.py has it; empty: nothing, the command
    came to its end), message, hint, and ssh's own stderr.
    """

    def __init__(self, environ: dict[str, str]) -> None:
        self._descriptor = _inherited(environ, "DAYTONA_SSH_REPORT_FD")
        self._stderr = b""

    def begun(self) -> None:
        self._write(b"begun")

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what ssh writes to its stderr, and show it on ours."""
        self._stderr = (self._stderr + data)[-SSH_STDERR_BYTES:]
        _write_stderr(data)

    def ended(self, entry: str = "", message: str = "", hint: str = "") -> None:
        texts = [each.encode("utf-8", "backslashreplace") for each in (entry, message, hint)]
        self._write(b"ended", *texts, self._stderr)

    def _write(self, *fields: bytes) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # nobody reads it any more
                record = b"".join(each.replace(b"\0", b"") + b"\0" for each in fields)
                os.write(self._descriptor, record)


class _Passed(Exception):
    """One of our signals was passed on to ssh."""


class _Client:
    """ssh as a child with our own stdin, to which our signals are passed on.

    ``lifeline`` is a pipe to read from: at its end ssh is ended, because the coordinator, which
    would have done that, was killed. ``unread``: the reader of our stdout has gone.
    """

    def __init__(self, environ: dict[str, str], report: _Report, lifeline: int | None) -> None:
        self.ending = Ending(os.urandom(16).hex())
        self.environ, self.report = environ, report
        self.unread = False
        self.inner: list[str] = []
        """An ssh to start once the connection stands, which goes over it."""
        self._inner: subprocess.Popen[bytes] | None = None
        self._signal = 0
        self.served = False
        """Something has come out of it (a subsystem)."""
        self._selector = selectors.PollSelector()
        self._open: set[int] = set()
        """The pipes that are read to their end."""
        if lifeline is not None:
            self._selector.register(lifeline, selectors.EVENT_READ, self._watch)

    def run(self, argv: list[str], *, stdin: int | None = None, piped: bool = True) -> int:
        """Run ssh to its end; returns its status, -N after signal N. With ``piped`` what it writes
        passes through here.

        The signals are blocked before (connect), and in the child until they end it.
        """
        for number in _heeded():
            signal.signal(number, self._pass_on)
        pipe = subprocess.PIPE if piped else None
        try:
            with self._started(argv, stdin, pipe, pipe) as self._process:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
                self._move()
            signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)
            return self._process.returncode
        except _Passed:
            self._process.wait()
            return -self._signal

    def _started(
        self, argv: list[str], stdin: int | None, stdout: int | None, stderr: int | None
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            argv,
            env=self.environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=0,
            preexec_fn=_in_child(),  # noqa: PLW1509 — there is one thread
        )

    def _pass_on(self, number: int, _frame: object = None) -> None:
        first, self._signal = not self._signal, number
        self._process.send_signal(number)
        if first:  # leave what waits now, perhaps for a reader that has stopped
            raise _Passed

    def _move(self) -> None:
        """Hand on what ssh writes, until it closes its pipes or ends."""
        pipes = {self._process.stdout: self._take, self._process.stderr: self.report.add_stderr}
        for pipe, sink in pipes.items():
            self._read(pipe, sink)
        while self._open:
            ready = self._selector.select(HOLD_SECONDS)
            if not ready and not self._goes_on():
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK_BYTES)
                key.data(data)
                if not data:
                    self._selector.unregister(key.fd)
                    self._open.discard(key.fd)

    def _read(self, pipe: "IO[bytes] | None", sink: Callable[[bytes], None]) -> None:
        """Listen to a pipe to its end."""
        if pipe is not None:
            self._selector.register(pipe.fileno(), selectors.EVENT_READ, sink)
            self._open.add(pipe.fileno())

    def _goes_on(self) -> bool:
        """Release what is held back; tell whether ssh runs. (A process that it started may still
        hold its pipes.)"""
        if self.ending.holds:
            self._write(self.ending.release())
        return self._process.poll() is None

    def _take(self, data: bytes) -> None:
        """Hand the command's output on; ``b""`` is the end of the stream."""
        had_begun = self.ending.begun
        output = self.ending.feed(data) if data else self.ending.rest()
        if self.ending.begun and not had_begun:
            self.report.begun()
            if self.inner:
                self._start_inner()
        self._write(output)

    def _start_inner(self) -> None:
        """Start what goes over the connection, now that it stands."""
        output = subprocess.PIPE if "-s" in self.inner else None
        self._inner = self._started(self.inner, None, output, subprocess.PIPE)
        self._read(self._inner.stdout, self._take_inner)
        self._read(self._inner.stderr, self._hear_inner)

    def _take_inner(self, data: bytes) -> None:
        self.served = self.served or bool(data)
        self._write(data)

    def _hear_inner(self, data: bytes) -> None:
        self.report.add_stderr(data)
        if not data and self._process.stdin:  # the command around it ends with its input
            self._process.stdin.close()

    def inner_status(self) -> int:
        """Wait for it, and return its status."""
        if self._inner is None:
            return EXIT_UNKNOWN
        if self.ending.status is None:
            self._inner.terminate()
        return self._inner.wait()

    def _watch(self, data: bytes) -> None:
        """End ssh at the lifeline's end."""
        if not data:
            self._pass_on(signal.SIGTERM)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(1, data) :]
            except BlockingIOError:  # whoever shares it with us made it so
                select.select([], [1], [], HOLD_SECONDS)
            except OSError:
                self.unread = True
                # a command that writes on would not notice for long that nobody reads it
                self._pass_on(signal.SIGTERM)


def _heeded() -> list[signal.Signals]:
    """The signals that are ours to pass on: not one that whoever started us has us ignore, as sftp
    does with Ctrl-C, which ends a transfer and not the connection."""
    return [number for number in _PASSED if signal.getsignal(number) is not signal.SIG_IGN]


def _in_child() -> Callable[[], None]:
    """Make what a child does before its program runs: signals end it, and so does our own death
    (Linux: PR_SET_PDEATHSIG, prctl(2))."""
    parent = os.getpid()
    prctl = None
    if sys.platform.startswith("linux"):
        # libc has no such function: ssh then ends when git's pipes close
        with contextlib.suppress(OSError, AttributeError):
            # Not at the top: it may keep a file open (Python 3.14), as stdout if that was closed.
            import ctypes

            prctl = ctypes.CDLL(None).prctl

    heeded = _heeded()

    def prepare() -> None:
        for number in (*heeded, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        if signal.SIGINT not in heeded:
            # out of reach of the terminal's: an ssh that goes over another's connection heeds it
            # all the same (OpenSSH's mux.c)
            os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        if prctl is not None:
            prctl(1, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:  # it died before the call
                os._exit(128 + signal.SIGTERM)

    return prepare


def _answer(argv: list[str], environ: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    """Run a program with nothing to read. Raises OSError."""
    return subprocess.run(
        argv,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=_in_child(),
        check=False,
    )


def other(line: CommandLine, environ: dict[str, str]) -> None:
    """Become the user's own ssh for another destination, as git would have called it."""
    command = environ.get("DAYTONA_SSH_OTHER_COMMAND", "").strip()
    program = environ.get("DAYTONA_SSH_OTHER_PROGRAM", "").strip()
    clean = scrubbed(environ)
    # A command as git runs it (run-command.c, prepare_shell_cmd).
    start = ["/bin/sh", "-c", command + ' "$@"', command] if command else [program or "ssh"]
    variant = variant_of(environ.get("DAYTONA_SSH_OTHER_VARIANT", ""), command, program)
    if variant == "auto" and not line.probe:
        # An unknown program: git asks it whether it takes OpenSSH's options (connect.c,
        # fill_ssh_args).
        before = line.argv[: len(line.argv) - len(line.rest)]
        takes = _answer([*start, "-G", *before], clean).returncode == 0
        variant = "ssh" if takes else "simple"
    os.execvpe(start[0], [*start, *variant_arguments(line, variant)], clean)


_TRANSLATED = ("plink", "putty", "tortoiseplink", "simple")
"""The variants that do not take OpenSSH's options as they are."""


def variant_of(named: str, command: str, program: str) -> str:
    """Name the options that the user's client takes, or auto (connect.c, determine_ssh_variant)."""
    if named := named.strip():
        return named if named in (*_TRANSLATED, "auto") else "ssh"
    if not (command or program):
        return "ssh"
    try:
        word = shlex.split(command)[0] if command else program
    except (ValueError, IndexError):
        return "auto"
    base = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return base if base in ("ssh", "plink", "tortoiseplink") else "auto"


def variant_arguments(line: CommandLine, variant: str) -> list[str]:
    """Translate git's arguments for such a client (push_ssh_options). Raises Refusal."""
    if variant not in _TRANSLATED:
        return line.argv
    result = ["-batch"] if variant == "tortoiseplink" else []
    for letter, value in line.options:
        if variant == "simple" and letter in "46p":
            option = "setting port" if letter == "p" else f"-{letter}"
            raise Refusal(
                EXIT_SETTING,
                f"ssh variant 'simple' does not support {option}",
                "set ssh.variant; see git-config(1)",
            )
        if letter == "p":
            result += ["-P", value]
        elif letter != "o":
            result.append(f"-{letter}{value}")
    return result + line.operands


def scrubbed(environ: dict[str, str]) -> dict[str, str]:
    """Leave out all of our variables, the API key among them."""
    return {name: value for name, value in environ.items() if not name.startswith("DAYTONA_")}


def _write_stderr(text: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        os.write(2, text)


def open_standard_streams() -> None:
    """Open what is closed of stdin, stdout and stderr, so that no file of ours becomes one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest that is free (open(2))
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


_HELP = """\
Usage: daytona-ssh [OPTIONS] SANDBOX [COMMAND]
       daytona-ssh [-4|-6] [-p PORT] [-o OPTION] HOST COMMAND

ssh for sandboxes: for you, and for programs that start an ssh (rsync, scp, sftp, git).
SANDBOX is sandbox-1, 1, opencode/1 or a sandbox's id; for any other host it becomes
your own ssh. OPTIONS are ssh's own: -4, -6, -C, -D, -L, -N, -W, -n, -q, -s, -t, -T, and
those of -o that daytona-ssh(1) lists.

git calls it for the gateway that DAYTONA_SSH_GATEWAY names: it then runs OpenSSH with
the sandbox's token as the user and only the pinned host keys.

  --help         show this text
  --version, -V  show the version of the OpenSSH client it would run

See daytona-ssh(1).
"""


def main(argv: list[str]) -> int:
    """Run the wrapper: git's arguments in, ssh's exit status out."""
    open_standard_streams()
    environ = dict(os.environ)
    if argv[:1] == ["--help"]:
        os.write(1, _HELP.encode())
        return 0
    report = _Report(environ)
    try:
        return _run(argv, environ, report)
    except OSError as problem:
        program = problem.filename or "ssh"
        hint = "install OpenSSH, or set DAYTONA_SSH_BINARY; see daytona-ssh(1)"
        refusal = Refusal(EXIT_MISSING, f"cannot run '{program}': {problem.strerror}", hint)
        if problem.errno == errno.E2BIG:
            hint = "send it on standard input, to 'sh'"
            refusal = Refusal(EXIT_USAGE, "the command is too long for an argument", hint)
    except Refusal as problem:
        refusal = problem
    _write_stderr(printed(refusal))
    report.ended(_ENTRIES[refusal.status], refusal.message, refusal.hint)
    return refusal.status


def _run(argv: list[str], environ: dict[str, str], report: _Report) -> int:
    line = CommandLine(argv)
    if argv[:1] in (["--version"], ["-V"]):
        program = find_ssh(environ.get("DAYTONA_SSH_BINARY", ""), environ.get("PATH", ""))
        os.execve(program, [program, "-V"], scrubbed(environ))
    if not line.host:
        hint = "git calls this program; see 'daytona-ssh --help'"
        raise Refusal(EXIT_USAGE, "there is no host among the arguments", hint)
    gateway = environ.get("DAYTONA_SSH_GATEWAY", "")
    if not line.is_for(gateway):
        if not gateway and not line.probe and _SANDBOX.fullmatch(line.host):
            # -P keeps the working directory out of it, -E what PYTHON* say
            start = [sys.executable, "-EPB", "-X", "utf8", "-m", "git_daytona", "daytona-ssh"]
            os.execve(sys.executable, [*start, *argv], environ)
        _inherited(environ, "DAYTONA_SSH_TOKEN_FD")
        other(line, environ)
    return connect(line, environ, report)


def connect(line: CommandLine, environ: dict[str, str], report: _Report) -> int:
    """Run OpenSSH against the gateway and return its status.

    Two steps, so that nothing of the user's configuration ever meets the token: ``ssh -G`` reads
    that configuration, with every ``Match exec`` in it, and the connection is made with what of the
    answer is honoured, and with no other configuration.
    """
    program = find_ssh(environ.get("DAYTONA_SSH_BINARY", ""), environ.get("PATH", ""))
    token = None if line.probe else take_token(environ)
    clean = scrubbed(environ)
    # `Match exec` and ProxyCommand run under $SHELL; one that runs nothing (a service account's
    # nologin) would lead nowhere.
    if clean.get("SHELL", "").rsplit("/", 1)[-1] in ("nologin", "false", "true"):
        del clean["SHELL"]
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)  # until _Client passes them on
    without = left_out(program, environ)
    fixed, pinned = _fixed_arguments(line, environ, without)
    with contextlib.ExitStack() as files:
        # the user's own, as ssh itself would read them if it did not ignore HOME
        own = f"Include {included(os.path.expanduser('~/.ssh/config'))}\n"
        own += "Match all\n  Include /etc/ssh/ssh_config\n"
        theirs = [program, "-F", files.enter_context(private_file(own))]
        answer = _answer([*theirs, *fixed, "-G", "--", line.host], clean)
        # It complains of their configuration, which is for their own ssh to say, or of our options.
        if answer.stderr and without != (now := left_out(program, environ, doubted=True)):
            fixed, pinned = _fixed_arguments(line, environ, now)
            answer = _answer([*theirs, *fixed, "-G", "--", line.host], clean)
        if answer.returncode != 0:  # ssh has complained about what it cannot read there
            if refusal := nameless():
                raise refusal
            report.add_stderr(answer.stderr)
            report.ended()
            return _as_of_a_shell(answer.returncode)
        shown = answer.stdout.decode("utf-8", "surrogateescape")
        lines = honoured(shown, theirs, inherited=not pinned)
        ours = files.enter_context(private_file(configuration(token, lines)))
        client = _Client(clean, report, _inherited(environ, "DAYTONA_SSH_LIFELINE_FD"))
        more = shlex.split(environ.get("DAYTONA_SSH_MORE", ""))
        inner = shlex.split(environ.get("DAYTONA_SSH_SESSION", ""))
        return _start(line, [program, *more, "-F", ours, *fixed], client, inner)


def _fixed_arguments(
    line: CommandLine, environ: dict[str, str], without: Sequence[str]
) -> tuple[list[str], bool]:
    """Build the arguments that nothing of the user's changes; whether the host keys are pinned."""
    host, port = split_authority(environ["DAYTONA_SSH_GATEWAY"])
    trust_file = environ.get("DAYTONA_SSH_TRUST_FILE") or None
    if trust_file and not (os.path.isfile(trust_file) and os.access(trust_file, os.R_OK)):
        hint = "see 'daytona-pin verify'"
        raise Refusal(EXIT_SETTING, f"cannot read the pinned host keys in '{trust_file}'", hint)
    chosen = options(host, trust_file, environ.get("DAYTONA_SSH_TRUST_NAME") or None, without)
    return [*line.family, *chosen, "-p", port], trust_file is not None


def _start(line: CommandLine, start: list[str], client: _Client, inner: list[str]) -> int:
    """Run ``start`` (ssh, its options) in the way that is asked for; return the exit status."""
    if line.probe:
        probe = [*start, "-G", "--", line.host]
        return _as_of_a_shell(client.run(probe, piped=False))
    # The gateway gives a terminal to its own shell only, and its status to nobody; without one
    # /bin/sh reads our input.
    if line.terminal and not line.rest:
        inner = ["-t"]
    return _serve(line, start, client, inner) if inner else _converse(line, start, client)


def _converse(line: CommandLine, start: list[str], client: _Client) -> int:
    """Run ``start`` with the command; return the command's own status.

    Raises Refusal where that is unknown.
    """
    ending = client.ending
    protocol = client.environ.get("GIT_PROTOCOL", "") if line.sends_protocol else ""
    command = " ".join(line.rest) or "exec /bin/sh"
    remote = remote_command(command, protocol, ending.nonce)
    status = client.run([*start, "--", line.host, remote])
    # git prints what we print. As what the server writes in the side band, this must not pass for
    # words of ssh's or ours.
    prefix = b"remote: " if re.search("upload-pack|receive-pack|upload-archive", command) else b""
    for text in ending.stderr.splitlines():
        _write_stderr(prefix + text + b"\n")
    if ending.status is not None:
        client.report.ended()
        return ending.status
    if client.unread:  # as a program that met SIGPIPE; nobody is there to read why
        return 128 + signal.SIGPIPE
    if status < 0:
        return _as_of_a_shell(status)
    raise broken(ending)


def printed(refusal: Refusal) -> bytes:
    """What is printed of a refusal."""
    entry = _ENTRIES[refusal.status]
    text = f"daytona-ssh: error: {refusal} [{entry}]\nhint: {refusal.hint}\n"
    return text.encode("utf-8", "backslashreplace")


def broken(ending: Ending) -> Refusal:
    """What to say of a command that has not told its end."""
    hint = "see whether the sandbox runs: git daytona status"
    if ending.begun:
        return Refusal(
            EXIT_UNKNOWN,
            "the connection ended before the command did: how that ended is unknown",
            hint,
        )
    return Refusal(EXIT_UNKNOWN, "the connection failed, or broke at once", hint)


def _serve(line: CommandLine, start: list[str], client: _Client, inner: list[str]) -> int:
    """Run what cannot have our words around it (a terminal, a subsystem, -W) over a connection that
    a command of ours holds, which reports that it stands; return its status.

    ssh itself could not say so: it is let in before the gateway looks at the token.
    """
    with control_path() as path:
        client.inner = [*over(start[0], path), *inner, "--", line.host, *line.rest]
        remote = remote_command(WAITING, "", client.ending.nonce)
        argv = [start[0], *holding(path), *start[1:], "--", line.host, remote]
        status = client.run(argv, stdin=subprocess.PIPE)
        served = client.inner_status()
    if client.ending.status is None and status >= 0:
        raise broken(client.ending)
    client.report.ended()
    # A status that the gateway has lost, on a connection that was whole to the end: what a
    # subsystem's protocol has to say, it has said. (A terminal's the gateway tells nobody.)
    lost = served == EXIT_UNKNOWN and status >= 0 and (client.served or "-t" in inner)
    return 0 if lost else _as_of_a_shell(status if status < 0 else served)


def holding(path: str) -> list[str]:
    """The options of an ssh that lets others go over its connection (``over``)."""
    return ["-o", "ControlMaster=yes", "-o", f"ControlPath={path}"]


def over(program: str, path: str) -> list[str]:
    """The start of an ssh that goes over the connection at that path, and makes none itself."""
    alone = ("-F", "none", "-o", "ProxyCommand=false", "-o", "LogLevel=ERROR", "-e", "none")
    return [program, *alone, "-o", f"ControlPath={path}"]


@contextlib.contextmanager
def control_path() -> Iterator[str]:
    """Give a path for the socket of a shared connection, which nobody else can reach."""
    import tempfile

    # a socket's path may have about a hundred characters, and ssh adds some for a while
    place = "/tmp" if len(tempfile.gettempdir()) > 50 else None  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="daytona-ssh-", dir=place) as folder:
        yield os.path.join(folder, "s").replace("%", "%%")


def _as_of_a_shell(status: int) -> int:
    """Convert a status to a shell's: 128+N for signal N."""
    return status if status >= 0 else 128 - status


def _inherited(environ: dict[str, str], name: str) -> int | None:
    """Take over a descriptor whose number is in the environment; what we start has it no more."""
    number = environ.get(name, "")
    if not (number.isascii() and number.isdigit()):
        return None
    try:
        os.set_inheritable(int(number), False)
    except (OSError, OverflowError):  # not open here: somebody copied our environment
        return None
    return int(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
