"""``daytona-ssh``: a GIT_SSH wrapper that runs OpenSSH with a sandbox's token as the user, and
nothing else but what is pinned.

Standard library only, and nothing of this package: git starts it for every connection, so it has to
be quick, small, and independent of whatever Python environment it is started in. The coordinator
tells it what to do through the environment:

=============================
==================================================================================================
``DAYTONA_SSH_GATEWAY``        ``host[:port]`` (IPv6 in brackets) of the gateway; other destinations
are none of our business ``DAYTONA_SSH_TOKEN_FD``       number of an inherited descriptor that holds
the token (read from its start), or ``DAYTONA_SSH_TOKEN``          the token itself (``daytona-token
exec``) ``DAYTONA_SSH_LIFELINE_FD``    number of an inherited pipe whose other end the coordinator
holds: when it is killed, ssh is ended ``DAYTONA_SSH_REPORT_FD``      number of an inherited pipe
that is told what became of the connection (``_Report``) ``DAYTONA_SSH_TRUST_FILE``     the only
known_hosts file to trust; unset: the ssh client's own verification ``DAYTONA_SSH_TRUST_NAME``
the name to look up in it (HostKeyAlias) ``DAYTONA_SSH_BINARY``         absolute path of the OpenSSH
client, else ``ssh`` on PATH ``DAYTONA_SSH_OTHER_COMMAND``  the user's own GIT_SSH_COMMAND or
core.sshCommand (a shell command), for other destinations, or ``DAYTONA_SSH_OTHER_PROGRAM``  the
user's own GIT_SSH (a program) ``DAYTONA_SSH_OTHER_VARIANT``  the user's own GIT_SSH_VARIANT or
ssh.variant =============================
==================================================================================================

Every ``DAYTONA_*`` variable ends here: neither ssh nor anything it starts sees one.

The gateway often loses a command's exit status (daytonaio/daytona#5027: all output, a clean end,
and OpenSSH's 255), drops its stderr and takes no environment. So the remote command says itself how
it ended: behind its output comes a mark that nobody can guess, its status, and the end of what it
wrote to stderr (``remote_command``), which are taken off the stream here (``Ending``). A stream
without them was cut, whatever ssh's own status says. git's protocols have ends of their own, but
only git reads those, and it believes the status all the same; and a look afterwards would cost a
call for every transfer.
"""

import errno
import os
import select
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
# the same functions and numbers; the enumerations that signal makes of them take half of this
# program's time to load
else:
    import _signal as signal

EXIT_USAGE = 2
EXIT_MISSING = 12
EXIT_SETTING = 13
EXIT_UNKNOWN = 255
"""As of ssh itself: the connection did not come about, or ended before the command did."""

STDERR_BYTES = 8192
"""How much of a remote command's stderr is brought back: the end of it."""
HOLD_SECONDS = 0.2
"""How long a few bytes of output that may be the beginning of the mark are held back: who waits for
them must not wait for ever."""
CHUNK_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
ATOMIC_BYTES = 4096
"""What a pipe that poll(2) calls writable takes without blocking."""
SAID_BYTES = 16 * 1024
"""How much of ssh's own words is reported: the end of them."""

# What an `ssh` line of git may hold (connect.c push_ssh_options): -4, -6, -o SendEnv=GIT_PROTOCOL,
# -p PORT, and -G as a probe; the rest of those with a value are here so that people can use the
# wrapper by hand.
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"

# Everything a user's configuration could do to this connection and must not: these stand on ssh's
# command line, which beats every configuration file. None of it is secret. OpenSSH 8.7 is the
# oldest client that knows them all.
_OPTIONS = (
    # no prompts, no other way in than the token
    "BatchMode=yes",
    "PreferredAuthentications=none",
    "PubkeyAuthentication=no",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "GSSAPIAuthentication=no",
    "HostbasedAuthentication=no",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "IdentityFile=none",
    "PKCS11Provider=none",
    "AddKeysToAgent=no",
    # one plain session over a connection of its own
    "ControlMaster=no",
    "ControlPath=none",
    "ControlPersist=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "SessionType=default",
    "StdinNull=no",
    "ForkAfterAuthentication=no",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "ExitOnForwardFailure=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "Tunnel=no",
    "EscapeChar=none",
    "CanonicalizeHostname=no",
    # no more trust than what we were told
    "StrictHostKeyChecking=yes",
    "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no",
    "CheckHostIP=no",
    "NoHostAuthenticationForLocalhost=no",
    # ends, if nobody answers
    "ConnectTimeout=30",
    "ConnectionAttempts=1",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    # -v and LogLevel DEBUG print the user name, which is the token
    "LogLevel=ERROR",
    "LogVerbose=none",
    "VisualHostKey=no",
)

