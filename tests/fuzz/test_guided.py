"""The same fuzzers, guided by coverage: ``bin/test -m fuzz``, for DAYTONA_FUZZ_SECONDS seconds in
all (60 if unset).

What was found interesting is kept in .fuzz/ between runs; remove it to begin anew."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
REQUIREMENTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]["fuzz"]
# Read here: the tests themselves see nothing of the developer's environment.
SECONDS = float(os.environ.get("DAYTONA_FUZZ_SECONDS") or 60)
FUZZERS = [
    (path.stem, name)
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    for name in re.findall(r"^def (fuzz_\w+)", path.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module", autouse=True)
def atheris():
    """Installed on first use: it is large, and made for Linux alone."""
    with FileLock(ROOT / ".venv" / "fuzz.lock"):
        if (
            subprocess.run((sys.executable, "-c", "import atheris"), capture_output=True).returncode
            != 0
        ):
            words = (
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-deps",
                "--disable-pip-version-check",
                *REQUIREMENTS,
            )
            done = subprocess.run(words, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                pytest.skip(f"atheris cannot be installed here: {done.stderr[-300:]}")


@pytest.mark.fuzz
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize(("module", "name"), FUZZERS)
def test_guided(module, name):
    corpus = ROOT / ".fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    seconds = max(1, round(SECONDS / len(FUZZERS)))
    words = (
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "guided_fuzzing.py"),
        module,
        name,
        str(seconds),
        str(corpus),
    )
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", timeout=SECONDS + 100
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(
        *re.findall(
            r"^stat::number_of_executed_units: +\d+|^Done .*|cov: \d+(?= .*DONE)",
            done.stderr,
            re.MULTILINE,
        ),
        sep="\n",
    )


def test_every_kind_of_foreign_input_has_a_fuzzer():
    kinds = {
        "known_hosts",
        "dotenv",
        "record",
        "rpc",
        "configuration",
        "sandbox",
        "body",
        "status",
        "report",
        "patch",
        "argv",
        "token",
    }
    assert kinds <= {name.removeprefix("fuzz_") for _, name in FUZZERS}
