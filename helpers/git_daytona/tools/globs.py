"""Glob patterns as ripgrep reads them, turned into extended regular expressions for grep -E.
Pure."""

from git_daytona.tools.context import ToolError

MOST = 20_000
"""Characters of an expression: braces multiply."""


def expression(pattern: str) -> str:
    """An ERE that matches, from beginning to end, the relative paths that the pattern means.

    ``*`` and ``?`` stop at slashes, ``**`` does not, ``{a,b}`` and ``[a-z]`` choose, a backslash
    takes the next character literally. A pattern without a slash matches at any depth, as in
    .gitignore. Raises ToolError for a pattern that is none.
    """
    if not pattern or "\0" in pattern or len(pattern) > 1000:
        raise ToolError(
            "the glob pattern must not be empty, hold NUL or be longer than 1000 characters"
        )
    pattern = pattern.removeprefix("./")
    anchored = pattern.startswith("/")
    pattern = pattern.lstrip("/")
    deep = "" if anchored or "/" in pattern.rstrip("/") else "(.*/)?"
    return f"^(\\./)?{deep}{_translate(pattern)}$"


def any_of(patterns: list[str]) -> str:
    """An ERE for paths that match one of the patterns, or lie in a folder that does: what
    .gitignore means by a line."""
    alternatives = [expression(each.rstrip("/") or each)[1:-1] for each in patterns]
    return "^(" + "|".join(f"{each}(/.*)?" for each in alternatives) + ")$"


def _translate(pattern: str) -> str:
    out: list[str] = []
    depth = at = 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] in "/{,"):
            out.append("(.*/)?")
            at += 3
            continue
        if pattern.startswith("**", at):
            out.append(".*")
            at += 2
            continue
        at += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
        elif char == "{" and "}" in pattern[at:]:
            depth += 1
            out.append("(")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        elif char == "\\" and at < len(pattern):
            out.append(_literal(pattern[at]))
            at += 1
        else:
            out.append(_literal(char))
    if depth:
        raise ToolError(f"the glob pattern '{pattern}' has an unclosed '{{'")
    return "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The bracket expression that begins before ``at``, and where it ends; a bracket that is never
    closed is itself."""
    start = at
    negated = at < len(pattern) and pattern[at] in "!^"
    at += negated
    end = pattern.find("]", at + 1)
    if end < 0:
        return "\\[", start
    members = pattern[at:end].replace("\\", "")
    # In an ERE's bracket a "[" may open a class; "]" can only stand first. An alternative to a
    # bracket would be no simpler.
    members = (
        ("]" if "]" in members else "")
        + members.replace("]", "").replace("[", "")
        + ("[" if "[" in members else "")
    )
    return (
        f"[{'^/' if negated and not members.startswith(']') else '^' if negated else ''}{members}]",
        end + 1,
    )


def _literal(char: str) -> str:
    return "\\" + char if char in ".^$+()[]{}|\\*?" else char