# Trust in the pinned modes: one file and one name. (In inherited mode the user's own files and
# KnownHostsCommand count.)
_PINNED = ("GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none")

# What a user's configuration does have a say in, by the names that `ssh -G` prints: the way to the
# gateway, the algorithms and the line's quality. Whatever is not here has no effect, whatever a
# later OpenSSH invents. Not HostKeyAlgorithms: naming some makes ssh offer them in that order
# instead of the trusted keys' types first, and so refuse a gateway that has several keys.
_HONOURED = frozenset(
    (
        "addressfamily",
        "bindaddress",
        "bindinterface",
        "casignaturealgorithms",
        "ciphers",
        "compression",
        "ipqos",
        "kexalgorithms",
        "macs",
        "proxyusefdpass",
        "rekeylimit",
        "requiredrsasize",
        "tcpkeepalive",
    )
)


# Signals that end ssh along with us.
_PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Refusal(Exception):
    """Something is wrong before ssh starts: exit status, what happened, what to do."""

    def __init__(self, status: int, message: str, hint: str):
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint


class Call:
    """git's command line, taken apart: options to pass on, destination, port, and the remote
    command."""

    def __init__(self, argv: list[str]):
        self.argv = argv
        self.probe = False
        self.port = "22"
        self.family: list[str] = []
        self.sends_protocol = False
        self.terminal = False
        self.host = ""
        self.rest: list[str] = []
        words = list(argv)
        while words:
            word = words.pop(0)
            if word == "--":
                self.host, self.rest = (words[0], words[1:]) if words else ("", [])
                break
            if not word.startswith("-") or word == "-":
                self.host, self.rest = word, words
                break
            self._option(word, words)
        self.host = self.host.rsplit("@", 1)[-1]
        # `ssh host -- command` is how people write it by hand.
        if self.rest[:1] == ["--"]:
            self.rest = self.rest[1:]

    def _option(self, word: str, words: list[str]) -> None:
        for place, letter in enumerate(word[1:], start=1):
            if letter in _WITH_VALUE:
                value = word[place + 1 :] or (words.pop(0) if words else "")
                if letter == "p":
                    self.port = value
                elif letter == "o" and value.replace(" ", "=", 1).lower() == "sendenv=git_protocol":
                    self.sends_protocol = True
                return
            if letter in "46":
                self.family = ["-" + letter]
            elif letter == "G":
                self.probe = True
            elif letter == "t":
                self.terminal = True

    def is_for(self, gateway: str) -> bool:
        """Whether the destination is the gateway (``host[:port]``)."""
        host, port = split_authority(gateway)
        return bool(host) and self.host.strip("[]").lower() == host.lower() and self.port == port


