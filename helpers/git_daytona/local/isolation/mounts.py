"""The first program of a sandbox made without bubblewrap: builds its file system, then becomes its
process 1.

Run by `unshare --mount --pid --fork` as a script of the standard library alone; its one argument is
JSON: ``root`` (an empty folder), ``binds`` ([source, target, writable]), ``hidden`` (folders),
``exec`` (the program to become).
"""

import ctypes
import errno
import json
import os
import sys

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
SYS_MOUNT_SETATTR = 442  # the same number on every architecture (Linux 5.12)
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

libc = ctypes.CDLL(None, use_errno=True)


class MountAttr(ctypes.Structure):
    """struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encode = os.fsencode
    result = libc.mount(
        encode(source),
        encode(target),
        None if kind is None else encode(kind),
        ctypes.c_ulong(flags),
        None if data is None else encode(data),
    )
    check(result, f"mount on {target}")


def read_only(target: str, *, recursive: bool = False) -> None:
    """Make a mount (and those below it) read-only and deaf to set-user-id."""
    # the MOUNT_ATTR_ values of these two are those of MS_
    wanted = MountAttr(attr_set=MS_RDONLY | MS_NOSUID)
    flags = AT_RECURSIVE if recursive else 0
    result = libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR),
        AT_FDCWD,
        os.fsencode(target),
        ctypes.c_uint(flags),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    if result == 0:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        check(result, f"read-only {target}")
    for place in _mounts_under(target) if recursive else [target]:
        # Flags that the mount has must be repeated: those of a less privileged copy are locked
        # (mount_namespaces(7)).
        kept = os.statvfs(place).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048)
        if os.statvfs(place).f_flag & 4096:  # ST_RELATIME
            kept |= 1 << 21
        mount("none", place, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _mounts_under(target: str) -> list[str]:
    with open("/proc/self/mountinfo", "rb") as table:  # noqa: PTH123
        raw = [line.split()[4] for line in table]
    places = [os.fsdecode(place.decode("unicode_escape").encode("latin-1")) for place in raw]
    return [place for place in places if place == target or place.startswith(target + "/")]


def build_dev(dev: str) -> None:
    """A /dev with the harmless devices, terminals and shared memory of its own; the host's disks
    are not there."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):  # noqa: PTH110
            os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
            mount(f"/dev/{name}", f"{dev}/{name}", None, MS_BIND)
    os.mkdir(f"{dev}/shm")  # noqa: PTH102
    mount("tmpfs", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    os.mkdir(f"{dev}/pts")  # noqa: PTH102
    mount(
        "devpts",
        f"{dev}/pts",
        "devpts",
        MS_NOSUID | MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=620",
    )
    os.symlink("pts/ptmx", f"{dev}/ptmx")  # noqa: PTH211
    os.symlink("/proc/self/fd", f"{dev}/fd")  # noqa: PTH211
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{dev}/{name}")  # noqa: PTH211


def build(root: str, binds: list[tuple[str, str, bool]], hidden: list[str]) -> None:
    """Make ``root`` the file system of this process; nothing of the old one stays reachable."""
    mount("/", root, None, MS_BIND | MS_REC)
    read_only(root, recursive=True)
    for place in hidden:
        mount("tmpfs", root + place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for source, target, writable in binds:
        if not os.path.lexists(root + target):
            if os.path.isdir(source):  # noqa: PTH112
                os.makedirs(root + target)  # noqa: PTH103
            else:
                os.makedirs(os.path.dirname(root + target), exist_ok=True)  # noqa: PTH103, PTH120
                os.close(os.open(root + target, os.O_CREAT | os.O_WRONLY, 0o644))
        mount(source, root + target, None, MS_BIND)
        if not writable:
            read_only(root + target)
    for place in hidden:
        read_only(root + place)
    build_dev(root + "/dev")
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in ("sys", "sysrq-trigger", "irq", "bus"):
        # The kernel lets user 0 write these without any capability.
        if os.path.exists(f"{root}/proc/{name}"):  # noqa: PTH110
            mount(f"{root}/proc/{name}", f"{root}/proc/{name}", None, MS_BIND | MS_REC)
            read_only(f"{root}/proc/{name}", recursive=True)
    os.chdir(root)
    # pivot_root(2), "pivot_root(".", ".")": the old root ends up below the new one and is taken
    # off.
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def main() -> None:
    spec = json.loads(sys.argv[1])
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    build(spec["root"], spec["binds"], spec["hidden"])
    os.execv(spec["exec"][0], spec["exec"])  # noqa: S606


if __name__ == "__main__":
    main()
