"""git-daytona-security(7) names tests that are there, and bounds that are those of the code."""

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "man" / "git-daytona-security.7").read_text("utf-8")
UNITS = {"": 1, "bytes": 1, "MiB": 1 << 20, "GiB": 1 << 30, "min": 60, "h": 3600}


def test_each_promise_names_its_tests() -> None:
    promises = re.search(r"\.SS Promises.*?\.SS Not promised", PAGE, re.DOTALL)
    assert promises
    held = re.findall(r"^Held by (.*)\.$", promises[0], re.MULTILINE)
    assert len(held) == promises[0].count(".IP") > 10
    for line in held:
        for group in line.split("; "):
            file, names = group.split(": ")
            text = (ROOT / file).read_text("utf-8")
            for name in names.split(", "):
                assert f"def {name}(" in text, f"{file} has no {name}"


def test_the_bounds_are_those_of_the_code() -> None:
    bounds = re.findall(r'^\.B (.*)\n\.\\" (.*)$', PAGE.partition(".SH BOUNDS")[2], re.MULTILINE)
    assert len(bounds) > 10
    for value, name in bounds:
        if name == "sandbox/scripts/guard.sh":
            source = (ROOT / "helpers/git_daytona" / name).read_text("utf-8")
            assert re.findall(r"^half=(\d+)$", source, re.MULTILINE) == [str(2 << 20)], value
            continue
        if name.startswith("sandbox/scripts/inventory.sh "):
            file, _, variable = name.partition(" ")
            source = (ROOT / "helpers/git_daytona" / file).read_text("utf-8")
            assert re.findall(rf"^{variable}=(\d+)", source, re.MULTILINE) == [value], name
            continue
        module, _, constant = name.rpartition(".")
        bound = getattr(import_module(f"git_daytona.{module}"), constant)
        number, _, unit = value.partition(" ")
        if constant == "MEMORY_BYTES":
            assert value == "half the memory"
            assert bound >= 1 << 30
        else:
            assert bound == int(number) * UNITS[unit], name