def split_authority(text: str) -> tuple[str, str]:
    """``host[:port]`` or ``[host]:port`` as (host, port); port 22 by default."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.lstrip(":") or "22"
    host, _, port = text.partition(":")
    return host, port or "22"


def find_ssh(named: str, path: str) -> str:
    """The OpenSSH client: DAYTONA_SSH_BINARY if it is set (blank is unset), else the first ``ssh``
    on PATH. Raises Refusal."""
    named = named.strip()
    if named:
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
    for folder in (path or os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, "ssh")
        # Relative entries of PATH would mean the repository we stand in.
        if os.path.isabs(folder) and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise Refusal(
        EXIT_MISSING,
        "no OpenSSH client found on PATH",
        "install it (Debian: apt install openssh-client), or set DAYTONA_SSH_BINARY",
    )


def quoted(path: str) -> str:
    """A path as one argument of ssh_config: in quotes, with ``%`` doubled. Raises Refusal for what
    cannot be written there.

    ssh_config(5): arguments are split on blanks, ``%`` and ``${`` expand in UserKnownHostsFile, and
    there is no escape for the latter.
    """
    if '"' in path or "${" in path or any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise Refusal(
            EXIT_SETTING,
            "the known_hosts file's path holds a quote, '${' or a control character",
            "move it to a plainer path",
        )
    return _argument(path.replace("%", "%%"))


def _argument(text: str) -> str:
    """A text with blanks and backslashes, but no quotes, as one argument of ssh_config (misc.c,
    argv_split)."""
    return '"' + text.replace("\\", "\\\\") + '"'


def options(host: str, trust_file: str | None, trust_name: str | None) -> list[str]:
    """The ``-o`` options for a connection to the gateway, none of them secret."""
    chosen = [*_OPTIONS, "HostName=" + host]
    if trust_file is not None:
        chosen += [*_PINNED, "UserKnownHostsFile=" + quoted(trust_file)]
        if trust_name is not None:
            chosen.append("HostKeyAlias=" + trust_name)
    return [word for option in chosen for word in ("-o", option)]


def users_configuration(home: str) -> str:
    """A configuration that is the user's own, wherever HOME is: ssh itself looks into the passwd
    entry's home. Nothing secret."""
    return f'Include "{home}/.ssh/config"\nMatch all\n  Include /etc/ssh/ssh_config\n'


def honoured(shown: str, client: list[str], *, inherited: bool) -> list[str]:
    """The lines of the private configuration that come from the user's own, given what ``ssh -G``
    shows of that.

    The token is the user name of the connection, so no ``%r`` of theirs may meet it: they would put
    it into an argument list, or send it to a jump host as a name. It means the user that their
    configuration names. ``client`` is the ssh command for jumps, with their configuration: an own
    one, because ssh hands its ``-F`` on to the ssh of a ProxyJump, and the token stands in ours.
    """
    pairs = [line.partition(" ")[::2] for line in shown.splitlines()]
    user = dict(pairs).get("user", "").replace("%", "%%")
    lines = []
    for name, value in pairs:
        if name in _HONOURED or (inherited and name == "hostkeyalias"):
            lines.append(f"{name} {value}")
        elif name == "revokedhostkeys":  # shown as it stands there, tokens and all
            lines.append(f"{name} {_argument(value)}")
        elif inherited and name == "globalknownhostsfile":  # has no tokens
            lines.append(" ".join([name, *map(_argument, _paths(value))]))
        elif inherited and name == "userknownhostsfile":  # shown with its tokens expanded
            lines.append(" ".join([name, *map(quoted, _paths(value))]))
        elif name == "proxycommand" or (inherited and name == "knownhostscommand"):
            lines.append(f"{name} {_as_user(value, user)}")
        elif name == "proxyjump":
            lines.append(f"proxycommand {jump(_as_user(value, user), client)}")
    return lines


def _paths(shown: str) -> list[str]:
    """Paths as ``ssh -G`` prints them, blanks between them and, alas, in them: each begins with a
    slash (or is ``none``)."""
    paths: list[str] = []
    for piece in shown.split(" "):
        if paths and not piece.startswith("/"):
            paths[-1] += " " + piece
        else:
            paths.append(piece)
    return paths


def _as_user(text: str, user: str) -> str:
    return "%%".join(part.replace("%r", user) for part in text.split("%%"))


def jump(spec: str, client: list[str]) -> str:
    """The ProxyCommand that ssh itself makes of a ProxyJump ``[FIRST,…,][USER@]HOST[:PORT]``, with
    the client's command line."""
    import shlex  # only for those who have a jump host

    first, _, last = spec.rpartition(",")
    user, _, place = last.rpartition("@")
    host, _, port = place[1:].partition("]") if place.startswith("[") else place.partition(":")
    port = port.lstrip(":")
    words = [
        *(["-J", first] if first else []),
        *(["-l", user] if user else []),
        *(["-p", port] if port else []),
    ]
    return f"{shlex.join(client).replace('%', '%%')} {shlex.join(words)} -W '[%h]:%p' -- {shlex.quote(host)}"


def configuration(token: str | None, lines: list[str]) -> str:
    """The private configuration: the token as the user (None: for a look at the settings), then the
    honoured lines."""
    return "".join(f"{line}\n" for line in ([f"User {token}"] if token else []) + lines)


def take_token(environ: dict[str, str]) -> str:
    """The token from the inherited descriptor or the environment. Raises Refusal for a missing or
    malformed one."""
    number = environ.get("DAYTONA_SSH_TOKEN_FD", "")
    token = environ.get("DAYTONA_SSH_TOKEN", "")
    if number.isascii() and number.isdigit():
        try:
            # pread: git may connect twice, and the descriptor's offset is shared with whoever else
            # inherited it.
            token = os.pread(int(number), 4096, 0).decode("ascii", "replace")
            os.close(int(number))
        except OSError:
            token = ""
    token = token.strip()
    if not token:
        raise Refusal(
            EXIT_SETTING,
            "there is no token for this sandbox",
            "use 'git daytona fetch N', or 'daytona-token exec SANDBOX -- git …'",
        )
    if (
        token.startswith("-")
        or len(token) > 512
        or not all(c.isascii() and (c.isalnum() or c in "_.~+=-") for c in token)
    ):
        raise Refusal(
            EXIT_SETTING,
            "the token is malformed and was not used",
            "mint a new one, and report it to Daytona",
        )
    return token


def private_file(content: str) -> tuple[str, "list[str]"]:
    """The content under a path that ssh can open as often as it likes, and the names to remove
    afterwards.

    On Linux it never is in a file system: anonymous memory of this process, opened through /proc.
    ssh closes inherited descriptors, so /dev/fd does not do; with ``Match final`` in the user's
    configuration it reads that twice, so a plain pipe does not either. Elsewhere it is a 0600 file
    in a 0700 folder.
    """
    data = content.encode("utf-8", "surrogateescape")
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("daytona-ssh", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, data)
        return f"/proc/{os.getpid()}/fd/{descriptor}", []
    import tempfile  # not on Linux: it loads random, shutil and more

    folder = tempfile.mkdtemp(prefix="daytona-ssh-")
    path = os.path.join(folder, "config")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, data)
    os.close(descriptor)
    return path, [path, folder]


