"""The man pages, README.md and CONTRIBUTING.md say what the programs have: commands, options, exit
statuses, settings, dependencies; and the reverse."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from develop import errors_page
from git_daytona import ssh
from git_daytona.sessions import records
from git_daytona.settings import settings

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "man").glob("*.[1-9]"))
TOPICS = {"git-daytona-agents", "git-daytona-errors", "git-daytona-security", "git-daytona-state"}
"""Pages about one subject, without options or files of their own."""
SECTIONS = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "EXIT STATUS",
    "ENVIRONMENT",
    "FILES",
    "EXAMPLES",
    "SEE ALSO",
]
PROGRAMS = {
    "git-daytona": ("git daytona", "git_daytona"),
    "daytona-token": ("daytona-token", "daytona_token"),
    "daytona-pin": ("daytona-pin", "daytona_pin"),
    "daytona-local": ("daytona-local", "daytona_local"),
}
"""Page: how its commands are written, and the module of its click commands."""

OWN_WORDS = {"daytona-pin": {0, 1, 3, 4}, "daytona-local": {0, 13}}
"""Exit statuses that a page words more closely than the table of all does."""


# -- reading a page --------------------------------------------------------------------------------


def plain(line: str) -> str:
    """A line of roff as it is read, about."""
    macro, _, rest = line.partition(" ") if line.startswith(".") else ("", "", line)
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|[^\s"]+', rest)] if macro else [rest]
    # The macros with two letters set their arguments side by side, in turns of two fonts.
    text = ("" if re.fullmatch(r"\.[BIR]{2}", macro) else " ").join(words)
    text = re.sub(r"\\f[BIRP]|\\&", "", text)
    return text.replace("\\-", "-").replace("\\e", "\\")


def sections(page: Path) -> dict[str, list[str]]:
    """Heading → source lines."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in page.read_text("utf-8").splitlines():
        if line.startswith(".SH "):
            lines = found.setdefault(line.removeprefix(".SH ").strip(), [])
        else:
            lines.append(line)
    return found


def entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The paragraphs with a tag (.TP): tag and text."""
    starts = [number for number, line in enumerate(lines) if line == ".TP"]
    for start in starts:
        body = lines[start + 2 :]
        end = next(
            (
                number
                for number, line in enumerate(body)
                if line in (".TP", ".PP", ".RE") or line.startswith(".S")
            ),
            len(body),
        )
        yield plain(lines[start + 1]), " ".join(plain(line) for line in body[:end])


def synopsis(page: Path) -> list[str]:
    """One string for each form."""
    forms = [""]
    for line in sections(page)["SYNOPSIS"]:
        if line == ".br":
            forms.append("")
        else:
            forms[-1] += " " + plain(line)
    return [" ".join(form.split()) for form in forms]


def long_options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def any_options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[A-Za-z0-9][a-z-]*", text))


def statuses(page: Path) -> dict[int, str]:
    return {int(tag): text for tag, text in entries(sections(page)["EXIT STATUS"]) if tag.isdigit()}


def page(name: str) -> Path:
    return ROOT / "man" / f"{name}.1"


def group(name: str) -> click.Group:
    found = import_module(f"git_daytona.cli.{PROGRAMS[name][1]}").cli
    assert isinstance(found, click.Group)
    return found


def commands_of(name: str) -> dict[str, click.Command]:
    context = click.Context(group(name))
    names = group(name).list_commands(context)
    return {
        verb: command
        for verb in names
        if (command := group(name).get_command(context, verb)) is not None
    }


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


# -- pages and programs ----------------------------------------------------------------------------


def test_there_is_a_page_for_each_executable() -> None:
    installed = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
            "wheel"
        ]["shared-scripts"].values()
    )
    assert {each.stem for each in PAGES if each.suffix == ".1"} == installed


@pytest.mark.parametrize("name", PROGRAMS)
def test_commands(name: str) -> None:
    commands = set(commands_of(name))
    described = {tag.split()[0] for tag, _ in entries(sections(page(name))["COMMANDS"])}
    prefix = PROGRAMS[name][0]
    shown = {form.removeprefix(prefix).split()[0] for form in synopsis(page(name))}
    assert described == commands
    assert shown == commands


@pytest.mark.parametrize("name", PROGRAMS)
def test_options(name: str) -> None:
    prefix = PROGRAMS[name][0]
    known = {"-h", "--help"} | options_of(group(name))
    for form in synopsis(page(name)):
        verb = form.removeprefix(prefix).split()[0]
        command = commands_of(name)[verb]
        has = options_of(command)
        assert long_options(form) == {option for option in has if option.startswith("--")}, (
            f"{prefix} {verb}"
        )
        known |= has
    described = {
        option for tag, _ in entries(sections(page(name))["OPTIONS"]) for option in any_options(tag)
    }
    assert described == known


def test_the_wrapper() -> None:
    described = {
        option
        for tag, _ in entries(sections(page("daytona-ssh"))["OPTIONS"])
        for option in any_options(tag)
    }
    assert described == any_options(ssh._HELP) | {"-G"}
    named = {
        name
        for tag, _ in entries(sections(page("daytona-ssh"))["ENVIRONMENT"])
        for name in re.findall(r"DAYTONA_\w+", tag)
    }
    assert named == set(re.findall(r"DAYTONA_\w*[A-Z]\b", ssh.__doc__ or ""))
    assert statuses(page("daytona-ssh")) == {
        number: text
        for number, text in table().items()
        if number in {ssh.EXIT_USAGE, ssh.EXIT_MISSING, ssh.EXIT_SETTING}
    }


@pytest.mark.parametrize("where", PAGES, ids=lambda path: path.name)
def test_sections(where: Path) -> None:
    headings = list(sections(where))
    if where.stem in TOPICS:
        assert headings[0] == "NAME"
        assert "DESCRIPTION" in headings
        assert headings[-1] == "SEE ALSO"
        return
    found = [heading for heading in headings if heading in SECTIONS]
    assert set(found) == set(SECTIONS)
    assert found[:3] == SECTIONS[:3]
    assert found[-2:] == SECTIONS[-2:]


@pytest.mark.parametrize("where", PAGES, ids=lambda path: path.name)
def test_pages_that_are_referred_to_exist(where: Path) -> None:
    own = {(each.stem, each.suffix[1:]) for each in PAGES}
    text = "\n".join(line for lines in sections(where).values() for line in lines)
    references = set(re.findall(r"\.BR ((?:git-)?daytona[a-z-]*) \((\d)\)", text))
    assert references <= own
    see_also = set(re.findall(r"\.BR (\S+) \((\d)\)", "\n".join(sections(where)["SEE ALSO"])))
    assert {(name, number) for name, number in own if number == "1"} - {
        (where.stem, where.suffix[1:])
    } <= see_also


# -- exit statuses ---------------------------------------------------------------------------------


def table() -> dict[int, str]:
    return dict(errors_page.table())


@pytest.mark.parametrize("name", ["git-daytona.1", "git-daytona.7", "daytona-token.1"])
def test_exit_statuses(name: str) -> None:
    assert statuses(ROOT / "man" / name) == table()


@pytest.mark.parametrize("name", OWN_WORDS)
def test_exit_statuses_in_other_words(name: str) -> None:
    own = OWN_WORDS[name]
    found = statuses(page(name))
    assert found.keys() <= table().keys()
    for status in found.keys() - own:
        assert found[status].startswith(table()[status]), status


# -- settings and dependencies ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["git-daytona.1", "git-daytona.7"])
def test_settings(name: str) -> None:
    text = " ".join(tag for tag, _ in entries(sections(ROOT / "man" / name)["ENVIRONMENT"]))
    assert set(re.findall(r"DAYTONA_\w+", text)) == {
        *settings.FROM_DOTENV,
        *settings.NEVER_FROM_DOTENV,
        "DAYTONA_DEBUG",
    }


def test_settings_in_the_readme() -> None:
    rows = re.findall(
        r"^\| `(DAYTONA_\w+)` \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    columns = {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}
    assert columns.keys() == {*settings.FROM_DOTENV, *settings.NEVER_FROM_DOTENV}
    assert {name for name, cells in columns.items() if cells[2] == "never"} == set(
        settings.NEVER_FROM_DOTENV
    )


def test_dependencies_in_contributing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2]
    assert [
        f"{name} {version}"
        for name, version in re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", section, re.MULTILINE)
    ] == [each.partition(",")[0].replace(">=", " ") for each in required]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "helpers/README.md"])
def test_the_files_that_a_page_names_exist(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    named = set(re.findall(r"`(\w+/[\w/]*?\w+\.(?:py|js|sh))`", text)) - {"sandbox/scripts/NAME.sh"}
    places = (ROOT, ROOT / "tests", ROOT / "helpers" / "git_daytona")
    assert {each for each in named if not any((place / each).exists() for place in places)} == set()


# -- form ------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not (shutil.which("groff") or shutil.which("mandoc")),
    reason="neither groff nor mandoc is there",
)
@pytest.mark.parametrize("where", PAGES, ids=lambda path: path.name)
def test_the_formatter_has_nothing_to_say(where: Path) -> None:
    argv = (
        ("groff", "-man", "-Tutf8", "-ww", "-z", str(where))
        if shutil.which("groff")
        else ("mandoc", "-T", "lint", "-W", "warning", str(where))
    )
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    complaints = [
        line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line
    ]
    assert complaints == []


@pytest.mark.parametrize("where", PAGES, ids=lambda path: path.name)
def test_every_hyphen_of_an_option_can_be_copied(where: Path) -> None:
    """In roff a bare '-' may become a typographic hyphen; examples (.nf) are looked at by eye."""
    example = False
    for number, line in enumerate(where.read_text("utf-8").splitlines(), start=1):
        example = line == ".nf" or (example and line != ".fi")
        if not example and not line.startswith(".\\"):
            assert not re.search(r"(?<![\w\\-])-{1,2}[a-z]", line), f"{where.name}:{number}: {line}"


def test_every_error_has_its_entry_and_every_message_its_line() -> None:
    text = errors_page.PAGE.read_text("utf-8")
    assert re.findall(r"^\.SS (\S+)\nExit status (\d+)\.", text, re.MULTILINE) == [
        (entry, str(kind.status)) for entry, kind in errors_page.entries().items()
    ]
    assert len(errors_page.entries()) == sum(
        "entry" in vars(kind) for kind in errors_page.kinds()
    ), "two kinds of error share an entry"
    assert errors_page.renew(text) == text, (
        "renew man/git-daytona-errors.7: .venv/bin/python tests/develop/errors_page.py"
    )


def test_the_state_file_s_fields() -> None:
    """Every name that the code reads from or writes to the file, and no other."""
    named = records.names()
    text = "\n".join(
        line for lines in sections(ROOT / "man" / "git-daytona-state.5").values() for line in lines
    )
    described = {
        word
        for line in re.findall(r"^\.BR? (.*)$", text, re.MULTILINE)
        for word in re.findall(r"\b[a-z][A-Za-z]+\b", line)
    }
    assert named - {"projectId"} <= described, "man/git-daytona-state.5 lacks a field"
    tags = {tag for tag, _ in entries(text.split("\n"))}
    assert tags - {"projectId"} <= named, "man/git-daytona-state.5 has a field too many"
