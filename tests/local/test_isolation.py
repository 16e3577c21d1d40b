"""Each kind of isolation, with real processes: what a sandbox sees, what it cannot do, and how it
ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import git_daytona
from git_daytona.local.core.model import ApiError, Isolation, Program, Sandbox
from git_daytona.local.isolation import enclosed, plain
from git_daytona.local.isolation.choose import choose
from git_daytona.local.isolation.plain import replace_home
from support.lacking import needs_ps

SECONDS = 20.0


def make(folder: Path, name: str) -> Sandbox:
    # Without isolation, what carries a sandbox's id is ended with it: also what another run of
    # these tests has started.
    return Sandbox(
        id=f"{name}-{uuid.uuid4().hex}", name=name, directory=folder / name, state="started"
    )


def run(isolation: Isolation, sandbox: Sandbox, script: str, **more: object) -> tuple[int, str]:
    """Status and both streams of a shell script."""
    command = Program(["sh", "-c", script], stderr=subprocess.STDOUT, **more)
    process = isolation.popen(sandbox, command)
    out, _ = process.communicate(timeout=SECONDS)
    return process.returncode, out.decode()


def eventually(condition: Callable[[], bool]) -> bool:
    """Look at something that no event tells of (the process table) until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def living(mark: str) -> list[int]:
    """Host ids of processes with this text among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark.encode() in (folder / "cmdline").read_bytes()
                and int(folder.name) != os.getpid()
            ):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def sleeper() -> str:
    """Arguments of sleep(1) that no other process has; about a quarter of an hour."""
    return f"900.{uuid.uuid4().int}"


def kind(folder: Path, mode: str) -> Isolation:
    try:
        return choose(folder, mode=mode)
    except ApiError as error:
        pytest.skip(error.message)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "daytona"


@pytest.fixture(params=["bubblewrap", "namespaces"])
def isolation(request: pytest.FixtureRequest, root: Path) -> Isolation:
    return kind(root, request.param)


@pytest.fixture(params=["bubblewrap", "namespaces", "plain"])
def any_isolation(request: pytest.FixtureRequest, root: Path) -> Isolation:
    return kind(root, request.param)


@pytest.fixture
def sandbox(isolation: Isolation, root: Path) -> Iterator[Sandbox]:
    one = make(root, "one")
    isolation.start(one)
    yield one
    isolation.stop(one)


@pytest.fixture
def any_sandbox(any_isolation: Isolation, root: Path) -> Iterator[Sandbox]:
    one = make(root, "one")
    any_isolation.start(one)
    yield one
    any_isolation.stop(one)


# What every kind does, isolating or not
# --------------------------------------------------------------------------------


def test_status_and_streams(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    process = any_isolation.popen(
        any_sandbox, Program(["sh", "-c", "echo out; echo err >&2; exit 7"])
    )
    assert process.communicate(timeout=SECONDS) == (b"out\n", b"err\n")
    assert process.returncode == 7


def test_a_signal_is_reported_as_such(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    status, _ = run(any_isolation, any_sandbox, "kill -TERM $$")
    assert status == -signal.SIGTERM


def test_input_ends_when_it_is_closed(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    data = os.urandom(1 << 20)
    process = any_isolation.popen(any_sandbox, Program(["cat"], stdin=subprocess.PIPE))
    out, _ = process.communicate(data, timeout=SECONDS)
    assert out == data
    assert process.returncode == 0


def test_environment_is_clean(
    any_isolation: Isolation, any_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", "host-secret")
    any_sandbox.env = {"OWN": "one"}
    _, out = run(any_isolation, any_sandbox, "env", env={"MORE": "two"})
    lines = out.splitlines()
    assert {"OWN=one", "MORE=two", "DAYTONA_SANDBOX_USER=daytona"} <= set(lines)
    assert not {line.partition("=")[0] for line in lines} & {"USER", "LOGNAME", "SHELL", "TERM"}
    assert "host-secret" not in out


def test_working_directory(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    (any_sandbox.home / "project/deep").mkdir(parents=True)
    for cwd in ("project/deep", "/home/daytona/project/deep"):
        _, out = run(any_isolation, any_sandbox, "echo here > file; pwd", cwd=cwd)
        assert out.strip().endswith("/project/deep")
        assert (any_sandbox.home / "project/deep/file").read_text() == "here\n"
    _, out = run(any_isolation, any_sandbox, 'cd && test "$PWD" = "$HOME" && cat project/deep/file')
    assert out == "here\n"


def test_home_works_by_its_name(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    status, out = run(
        any_isolation,
        any_sandbox,
        "git init -q '/home/daytona/project' && cd /home/daytona/project && ls -A",
    )
    assert (status, out) == (0, ".git\n")
    assert (
        any_isolation.path(any_sandbox, "/home/daytona/project/.git")
        == any_sandbox.home.resolve() / "project/.git"
    )


def test_git_trusts_what_either_side_made(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    subprocess.run(["git", "init", "-q", any_sandbox.home / "outside"], check=True)
    status, out = run(any_isolation, any_sandbox, "git -C outside status && git init -q inside")
    assert status == 0, out
    subprocess.run(
        ["git", "-C", any_sandbox.home / "inside", "status"], check=True, capture_output=True
    )


@needs_ps
def test_a_background_server_lives_until_stop(
    any_isolation: Isolation, any_sandbox: Sandbox
) -> None:
    mark = sleeper()
    status, _ = run(any_isolation, any_sandbox, f"sleep {mark} >/dev/null 2>&1 &")
    assert status == 0
    assert len(living(mark)) == 1
    _, out = run(any_isolation, any_sandbox, "ps -eo args")
    assert mark in out
    any_isolation.stop(any_sandbox)
    assert living(mark) == []


def test_stop_ends_what_left_its_group(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    mark = sleeper()
    run(any_isolation, any_sandbox, f"setsid sleep {mark} >/dev/null 2>&1 &")
    assert eventually(lambda: len(living(mark)) == 1)
    any_isolation.stop(any_sandbox)
    assert living(mark) == []


def test_killing_the_group_ends_command_and_children(
    any_isolation: Isolation, any_sandbox: Sandbox
) -> None:
    mark = sleeper()
    process = any_isolation.popen(
        any_sandbox, Program(["sh", "-c", f"sleep {mark} & sleep {mark} & echo up; wait"])
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert eventually(lambda: living(mark) == [])


def test_start_and_stop_may_be_repeated(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: any_isolation.start(any_sandbox), range(8)))
        assert run(any_isolation, any_sandbox, "true")[0] == 0
        list(pool.map(lambda _: any_isolation.stop(any_sandbox), range(8)))
    with pytest.raises(ApiError) as refused:
        any_isolation.popen(any_sandbox, Program(["true"]))
    assert refused.value.status == 409
    any_isolation.start(any_sandbox)
    assert run(any_isolation, any_sandbox, "true")[0] == 0


def test_many_threads_at_once(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(16) as pool:
        results = list(
            pool.map(lambda n: run(any_isolation, any_sandbox, f"echo {n}; exit {n}"), range(64))
        )
    assert results == [(n, f"{n}\n") for n in range(64)]


def test_nothing_leaks(any_isolation: Isolation, root: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    threads = threading.active_count()
    before = descriptors()
    for _ in range(3):
        one = make(root, "leak")
        any_isolation.start(one)
        for _ in range(5):
            run(any_isolation, one, "true")
        any_isolation.stop(one)
    assert descriptors() <= before
    assert threading.active_count() == threads


SERVER = """
import sys
from pathlib import Path
from git_daytona.local.isolation.choose import choose
from git_daytona.local.core.model import Program, Sandbox
root, mode, mark = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
isolation = choose(root, mode=mode)
sandbox = Sandbox(id=mark, name="one", directory=root / "one")
isolation.start(sandbox)
command = f"setsid sleep {mark} & sleep {mark} & echo up; wait"
process = isolation.popen(sandbox, Program(["sh", "-c", command]))
assert process.stdout.readline() == b"up\\n"
command = f"sleep {mark} >/dev/null 2>&1 & exit"
isolation.popen(sandbox, Program(["sh", "-c", command], stdout=None, stderr=None)).wait()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["bubblewrap", "namespaces", "plain"])
def test_nothing_survives_the_server(mode: str, root: Path) -> None:
    kind(root, mode)
    mark = sleeper()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, root, mode, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        os.kill(server.pid, signal.SIGKILL)
        server.wait(SECONDS)
        # Without isolation, what left its process group is found by the watcher of nobody.
        spared = 1 if mode == "plain" else 0
        try:
            assert eventually(lambda: len([p for p in living(mark) if _is_sleep(p)]) <= spared)
        finally:
            for pid in living(mark):
                if _is_sleep(pid):
                    os.kill(pid, signal.SIGKILL)