# What runs in the sandbox. The gateway's shell is /bin/sh, which is all that this needs besides
# tail(1): a first mark, to show that it runs; the command in a shell of its own, whatever it does
# to that (exit, exec, a quote too many), its stderr into a pipe that keeps the end of it (without
# tail, that is read to no end: nothing must break off for want of a reader); then, in one write,
# its status and that between two more marks. The status does not pass through tail: what the
# background still writes to stderr comes behind it. In $(…) newlines at the end and NULs are lost.
_REMOTE = (
    "{ printf '\\373%s'; r=$({ { %s/bin/sh -c %s >&3 3>&- 4>&-; echo \"$?\" >&4; } 2>&1 | { tail -c %d || while read -r r; do :; done; }; } 4>&1);"
    " printf '\\373%s%%s\\373%s' \"$r\"; } 3>&1"
)
_MARK = b"\xfb"
"""What the mark begins with (octal 373): in no text in UTF-8, and at the end of no message that
git's protocols wait for (those end in "0" or a newline), so that next to nothing is ever held
back."""
_LIKELY = 4
"""So many bytes of the mark are no coincidence."""
_GIT_SERVERS = ("upload-pack", "receive-pack", "upload-archive")


def remote_command(command: str, protocol: str, nonce: str) -> str:
    """A command as the sandbox's ``/bin/sh`` gets it, so that its end can be told; ``protocol`` is
    git's GIT_PROTOCOL, or empty."""
    wanted = (
        protocol
        if protocol and all(c.isascii() and (c.isalnum() or c in "=:._-") for c in protocol)
        else ""
    )
    variables = f"GIT_PROTOCOL={wanted} " if wanted else ""
    return _REMOTE % (nonce, variables, _quoted(command), STDERR_BYTES, nonce, nonce)


def _quoted(text: str) -> str:
    """As shlex.quote, which takes as long to load as all of this."""
    return "'" + text.replace("'", "'\\''") + "'"


class Ending:
    """Takes what ``remote_command`` adds to a command's output off it.

    ``begun``: the command has been started. ``status`` is the command's, None as long as that is
    unknown; ``stderr`` the end of what it wrote there.
    """

    def __init__(self, nonce: str) -> None:
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
        """The command's output in the next piece of the stream."""
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
        """What is held back, because somebody may be waiting for it. If it was the mark's beginning
        all the same, that is still seen."""
        data = self._held[self._released :] if self._tail is None else b""
        self._released = len(self._held)
        return data

    def rest(self) -> bytes:
        """What is held back at the end of the stream, unless it is plainly the beginning of a
        mark."""
        return self.release() if self.begun and len(self._held) < _LIKELY else b""

    def _between(self, data: bytes) -> bytes:
        """What came between two marks, if it is output."""
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
    """What the coordinator is told of a connection, over a pipe that nothing else can write to:
    git's stderr, where people read it, has the sandbox's words, too.

    ``begun`` and NUL once the command runs; at the end ``ended`` and four texts, each with a NUL
    behind it: the entry of what went wrong (as errors.py has it; empty: nothing, the command came
    to its end), message, hint, and what ssh itself said.
    """

    def __init__(self, environ: dict[str, str]) -> None:
        self._descriptor = _inherited(environ, "DAYTONA_SSH_REPORT_FD")
        self.said = b""

    def begun(self) -> None:
        self._write(b"begun\0")

    def ended(self, entry: str = "", message: str = "", hint: str = "") -> None:
        texts = (
            text.encode("utf-8", "backslashreplace") for text in ("ended", entry, message, hint)
        )
        self._write(
            b"".join(text.replace(b"\0", b"") + b"\0" for text in (*texts, self.said[-SAID_BYTES:]))
        )

    def _write(self, record: bytes) -> None:
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, record)
            except OSError:  # nobody listens any more
                self._descriptor = None


