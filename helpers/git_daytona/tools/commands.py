"""The single commands within a shell command line, for OpenCode's permission rules (``"git push *":
"ask"``). Pure.

OpenCode parses with tree-sitter. This splits at the shell's operators, outside quotes, and looks
into substitutions, subshells and here-documents. Where it cannot tell it gives the whole line, so
that a rule can only be asked once too often.
"""

import re

_OPENING = re.compile(
    r"(?:(?:if|then|elif|else|while|until|do|time|!|\{|function\s+\S+|\w[\w-]*\s*\(\s*\))"
    r"(?=\s|$|\()\s*)+"
)
_IDLE = re.compile(r"(?:(?:fi|done|esac|\})(?:\s*[<>].*)?|(?:for|case|select)\s.*|)", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=(?:'[^']*'|\"[^\"]*\"|[^\s'\"])*\s*")
_HEREDOC = re.compile(r"<<-?\s*(\\?)(['\"]?)([\w.-]+)\2")
MOVES = frozenset({"cd", "chdir", "popd", "pushd"})
"""Commands that OpenCode asks nothing for."""

# How many words name what a command does ("git push", "npm run build"); one for all others. As in
# OpenCode's own table.
_TWO = frozenset(
    str.split(
        "bazel brew bun cargo cdk cf cmake composer consul crictl deno docker eksctl "
        "firebase flyctl git go gradle helm heroku hugo ip"
        " kind kubectl make mc minikube mongosh mysql mvn ng npm nvm nx openssl pip pipenv "
        "pnpm poetry podman psql pulumi pyenv python"
        " rake redis-cli rustup serverless skaffold sls sst swift systemctl terraform tmux "
        "turbo ufw vault vercel volta wp yarn"
    )
)
_THREE = frozenset(("aws", "az", "doctl", "gcloud", "gh", "sfdx")) | frozenset(
    {
        *(
            "bun run",
            "bun x",
            "cargo add",
            "cargo run",
            "consul kv",
            "deno task",
            "eksctl create",
            "git config",
            "git remote",
        ),
        *(
            "git stash",
            "ip addr",
            "ip link",
            "ip netns",
            "ip route",
            "kubectl kustomize",
            "kubectl rollout",
            "mc admin",
            "npm exec",
        ),
        *(
            "npm init",
            "npm run",
            "npm view",
            "openssl req",
            "openssl x509",
            "pnpm dlx",
            "pnpm exec",
            "pnpm run",
            "pulumi stack",
        ),
        *("terraform workspace", "vault auth", "vault kv", "yarn dlx", "yarn run"),
        *(
            f"{tool} {part}"
            for tool in ("docker", "podman")
            for part in ("builder", "compose", "container", "image", "network", "volume")
        ),
    }
)


def patterns(line: str) -> tuple[list[str], list[str]]:
    """What to ask for: the single commands, and the prefixes that "always" would allow (``git push
    *``)."""
    try:
        found = list(dict.fromkeys(_commands(line)))
    except (_Unclear, RecursionError):
        return [line.strip()], []
    asked = [each for each in found if _words(each)[:1] and _words(each)[0] not in MOVES]
    return asked, list(dict.fromkeys(prefix(_words(each)) + " *" for each in asked))


def prefix(words: list[str]) -> str:
    """The words that say what a command does."""
    for length in (2, 1):
        if " ".join(words[:length]) in _THREE:
            return " ".join(words[:3])
    return " ".join(words[: 2 if words and words[0] in _TWO else 1])


class _Unclear(Exception):
    """Quotes or brackets that do not close."""


def _words(command: str) -> list[str]:
    """The command's words without assignments before it, split at blanks: enough for its first
    three."""
    while found := _ASSIGNMENT.match(command):
        command = command[found.end() :]
    return command.split()


def _commands(line: str) -> list[str]:
    found: list[str] = []
    inner: list[str] = []
    for piece in _pieces(line, inner):
        piece = piece.strip()
        if opening := _OPENING.match(piece):
            piece = piece[opening.end() :].strip()
        if piece and not _IDLE.fullmatch(piece):
            found.append(piece)
    for each in inner:
        found += _commands(each)
    return found


def _pieces(line: str, inner: list[str]) -> list[str]:
    """The line split at operators; what stands in substitutions and subshells goes to ``inner``."""
    pieces: list[str] = []
    here: list[tuple[str, bool]] = []
    start = at = 0
    while at < len(line):
        char = line[at]
        if char == "\\":
            at += 2
        elif char == "'":
            at = _find(line, "'", at + 1) + 1
        elif char == '"':
            at = _double(line, at + 1, inner)
        elif char == "`" or line.startswith(("$(", "<(", ">("), at):
            at = _substitution(line, at, inner)
        elif char == "(" and not line[start:at].strip().isidentifier():
            end = _closing(line, at + 1)
            inner.append(line[at + 1 : end])
            pieces.append(line[start:at])
            at = start = end + 1
        elif char == "#" and (at == 0 or line[at - 1] in " \t\n;&|("):
            end = line.find("\n", at)
            pieces.append(line[start:at])
            at = start = len(line) if end < 0 else end
        elif line.startswith("<<<", at):
            at += 3
        elif found := _HEREDOC.match(line, at):
            here.append((found[3], bool(found[1] or found[2])))
            at = found.end()
        elif char in ";|\n" or (
            char == "&" and line[at - 1 : at] not in ("<", ">") and line[at + 1 : at + 2] != ">"
        ):
            pieces.append(line[start:at])
            at += 1
            if char == "\n" and here:
                at = _skip_documents(line, at, here, inner)
                here = []
            start = at
        else:
            at += 1
    return [*pieces, line[start:]]


def _find(line: str, wanted: str, at: int) -> int:
    end = line.find(wanted, at)
    if end < 0:
        raise _Unclear
    return end


def _double(line: str, at: int, inner: list[str]) -> int:
    """The end of a text in double quotes; the substitutions in it are commands."""
    while at < len(line):
        if line[at] == "\\":
            at += 2
        elif line[at] == '"':
            return at + 1
        elif line[at] == "`" or line.startswith("$(", at):
            at = _substitution(line, at, inner)
        else:
            at += 1
    raise _Unclear


def _substitution(line: str, at: int, inner: list[str]) -> int:
    if line[at] == "`":
        end = _find(line, "`", at + 1)
        inner.append(line[at + 1 : end])
        return end + 1
    end = _closing(line, at + 2)
    # $((…)) is arithmetic.
    if not line.startswith("$((", at):
        inner.append(line[at + 2 : end])
    return end + 1


def _closing(line: str, at: int) -> int:
    """The bracket that closes the one before ``at``."""
    depth = 1
    while at < len(line):
        char = line[at]
        if char == "\\":
            at += 2
            continue
        if char == "'":
            at = _find(line, "'", at + 1)
        elif char == '"':
            at = _double(line, at + 1, []) - 1
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if not depth:
                return at
        at += 1
    raise _Unclear


def _skip_documents(line: str, at: int, here: list[tuple[str, bool]], inner: list[str]) -> int:
    """The end of the here-documents that begin at ``at``; in unquoted ones there may be
    substitutions."""
    for word, quoted in here:
        found = re.compile(rf"^\t*{re.escape(word)}$", re.MULTILINE).search(line, at)
        if not found:
            raise _Unclear
        if not quoted:
            _double(line[at : found.start()].replace('"', " ") + '"', 0, inner)
        at = found.end()
    return at
