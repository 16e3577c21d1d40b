"""The trust decision: each outcome, and the cases about host keys, on real files;
ssh itself is in tests/flows."""

import base64
import contextlib
import hashlib
import multiprocessing
import os
import stat
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import (
    ApiUnreachable,
    BadAnswer,
    BadSetting,
    GitDaytonaError,
    HostKeyRefused,
    ServerError,
    TimedOut,
)
from git_daytona.settings import settings
from git_daytona.trust import pin_file, published
from git_daytona.trust.gateway import Mode, PinRenewed, Policy
from git_daytona.trust.host_keys import parse_line
from git_daytona.trust.known_hosts import endpoint_of

HOST = "gw.example.org"
NAME = f"[{HOST}]:2222"
API = "https://api.example.org/api"


def key(seed: str) -> str:
    """An ed25519 public key line; nobody needs its private half here."""
    fields = (b"ssh-ed25519", hashlib.sha256(seed.encode()).digest())
    blob = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def fingerprint(seed: str) -> str:
    return parse_line(key(seed)).fingerprint


A, B, C = key("a"), key("b"), key("c")


class Api:
    """What ``GET /config`` answers; counts how often it was asked."""

    def __init__(self, *keys: str, host: str = HOST, port: int = 2222):
        self.answer: dict[str, Any] | GitDaytonaError = {
            "sshGatewayHost": host,
            "sshGatewayPort": port,
            "sshGatewayHostKeys": [*keys],
        }
        self.asked = 0

    def publish(self, *keys: Any) -> None:
        assert isinstance(self.answer, dict)
        self.answer = {**self.answer, "sshGatewayHostKeys": [*keys]}

    def fail(self, problem: GitDaytonaError | None = None) -> None:
        self.answer = problem or ApiUnreachable("could not ask: it is down")

    def __call__(self) -> Mapping[str, Any]:
        self.asked += 1
        if isinstance(self.answer, GitDaytonaError):
            raise self.answer
        return self.answer


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def policy(api: Api, clock: Clock | None = None, **environment: str) -> Policy:
    found = settings.load(None, {"DAYTONA_API_URL": API, **environment})
    return Policy(found, api, preflight=False, clock=clock or Clock())


def write(content: str | bytes) -> Path:
    path = paths.pin_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def entries() -> list[str]:
    """The pin file without comments."""
    return [
        line
        for line in paths.pin_file().read_text().splitlines()
        if line and not line.startswith("#")
    ]


def changed(fingerprint: str, name: str = NAME) -> str:
    """ssh 9.2's words at LogLevel ERROR for a key that is not the known one."""
    rule = "@" * 59
    return (
        f"{rule}\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n{rule}\r\n"
        "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r\n"
        f"The fingerprint for the ED25519 key sent by the remote host is\n{fingerprint}.\r\n"
        "Please contact your system administrator.\r\n"
        f"Host key for {name} has changed and you have requested strict checking.\r\nHost "
        "key verification failed.\r\n"
        "fatal: Could not read from remote repository.\n"
    )


# -- the outcomes of a decision --------------------------------------------------------------------


def test_nothing_pinned_something_published_pins_all() -> None:
    trust = policy(Api(A, B)).default()
    assert (trust.mode, trust.endpoint, trust.known_hosts, trust.alias) == (
        Mode.PINNED,
        Endpoint(HOST, 2222),
        paths.pin_file(),
        NAME,
    )
    assert entries() == [f"{NAME} {A}", f"{NAME} {B}"]
    assert stat.S_IMODE(paths.pin_file().stat().st_mode) == 0o600
    text = paths.pin_file().read_text()
    assert f"# daytona-pin: {NAME} from {API} on 20" in text


def test_port_22_is_pinned_by_the_bare_name() -> None:
    assert policy(Api(A, port=22)).default().alias == HOST
    assert entries() == [f"{HOST} {A}"]


def test_case_24_overlap_keeps_and_adds() -> None:
    write(f"# mine\n{NAME} {A} my comment\n")
    assert policy(Api(B, A)).default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {A} my comment", f"{NAME} {B}"]
    assert paths.pin_file().read_text().startswith("# mine\n")