class _Relay:
    """What ssh writes, on its way to our own stdout and stderr. Nothing here blocks: a reader that
    has stopped must not keep us from seeing signals, nor ssh's end."""

    def __init__(self, ending: Ending, report: _Report) -> None:
        self.ending, self.report = ending, report
        self.unread = False
        """Whoever read our stdout does not any more."""
        self._pending = b""
        self._output, self.writing = os.pipe()
        self._errors, self.complaining = os.pipe()
        _widen(self._output)
        kind = os.fstat(1).st_mode
        self._blocking = os.get_blocking(1)
        self._most = ATOMIC_BYTES
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            os.set_blocking(1, False)
            self._most = CHUNK_BYTES

    def started(self) -> None:
        """ssh has its ends of the pipes."""
        os.close(self.writing)
        os.close(self.complaining)

    @property
    def open(self) -> bool:
        """Whether there is anything to be moved yet, or may be."""
        return self._output >= 0 or self._errors >= 0 or bool(self._pending)

    def wanted(self) -> list[tuple[int, int]]:
        """What to wait for: descriptor and event."""
        found = [(self._errors, select.POLLIN)] if self._errors >= 0 else []
        if self._pending:
            return [*found, (1, select.POLLOUT)]
        return [*found, (self._output, select.POLLIN)] if self._output >= 0 else found

    def move(self, ready: "set[int]") -> None:
        """Move what can be moved. With nothing ready, nothing more comes for now."""
        if self._errors in ready:
            data = os.read(self._errors, CHUNK_BYTES)
            self.report.said = (self.report.said + data)[-SAID_BYTES:]
            if not data:
                os.close(self._errors)
                self._errors = -1
            _say(data)
        if self._output in ready:
            data = os.read(self._output, CHUNK_BYTES)
            self._pending += self.ending.feed(data) if data else self.ending.rest()
            if not data:
                self.stop_reading()
        elif not ready and self.ending.holds:
            self._pending += self.ending.release()
        if 1 in ready:
            try:
                self._pending = self._pending[os.write(1, self._pending[: self._most]) :]
            except BlockingIOError:
                pass
            except OSError:
                self.unread = True
                self._pending = b""
                self.stop_reading()

    def stop_reading(self) -> None:
        """ssh is done, or notices now that nobody reads it."""
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def close(self) -> None:
        os.set_blocking(1, self._blocking)


