"""The lists of messages in man/git-daytona-errors.7, read off the code: ``.venv/bin/python
tests/develop/errors_page.py`` renews them.

What stands around them (cause and remedy of each entry) is written by hand. tests/test_man.py fails
where the page is not current.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from git_daytona.base import errors
from git_daytona.trust.explanations import Outcome

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "helpers" / "git_daytona"
PAGE = ROOT / "man" / "git-daytona-errors.7"
BEGIN = '.\\" messages of {}'
END = '.\\" end of messages'


def kinds() -> list[type[errors.GitDaytonaError]]:
    """List every kind of error, each before those that are special cases of it."""
    found: list[type[errors.GitDaytonaError]] = [errors.GitDaytonaError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def table() -> list[tuple[int, str]]:
    """List the exit statuses and their meanings in order."""
    rows = {0: "Success.", errors.INTERRUPTED: "Interrupted with Ctrl-C."}
    for kind in kinds():
        rows.setdefault(kind.status, (kind.__doc__ or "").partition("\n")[0])
    return sorted(rows.items())


def entries() -> dict[str, type[errors.GitDaytonaError]]:
    """Entry → the kind of error, in the order of exit statuses, then as errors.py has them."""
    return {
        kind.entry: kind
        for kind in sorted(kinds(), key=lambda kind: kind.status)
        if "entry" in vars(kind)
    }


def template(node: ast.expr) -> str | None:
    """A message as it is read, with CAPITALS for what differs each time; None for one that is made
    elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                # Right behind a word stands what is only there at times.
                text += (
                    "…" if text[-1:].isalpha() or text.endswith("…") else _placeholder(part.value)
                )
        return text
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = template(node.left), template(node.right)
        return None if None in both else "".join(map(str, both))
    return None


def _placeholder(node: ast.expr) -> str:
    """The last name of an expression says what it is: ``self.path`` → PATH,
    ``printable(name)[:80]`` → NAME."""
    names = [
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute | ast.Name)
    ]
    skipped = {
        "printable",
        "one_line",
        "str",
        "self",
        "len",
        "sorted",
        "join",
        "problem",
        "type",
        "shlex",
        "redact",
    }
    useful = [name.strip("_").upper() for name in names if name not in skipped]
    return {"STRERROR": "REASON", "MESSAGE": "REASON"}.get(useful[0], useful[0]) if useful else "…"


def _trees() -> list[ast.Module]:
    """The modules' syntax. The embedded Daytona's are left out: its errors are an API's answers."""
    paths = [
        path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(PACKAGE / "local")
    ]
    return [ast.parse(path.read_text("utf-8")) for path in paths]


def messages() -> dict[str, list[str]]:
    """Entry → its messages, sorted."""
    trees = _trees()
    entry_of = {kind.__name__: kind.entry for kind in kinds()}
    # special cases that stand with what raises them have the entry of what they are a case of
    for tree in (*trees, *trees):  # one may be of a case in a later module
        for each in ast.walk(tree):
            if (
                isinstance(each, ast.ClassDef)
                and each.bases
                and ast.unparse(each.bases[0]) in entry_of
            ):
                entry_of.setdefault(each.name, entry_of[ast.unparse(each.bases[0])])
    # The wrapper stands alone: its Refusal(status, message, hint).
    of_status = {
        "EXIT_USAGE": "usage",
        "EXIT_MISSING": "missing-program",
        "EXIT_SETTING": "bad-setting",
        "EXIT_UNKNOWN": "connection-closed",
    }
    found: dict[str, set[str]] = {entry: set() for entry in entries()}
    for outcome in Outcome:
        if not outcome.is_refusal:
            continue
        text = re.sub(r"(\{(trusted|who_changed|why)\})+", "…", outcome.value[0])
        text = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), text)
        found["host-key-refused"].add(text)
    for call in (
        each
        for tree in trees
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and each.args
    ):
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        if name == "Refusal":
            entry, message = of_status[ast.unparse(call.args[0])], template(call.args[1])
        elif name in entry_of:
            entry, message = entry_of[name], template(call.args[0])
        else:
            continue
        if message is not None and re.search("[a-z]{3}", message):
            text = " ".join(message.split())
            # click's sentences are printed in the suite's style (cli/boundary.py).
            found[entry].add(
                text[:1].lower() + text[1:].rstrip(".")
                if text[1:2].islower() and name == "UsageError"
                else text
            )
    return {entry: sorted(lines) for entry, lines in found.items()}


def roff(line: str) -> str:
    text = line.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def rendered(entry: str, lines: list[str]) -> Iterator[str]:
    yield BEGIN.format(entry)
    if lines:
        yield ".RS"
        yield ".PD 0"
        for line in lines:
            yield ".IP \\(bu 2"
            yield roff(line)
        yield ".PD"
        yield ".RE"
    yield END


def renew(page: str) -> str:
    """The page with the lists of messages as the code has them now."""
    for entry, lines in messages().items():
        block = "\n".join(rendered(entry, lines))
        pattern = re.compile(re.escape(BEGIN.format(entry)) + r"\n.*?" + re.escape(END), re.DOTALL)
        page, count = pattern.subn(lambda _match, block=block: block, page)
        if count != 1:
            raise LookupError(
                f"man/git-daytona-errors.7 has {count} places for the messages of '{entry}'"
            )
    return page


if __name__ == "__main__":
    PAGE.write_text(renew(PAGE.read_text("utf-8")), "utf-8")