def test_case_24_a_rotation_is_followed_to_its_end() -> None:
    for published_keys in ((A,), (A, B), (B,), (B, C), (C,)):
        assert policy(Api(*published_keys)).default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {each}" for each in (A, B, C)]


def test_case_24_disjoint_is_refused_and_the_file_untouched() -> None:
    before = write(f"{NAME} {A}\n").stat()
    with pytest.raises(HostKeyRefused) as caught:
        policy(Api(B)).default()
    for part in (str(paths.pin_file()), fingerprint("a"), fingerprint("b"), NAME):
        assert part in caught.value.message
    assert caught.value.hint and "ask who runs" in caught.value.hint
    assert not caught.value.transient
    after = paths.pin_file().stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "problem",
    [
        ApiUnreachable("down"),
        ServerError("HTTP 500"),
        BadAnswer("HTML"),
        BadAnswer("a redirect"),
        TimedOut("slow"),
    ],
)
def test_case_33_api_fails_pin_exists(problem: GitDaytonaError) -> None:
    policy(Api(A)).default()
    api = Api()
    api.fail(problem)
    mine = policy(api)
    assert mine.default() == policy(Api(A)).default()
    assert any(problem.message in line for line in mine.warnings)


@pytest.mark.parametrize("keys", [None, [], "", [""], [None]])
def test_case_25_nothing_published_pin_exists(keys: Any) -> None:
    policy(Api(A)).default()
    api = Api()
    assert isinstance(api.answer, dict)
    api.answer["sshGatewayHostKeys"] = keys
    assert policy(api).default().mode is Mode.PINNED


def test_nothing_published_no_pin_inherits_with_a_warning() -> None:
    mine = policy(Api())
    trust = mine.default()
    assert (trust.mode, trust.known_hosts, trust.alias) == (Mode.INHERITED, None, None)
    assert len(mine.warnings) == 1
    assert NAME in mine.warnings[0]
    mine.default()
    assert len(mine.warnings) == 1
    assert not paths.pin_file().exists()


def test_api_unreachable_no_pin() -> None:
    """Without an answer there is no endpoint either; a mint that answers all the same names it, and
    ssh decides, with a warning."""
    api = Api()
    api.fail()
    mine = policy(api)
    with pytest.raises(ApiUnreachable):
        mine.default()
    assert mine.for_endpoint(Endpoint(HOST, 2222)).mode is Mode.INHERITED
    assert len(mine.warnings) == 1


