"""A file's bytes as the text that the model sees, and back, with nothing lost on the way. Pure.

The model's text has no byte-order mark and ends lines with ``\\n``; the file keeps what it has.
"""

from dataclasses import dataclass, replace

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


@dataclass(frozen=True)
class Text:
    """A file's text. ``raw`` is what stands in it, without the mark; bytes that are no UTF-8 are
    kept as lone surrogates."""

    raw: str
    bom: bool = False

    @property
    def ending(self) -> str:
        """The line ending that most lines have."""
        pairs = self.raw.count("\r\n")
        return "\r\n" if pairs * 2 > self.raw.count("\n") else "\n"

    @property
    def shown(self) -> str:
        """The text for a diff: ``\\n`` only, and nothing that JSON could not carry."""
        return unified(self.raw).encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def with_raw(self, raw: str) -> "Text":
        return replace(self, raw=raw)

    def encode(self) -> bytes:
        return ((BOM if self.bom else "") + self.raw).encode("utf-8", "surrogateescape")


def decode(content: bytes) -> Text:
    """The text of a file's bytes."""
    text = content.decode("utf-8", "surrogateescape")
    return Text(text.removeprefix(BOM), text.startswith(BOM))


def unified(text: str) -> str:
    """The text with ``\\n`` at the end of each line."""
    return text.replace("\r\n", "\n")


def with_ending(text: str, ending: str) -> str:
    """The text with this ending at each line."""
    return unified(text).replace("\n", ending)


def is_binary(content: bytes) -> bool:
    """Whether the bytes are no text that could be edited."""
    return b"\0" in content
