"""Every case of tests/cases/README.md is a test that bears its number: ``test_case_41_…`` shows
case 41, ``test_case_18_and_case_61_…`` both.

``bin/test -k case_41`` runs the tests of one case (``case_52_`` leaves out 52b); ``bin/test
tests/test_cases.py -s`` prints which tests show which case, and by how many examples. An example is
a test of its own, an item of its parametrize, or an entry of a table that is called ``examples`` in
it; each kind has three or more, so that a mend of the reported example alone does not pass for one
of the kind.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
ROWS = re.findall(
    r"^\| (\d+b?) \| .+ \| (.+) \|$", (TESTS / "cases/README.md").read_text(), re.MULTILINE
)
CASES = {number: set(re.findall(r"`(.+?)`", files)) for number, files in ROWS}
"""Number → the files that show the case, as the page has them."""
NUMBER = re.compile(r"(?:(?<=^test_)|(?<=_and_))case_(\d{2,3}b?)(?=_)")
TABLE = "examples"
LEAST = 3


@dataclass(frozen=True)
class Shown:
    """A test function and how many examples of its cases it has."""

    where: str
    name: str
    examples: int

    @property
    def cases(self) -> list[str]:
        return NUMBER.findall(self.name)


def size(node: ast.expr, constants: dict[str, ast.expr]) -> int:
    """Count the entries of a literal, a module's constant, or its ``values()``; 1 for others."""
    match node:
        case ast.List(elts=entries) | ast.Tuple(elts=entries) | ast.Set(elts=entries):
            return len(entries)
        case ast.Dict(keys=keys):
            return len(keys)
        case ast.Name(id=name) if name in constants:
            return size(constants[name], constants)
        case ast.Call(func=ast.Attribute(value=value, attr="values" | "items" | "keys")):
            return size(value, constants)
    return 1


def examples(function: ast.FunctionDef, constants: dict[str, ast.expr]) -> int:
    count = 1
    for decorator in function.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and ast.unparse(decorator.func) == "pytest.mark.parametrize"
        ):
            count *= size(decorator.args[1], constants)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [
            TABLE
        ]:
            count *= size(node.value, constants)
    return count


def shown() -> Iterator[Shown]:
    """All test functions that bear the number of a case."""
    for path in sorted(TESTS.rglob("test_*.py")):
        module = ast.parse(path.read_text())
        constants = {
            target.id: node.value
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and NUMBER.search(node.name):
                yield Shown(str(path.relative_to(TESTS)), node.name, examples(node, constants))


def test_every_case_is_a_test_with_three_examples() -> None:
    found = list(shown())
    few = []
    for case in CASES:
        mine = [each for each in found if case in each.cases]
        total = sum(each.examples for each in mine)
        print(f"{case:4}{total:4}")
        for each in mine:
            print(f"{each.examples:12}  {each.where}::{each.name}")
        if total < LEAST:
            few.append(f"{case} ({total})")
    assert few == [], "cases without a test, or with fewer than three examples"
    assert {case for each in found for case in each.cases} <= set(CASES), "a case without a row"


def test_the_page_names_the_files_of_each_case() -> None:
    assert len(ROWS) == len(CASES) > 70
    found = list(shown())
    assert {
        case: {each.where for each in found if case in each.cases} for case in CASES
    } == CASES, "tests/cases/README.md names other files"


def test_the_search_finds_and_counts() -> None:
    """One function for each way in which examples are written."""
    source = (
        "KINDS = {'a': 1, 'b': 2}\n"
        "@pytest.mark.parametrize('x', [1, 2, 3])\n"
        "@pytest.mark.parametrize('y', KINDS.values(), ids=str)\n"
        "def test_case_07_and_case_27_x(): ...\n"
        "def test_case_52b_y():\n    examples = ('a', 'b')\n"
        "def test_of_case_12_z(): ...\n"
    )
    module = ast.parse(source)
    constants = {"KINDS": module.body[0].value}  # type: ignore[attr-defined]
    counted = [
        Shown("", node.name, examples(node, constants))
        for node in module.body
        if isinstance(node, ast.FunctionDef)
    ]
    assert [(each.cases, each.examples) for each in counted] == [
        (["07", "27"], 6),
        (["52b"], 2),
        ([], 1),
    ]