UNUSABLE = {
    "empty": b"",
    "blank": b"\n \n",
    "only comments": b"# hello\n",
    "half a line": f"{NAME} {A[:40]}".encode(),
    "a host name alone": f"{'x' * len(NAME)} {A}\n{NAME}".encode(),
    "good, then half a line": f"{NAME} {A}\n{NAME} ssh-ed".encode(),
    "NUL bytes": b"\0" * 200,
    "good, then NUL bytes": f"{NAME} {A}\n".encode() + b"\0\0\0",
    "HTML": b"<html><body>Bad gateway</body></html>\n",
    "only a revoked key": f"@revoked {NAME} {A}\n".encode(),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_case_32_an_unusable_pin_file_is_refused_and_never_written(content: bytes) -> None:
    write(content)
    for act in (
        lambda: policy(Api(A)).default(),
        lambda: policy(Api(B)).for_endpoint(Endpoint(HOST, 2222)),
    ):
        with pytest.raises(HostKeyRefused) as caught:
            act()
        assert str(paths.pin_file()) in caught.value.message
    assert paths.pin_file().read_bytes() == content


def test_a_bad_line_is_named_with_its_number() -> None:
    write(f"{NAME} {A}\n\n{NAME} ssh-ed25519 AAA\n")
    with pytest.raises(HostKeyRefused, match="line 3"):
        policy(Api(A)).default()


def test_case_32_a_pin_file_that_is_no_file() -> None:
    paths.pin_file().parent.mkdir(parents=True)
    paths.pin_file().symlink_to("nowhere")
    with pytest.raises(HostKeyRefused, match="link to nothing"):
        policy(Api(A)).default()
    assert paths.pin_file().is_symlink()
    paths.pin_file().unlink()
    paths.pin_file().mkdir()
    with pytest.raises(HostKeyRefused, match="cannot be used"):
        policy(Api(A)).default()
    paths.pin_file().rmdir()
    os.mkfifo(paths.pin_file())
    with pytest.raises(HostKeyRefused, match="not a regular file"):
        policy(Api(A)).default()


def test_a_linked_pin_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "pins"
    real.write_text(f"{NAME} {A}\n")
    paths.pin_file().parent.mkdir(parents=True)
    paths.pin_file().symlink_to(real)
    policy(Api(A, B)).default()
    assert paths.pin_file().is_symlink()
    assert f"{NAME} {B}" in real.read_text()


# -- published keys (cases 24 to 26) ---------------------------------------------------------------


def test_case_24_comments_and_order_do_not_matter() -> None:
    policy(Api(A + " first", B)).default()
    before = paths.pin_file().read_bytes()
    policy(Api(B + " other comment", A + "\r\n")).default()
    assert paths.pin_file().read_bytes() == before


@pytest.mark.parametrize(
    "keys",
    [
        [A + " comment"],
        [A + "\r\n"],
        [A, A],
        [f"  {A}  "],
        A,
        f"{A}\r\n{A}\n",
        [A, None, ""],
        ["garbage", A],
        [A, 7],
        [A, {"key": 1}],
    ],
)
def test_case_25_published_in_odd_ways_is_pinned_once(keys: Any) -> None:
    api = Api()
    assert isinstance(api.answer, dict)
    api.answer["sshGatewayHostKeys"] = keys
    assert policy(api).default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {A}"]


@pytest.mark.parametrize(
    "keys",
    [
        ["garbage"],
        7,
        {"a": 1},
        [7],
        True,
        [A[:-6]],
        ["ssh-foo AAAA"],
        [f"{NAME} {A}"],
        [A[12:]],
        "no key",
    ],
)
def test_case_25_published_and_unreadable_is_never_inherited(keys: Any) -> None:
    api = Api()
    assert isinstance(api.answer, dict)
    api.answer["sshGatewayHostKeys"] = keys
    with pytest.raises(HostKeyRefused, match="unreadable"):
        policy(api).default()
    assert not paths.pin_file().exists()


def test_unreadable_beside_a_pin_uses_the_pin_and_says_so() -> None:
    policy(Api(A)).default()
    mine = policy(Api("garbage"))
    assert mine.default().mode is Mode.PINNED
    assert any("cannot be read" in line for line in mine.warnings)


def test_case_26_the_old_servers_key_is_no_host_key() -> None:
    api = Api()
    api.answer = {
        "sshGatewayCommand": "ssh -p 2222 {{TOKEN}}@localhost",
        "sshGatewayPublicKey": base64.b64encode(A.encode()).decode(),
    }
    mine = policy(api)
    trust = mine.default()
    assert (trust.mode, trust.endpoint) == (Mode.INHERITED, Endpoint("localhost", 2222))
    assert mine.warnings
    assert not paths.pin_file().exists()


@pytest.mark.parametrize("host", [None, "", "-oProxyCommand=x", "a b", "a\nb", "[::1]:22", 7])
def test_an_answer_without_a_gateway_counts_as_none(host: Any) -> None:
    api = Api(A)
    assert isinstance(api.answer, dict)
    api.answer["sshGatewayHost"] = host
    with pytest.raises(GitDaytonaError):
        policy(api).default()
    assert not paths.pin_file().exists()


def test_contradicting_fingerprints_are_noted() -> None:
    api = Api(A)
    assert isinstance(api.answer, dict)
    api.answer["sshGatewayHostKeyFingerprints"] = [fingerprint("b")]
    mine = policy(api)
    mine.default()
    assert any("fingerprints" in line for line in mine.warnings)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "sshGatewayHost",
                "sshGatewayPort",
                "sshGatewayHostKeys",
                "sshGatewayCommand",
                "sshGatewayHostKeyFingerprints",
            ]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.sampled_from([A, HOST, "ssh x@y"]),
            st.lists,
            max_leaves=6,
        ),
    )
)
@hypothesis_settings(deadline=None, max_examples=80)
def test_any_answer_is_read_or_a_bad_answer(config: dict[str, Any]) -> None:
    with contextlib.suppress(BadAnswer):
        published.read(config)


