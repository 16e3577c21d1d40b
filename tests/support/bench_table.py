"""The table: each row a ratio within one run or a count, beside what it must reach."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from support.measure import ROUNDS, median, ratio

OUT = Path(os.environ.get("DAYTONA_BENCH_OUT") or Path(__file__).parents[2] / "build" / "bench")
"""The folder that bench.json is written to."""


@dataclass(frozen=True)
class Row:
    """One figure. ``bound`` is what it must not exceed (``at_least``: not fall below); None: it is
    only shown. ``detail`` is what it was made of, in absolute terms that mean nothing on another
    machine."""

    part: str
    what: str
    value: float
    bound: float | None = None
    at_least: bool = False
    detail: str = ""

    @property
    def holds(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"{'>=' if self.at_least else '<='} {self.bound:g}"
        verdict = "" if self.bound is None else "ok" if self.holds else "NOT REACHED"
        value = f"{self.value:d}" if isinstance(self.value, int) else f"{self.value:.3f}"
        return f"{self.what:<66} {value:>9}  {bound:<8} {verdict:<12} {self.detail}".rstrip()


class Part:
    """The rows of one test."""

    def __init__(self, name: str, rows: list[Row]) -> None:
        self.name, self._rows = name, rows

    def ratio(
        self,
        what: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        at_most: float | None = None,
    ) -> None:
        """A row of the median ratio of two measurements that were made in turns."""
        detail = f"{median(ours) * 1000:.1f} : {median(theirs) * 1000:.1f} ms"
        self._add(Row(self.name, what, ratio(ours, theirs), at_most, detail=detail))

    def count(
        self,
        what: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        detail: str = "",
    ) -> None:
        bound = at_most if at_least is None else at_least
        self._add(Row(self.name, what, value, bound, at_least is not None, detail))

    def _add(self, row: Row) -> None:
        self._rows.append(row)
        print(row, flush=True)


class Table:
    """All rows of a run."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def part(self, name: str) -> Part:
        print(f"\n{name}")
        return Part(name, self.rows)

    def lines(self) -> Iterator[str]:
        part = ""
        for row in self.rows:
            if row.part != part:
                part = row.part
                yield f"\n{part}"
            yield f"  {row}"

    def write(self) -> Path:
        OUT.mkdir(parents=True, exist_ok=True)
        path = OUT / "bench.json"
        rows = [asdict(row) | {"holds": row.holds} for row in self.rows]
        path.write_text(
            json.dumps({"rounds": ROUNDS, "machine": _machine(), "rows": rows}, indent=1) + "\n"
        )
        return path


def _machine() -> dict[str, object]:
    def says(*argv: str) -> str:
        done = subprocess.run(argv, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()

    return {
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "git": says("git", "--version"),
        "ssh": says("ssh", "-V"),
    }