def _is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
    except OSError:
        return False


# What isolation keeps apart
# --------------------------------------------------------------------------------------------


@needs_ps
def test_sandboxes_do_not_see_each_other(
    isolation: Isolation, sandbox: Sandbox, root: Path
) -> None:
    other = make(root, "two")
    isolation.start(other)
    try:
        mark = sleeper()
        run(isolation, sandbox, f"touch only-mine /tmp/only-mine; sleep {mark} >/dev/null 2>&1 &")
        _, out = run(
            isolation, other, f"ps -eo args; ls -A ~ /tmp; ls {sandbox.directory}; ls {root}"
        )
        assert mark not in out
        assert "only-mine" not in out
        assert "one" not in out.split()
        assert (sandbox.home / "only-mine").exists()
        assert (sandbox.tmp / "only-mine").exists()
    finally:
        isolation.stop(other)


def test_only_its_own_processes(isolation: Isolation, sandbox: Sandbox) -> None:
    _, out = run(
        isolation,
        sandbox,
        f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()} && echo reached; kill -9 1; echo end",
    )
    count, *rest = out.split()
    assert int(count) < 6
    assert "reached" not in rest
    assert run(isolation, sandbox, "echo alive") == (0, "alive\n")


def test_hosts_private_places_are_hidden(
    isolation: Isolation, sandbox: Sandbox, root: Path
) -> None:
    secret = root / "host_keys/secret"
    secret.parent.mkdir()
    secret.write_text("key")
    real_home = str(Path.home())
    _, out = run(
        isolation, sandbox, f"cat {secret}; ls -A {real_home} | wc -l; ls /home; ls -A /run | wc -l"
    )
    assert "key" not in out.split()
    assert out.split()[-3:] == ["0", "daytona", "0"] or real_home == "/home/daytona"
    _, out = run(isolation, sandbox, "cat /etc/shadow")
    assert "root:" not in out