# -- several gateways and APIs (cases 28, 29) ------------------------------------------------------


def test_case_28_an_unknown_gateway_is_refused_in_pinned_mode_naming_it() -> None:
    mine = policy(Api(A))
    mine.default()
    with pytest.raises(HostKeyRefused, match=r"\[other\.example\.org\]:2200") as caught:
        mine.for_endpoint(Endpoint("other.example.org", 2200))
    assert "import" in (caught.value.hint or "")


def test_case_28_a_gateway_pinned_by_hand_is_trusted() -> None:
    mine = policy(Api(A))
    mine.default()
    with paths.pin_file().open("a") as handle:
        handle.write(f"[other.example.org]:2200 {B}\n")
    trust = mine.for_endpoint(Endpoint("other.example.org", 2200))
    assert (trust.mode, trust.alias) == (Mode.PINNED, "[other.example.org]:2200")


def test_case_28_an_unknown_gateway_inherits_where_nothing_is_pinned() -> None:
    assert policy(Api()).for_endpoint(Endpoint("other.example.org")).mode is Mode.INHERITED


def test_case_29_two_apis_have_two_pins_in_one_file() -> None:
    cloud, own = "https://app.daytona.io/api", "https://own.example.org/api"
    for _ in range(2):
        policy(Api(A, host="ssh.daytona.example"), DAYTONA_API_URL=cloud).default()
        policy(Api(B, host="own.example.org"), DAYTONA_API_URL=own).default()
    assert entries() == [f"[ssh.daytona.example]:2222 {A}", f"[own.example.org]:2222 {B}"]
    down = Api()
    down.fail()
    assert policy(down, DAYTONA_API_URL=cloud).default().endpoint.host == "ssh.daytona.example"
    assert policy(down, DAYTONA_API_URL=own).default().endpoint.host == "own.example.org"
    with pytest.raises(ApiUnreachable):
        policy(down, DAYTONA_API_URL="https://third.example.org/api").default()


def test_case_29_the_pin_of_another_api_is_not_taken_for_ours() -> None:
    policy(Api(A), DAYTONA_API_URL="https://other.example.org/api").default()
    down = Api()
    down.fail()
    with pytest.raises(ApiUnreachable):
        policy(down).default()


def test_the_only_pin_of_a_file_without_our_comments_is_ours() -> None:
    write(f"{NAME} {A}\n")
    down = Api()
    down.fail()
    assert policy(down).default().endpoint == Endpoint(HOST, 2222)


# -- manual mode (cases 31, 34) --------------------------------------------------------------------


def test_case_34_manual_uses_that_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "with blanks in it"
    file.write_text(f"{NAME} {B}\n")
    write(f"{NAME} {A}\n")
    mine = policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=str(file))
    trust = mine.default()
    assert (trust.mode, trust.known_hosts, trust.alias) == (Mode.MANUAL, file, NAME)
    assert len(mine.warnings) == 1
    assert fingerprint("a") in mine.warnings[0] and fingerprint("b") in mine.warnings[0]
    assert file.read_text() == f"{NAME} {B}\n"
    assert entries() == [f"{NAME} {A}"]


def test_case_34_manual_file_in_home_is_expanded_once(home: Path) -> None:
    (home / "~").mkdir()
    (home / "~" / "hosts").write_text(f"{NAME} {A}\n")
    trust = policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS="~/~/hosts").default()
    assert trust.known_hosts == home / "~" / "hosts"


@pytest.mark.parametrize(
    "path", ['/tmp/a"b', "/tmp/${HOME}/x", "relative/hosts", "~other/hosts", "/tmp/a\tb", "hosts"]
)
def test_case_34_manual_paths_that_are_refused(path: str) -> None:
    with pytest.raises(BadSetting, match="DAYTONA_SSH_KNOWN_HOSTS"):
        policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=path).default()


