"""``python tests/develop/newest.py [PYTEST ARGUMENTS]``: run tests with the newest versions that
pyproject.toml allows, in a virtual environment that is thrown away. Needs the package index.

By default those that meet other people's packages: Daytona's SDKs, HTTP, SSH, and a whole round
trip. ``.venv`` keeps what it has for as long as it fits; this is what a new installation gets.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/local",
    "tests/unit",
    "tests/flows/test_round_trip.py",
    "tests/flows/test_proxies.py",
)


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="newest-") as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-I", "-m", "venv", folder], check=True)
        pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", f"{ROOT}[mcp,test]"], check=True)
        # the checkout's own code, as in .venv
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "-e", str(ROOT)], check=True)
        subprocess.run([*pip, "list", "--format=freeze"], check=True)
        pytest = [str(python), "-I", "-m", "pytest", "-m", "not bench and not fuzz"]
        which = arguments or [f"tests/{each}" for each in TESTS]
        return subprocess.run([*pytest, *which], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
