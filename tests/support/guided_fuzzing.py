"""Run one fuzzer of this folder under atheris: libFuzzer chooses the bytes that hypothesis makes
its examples of, by the branches that they reach in git_daytona. ``guided.py MODULE FUZZER SECONDS
CORPUS``; ends with a status other than 0 at the first failure, and says it."""

import logging
import os
import sys
import tempfile
from pathlib import Path

import atheris


def main(module: str, name: str, seconds: str, corpus: str) -> None:
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "fuzz")]
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {
            "HOME": home,
            "XDG_DATA_HOME": f"{home}/data",
            "XDG_STATE_HOME": f"{home}/state",
        }
        with atheris.instrument_imports(include=["git_daytona"]):
            fuzzer = getattr(__import__(module), name)
        limits = [
            f"-max_total_time={seconds}",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={corpus}/",
        ]
        atheris.Setup([sys.argv[0], *limits, corpus], fuzzer.hypothesis.fuzz_one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
