"""Host keys and known_hosts: the verdict of the real ssh client on hundreds of files, and no file
that makes the reader fail."""

import base64
import contextlib
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from git_daytona.trust import known_hosts
from git_daytona.trust.host_keys import HostKey, decode_base64, parse_blob, parse_line
from git_daytona.trust.known_hosts import Marker, Verdict, names_match
from support.known_hosts_cases import NAMES, Case, Keys, by_hand, generated
from support.refusing_gateway import gateway

SERVERS = {
    "ed": ("ed",),
    "ed+rsa": ("ed", "rsa"),
    "rsa+ecdsa": ("rsa", "ecdsa"),
    "ecdsa": ("ecdsa",),
}
GENERATED = 500


def keygen(*arguments: str) -> str:
    return subprocess.run(
        ("ssh-keygen", *arguments), check=True, capture_output=True, text=True, timeout=30
    ).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys made by ssh-keygen: two of each type, and certificates of the ed25519 ones."""
    where = tmp_path_factory.mktemp("keys")
    for name, kind, bits in (
        ("ed", "ed25519", "256"),
        ("rsa", "rsa", "2048"),
        ("ecdsa", "ecdsa", "256"),
        ("ecdsa384", "ecdsa", "384"),
    ):
        for owner in ("own", "other"):
            keygen(
                "-q",
                # what paramiko reads of the others; ed25519 has only the form of its own
                *([] if kind == "ed25519" else ["-m", "PEM"]),
                "-t",
                kind,
                "-b",
                bits,
                "-N",
                "",
                "-C",
                "",
                "-f",
                str(where / f"{owner}-{name}"),
            )
    for owner in ("own", "other"):
        keygen(
            "-q",
            "-s",
            str(where / "other-ecdsa"),
            "-I",
            "id",
            "-h",
            "-n",
            "gw.example.org",
            str(where / f"{owner}-ed.pub"),
        )
    return where


@pytest.fixture(scope="module")
def keys(folder: Path) -> Keys:
    def line(name: str) -> bytes:
        return b" ".join((folder / f"{name}.pub").read_bytes().split()[:2])

    kinds = ("ed", "rsa", "ecdsa", "ecdsa384")
    own, other = ({kind: line(f"{owner}-{kind}") for kind in kinds} for owner in ("own", "other"))
    return Keys(own, other, line("own-ed-cert"), line("other-ed-cert"))


def ssh_verdict(
    port: int, content: bytes, name: str, where: Path, *, alias: bool = True
) -> Verdict | str:
    """What the real ssh does with the file: its verdict, or its words if they are none that the
    test knows."""
    where.write_bytes(content)
    options = {
        "BatchMode": "yes",
        "GlobalKnownHostsFile": "/dev/null",
        "KexAlgorithms": "curve25519-sha256@libssh.org",
        "LogLevel": "ERROR",
        "PreferredAuthentications": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "UserKnownHostsFile": f'"{where}"',
        **({"HostKeyAlias": name} if alias else {}),
    }
    argv = [
        "ssh",
        "-F",
        "none",
        "-p",
        str(port),
        *(f"-o{key}={value}" for key, value in options.items()),
        "127.0.0.1",
        "true",
    ]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    words = {
        b"REVOKED HOST KEY": Verdict.REVOKED,
        b"IDENTIFICATION HAS CHANGED": Verdict.CHANGED,
        b"host key is known for": Verdict.NEW,
        b"Permission denied": Verdict.OK,
    }
    return next(
        (verdict for word, verdict in words.items() if word in done.stderr),
        done.stderr.decode("utf-8", "replace"),
    )


def our_verdict(content: bytes, name: str, presented: list[HostKey]) -> Verdict:
    lines = known_hosts.serving(known_hosts.parse(content), name)
    key = known_hosts.negotiated(lines, presented)
    assert key is not None
    return known_hosts.verdict(lines, key)


def _read_less_of(case: Case) -> bool:
    """Tell whether the client is one that takes no key from such a file (OpenSSH 10 on: nothing
    goes on behind a NUL, on half a line or after an odd name of a type). It refuses the gateway
    then, whatever ours says."""
    said = subprocess.run(("ssh", "-V"), capture_output=True, timeout=30).stderr
    odd = b"\0" in case.content or not case.content.endswith(b"\n")
    odd = odd or case.title in ("short name inside", "dss")
    return odd and int(said.removeprefix(b"OpenSSH_").partition(b".")[0]) >= 10


def disagreements(
    cases: list[Case], folder: Path, keys: Keys, tmp_path: Path
) -> tuple[list[str], Counter[Verdict]]:
    """Compare both readers on each file; what differs, in words, and how often ssh gave which
    verdict."""
    load = {"ed": paramiko.Ed25519Key, "rsa": paramiko.RSAKey, "ecdsa": paramiko.ECDSAKey}
    seen: Counter[Verdict] = Counter()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        ports = {
            server: stack.enter_context(
                gateway([load[kind](filename=str(folder / f"own-{kind}")) for kind in kinds])
            )
            for server, kinds in SERVERS.items()
        }

        def differs(numbered: tuple[int, Case]) -> str | None:
            number, case = numbered
            theirs = ssh_verdict(
                ports[case.server], case.content, case.name, tmp_path / f"known hosts {number}"
            )
            ours = our_verdict(
                case.content,
                case.name,
                [parse_line(keys.own[kind]) for kind in SERVERS[case.server]],
            )
            seen.update([theirs] if isinstance(theirs, Verdict) else [])
            return (
                None
                if ours is theirs or (theirs is not Verdict.OK and _read_less_of(case))
                else f"{case.title}: ours {ours}, ssh's {theirs}, file {case.content[:600]!r}"
            )

        found = [each for each in pool.map(differs, enumerate(cases)) if each]
    return found, seen


def test_case_30_verdicts_equal_openssh(
    folder: Path, keys: Keys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [*by_hand(keys), *generated(keys, GENERATED, seed=9)]
    found, seen = disagreements(cases, folder, keys, tmp_path)
    with capsys.disabled():
        counts = ", ".join(f"{verdict.value} {seen[verdict]}" for verdict in Verdict)
        print(f"\nknown_hosts: {len(cases)} files ({counts}), {len(found)} disagreements with ssh")
    assert not found, "\n".join(found)
    assert min(seen[verdict] for verdict in Verdict) > 20, (
        "the files are too much alike to prove anything"
    )


@pytest.mark.fuzz
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(20))
def test_case_30_verdicts_equal_openssh_on_more(
    seed: int, folder: Path, keys: Keys, tmp_path: Path
) -> None:
    found, _ = disagreements(list(generated(keys, 1000, seed=1000 + seed)), folder, keys, tmp_path)
    assert not found, "\n".join(found)


def test_a_bare_host_does_not_serve_another_port(folder: Path, keys: Keys, tmp_path: Path) -> None:
    """ssh alone takes the bare name too; with HostKeyAlias, as transfers have it, it
    does not, and so do we."""
    content = b"127.0.0.1 " + keys.own["ed"] + b"\n"
    with gateway([paramiko.Ed25519Key(filename=str(folder / "own-ed"))]) as port:
        name = f"[127.0.0.1]:{port}"
        assert ssh_verdict(port, content, name, tmp_path / "file", alias=False) is Verdict.OK
        assert ssh_verdict(port, content, name, tmp_path / "file") is Verdict.NEW
    assert our_verdict(content, name, [parse_line(keys.own["ed"])]) is Verdict.NEW


def test_fingerprints_are_those_of_ssh_keygen(folder: Path, keys: Keys) -> None:
    for path in sorted(folder.glob("*.pub")):
        assert parse_line(path.read_bytes()).fingerprint == keygen("-lf", str(path)).split()[1], (
            path.name
        )


def test_a_key_is_written_as_ssh_keygen_writes_it(keys: Keys) -> None:
    for line in (*keys.own.values(), *keys.other.values()):
        assert parse_line(line).line.encode() == line
        assert parse_line(line + b" a comment\r\n").line.encode() == line


def test_spellings_of_one_key_are_equal(keys: Keys) -> None:
    rsa = parse_line(keys.own["rsa"])
    assert parse_line(keys.own["rsa"].replace(b"ssh-rsa ", b"rsa-sha2-512 ")) == rsa
    assert parse_line(keys.own["rsa"] + b" x") == rsa
    assert parse_line(keys.other["rsa"]) != rsa


def test_a_certificate_has_the_fingerprint_of_its_key(keys: Keys) -> None:
    certificate, plain = parse_line(keys.certificate), parse_line(keys.own["ed"])
    assert certificate.plain == plain
    assert certificate != plain
    assert certificate.fingerprint == plain.fingerprint


def test_problems_are_named_with_their_line(keys: Keys) -> None:
    good = b"gw " + keys.own["ed"] + b"\n"
    content = (
        b"# comment\n\n@odd gw x y\ngw\ngw ssh-foo AAAA\ngw ssh-ed25519 AA!A\n|1|x gw\n" + good
    )
    lines = known_hosts.parse(content)
    assert [(line.number, line.problem) for line in lines] == [
        (3, "the marker is unknown, or there are two"),
        (4, "there is no key after the host name"),
        (5, "the key type 'ssh-foo' is unknown"),
        (6, "the key is not base64"),
        (7, "the hashed host name cannot be read"),
        (8, None),
    ]
    assert lines[-1].marker is Marker.NONE


def test_a_hostile_pattern_does_not_take_for_ever() -> None:
    """OpenSSH's own matcher needs minutes for this; ours must not."""
    assert not names_match(b"*a" * 400 + b"b", "a" * 250)