def test_case_34_a_pin_file_in_a_place_that_ssh_cannot_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / 'a "quoted" place'))
    with pytest.raises(BadSetting, match="double quote"):
        policy(Api(A)).default()


@pytest.mark.parametrize(
    "content", [None, b"", b"# only a comment\n", b"\0\0\0", b"garbage\n", b"\xff\xfe"]
)
def test_case_31_an_unusable_manual_file_is_named_and_nothing_else_is_tried(
    tmp_path: Path, content: bytes | None
) -> None:
    write(f"{NAME} {A}\n")
    file = tmp_path / "hosts"
    if content is not None:
        file.write_bytes(content)
    api = Api(A)
    with pytest.raises(BadSetting, match="DAYTONA_SSH_KNOWN_HOSTS") as caught:
        policy(api, DAYTONA_SSH_KNOWN_HOSTS=str(file)).default()
    assert str(file) in caught.value.message


def test_case_31_a_manual_directory_and_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"not a regular file|is a directory"):
        policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=str(tmp_path)).default()
    if os.geteuid() != 0:
        file = tmp_path / "hosts"
        file.write_text(f"{NAME} {A}\n")
        file.chmod(0)
        with pytest.raises(BadSetting, match="permission denied"):
            policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=str(file)).default()


def test_a_bare_host_in_the_manual_file_does_not_serve_another_port(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"x {B}\n{HOST} {A}\n")
    with pytest.raises(
        HostKeyRefused,
        match=r"line 2 is for 'gw\.example\.org' on port 22 and does not serve port 2222",
    ):
        policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=str(file)).default()


def test_a_bad_line_for_the_gateway_in_the_manual_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"x {B}\n{NAME} ssh-ed25519 AAAA\n")
    with pytest.raises(HostKeyRefused, match="line 2"):
        policy(Api(A), DAYTONA_SSH_KNOWN_HOSTS=str(file)).default()


def test_manual_mode_without_the_api_takes_the_only_gateway_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{NAME} {A}\n")
    api = Api()
    api.fail()
    assert policy(api, DAYTONA_SSH_KNOWN_HOSTS=str(file)).default().endpoint == Endpoint(HOST, 2222)
    file.write_text(f"{NAME} {A}\nother {B}\n")
    with pytest.raises(ApiUnreachable):
        policy(api, DAYTONA_SSH_KNOWN_HOSTS=str(file)).default()


def test_pinning_switched_off_inherits_and_writes_nothing() -> None:
    mine = policy(Api(A), DAYTONA_SSH_AUTO_PIN="false")
    assert mine.default().mode is Mode.INHERITED
    assert mine.for_endpoint(Endpoint("elsewhere")).mode is Mode.INHERITED
    assert not paths.pin_file().exists()


# -- asked once; rotation and forgetting while a process runs (case 65) ----------------------------


def test_the_api_is_asked_once_per_start_by_many_threads() -> None:
    api = Api(A)
    mine = policy(api)
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait(10)
        for _ in range(3):
            mine.default()
            mine.for_endpoint(Endpoint(HOST, 2222))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert api.asked == 1
    assert entries() == [f"{NAME} {A}"]


def test_case_65_a_rotation_in_a_running_process_renews_the_pin_once() -> None:
    api, clock = Api(A), Clock()
    mine = policy(api, clock)
    trust = mine.default()
    api.publish(A, B)
    clock.now += 3600
    problem = mine.refusal(trust, changed(fingerprint("b")))
    assert isinstance(problem, PinRenewed)
    assert problem.transient and problem.status == HostKeyRefused.status
    assert entries() == [f"{NAME} {A}", f"{NAME} {B}"]
    assert mine.default() == trust
    # ssh goes on refusing what it should accept: that must not go round for ever.
    again = mine.refusal(trust, changed(fingerprint("b")))
    assert again is not None and not again.transient


