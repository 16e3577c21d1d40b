"""SSH host keys as values: read, compared and fingerprinted as OpenSSH does. Pure.

The rules are those of OpenSSH 9.2 (``sshkey.c`` sshkey_read and the ssh-*.c deserialisers; wire
formats in RFC 4253 §6.6, RFC 5656 §3.1, RFC 8709 §4, PROTOCOL.u2f and PROTOCOL.certkeys): whatever
it takes for a key is one here, whatever it skips is refused. A key is kept in canonical form, so
that two spellings of one key (leading zeros, ``rsa-sha2-256`` for ``ssh-rsa``) are equal.
"""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass, field

RSA_MINIMUM_BITS = 1024  # SSH_RSA_MINIMUM_MODULUS_SIZE
BIGNUM_BYTES = 2048  # SSHBUF_MAX_BIGNUM
CURVES = {"nistp256": 256, "nistp384": 384, "nistp521": 521}
SPACES = b" \t\n\v\f\r"  # isspace() in the C locale

_VENDOR = "@openssh.com"
_CERTIFICATE = "-cert-v01@openssh.com"
_SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"
_SK_ED25519 = "sk-ssh-ed25519@openssh.com"
_PLAIN = ("ssh-ed25519", "ssh-rsa", *(f"ecdsa-sha2-{curve}" for curve in CURVES))
SERVER_TYPES = frozenset(_PLAIN)
"""The types that a gateway can present and that are pinned."""
_TYPES = {
    **{name: name for name in (*_PLAIN, "ssh-dss", _SK_ED25519, _SK_ECDSA)},
    "rsa-sha2-256": "ssh-rsa",
    "rsa-sha2-512": "ssh-rsa",
    "webauthn-sk-ecdsa-sha2-nistp256@openssh.com": _SK_ECDSA,
}
"""Names at the start of a line -> the type that the key then has (sshkey.c keyimpls)."""
_CERTIFICATES = {
    name.removesuffix(_VENDOR) + _CERTIFICATE: plain.removesuffix(_VENDOR) + _CERTIFICATE
    for name, plain in _TYPES.items()
    if not name.startswith("webauthn")
}
# Inside the blob OpenSSH also takes short names, in any case (sshkey_type_from_name); ECDSA's name
# no curve, which the deserialiser refuses.
_SHORT = {"ed25519": "ssh-ed25519", "rsa": "ssh-rsa", "dsa": "ssh-dss", "ed25519-sk": _SK_ED25519}