@given(st.binary(max_size=400))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_can_be_read(content: bytes) -> None:
    for line in known_hosts.parse(content):
        assert (line.key is None) != (line.problem is None)
        line.serves("gw.example.org")


PIECES = st.sampled_from(
    (
        b" |\t|\n|\r\n|\0|@revoked|@cert-authority|gw|[gw]:22|,|!|*|?|#|ssh-ed25519|ssh-rsa|"
        b"ecdsa-sha2-nistp256|=|1024 37 99"
    ).split(b"|")
) | st.sampled_from((b"|1|", b"|", b"AAAAC3NzaC1lZDI1NTE5AAAAI", b"AAAAB3NzaC1yc2E"))


@given(st.lists(PIECES | st.binary(max_size=6), max_size=40).map(b"".join))
@settings(max_examples=80, deadline=None)
def test_any_pieces_can_be_read(content: bytes) -> None:
    lines = known_hosts.parse(content)
    numbers = [line.number for line in lines]
    assert numbers == sorted(set(numbers))
    for name in NAMES:
        assert isinstance(known_hosts.preference(known_hosts.serving(lines, name)), tuple)


@given(st.binary(max_size=200))
@settings(max_examples=80, deadline=None)
def test_any_blob_is_a_key_or_a_value_error(blob: bytes) -> None:
    with contextlib.suppress(ValueError):
        key = parse_blob(blob)
        assert parse_line(key.line) == key


@given(st.text(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_key_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_line(text)


@given(st.binary(max_size=60))
def test_base64_of_anything_decodes_to_it(data: bytes) -> None:
    assert decode_base64(base64.b64encode(data)) == data