def test_case_27_a_substituted_key_is_refused_with_both_fingerprints() -> None:
    api, clock = Api(A), Clock()
    mine = policy(api, clock)
    trust = mine.default()
    clock.now += 3600
    problem = mine.refusal(trust, changed(fingerprint("c")))
    assert problem is not None and not problem.transient
    for part in (
        fingerprint("a"),
        fingerprint("c"),
        str(paths.pin_file()),
        "which Daytona does not publish",
    ):
        assert part in problem.message
    assert api.asked == 2
    for _ in range(5):
        mine.refusal(trust, changed(fingerprint("c")))
    assert api.asked == 2, "the API is not asked more often than once a second"


def test_case_65_a_key_changed_while_a_process_runs_is_refused_until_it_is_forgotten() -> None:
    api, clock = Api(A), Clock()
    mine = policy(api, clock)
    trust = mine.default()
    api.publish(B)
    clock.now += 3600
    problem = mine.refusal(trust, changed(fingerprint("b")))
    assert problem is not None and not problem.transient
    assert fingerprint("a") in problem.message and fingerprint("b") in problem.message
    with pytest.raises(HostKeyRefused):
        mine.default()
    paths.pin_file().unlink()
    assert mine.default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {B}"]


def test_a_pin_is_not_made_from_an_old_answer() -> None:
    api, clock = Api(A), Clock()
    mine = policy(api, clock)
    mine.default()
    paths.pin_file().unlink()
    api.publish(B)
    clock.now += 3600
    mine.default()
    assert entries() == [f"{NAME} {B}"]


def test_evidence_from_ssh_beats_an_answer_of_just_now() -> None:
    api = Api(A)
    mine = policy(api)
    trust = mine.default()
    api.publish(A, B)
    assert isinstance(mine.refusal(trust, changed(fingerprint("b"))), PinRenewed)
    api.publish(A, B, C)
    problem = mine.refusal(trust, changed(fingerprint("c")))
    assert problem is not None and not problem.transient, "once a second is enough"
    assert api.asked == 2


def test_a_refusal_is_not_based_on_an_old_answer() -> None:
    api, clock = Api(A), Clock()
    mine = policy(api, clock)
    mine.default()
    write(f"{NAME} {B}\n")
    api.publish(B)
    clock.now += 3600
    assert mine.default().mode is Mode.PINNED
    assert api.asked == 2


def test_an_api_that_was_down_is_asked_again_after_a_while() -> None:
    api, clock = Api(A), Clock()
    answer = api.answer
    api.fail()
    mine = policy(api, clock)
    for _ in range(3):
        with pytest.raises(ApiUnreachable):
            mine.default()
    assert api.asked == 1
    api.answer = answer
    clock.now += 61
    assert mine.default().mode is Mode.PINNED


def test_what_is_no_host_key_failure_is_not_ours() -> None:
    mine = policy(Api(A))
    trust = mine.default()
    for text in (
        "",
        "Connection closed by 127.0.0.1 port 22\n",
        "user@host: Permission denied (publickey).\n",
        "fatal: early EOF\n",
    ):
        assert mine.refusal(trust, text) is None


def test_a_jump_hosts_key_is_told_from_the_gateways() -> None:
    mine = policy(Api(A))
    problem = mine.refusal(mine.default(), changed(fingerprint("b"), "jump.example.org"))
    assert problem is not None
    assert "'jump.example.org'" in problem.message


def test_a_revoked_key_is_said_to_be_revoked() -> None:
    mine = policy(Api(A))
    trust = mine.default()
    text = (
        f"The ED25519 host key for {NAME} is marked as revoked.\r\nHost key verification "
        "failed.\r\n"
    )
    problem = mine.refusal(trust, text)
    assert problem is not None and "revoked" in problem.message


def test_inherited_refusal_shows_what_is_known(tmp_path: Path) -> None:
    mine = policy(Api())
    problem = mine.refusal(mine.default(), changed(fingerprint("b")))
    assert problem is not None and fingerprint("b") in problem.message


def test_a_revoked_published_key_is_not_pinned() -> None:
    write(f"{NAME} {A}\n@revoked {NAME} {B}\n")
    assert policy(Api(A, B)).default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {A}", f"@revoked {NAME} {B}"]
    with pytest.raises(HostKeyRefused):
        policy(Api(B)).default()


