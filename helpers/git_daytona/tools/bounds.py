"""How much of something the model is shown. Pure.

OpenCode cuts what a plugin's tool returns at 2000 lines and 51,200 bytes, and then names a file on
the *host* that holds all of it, which no tool could reach. So everything here stays below both,
notes and markup included.
"""

LINES = 1990
BYTES = 50_000
"""What a result may hold besides its notes."""
LIVE = 30_000
"""Characters of running or finished output in a tool's metadata, for the display."""


def size(text: str) -> int:
    """Bytes of a text as OpenCode counts them."""
    return len(text.encode("utf-8", "replace"))


def tail(text: str, lines: int = LINES, most: int = BYTES) -> tuple[str, bool]:
    """The last lines that fit, and whether that is less than all. Of a line that is too long by
    itself, its end."""
    if text.count("\n") < lines and size(text) <= most:
        return text, False
    kept: list[str] = []
    used = 0
    for each in reversed(text.split("\n")):
        needed = size(each) + (1 if kept else 0)
        if len(kept) >= lines or used + needed > most:
            if not kept:
                kept.append(each.encode("utf-8", "replace")[-most:].decode("utf-8", "ignore"))
            break
        kept.append(each)
        used += needed
    return "\n".join(reversed(kept)), True


def head(rows: list[str], lines: int = LINES, most: int = BYTES) -> tuple[list[str], bool]:
    """The first rows that fit, and whether that is less than all."""
    used = 0
    for index, row in enumerate(rows):
        used += size(row) + 1
        if index >= lines or used > most:
            return rows[:index], True
    return rows, False


def live(text: str) -> str:
    """The end of an output for the display."""
    return text if len(text) <= LIVE else "...\n\n" + text[-LIVE:]
