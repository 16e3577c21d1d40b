"""known_hosts files for the differential test: made by hand, one per trap of OpenSSH's reader, and
generated from a fixed seed."""

import base64
import hashlib
import hmac
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

NAMES = ("gw.example.org", "[gw.example.org]:2222", "10.0.0.7", "[2001:db8::7]:2222")


@dataclass(frozen=True)
class Case:
    title: str
    content: bytes
    name: str
    server: str
    """Which keys the server has: 'ed', 'ed+rsa', 'rsa+ecdsa', 'ecdsa'."""


@dataclass(frozen=True)
class Keys:
    """Lines ``<type> <base64>``: the servers' own keys, others of the same types, and a certificate
    of the server's ed25519 key."""

    own: dict[str, bytes]
    other: dict[str, bytes]
    certificate: bytes
    other_certificate: bytes


def hashed(name: str, salt: bytes = b"0123456789abcdefghij") -> bytes:
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return b"|1|" + base64.b64encode(salt) + b"|" + base64.b64encode(digest)


def blob(line: bytes) -> bytes:
    return base64.b64decode(line.split()[1])


def line_of(kind: bytes, data: bytes) -> bytes:
    return kind + b" " + base64.b64encode(data)


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def strings(data: bytes) -> list[bytes]:
    parts = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        parts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return parts


def joined(*parts: bytes) -> bytes:
    return b"".join(map(string, parts))


def _stray_bit(encoded: bytes) -> bytes:
    """The same bytes in base64 with a bit set behind the last of them."""
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = encoded.rstrip(b"=")
    return (
        body[:-1]
        + alphabet[alphabet.index(body[-1:]) + 1 :][:1]
        + b"=" * (len(encoded) - len(body))
    )