def test_places_outside_tmp_are_hidden_too(isolation: Isolation) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a place outside /tmp that it may write to")
    with tempfile.TemporaryDirectory(dir="/var/lib") as folder:
        home, root = Path(folder, "home"), Path(folder, "daytona")
        for secret in (home / "secret", root / "host_keys/secret"):
            secret.parent.mkdir(parents=True)
            secret.write_text("private")
        elsewhere = choose(root, mode=isolation.name, home=home)
        sandbox = make(root, "one")
        elsewhere.start(sandbox)
        try:
            assert run(elsewhere, sandbox, f"ls -A {root} {home}")[1].split() == [
                f"{root}:",
                f"{home}:",
            ]
            (sandbox.home / "link").symlink_to(root)
            for path in (
                home / "secret",
                root / "host_keys/secret",
                sandbox.directory / "passwd",
                "link/host_keys/secret",
            ):
                with pytest.raises(ApiError) as refused:
                    elsewhere.path(sandbox, str(path))
                assert refused.value.status == 403
        finally:
            elsewhere.stop(sandbox)


@pytest.mark.parametrize(
    "attempt",
    [
        "touch /etc/written",
        "touch /usr/written",
        "touch /written",
        "touch /home/written",
        "touch /root/written",
        "mount -o remount,rw /",
        "mount -t tmpfs none /mnt",
        "umount /root",
        "mknod disk b 8 0",
        "echo 1 > /proc/sys/kernel/panic_on_oops",
        "echo h > /proc/sysrq-trigger",
        "chroot / true",
        "unshare --mount true",
        "unshare --user --map-root-user --mount mount -o remount,rw /",
        "nsenter --target 1 --mount touch /etc/written",
    ],
)
def test_it_cannot_change_the_machine(isolation: Isolation, sandbox: Sandbox, attempt: str) -> None:
    status, _ = run(isolation, sandbox, attempt)
    assert status != 0