def attend(
    program: str,
    argv: list[str],
    environ: dict[str, str],
    lifeline: int | None = None,
    relay: _Relay | None = None,
) -> int:
    """Run ssh as a child with our own stdin, stdout and stderr, pass signals on to it, and return
    its exit status; -N where signal N ended it or was passed on to it.

    ``lifeline`` is a pipe to read from: at its end ssh is ended, because the coordinator, which
    would have done that, was killed. With a ``relay`` its stdout and stderr pass through that.
    """
    child = passed = 0

    def pass_on(number: int, _frame: object) -> None:
        nonlocal passed
        passed = number
        try:
            os.kill(child, number)
        except ProcessLookupError:  # it has just ended by itself
            pass

    # Blocked until there is a child to pass them on to, and in the child until they end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)
    for number in _PASSED:
        signal.signal(number, pass_on)
    awake, asleep = os.pipe()
    os.set_blocking(asleep, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(asleep, warn_on_full_buffer=False)
    parent, end_with = os.getpid(), _end_with_parent()
    child = os.fork()
    if child == 0:
        if relay is not None:
            os.dup2(relay.writing, 1)
            os.dup2(relay.complaining, 2)
        for number in (*_PASSED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        end_with(parent)
        try:
            os.execve(program, [program, *argv], environ)
        except OSError as problem:
            _cannot_run(program, problem)
        os._exit(EXIT_MISSING)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
    if relay is not None:
        relay.started()
    ended: int | None = None
    begun = False
    while True:
        if ended is None:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ended = os.waitstatus_to_exitcode(status)
        # Whoever ended it does not wait for what it still had to say.
        if ended is not None and (relay is None or not relay.open or passed):
            return -passed if passed else ended
        wanted = [(awake, select.POLLIN)] + (
            [(lifeline, select.POLLIN)] if lifeline is not None else []
        )
        patience: float | None = None
        if relay is not None:
            wanted += relay.wanted()
            # It has ended, and its words with it; unless a process that it started holds its
            # streams.
            patience = (
                0
                if ended is not None and 1 not in dict(wanted)
                else HOLD_SECONDS
                if relay.ending.holds
                else None
            )
        ready = _ready(wanted, patience)
        if awake in ready:
            os.read(awake, 4096)
        if lifeline is not None and lifeline in ready and not os.read(lifeline, 1):
            lifeline = None
            pass_on(signal.SIGTERM, None)
        if relay is not None:
            if not ready and ended is not None:
                relay.stop_reading()
                return ended
            relay.move(ready)
            if relay.ending.begun and not begun:
                begun = True
                relay.report.begun()
            if relay.unread and ended is None:
                # a command that writes on would not notice for long that nobody reads it
                os.kill(child, signal.SIGTERM)


def _ready(wanted: list[tuple[int, int]], patience: float | None) -> "set[int]":
    """The descriptors at which something can be done; none after so many seconds."""
    poll = select.poll()
    for descriptor, event in wanted:
        poll.register(descriptor, event)
    return {
        descriptor for descriptor, _ in poll.poll(None if patience is None else patience * 1000)
    }


def _widen(pipe: int) -> None:
    """Let a pipe hold more: fewer turns for a large pack (Linux)."""
    import fcntl

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    # another system, or the user's share of such memory is used up (pipe(7))
    except (AttributeError, OSError):
        pass


def _end_with_parent() -> "Callable[[int], None]":
    """What a child calls to be ended when its parent, whose pid it is given, is killed outright
    (Linux: PR_SET_PDEATHSIG, prctl(2)). Made before the fork: it is loaded once, and is no work for
    a child."""
    if not sys.platform.startswith("linux"):
        return lambda parent: None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    # a build without it: ssh then ends when git's pipes close
    except (ImportError, OSError, AttributeError):
        return lambda parent: None

    def call(parent: int) -> None:
        prctl(1, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(128 + signal.SIGTERM)

    return call


def other(call: Call, environ: dict[str, str]) -> None:
    """Become the user's own ssh for a destination that is not the gateway, as git would have called
    it. Does not return."""
    command = environ.get("DAYTONA_SSH_OTHER_COMMAND", "").strip()
    program = environ.get("DAYTONA_SSH_OTHER_PROGRAM", "").strip()
    clean = scrubbed(environ)
    if command:
        # As git runs it (run-command.c, prepare_shell_cmd).
        start = ["/bin/sh", "-c", command + ' "$@"', command]
    else:
        start = [program or "ssh"]
    variant = variant_of(environ.get("DAYTONA_SSH_OTHER_VARIANT", ""), command, program)
    if variant == "auto" and not call.probe:
        # An unknown program: git asks it whether it takes OpenSSH's options (connect.c,
        # fill_ssh_args).
        line = call.argv[: len(call.argv) - len(call.rest)]
        variant = "ssh" if _status([*start, "-G", *line], clean) == 0 else "simple"
    os.execvpe(start[0], [*start, *variant_arguments(call.argv, variant)], clean)


def variant_of(named: str, command: str, program: str) -> str:
    """Which options the user's own client takes: ssh, plink, putty, tortoiseplink, simple or auto
    (connect.c, determine_ssh_variant)."""
    named = named.strip()
    if named and named != "auto":
        return named if named in ("plink", "putty", "tortoiseplink", "simple") else "ssh"
    if named or not (command or program):
        return named or "ssh"
    word = program
    if command:
        import shlex  # only for those who have such a command

        try:
            word = (shlex.split(command) or [""])[0]
        except ValueError:
            word = ""
    base = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return base if base in ("ssh", "plink", "tortoiseplink") else "auto"


def variant_arguments(argv: list[str], variant: str) -> list[str]:
    """git's OpenSSH-style arguments as a client of that variant wants them (connect.c,
    push_ssh_options). Raises Refusal."""
    if variant not in ("plink", "putty", "tortoiseplink", "simple"):
        return argv
    result = ["-batch"] if variant == "tortoiseplink" else []
    words = list(argv)
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word == "-o":
            words[:1] = []
        elif variant == "simple" and (word == "-p" or word in ("-4", "-6")):
            what = "setting port" if word == "-p" else word
            raise Refusal(
                EXIT_SETTING,
                f"ssh variant 'simple' does not support {what}",
                "set ssh.variant; see git-config(1)",
            )
        elif word == "-p":
            result += ["-P", *words[:1]]
            words[:1] = []
        else:
            result.append(word)
    return result + words


def _status(argv: list[str], environ: dict[str, str]) -> int:
    """Run a program with nothing to read or say, and return its exit status."""
    return _heard(argv, environ)[0]


def _heard(argv: list[str], environ: dict[str, str]) -> tuple[int, str, bytes]:
    """Run a program with nothing to read: its exit status (12: it cannot be run), and what it
    writes to stdout and to stderr."""
    (output, writing), (errors, complaining) = os.pipe(), os.pipe()
    parent, end_with = os.getpid(), _end_with_parent()
    child = os.fork()
    if child == 0:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
            end_with(parent)
            for descriptor, opened in (
                (0, os.open(os.devnull, os.O_RDWR)),
                (1, writing),
                (2, complaining),
            ):
                os.dup2(opened, descriptor)
            os.execvpe(argv[0], argv, environ)
        except OSError as problem:
            _cannot_run(argv[0], problem)
        finally:
            os._exit(EXIT_MISSING)
    os.close(writing)
    os.close(complaining)
    texts = {output: b"", errors: b""}
    reading = set(texts)
    while reading:
        for descriptor in _ready([(each, select.POLLIN) for each in reading], None):
            data = os.read(descriptor, CHUNK_BYTES)
            texts[descriptor] += data
            if not data:
                reading.remove(descriptor)
    for descriptor in texts:
        os.close(descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, texts[output].decode("utf-8", "surrogateescape"), texts[errors]


def scrubbed(environ: dict[str, str]) -> dict[str, str]:
    """The environment without any of our variables, the API key among them."""
    return {name: value for name, value in environ.items() if not name.startswith("DAYTONA_")}


def _cannot_run(program: str, problem: OSError) -> None:
    if problem.errno == errno.E2BIG:
        _complain(
            EXIT_USAGE,
            "the command is too long for an argument",
            "send it on standard input, to 'sh'",
        )
        return
    _complain(
        EXIT_MISSING,
        f"cannot run '{program}': {problem.strerror}",
        "install OpenSSH, or set DAYTONA_SSH_BINARY",
    )


# As errors.py has them; see git-daytona-errors(7).
_ENTRIES = {
    EXIT_USAGE: "usage",
    EXIT_MISSING: "missing-program",
    EXIT_SETTING: "bad-setting",
    EXIT_UNKNOWN: "connection-closed",
}


def _complain(status: int, message: str, hint: str) -> None:
    _say(
        f"daytona-ssh: error: {message} [{_ENTRIES[status]}]\nhint: {hint}\n".encode(
            "utf-8", "backslashreplace"
        )
    )


def _say(text: bytes) -> None:
    try:
        os.write(2, text)
    except OSError:  # nobody reads it, or not now: nothing of the stream waits for that
        pass


def _stand_on_three_feet() -> None:
    """Open what is closed of stdin, stdout and stderr, so that no file of ours becomes one of
    them."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if descriptor == 0 else os.O_WRONLY)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)


_HELP = """\
Usage: daytona-ssh [-4|-6] [-p PORT] [-o OPTION] HOST COMMAND

A GIT_SSH wrapper; git calls it. For the gateway that DAYTONA_SSH_GATEWAY names it runs
OpenSSH with the sandbox's token as the user and only the pinned host keys; for any
other host it becomes your own ssh. 'git daytona' and 'daytona-token exec' set it up.

  --help     show this text
  --version  show the version of the OpenSSH client it would run

See daytona-ssh(1).
"""


def main(argv: list[str]) -> int:
    """The wrapper: git's arguments in, ssh's exit status out."""
    _stand_on_three_feet()
    environ = dict(os.environ)
    if argv[:1] == ["--help"]:
        os.write(1, _HELP.encode())
        return 0
    report = _Report(environ)
    try:
        if argv[:1] == ["--version"]:
            program = find_ssh(environ.get("DAYTONA_SSH_BINARY", ""), environ.get("PATH", ""))
            os.execve(program, [program, "-V"], scrubbed(environ))
        call = Call(argv)
        if not call.host:
            raise Refusal(
                EXIT_USAGE,
                "there is no host among the arguments",
                "git calls this program; see 'daytona-ssh --help'",
            )
        gateway = environ.get("DAYTONA_SSH_GATEWAY", "")
        if not call.is_for(gateway):
            _inherited(environ, "DAYTONA_SSH_TOKEN_FD")
            other(call, environ)
        return connect(call, environ, report)
    except Refusal as problem:
        _complain(problem.status, problem.message, problem.hint)
        report.ended(_ENTRIES[problem.status], problem.message, problem.hint)
        return problem.status
    except OSError as problem:
        _complain(EXIT_MISSING, f"cannot start: {problem.strerror}", "see daytona-ssh(1)")
        return EXIT_MISSING


def connect(call: Call, environ: dict[str, str], report: _Report) -> int:
    """Run OpenSSH against the gateway and return its status. ``-G`` shows the settings that would
    be used, without a token.

    Two steps, so that nothing of the user's configuration ever meets the token: ``ssh -G`` reads
    that configuration, with every ``Match exec`` in it, and the connection is made with what of the
    answer is honoured, and with no other configuration.
    """
    program = find_ssh(environ.get("DAYTONA_SSH_BINARY", ""), environ.get("PATH", ""))
    host, port = split_authority(environ["DAYTONA_SSH_GATEWAY"])
    trust_file = environ.get("DAYTONA_SSH_TRUST_FILE") or None
    if trust_file is not None and not _readable(trust_file):
        raise Refusal(
            EXIT_SETTING,
            f"cannot read the pinned host keys in '{trust_file}'",
            "see 'daytona-pin verify'",
        )
    fixed = [
        *call.family,
        *options(host, trust_file, environ.get("DAYTONA_SSH_TRUST_NAME") or None),
        "-p",
        port,
    ]
    token = None if call.probe else take_token(environ)
    clean = scrubbed(environ)
    # `Match exec` and ProxyCommand run under $SHELL; one that runs nothing (a service account's
    # nologin) would lead nowhere.
    if clean.get("SHELL", "").rsplit("/", 1)[-1] in ("nologin", "false", "true"):
        del clean["SHELL"]
    leftovers: list[str] = []
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)  # until attend() can pass them on
    try:
        theirs, left = private_file(users_configuration(os.path.expanduser("~")))
        leftovers += left
        status, shown, report.said = _heard(
            [program, "-F", theirs, *fixed, "-G", "--", host], clean
        )
        _say(report.said)
        if status != 0:  # ssh has said what it cannot read there
            report.ended()
            return _as_of_a_shell(status)
        lines = honoured(shown, [program, "-F", theirs], inherited=trust_file is None)
        path, left = private_file(configuration(token, lines))
        leftovers += left
        words = ["-F", path, *fixed]
        if call.probe:
            return _as_of_a_shell(attend(program, [*words, "-G", "--", host], clean))
        lifeline = _inherited(environ, "DAYTONA_SSH_LIFELINE_FD")
        # The gateway gives a terminal to its own shell only, and tells its status to nobody;
        # without one /bin/sh reads our input.
        if call.terminal and not call.rest:
            return _as_of_a_shell(attend(program, [*words, "-t", "--", host], clean, lifeline))
        command = " ".join(call.rest) or "exec /bin/sh"
        protocol = environ.get("GIT_PROTOCOL", "") if call.sends_protocol else ""
        return _run_to_its_end(
            program, [*words, "--", host], command, protocol, clean, lifeline, report
        )
    finally:
        for leftover in leftovers:
            os.rmdir(leftover) if os.path.isdir(leftover) else os.unlink(leftover)


def _run_to_its_end(
    program: str,
    argv: list[str],
    command: str,
    protocol: str,
    environ: dict[str, str],
    lifeline: int | None,
    report: _Report,
) -> int:
    """Run a command over ssh, bring the end of its stderr, and return its own status, or 255 when
    that is unknown."""
    nonce = os.urandom(16).hex()
    ending = Ending(nonce)
    relay = _Relay(ending, report)
    try:
        status = attend(
            program, [*argv, remote_command(command, protocol, nonce)], environ, lifeline, relay
        )
    finally:
        relay.close()
    # git prints what we print. As what the server says in the side band, this must not pass for
    # words of ssh's or ours.
    of_git = any(server in command for server in _GIT_SERVERS)
    for line in ending.stderr.splitlines(keepends=True):
        _say((b"remote: " if of_git else b"") + line.rstrip(b"\n") + b"\n")
    if ending.status is not None:
        report.ended()
        return ending.status
    if relay.unread:  # as a program that met SIGPIPE; nobody is there to be told
        return 128 + signal.SIGPIPE
    if status < 0:
        return _as_of_a_shell(status)
    # it was never started, and the child has said why
    if status == EXIT_MISSING and not ending.begun:
        report.ended(
            _ENTRIES[EXIT_MISSING],
            "ssh could not be started",
            "see whether it is installed, and what DAYTONA_SSH_BINARY names",
        )
        return status
    message = (
        "the connection ended before the command did"
        if ending.begun
        else "the connection did not come about, or broke at once"
    )
    hint = "see whether the sandbox runs: git daytona status"
    _complain(EXIT_UNKNOWN, message + (": how that ended is unknown" if ending.begun else ""), hint)
    report.ended(_ENTRIES[EXIT_UNKNOWN], message, hint)
    return EXIT_UNKNOWN


def _as_of_a_shell(status: int) -> int:
    """A status as a shell has it: 128+N for signal N."""
    return status if status >= 0 else 128 - status


def _inherited(environ: dict[str, str], name: str) -> int | None:
    """A descriptor that is ours alone: its number in the environment, None where there is none.
    What we start does not inherit it."""
    number = environ.get(name, "")
    if not (number.isascii() and number.isdigit()):
        return None
    try:
        os.set_inheritable(int(number), False)
    except (OSError, OverflowError):  # not open here: somebody copied our environment
        return None
    return int(number)


def _readable(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.R_OK)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