# -- the file itself (case 32) ---------------------------------------------------------------------


def _pin_one(seed: str, gate: Any, outcome: Any) -> None:
    gate.wait(30)
    try:
        policy(Api(key(seed))).default()
        outcome.put(seed)
    except HostKeyRefused:
        outcome.put("refused")


def test_case_32_two_processes_pinning_different_keys_have_one_winner() -> None:
    context = multiprocessing.get_context("fork")
    gate, outcome = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_pin_one, args=(seed, gate, outcome)) for seed in ("a", "b")]
    for worker in workers:
        worker.start()
    results = sorted(outcome.get(timeout=30) for _ in workers)
    for worker in workers:
        worker.join(30)
    winner = next(each for each in results if each != "refused")
    assert results == sorted(["refused", winner])
    assert entries() == [f"{NAME} {key(winner)}"]


def test_a_first_pin_that_cannot_be_written_is_an_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = Path.home() / "blocked"
    blocked.write_text("a file where a directory is needed")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked))
    with pytest.raises(BadSetting, match="blocked"):
        policy(Api(A)).default()


def test_case_32_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the full disk: the write fails half-way."""
    policy(Api(A)).default()
    before = paths.pin_file().read_bytes()
    child = os.fork()
    if child == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, len(before) + 5))
        mine = policy(Api(A, B))
        trusted = mine.default().mode is Mode.PINNED and any(
            "not pinned" in line for line in mine.warnings
        )
        os._exit(0 if trusted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert paths.pin_file().read_bytes() == before
    assert [each.name for each in paths.pin_file().parent.iterdir()] == [paths.pin_file().name]


def test_forgetting_keeps_everything_else() -> None:
    mine = f"# my comment\n{NAME} {A}\nother.example.org {B} mine\n@revoked * {C}\n"
    write(mine)
    pins = pin_file.load(paths.pin_file())
    pin_file.forget(paths.pin_file(), pins, Endpoint(HOST, 2222))
    assert paths.pin_file().read_text() == mine.replace(f"{NAME} {A}\n", "")


def test_forgetting_the_last_pin_removes_the_file_or_leaves_a_mark() -> None:
    policy(Api(A)).default()
    pin_file.forget(paths.pin_file(), pin_file.load(paths.pin_file()), Endpoint(HOST, 2222))
    assert not paths.pin_file().exists()
    write(f"# my comment\n{NAME} {A}\n")
    pin_file.forget(paths.pin_file(), pin_file.load(paths.pin_file()), Endpoint(HOST, 2222))
    assert "# my comment\n" in paths.pin_file().read_text()
    assert policy(Api(B)).default().mode is Mode.PINNED
    assert entries() == [f"{NAME} {B}"]
    assert "nothing is pinned" not in paths.pin_file().read_text()


def test_a_file_without_a_last_newline_is_continued_on_a_new_line() -> None:
    write(f"{NAME} {A}")
    policy(Api(A, B)).default()
    assert entries() == [f"{NAME} {A}", f"{NAME} {B}"]


@given(st.binary(max_size=300), st.sampled_from([b"", f"{NAME} {A}\n".encode()]))
@hypothesis_settings(deadline=None, max_examples=60)
def test_any_pin_file_is_used_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, before: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-pin-file"
    path.write_bytes(before + content)
    with contextlib.suppress(HostKeyRefused):
        assert pin_file.load(path).lines or b"nothing is pinned" in content


@pytest.mark.parametrize(
    ("name", "endpoint"),
    [
        ("host", Endpoint("host")),
        ("[Host]:2222", Endpoint("host", 2222)),
        ("[::1]:22", Endpoint("::1")),
        ("[::1]:2222", Endpoint("::1", 2222)),
        ("*", None),
        ("[host]", None),
        ("[host]:0", None),
        ("[host]:99999", None),
        ("[host]:²", None),
        ("|1|a|b", None),
        ("", None),
    ],
)
def test_endpoint_of(name: str, endpoint: Endpoint | None) -> None:
    assert endpoint_of(name) == endpoint