def test_no_capabilities_and_none_to_gain(isolation: Isolation, sandbox: Sandbox) -> None:
    _, out = run(isolation, sandbox, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    values = dict(line.split(":\t") for line in out.splitlines())
    assert {int(values[name], 16) for name in values if name.startswith("Cap")} == {0}
    assert values["NoNewPrivs"] == "1"


def test_devices_and_shared_memory_of_its_own(isolation: Isolation, sandbox: Sandbox) -> None:
    name = f"daytona-{uuid.uuid4()}"
    status, out = run(
        isolation,
        sandbox,
        "echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc "
        f"-c && touch /dev/shm/{name} /tmp/t",
    )
    assert (status, out.split()) == (0, ["4", "4"])
    assert not Path("/dev/shm", name).exists()
    assert run(isolation, sandbox, "ls /dev | grep -E '^(sd|vd|nvme|mem|kmsg)'")[0] == 1


@needs_ps
def test_orphans_are_reaped(isolation: Isolation, sandbox: Sandbox) -> None:
    run(isolation, sandbox, "for n in 1 2 3 4 5; do (setsid sleep 0.05 >/dev/null 2>&1 &); done")
    assert eventually(lambda: "sleep" not in run(isolation, sandbox, "ps -eo stat,comm")[1])


def test_loopback_is_shared(isolation: Isolation, sandbox: Sandbox) -> None:
    assert "lo:" in run(isolation, sandbox, "cat /proc/net/dev")[1]


def test_tools_are_found_and_missing_ones_reported(isolation: Isolation, sandbox: Sandbox) -> None:
    assert run(isolation, sandbox, "command -v git sh bash")[0] == 0
    process = isolation.popen(sandbox, Program(["no-such-program"]))
    process.communicate(timeout=SECONDS)
    assert process.returncode == 127


def test_the_user_is_daytona(isolation: Isolation, sandbox: Sandbox) -> None:
    assert run(isolation, sandbox, 'whoami; echo ~; echo ~daytona; echo "$HOME"')[1].split() == [
        "daytona",
        *["/home/daytona"] * 3,
    ]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for until the limit takes longer than any test may."""
    for kind in (enclosed, plain):
        monkeypatch.setattr(kind, "STOP_SECONDS", 1000.0)


@pytest.mark.usefixtures("patient")
def test_stopped_processes_do_not_hold_stop_up(isolation: Isolation, sandbox: Sandbox) -> None:
    process = isolation.popen(sandbox, Program(["sh", "-c", "kill -STOP $$"]))
    isolation.stop(sandbox)
    process.communicate(timeout=SECONDS)


@pytest.mark.usefixtures("patient")
def test_a_killed_command_does_not_hold_stop_up(isolation: Isolation, sandbox: Sandbox) -> None:
    process = isolation.popen(sandbox, Program(["sleep", "900"]))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    isolation.stop(sandbox)


# Paths
# --------------------------------------------------------------------------------------------------


def test_paths_of_its_own_places(isolation: Isolation, sandbox: Sandbox) -> None:
    home, tmp = sandbox.home.resolve(), sandbox.tmp.resolve()
    (home / "real").mkdir()
    (home / "absolute").symlink_to("/home/daytona/real")
    (home / "real/up").symlink_to("../real")
    (tmp / "link").symlink_to("/home/daytona/absolute/up")
    for path, expected in {
        "": home,
        "/home/daytona": home,
        "a/b/c": home / "a/b/c",
        "absolute/new": home / "real/new",
        "real/up/up/new": home / "real/new",
        "/tmp/link/x": home / "real/x",
        "/var/tmp/y": tmp / "y",
        "/../../home/daytona/./x": home / "x",
        "missing/../real": home / "real",
    }.items():
        assert isolation.path(sandbox, path) == expected, path


@pytest.mark.parametrize("link", [None, "absolute", "relative"])
@pytest.mark.parametrize(
    "place", ["/root/.ssh/id", "/proc/self/environ", "/dev/mem", "/run/x", "/home/other"]
)
def test_paths_of_hidden_places_are_refused(
    isolation: Isolation, sandbox: Sandbox, place: str, link: str | None
) -> None:
    if link == "absolute":
        (sandbox.home / "link").symlink_to(place)
    elif link == "relative":
        (sandbox.home / "link").symlink_to("../.." + place)
    with pytest.raises(ApiError) as refused:
        isolation.path(sandbox, "link" if link else place)
    assert refused.value.status == 403


def test_paths_of_the_host_are_read_only(isolation: Isolation, sandbox: Sandbox) -> None:
    assert "daytona:" in isolation.path(sandbox, "/etc/passwd").read_text()
    assert isolation.path(sandbox, "/usr/bin/git").is_file()
    with pytest.raises(OSError, match=r"Read-only file system|Permission denied"):
        isolation.path(sandbox, "/etc/written").write_text("x")


def test_paths_that_lead_nowhere(any_isolation: Isolation, any_sandbox: Sandbox) -> None:
    (any_sandbox.home / "loop").symlink_to("loop")
    for path in ("loop", "loop/x", "a\0b"):
        with pytest.raises(ApiError) as refused:
            any_isolation.path(any_sandbox, path)
        assert refused.value.status == 400


# Choosing
# --------------------------------------------------------------------------------------------------


def test_auto_takes_the_first_that_works(root: Path) -> None:
    chosen = choose(root)
    for mode in ("bubblewrap", "namespaces", "plain"):
        try:
            expected = choose(root, mode=mode)
            break
        except ApiError:
            continue
    assert chosen.name == expected.name
    assert list(root.iterdir()) == []


def test_plain_says_so_loudly(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = choose(root, mode="plain")
    assert not chosen.isolates
    assert capsys.readouterr().err.count("NOT isolated") == 1


def test_unknown_mode(root: Path) -> None:
    with pytest.raises(ValueError, match="vm"):
        choose(root, mode="vm")


def test_nothing_to_isolate_with(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(ApiError, match="bubblewrap"):
        choose(root, mode="bubblewrap")
    assert choose(root).name == "plain"
    assert "NOT isolated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/daytona", "/srv/h"),
        ("git-upload-pack '/home/daytona/project'", "git-upload-pack '/srv/h/project'"),
        ("x=/home/daytona:/home/daytona/bin", "x=/srv/h:/srv/h/bin"),
        (
            "/home/daytona2 /home/daytona.x x/home/daytona",
            "/home/daytona2 /home/daytona.x x/home/daytona",
        ),
    ],
)
def test_plain_puts_its_folder_in_place(text: str, expected: str) -> None:
    assert replace_home(text, "/srv/h") == expected


def test_plain_refuses_hidden_places(root: Path) -> None:
    isolation = choose(root, mode="plain")
    sandbox = make(root, "one")
    isolation.start(sandbox)
    try:
        (sandbox.home / "link").symlink_to(Path.home())
        for path in ("link/.ssh", str(root / "host_keys")):
            with pytest.raises(ApiError) as refused:
                isolation.path(sandbox, path)
            assert refused.value.status == 403
    finally:
        isolation.stop(sandbox)


# An ordinary user
# --------------------------------------------------------------------------------------------------

USER = """
import os, sys, tempfile
import uuid
from pathlib import Path
from git_daytona.local.isolation.choose import choose
from git_daytona.local.core.model import ApiError, Program, Sandbox
with tempfile.TemporaryDirectory() as folder:
    root = Path(folder, "daytona")
    try:
        isolation = choose(root, mode=sys.argv[1])
    except ApiError as error:
        print("skip", error.message)
        sys.exit()
    sandbox = Sandbox(id=uuid.uuid4().hex, name="one", directory=root / "one")
    isolation.start(sandbox)
    script = (
        "touch file /tmp/file && ! touch /etc/x && ! mount -o remount,rw / &&"
        "git init -q p && ps -e | wc -l"
    )
    process = isolation.popen(sandbox, Program(["sh", "-c", script]))
    out, err = process.communicate()
    isolation.stop(sandbox)
    assert process.returncode == 0, err
    assert int(out) < 8, out
    assert (sandbox.home / "file").stat().st_uid == os.getuid()
    print("done", os.getuid())
"""


@needs_ps
@pytest.mark.parametrize("mode", ["bubblewrap", "namespaces"])
def test_works_for_an_ordinary_user(mode: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become another user")
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    pythons = [
        p
        for p in (sys.executable, "/usr/bin/python3")
        if subprocess.run(
            [*become, "sh", "-c", 'exec "$0" -c "$1"', p, check], capture_output=True
        ).returncode
        == 0
    ]
    if not pythons:
        pytest.skip("no Python that another user may run")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(
            Path(git_daytona.__file__).parent / "local", Path(folder, "git_daytona/local")
        )
        Path(folder, "git_daytona/__init__.py").touch()
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        result = subprocess.run(
            [*become, pythons[0], "-B", "-W", "error", "-c", USER, mode],
            env={"PATH": os.defpath + ":/usr/sbin", "PYTHONPATH": folder, "HOME": "/nonexistent"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.returncode == 0, result.stderr
    if result.stdout.startswith("skip"):
        pytest.skip(result.stdout)
    assert result.stdout == "done 65534\n"