@dataclass(frozen=True, order=True)
class HostKey:
    """A public key: ssh's name of its type, its canonical wire form, the key in a certificate."""

    type: str
    blob: bytes = field(repr=False)
    plain: "HostKey | None" = field(default=None, compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """``SHA256:…`` as ``ssh-keygen -lf`` prints it; a certificate has that of its key."""
        blob = self.plain.blob if self.plain else self.blob
        return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        """``<type> <base64>``, as in a public key file and after the host name in known_hosts."""
        return f"{self.type} {base64.b64encode(self.blob).decode()}"

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"


def decode_base64(text: bytes) -> bytes:
    """Decode as BIND's b64_pton, which OpenSSH uses: blanks anywhere, exact padding, no stray bits.
    Raises ValueError."""
    packed = text.translate(None, SPACES)
    body, _, rest = packed.partition(b"=")
    if rest.strip(b"=") or (len(body) % 4, len(packed) - len(body)) not in {(0, 0), (2, 2), (3, 1)}:
        raise ValueError("the base64 is cut off or wrongly padded")
    try:
        decoded = binascii.a2b_base64(packed, strict_mode=True)
    except binascii.Error as problem:
        raise ValueError("the key is not base64") from problem
    if base64.b64encode(decoded) != packed:
        raise ValueError("the base64 has stray bits at its end")
    return decoded


def parse_line(text: str | bytes) -> HostKey:
    """Read ``<type> <base64> [comment]``; raises ValueError saying what is wrong with it."""
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    first, _, rest = raw.replace(b"\t", b" ").lstrip(b" ").partition(b" ")
    encoded = rest.lstrip(b" ").partition(b" ")[0]
    if not encoded:
        raise ValueError("there is no key after the key type")
    name = first.decode("ascii", "replace")
    wanted = _TYPES.get(name) or _CERTIFICATES.get(name)
    if wanted is None:
        raise ValueError(f"the key type '{name[:60]}' is unknown")
    key = parse_blob(decode_base64(encoded))
    if key.type != wanted:
        raise ValueError(f"the line says '{name}', the key in it is '{key.type}'")
    return key


def parse_blob(blob: bytes) -> HostKey:
    """Read a key's wire form; raises ValueError for what OpenSSH would not take."""
    reader = _Reader(blob)
    name = reader.text()
    if kind := _TYPES.get(name) or _SHORT.get(name.lower()):
        key = HostKey(kind, _public(kind, reader))
    elif kind := _CERTIFICATES.get(name):
        key = HostKey(kind, blob, _certified(kind, reader))
    else:
        raise ValueError("the key data names no known type")
    if reader.at != len(blob):
        raise ValueError("there is something after the key data")
    return key


def _public(kind: str, reader: "_Reader") -> bytes:
    """Read the fields of a plain key and write them again in canonical form."""
    out = _string(kind.encode())
    if kind in ("ssh-ed25519", _SK_ED25519):
        point = reader.string()
        if len(point) != 32:
            raise ValueError("an ed25519 key has 32 bytes")
        out += _string(point)
    elif kind == "ssh-rsa":
        exponent, modulus = reader.number(), reader.number()
        if modulus.bit_length() < RSA_MINIMUM_BITS:
            raise ValueError(f"an RSA key has at least {RSA_MINIMUM_BITS} bits")
        out += _number(exponent) + _number(modulus)
    elif kind == "ssh-dss":
        out += b"".join(_number(reader.number()) for _ in range(4))
    else:
        curve = kind.removesuffix(_VENDOR).rsplit("-", 1)[-1]
        if reader.text() != curve:
            raise ValueError("the curve does not fit the key type")
        out += _string(curve.encode()) + _string(_point(curve, reader.string()))
    if kind.startswith("sk-"):
        out += _string(reader.text().encode("latin-1"))
    return out


def _point(curve: str, point: bytes) -> bytes:
    """Check a point as sshkey_ec_validate_public does; returns it."""
    # here: most files hold no such key, and it takes a while to load
    from cryptography.hazmat.primitives.asymmetric import ec

    kinds = {"nistp256": ec.SECP256R1(), "nistp384": ec.SECP384R1(), "nistp521": ec.SECP521R1()}
    if not point.startswith(b"\x04"):
        raise ValueError("the point is not in uncompressed form")
    numbers = ec.EllipticCurvePublicKey.from_encoded_point(kinds[curve], point).public_numbers()
    if min(numbers.x.bit_length(), numbers.y.bit_length()) <= CURVES[curve] // 2:
        raise ValueError("the point is too small")
    return point


def _certified(kind: str, reader: "_Reader") -> HostKey:
    """Read the key in a certificate and walk through the rest (PROTOCOL.certkeys). The signature is
    not checked: a certificate is never trusted, and it is safe to believe which key a ``@revoked``
    line means."""
    reader.string()  # nonce
    name = kind.removesuffix(_CERTIFICATE) + (_VENDOR if kind.startswith("sk-") else "")
    plain = HostKey(name, _public(name, reader))
    reader.take(8 + 4)  # serial, type
    reader.text()  # key id
    reader.string()  # principals
    reader.take(8 + 8)  # validity
    for _ in range(3):  # critical options, extensions, reserved
        reader.string()
    parse_blob(reader.string())  # the authority's key
    reader.string()  # signature
    return plain


class _Reader:
    """The primitives of RFC 4251 §5, as strict as sshbuf's."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("the key data is cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def string(self) -> bytes:
        return self.take(int.from_bytes(self.take(4), "big"))

    def text(self) -> str:
        """sshbuf_get_cstring: a NUL may stand at the very end only, and does not count."""
        raw = self.string()
        if b"\0" in raw[:-1]:
            raise ValueError("there is a NUL byte in the key data")
        return raw.removesuffix(b"\0").decode("latin-1")

    def number(self) -> int:
        """sshbuf_get_bignum2: not negative, bounded, leading zeros allowed."""
        raw = self.string()
        if raw[:1] >= b"\x80" or len(raw.removeprefix(b"\0")) > BIGNUM_BYTES:
            raise ValueError("a number in the key data is negative or too large")
        return int.from_bytes(raw, "big")


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _number(value: int) -> bytes:
    return _string(value.to_bytes(value.bit_length() // 8 + 1, "big") if value else b"")