def by_hand(keys: Keys) -> Iterator[Case]:
    ed, rsa, ecdsa = (keys.own[kind] for kind in ("ed", "rsa", "ecdsa"))
    bad_ed, bad_rsa, bad_ecdsa = (keys.other[kind] for kind in ("ed", "rsa", "ecdsa"))
    plain, ported, address, six = NAMES
    n, p = plain.encode(), ported.encode()

    def case(title: str, content: bytes, name: str = plain, server: str = "ed") -> Case:
        return Case(title, content, name, server)

    yield case("empty file", b"")
    yield case("only blanks", b" \n\t\n\n")
    yield case("only a comment", b"# " + n + b" " + ed + b"\n")
    yield case("the key", n + b" " + ed + b"\n")
    yield case("another key", n + b" " + bad_ed + b"\n")
    yield case("another host", b"other.example.org " + ed + b"\n")
    yield case("no last newline", n + b" " + ed)
    yield case("CRLF", n + b" " + ed + b"\r\n")
    yield case("CRLF and comment", n + b" " + ed + b" me\r\n")
    yield case("CR alone between lines", n + b" " + bad_ed + b"\r" + n + b" " + ed + b"\n")
    yield case("leading blanks", b" \t " + n + b" \t " + ed.replace(b" ", b" \t ") + b"\n")
    yield case("tabs", n + b"\t" + ed.replace(b" ", b"\t") + b"\tcomment\n")
    yield case("form feed before the host", b"\f" + n + b" " + ed + b"\n")
    yield case("vertical tab in the base64", n + b" " + ed[:40] + b"\v" + ed[40:] + b"\n")
    yield case("trailing blanks", n + b" " + ed + b"   \t\n")
    yield case("Latin-1 comment", n + b" " + ed + b" caf\xe9\n")
    yield case("Latin-1 in another line", b"caf\xe9 " + bad_ed + b"\n" + n + b" " + ed + b"\n")
    yield case("UTF-8 byte order mark", b"\xef\xbb\xbf" + n + b" " + ed + b"\n")
    yield case("byte order mark on a comment", b"\xef\xbb\xbf# hello\n" + n + b" " + ed + b"\n")
    yield case("UTF-16", (n + b" " + ed + b"\n").decode().encode("utf-16"))
    yield case("upper case host", n.upper() + b" " + ed + b"\n")
    yield case("upper case in brackets", p.upper() + b" " + ed + b"\n", ported)
    yield case("wrong first, right second", n + b" " + bad_ed + b"\n" + n + b" " + ed + b"\n")
    yield case("right first, wrong second", n + b" " + ed + b"\n" + n + b" " + bad_ed + b"\n")
    yield case("twice", 2 * (n + b" " + ed + b"\n"))
    yield case("a list", b"a.example.org," + n + b",b.example.org " + ed + b"\n")
    yield case("a list with blanks", b"a.example.org, " + n + b" " + ed + b"\n")
    yield case("a list with empty names", b",," + n + b",, " + ed + b"\n")
    # ports
    yield case("port", p + b" " + ed + b"\n", ported)
    yield case("bare host for a port", n + b" " + ed + b"\n", ported)
    yield case("port for the bare host", p + b" " + ed + b"\n", plain)
    yield case("port 22 in brackets", b"[" + n + b"]:22 " + ed + b"\n", plain)
    yield case("brackets without port", b"[" + n + b"] " + ed + b"\n", plain)
    yield case("another port", b"[" + n + b"]:2223 " + ed + b"\n", ported)
    yield case("any port", b"[" + n + b"]:* " + ed + b"\n", ported)
    yield case("any port for the bare host", b"[" + n + b"]:* " + ed + b"\n", plain)
    yield case("brackets are no character class", b"[gw].example.org " + ed + b"\n", plain)
    yield case("address", address.encode() + b" " + ed + b"\n", address)
    yield case("address range is no pattern", b"10.0.0.0/8 " + ed + b"\n", address)
    yield case("address pattern", b"10.0.?.* " + ed + b"\n", address)
    yield case("IPv6 and port", six.encode() + b" " + ed + b"\n", six)
    yield case("IPv6 upper case", six.upper().encode() + b" " + ed + b"\n", six)
    yield case("IPv6 written out", b"[2001:db8:0:0:0:0:0:7]:2222 " + ed + b"\n", six)
    # patterns
    for pattern in (
        "*",
        "*.example.org",
        "gw.*",
        "g?.example.org",
        "??.example.???",
        "gw.example.org*",
        "**",
        "*?",
        "?*",
        "*org",
        "*.org?",
    ):
        yield case(f"pattern {pattern}", pattern.encode() + b" " + ed + b"\n")
    yield case("a question mark more", b"gw.example.org? " + ed + b"\n")
    yield case("pattern over a port", b"*.example.org " + ed + b"\n", ported)
    yield case("pattern with port", b"[*.example.org]:2222 " + ed + b"\n", ported)
    yield case("pattern that takes brackets in", b"*gw.example.org*2222 " + ed + b"\n", ported)
    yield case("many stars", b"*g*w*e*x*a*m*p*l*e* " + ed + b"\n")
    yield case("negated", b"!" + n + b",* " + ed + b"\n")
    yield case("negated last", b"*,!" + n + b" " + ed + b"\n")
    yield case("negated other", b"*,!x.example.org " + ed + b"\n")
    yield case("negation alone", b"!x.example.org " + ed + b"\n")
    yield case("negated pattern", b"*.org,!*.example.org " + ed + b"\n")
    yield case("negated upper case", b"*,!" + n.upper() + b" " + ed + b"\n")
    yield case("doubly negated", b"*,!!" + n + b" " + ed + b"\n")
    yield case("lone negation mark", b"!," + n + b" " + ed + b"\n")
    yield case(
        "negated, and again in full", b"*,!" + n + b" " + bad_ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case("long pattern after a match", n + b"," + b"x" * 1023 + b" " + ed + b"\n")
    yield case(
        "pattern just short enough after a match", n + b"," + b"x" * 1022 + b" " + ed + b"\n"
    )
    yield case("negation before a long pattern", b"!" + n + b"," + b"x" * 2000 + b" " + ed + b"\n")
    # hashes
    yield case("hashed", hashed(plain) + b" " + ed + b"\n")
    yield case("hashed with port", hashed(ported) + b" " + ed + b"\n", ported)
    yield case("hashed bare host for a port", hashed(plain) + b" " + ed + b"\n", ported)
    yield case("hashed upper case", hashed(plain.upper()) + b" " + ed + b"\n")
    yield case("hashed, another host", hashed("other") + b" " + ed + b"\n")
    yield case("hashed in a list", hashed(plain) + b"," + n + b" " + ed + b"\n")
    yield case("hashed second in a list", n + b"," + hashed("other") + b" " + ed + b"\n")
    yield case("hash with short salt", hashed(plain, b"short") + b" " + ed + b"\n")
    yield case("hash with long salt", hashed(plain, b"x" * 21) + b" " + ed + b"\n")
    yield case("hash without padding", hashed(plain).replace(b"=", b"") + b" " + ed + b"\n")
    yield case("hash of unknown kind", hashed(plain).replace(b"|1|", b"|2|") + b" " + ed + b"\n")
    yield case("hash cut off", hashed(plain)[:-5] + b" " + ed + b"\n")
    yield case("hash magic only", b"|1| " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case("hash without hash", b"|1|" + base64.b64encode(b"0" * 20) + b" " + ed + b"\n")
    yield case("bad hash before a good line", b"|1|!!!|x " + bad_ed + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "hashed wrong, plain right", hashed(plain) + b" " + bad_ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case(
        "salt with stray bits",
        b"|1|"
        + _stray_bit(base64.b64encode(b"0123456789abcdefghij"))
        + hashed(plain)[31:]
        + b" "
        + ed
        + b"\n",
    )
    # markers
    yield case("revoked", b"@revoked " + n + b" " + ed + b"\n")
    yield case("revoked after the key", n + b" " + ed + b"\n@revoked " + n + b" " + ed + b"\n")
    yield case(
        "revoked before the key", b"@revoked " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case("revoked by pattern", n + b" " + ed + b"\n@revoked * " + ed + b"\n")
    yield case("another one revoked", n + b" " + ed + b"\n@revoked " + n + b" " + bad_ed + b"\n")
    yield case("revoked elsewhere", n + b" " + ed + b"\n@revoked other " + ed + b"\n")
    yield case("revoked hashed", n + b" " + ed + b"\n@revoked " + hashed(plain) + b" " + ed + b"\n")
    yield case(
        "revoked, another type known",
        n + b" " + rsa + b"\n@revoked " + n + b" " + ed + b"\n",
        server="ed+rsa",
    )
    yield case(
        "revoked among several",
        n + b" " + ed + b"\n" + n + b" " + rsa + b"\n@revoked " + n + b" " + ed + b"\n",
        server="ed+rsa",
    )
    yield case(
        "revoked rsa of two",
        n + b" " + rsa + b"\n@revoked " + n + b" " + rsa + b"\n",
        server="ed+rsa",
    )
    yield case(
        "first of a type revoked, second not",
        n + b" " + bad_rsa + b"\n" + n + b" " + rsa + b"\n@revoked " + n + b" " + bad_rsa + b"\n",
        server="ed+rsa",
    )
    yield case(
        "second of a type revoked, first not",
        n + b" " + rsa + b"\n" + n + b" " + bad_rsa + b"\n@revoked " + n + b" " + bad_rsa + b"\n",
        server="ed+rsa",
    )
    yield case(
        "revoked certificate of the key",
        n + b" " + ed + b"\n@revoked " + n + b" " + keys.certificate + b"\n",
    )
    yield case(
        "revoked certificate of another key",
        n + b" " + ed + b"\n@revoked " + n + b" " + keys.other_certificate + b"\n",
    )
    yield case("authority", b"@cert-authority " + n + b" " + ed + b"\n")
    yield case(
        "authority and key", b"@cert-authority " + n + b" " + bad_ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case(
        "authority and another key",
        b"@cert-authority " + n + b" " + ed + b"\n" + n + b" " + bad_ed + b"\n",
    )
    yield case(
        "authority, rsa known",
        b"@cert-authority * " + ed + b"\n" + n + b" " + rsa + b"\n",
        server="ed+rsa",
    )
    yield case("certificate as the key", n + b" " + keys.certificate + b"\n")
    yield case("unknown marker", b"@trusted " + n + b" " + ed + b"\n")
    yield case(
        "unknown marker before a good line",
        b"@trusted " + n + b" " + bad_ed + b"\n" + n + b" " + ed + b"\n",
    )
    yield case("marker in upper case", b"@REVOKED " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case("two markers", b"@revoked @revoked " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "two different markers",
        b"@revoked @cert-authority " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n",
    )
    yield case("marker with tab", b"@revoked\t" + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "marker with tabs only",
        b"@revoked\t" + n + b"\t" + ed.replace(b" ", b"\t") + b"\n" + n + b" " + ed + b"\n",
    )
    yield case(
        "marker with blank and tab", b"@revoked \t" + n + b" " + ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case("marker alone", b"@revoked\n" + n + b" " + ed + b"\n")
    yield case("marker and blank alone", b"@revoked \n" + n + b" " + ed + b"\n")
    yield case("at sign alone", b"@ " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "long marker", b"@" + b"x" * 40 + b" " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case(
        "marker glued to the host", b"@revoked" + n + b" " + ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case("indented marker", b"  @revoked " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "revoked with a bad key", b"@revoked " + n + b" " + ed[:-8] + b"\n" + n + b" " + ed + b"\n"
    )
    # order of types
    yield case("rsa known, server has both", n + b" " + rsa + b"\n", server="ed+rsa")
    yield case("wrong rsa known, server has both", n + b" " + bad_rsa + b"\n", server="ed+rsa")
    yield case("ed known, server has both", n + b" " + ed + b"\n", server="ed+rsa")
    yield case(
        "wrong ed, right rsa", n + b" " + bad_ed + b"\n" + n + b" " + rsa + b"\n", server="ed+rsa"
    )
    yield case(
        "right ed, wrong rsa", n + b" " + ed + b"\n" + n + b" " + bad_rsa + b"\n", server="ed+rsa"
    )
    yield case(
        "rsa first, then ed wrong",
        n + b" " + rsa + b"\n" + n + b" " + bad_ed + b"\n",
        server="ed+rsa",
    )
    yield case("rsa known, server has rsa and ecdsa", n + b" " + rsa + b"\n", server="rsa+ecdsa")
    yield case(
        "ecdsa known, server has rsa and ecdsa", n + b" " + ecdsa + b"\n", server="rsa+ecdsa"
    )
    yield case(
        "wrong ecdsa and right rsa",
        n + b" " + bad_ecdsa + b"\n" + n + b" " + rsa + b"\n",
        server="rsa+ecdsa",
    )
    yield case(
        "right ecdsa and wrong rsa",
        n + b" " + ecdsa + b"\n" + n + b" " + bad_rsa + b"\n",
        server="rsa+ecdsa",
    )
    yield case("ed known, server has only ecdsa", n + b" " + ed + b"\n", server="ecdsa")
    yield case(
        "ed and rsa known, server has rsa and ecdsa",
        n + b" " + bad_ed + b"\n" + n + b" " + rsa + b"\n",
        server="rsa+ecdsa",
    )
    yield case(
        "rsa of another host does not count",
        b"other " + rsa + b"\n" + n + b" " + ed + b"\n",
        server="ed+rsa",
    )
    yield case("ecdsa384 known only", n + b" " + keys.other["ecdsa384"] + b"\n", server="rsa+ecdsa")
    # key fields
    yield case("no key", n + b"\n")
    yield case("no key, blanks", n + b"  \t\n")
    yield case("comment instead of a key", n + b" # " + ed + b"\n")
    yield case("type only", n + b" ssh-ed25519\n")
    yield case("type and blank", n + b" ssh-ed25519 \n")
    yield case("base64 only", n + b" " + ed.split()[1] + b"\n")
    yield case("type missing before base64", n + b" ssh-ed25519" + ed.split()[1] + b"\n")
    yield case("old RSA1 line", n + b" 1024 37 12345678901234567890\n" + n + b" " + ed + b"\n")
    yield case("old RSA1 line alone", n + b" 1024 37 12345678901234567890\n")
    yield case("unknown type", n + b" ssh-foo " + ed.split()[1] + b"\n")
    yield case("type in upper case", n + b" SSH-ED25519 " + ed.split()[1] + b"\n")
    yield case("short type name", n + b" ED25519 " + ed.split()[1] + b"\n")
    yield case("type of another key", n + b" ssh-rsa " + ed.split()[1] + b"\n")
    yield case(
        "type of another curve",
        n + b" ecdsa-sha2-nistp384 " + ecdsa.split()[1] + b"\n",
        server="ecdsa",
    )
    yield case(
        "rsa-sha2-256 as type", n + b" rsa-sha2-256 " + rsa.split()[1] + b"\n", server="ed+rsa"
    )
    yield case(
        "rsa-sha2-512 as type", n + b" rsa-sha2-512 " + rsa.split()[1] + b"\n", server="rsa+ecdsa"
    )
    yield case(
        "rsa-sha2-512 inside",
        n + b" " + line_of(b"ssh-rsa", joined(b"rsa-sha2-512", *strings(blob(rsa))[1:])) + b"\n",
        server="ed+rsa",
    )
    yield case(
        "short name inside",
        n + b" " + line_of(b"ssh-ed25519", joined(b"eD25519", strings(blob(ed))[1])) + b"\n",
    )
    yield case(
        "short ecdsa name inside",
        n
        + b" "
        + line_of(b"ecdsa-sha2-nistp256", joined(b"ECDSA", *strings(blob(ecdsa))[1:]))
        + b"\n",
        server="ecdsa",
    )
    yield case(
        "NUL after the name inside",
        n + b" " + line_of(b"ssh-ed25519", joined(b"ssh-ed25519\0", strings(blob(ed))[1])) + b"\n",
    )
    yield case(
        "NUL in the name inside",
        n + b" " + line_of(b"ssh-ed25519", joined(b"ssh\0ed25519", strings(blob(ed))[1])) + b"\n",
    )
    yield case("truncated", n + b" " + ed[:-10] + b"\n")
    yield case("truncated by four", n + b" " + ed[:-4] + b"\n")
    yield case("truncated before a good one", n + b" " + ed[:-10] + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "something after the key", n + b" " + line_of(b"ssh-ed25519", blob(ed) + b"\0") + b"\n"
    )
    yield case(
        "31 bytes",
        n + b" " + line_of(b"ssh-ed25519", joined(b"ssh-ed25519", blob(ed)[-31:])) + b"\n",
    )
    yield case("junk in the base64", n + b" " + ed[:30] + b"!" + ed[31:] + b"\n")
    yield case("dash in the base64", n + b" " + ed[:30] + b"-" + ed[31:] + b"\n")
    yield case("non-ASCII in the base64", n + b" " + ed[:30] + b"\xe9" + ed[31:] + b"\n")
    yield case("comment glued to the key", n + b" " + ed + b"#x\n")
    yield case("padding missing", n + b" " + rsa.rstrip(b"=") + b"\n", server="rsa+ecdsa")
    yield case("padding too much", n + b" " + ed + b"=\n")
    yield case("padding too much twice", n + b" " + ed + b"==\n")
    yield case("stray bits in ecdsa", n + b" " + _stray_bit(ecdsa) + b"\n", server="ecdsa")
    yield case("padding then more", n + b" " + ecdsa + b"AAAA\n", server="ecdsa")
    yield case("quoted key", n + b' "' + ed + b'"\n')
    yield case(
        "rsa with leading zeros",
        n
        + b" "
        + line_of(
            b"ssh-rsa", joined(b"ssh-rsa", *(b"\0\0" + part for part in strings(blob(rsa))[1:]))
        )
        + b"\n",
        server="rsa+ecdsa",
    )
    yield case(
        "rsa negative",
        n
        + b" "
        + line_of(
            b"ssh-rsa",
            joined(b"ssh-rsa", strings(blob(rsa))[1], strings(blob(rsa))[2].lstrip(b"\0")),
        )
        + b"\n",
        server="rsa+ecdsa",
    )
    yield case(
        "rsa of 1023 bits",
        n
        + b" "
        + line_of(b"ssh-rsa", joined(b"ssh-rsa", b"\1\0\1", b"\x7f" + b"\xff" * 127))
        + b"\n",
    )
    yield case(
        "rsa of 1024 bits",
        n
        + b" "
        + line_of(b"ssh-rsa", joined(b"ssh-rsa", b"\1\0\1", b"\0\xff" + b"\xff" * 127))
        + b"\n",
    )
    yield case(
        "rsa of 16384 bits",
        n
        + b" "
        + line_of(b"ssh-rsa", joined(b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 2048))
        + b"\n",
    )
    yield case(
        "rsa of 16392 bits",
        n
        + b" "
        + line_of(b"ssh-rsa", joined(b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 2049))
        + b"\n",
    )
    yield case(
        "rsa without modulus", n + b" " + line_of(b"ssh-rsa", joined(b"ssh-rsa", b"\1\0\1")) + b"\n"
    )
    point = strings(blob(ecdsa))[2]
    for title, curve, data in (
        ("ecdsa off the curve", b"nistp256", point[:-1] + bytes([point[-1] ^ 1])),
        ("ecdsa compressed", b"nistp256", bytes([2 + (point[-1] & 1)]) + point[1:33]),
        ("ecdsa hybrid", b"nistp256", bytes([6 + (point[-1] & 1)]) + point[1:]),
        ("ecdsa at infinity", b"nistp256", b"\0"),
        ("ecdsa empty", b"nistp256", b""),
        ("ecdsa of another curve inside", b"nistp384", point),
    ):
        yield case(
            title,
            n
            + b" "
            + line_of(b"ecdsa-sha2-nistp256", joined(b"ecdsa-sha2-nistp256", curve, data))
            + b"\n",
            server="ecdsa",
        )
    yield case(
        "dss",
        n
        + b" "
        + line_of(b"ssh-dss", joined(b"ssh-dss", b"\x11", b"\x0b", b"\x02", b"\x03"))
        + b"\n",
    )
    yield case(
        "dss cut off",
        n + b" " + line_of(b"ssh-dss", joined(b"ssh-dss", b"\x11", b"\x0b", b"\x02")) + b"\n",
    )
    sk = joined(b"sk-ssh-ed25519@openssh.com", strings(blob(ed))[1], b"ssh:")
    yield case("security key", n + b" " + line_of(b"sk-ssh-ed25519@openssh.com", sk) + b"\n")
    sk_ecdsa = joined(b"sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", point, b"ssh:")
    yield case(
        "ecdsa security key",
        n + b" " + line_of(b"sk-ecdsa-sha2-nistp256@openssh.com", sk_ecdsa) + b"\n",
        server="ecdsa",
    )
    yield case(
        "webauthn security key",
        n + b" " + line_of(b"webauthn-sk-ecdsa-sha2-nistp256@openssh.com", sk_ecdsa) + b"\n",
    )
    yield case(
        "security key without application",
        n + b" " + line_of(b"sk-ssh-ed25519@openssh.com", sk[:-8]) + b"\n",
    )
    # NUL bytes and long lines
    yield case("NUL for the blank after the host", n + b"\0" + ed + b"\n")
    yield case("NUL and blank after the host", n + b"\0 " + ed + b"\n")
    yield case("blank and NUL after the host", n + b" \0" + ed + b"\n")
    yield case("NUL in the host", n[:3] + b"\0" + n[3:] + b" " + ed + b"\n")
    yield case("NUL before the line", b"\0" + n + b" " + ed + b"\n")
    yield case("NUL in the key", n + b" " + ed[:40] + b"\0" + ed[40:] + b"\n")
    yield case("NUL after the key", n + b" " + ed + b"\0garbage\n")
    yield case("NUL after the type", n + b" ssh-ed25519\0" + ed[12:] + b"\n")
    yield case("NUL in the marker", b"@revoked\0 " + n + b" " + ed + b"\n" + n + b" " + ed + b"\n")
    yield case("NUL bytes at the end", n + b" " + ed + b"\n" + b"\0" * 100)
    yield case("half a line goes on in memory", b"x" * len(n) + b" " + ed + b"\n" + n)
    yield case("half a line with a newline does not", b"x" * len(n) + b" " + ed + b"\n" + n + b"\n")
    yield case("half a line goes on in a comment's memory", b"#" + b"x" * len(n) + ed + b"\n" + n)
    yield case("half a line behind a marker", b"x" * (len(n) + 9) + b" " + ed + b"\n@revoked " + n)
    yield case("long comment line", b"#" + b"x" * 70000 + b"\n" + n + b" " + ed + b"\n")
    yield case(
        "long line of another host", b"y" * 70000 + b" " + ed + b"\n" + n + b" " + ed + b"\n"
    )
    yield case("long comment after the key", n + b" " + ed + b" " + b"z" * 70000 + b"\n")
    yield case("long run of blanks", n + b" " * 20000 + ed + b"\n")
    yield case(
        "many lines",
        b"".join(b"h%d " % i + bad_ed + b"\n" for i in range(500)) + n + b" " + ed + b"\n",
    )


def generated(keys: Keys, count: int, seed: int) -> Iterator[Case]:
    """Files put together from good, odd and broken pieces."""
    dice = random.Random(seed)
    kinds = ("ed", "rsa", "ecdsa")
    for number in range(count):
        name = dice.choice(NAMES)
        server = dice.choice(("ed", "ed+rsa", "ed+rsa", "rsa+ecdsa", "rsa+ecdsa", "ecdsa"))
        lines = [_line(dice, keys, name, kinds) for _ in range(dice.randint(1, 7))]
        content = b"".join(
            line + dice.choice((b"\n", b"\n", b"\n", b"\r\n", b" \n", b"\n\n")) for line in lines
        )
        if dice.random() < 0.2:
            content = content.rstrip(b"\r\n ")
        if dice.random() < 0.15:
            content = _damaged(dice, content)
        yield Case(f"generated {number} (seed {seed})", content, name, server)


def _line(dice: random.Random, keys: Keys, name: str, kinds: tuple[str, ...]) -> bytes:
    if dice.random() < 0.08:
        return dice.choice(
            (b"", b"# comment", b"   ", b"garbage", b"@unknown x y z", b"\xff\xfe\x00")
        )
    n = name.encode()
    first = n[:1]
    hosts = dice.choice(
        (
            n,
            n,
            n,
            n.upper(),
            b"other.example.org," + n,
            b"*",
            b"!other*,*",
            b"*,!" + n,
            first + b"*",
            b"?" + n[1:],
            hashed(name),
            hashed(name, dice.randbytes(20)),
            hashed("other"),
            b"other.example.org",
            b"[" + n + b"]:22",
            NAMES[0].encode(),
        )
    )
    marker = dice.choice(
        (b"",) * 8 + (b"@revoked ", b"@revoked ", b"@cert-authority ", b"@revoked\t")
    )
    key = dice.choice((keys.own, keys.own, keys.other))[dice.choice(kinds)]
    if dice.random() < 0.1:
        key = dice.choice(
            (
                key[:-3],
                key.replace(b"ssh-", b"SSH-"),
                key + b"=",
                key.replace(b" ", b" !", 1),
                b"ssh-rsa " + key.split()[1],
            )
        )
    blank = dice.choice((b" ", b" ", b" ", b"\t", b"  "))
    return marker + hosts + blank + key + dice.choice((b"", b" comment", b" caf\xe9", b"\t#"))


def _damaged(dice: random.Random, content: bytes) -> bytes:
    at = dice.randrange(len(content) + 1)
    return dice.choice(
        (
            content[:at],
            content[:at] + b"\0" + content[at:],
            content[:at] + b"\0" + content[at + 1 :],
            content[:at] + bytes([dice.randrange(1, 256)]) + content[at + 1 :],
            content[:at] + b"\n" + content[at:],
            content.replace(b"\n", b"\r"),
        )
    )
