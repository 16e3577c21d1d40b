"""Projects with a devcontainer.json, in the real OpenCode: consent, set-up, variables, ports, and
tests that need them."""

from collections.abc import Callable

import pytest

from support.opencode_hosts import OpenCode
from support.plugin import state
from support.program import Told
from support.round_trip import Repo
from support.scripted_model import Model
from support.shared_opencode import home_folder, model, opencode
from support.waiting import until

__all__ = ["home_folder", "model", "opencode"]

NODE = {
    ".devcontainer/devcontainer.json": """{
  // in an image of ours
  "image": "mcr.microsoft.com/devcontainers/javascript-node:22",
  "postCreateCommand": "npm install --offline --no-audit --no-fund",
  "containerEnv": {"GREETING": "hello from ${containerWorkspaceFolderBasename}",},
  "remoteEnv": {"TOKEN": "${localEnv:PROJECT_TOKEN}"},
  "forwardPorts": [8123],
}""",
    ".gitignore": "node_modules\\n",
    "package.json": '{"name": "it", "version": "1.0.0", "dependencies": {"dep": "file:./dep"}}',
    "dep/package.json": '{"name": "dep", "version": "1.0.0"}',
    "dep/index.js": "module.exports = () => process.env.GREETING",
    "it.test.js": """require("node:test")("it", () => require("node:assert").equal(
  `${require("dep")()} ${process.env.TOKEN}`, "hello from project canary-0815"))""",
}
PYTHON = {
    ".devcontainer.json": """{
  "onCreateCommand": ["python3", "-m", "venv", "--without-pip", ".venv"],
  "postCreateCommand": {"package": "cp dep.txt .venv/dep.txt"},
  "remoteEnv": {
    "PATH": "${containerWorkspaceFolder}/.venv/bin:${containerEnv:PATH}",
    "TOKEN": "${localEnv:PROJECT_TOKEN}",
  },
  "forwardPorts": [8124],
}""",
    ".gitignore": ".venv\\n",
    "dep.txt": "dep",
    "test_it.py": """import os, pathlib, sys, unittest
class It(unittest.TestCase):
    def test_it(self):
        self.assertEqual(pathlib.Path(sys.prefix, "dep.txt").read_text(), "dep")
        self.assertEqual(os.environ["TOKEN"], "canary-0815")
""",
}


@pytest.mark.parametrize(
    "files, line, passed, port",
    [
        (NODE, "node --test", "pass 1", 8123),
        (PYTHON, "python -m unittest 2>&1", "OK", 8124),
    ],
    ids=["node", "python"],
)
def test_a_project_is_set_up_once_that_is_allowed(
    opencode: OpenCode,
    model: Model,
    repo: Repo,
    tell: Callable[..., Told],
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    line: str,
    passed: str,
    port: int,
) -> None:
    monkeypatch.setenv("PROJECT_TOKEN", "canary-0815")
    for name, text in files.items():
        repo.write(name, text.replace("\\n", "\n") if name == ".gitignore" else text)
    repo.git("add", ".")
    repo.git("commit", "-qm", "A project")
    model.scripts["look around"] = [[("bash", {"command": "ls", "description": "look"})], "ok"]
    model.scripts["run the tests"] = [[("bash", {"command": line, "description": "test"})], "ok"]

    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "look around")
    waits = "which you have not allowed hint: see it, and allow it: git daytona allow"
    # one of the test before may come late
    until(lambda: [each for each in opencode.toasts() if each[0] == "Set-up" and waits in each[1]])
    assert "the user has not allowed it" in model.results("look around")[0]
    assert "node_modules" not in model.results("look around")[0]

    shown = tell("git-daytona", "allow", cwd=repo.path)
    assert shown.status == 0
    assert f"forwardPorts: {port}\n" in shown.out
    assert "takes from your environment: PROJECT_TOKEN\n" in shown.out
    server.prompt(root, "look around")  # and with that call it begins
    until(lambda: state(repo)["sessions"][root].get("setup", {}).get("state") == "done")
    server.prompt(root, "run the tests")
    assert passed in model.results("run the tests")[-1]
    assert "the project's set-up has ended well" in model.results("run the tests")[-1]
