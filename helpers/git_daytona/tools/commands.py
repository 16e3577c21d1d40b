"""The single commands within a shell command line, for OpenCode's permission rules (``"git push *":
"ask"``). Pure.

This splits at operators outside quotes, and looks into substitutions, subshells and here-documents;
where it cannot tell it gives the whole line. OpenCode's parser, tree-sitter-bash, cannot tell for
more lines (``cat <<A; rm x``), and may take many seconds for one.
"""

import re

MOVES = frozenset({"cd", "chdir", "popd", "pushd"})  # OpenCode asks nothing for these

# How many words name what a command does ("git push", "npm run build"), as in OpenCode's own table;
# one for all others.
_TWO = frozenset(
    str.split(
        "bazel brew bun cargo cdk cf cmake composer consul crictl deno docker eksctl firebase "
        "flyctl git go gradle helm heroku hugo ip kind kubectl make mc minikube mongosh mysql mvn "
        "ng npm nvm nx openssl pip pipenv pnpm poetry podman psql pulumi pyenv python rake "
        "redis-cli rustup serverless skaffold sls sst swift systemctl terraform tmux turbo ufw "
        "vault vercel volta wp yarn"
    )
)
_THREE = frozenset(
    str.split(
        "aws,az,doctl,gcloud,gh,sfdx,bun run,bun x,cargo add,cargo run,consul kv,deno task,"
        "docker builder,docker compose,docker container,docker image,docker network,docker volume,"
        "eksctl create,git config,git remote,git stash,ip addr,ip link,ip netns,ip route,"
        "kubectl kustomize,kubectl rollout,mc admin,npm exec,npm init,npm run,npm view,"
        "openssl req,openssl x509,pnpm dlx,pnpm exec,pnpm run,podman builder,podman compose,"
        "podman container,podman image,podman network,podman volume,pulumi stack,"
        "terraform workspace,vault auth,vault kv,yarn dlx,yarn run",
        ",",
    )
)

_TOKEN = re.compile(
    r"""(?P<plain> \\.? | '[^']*' | \(\s*\) | <<< | [<>]& | &> | [^\\'"`$<>()\#;&|\n]+ )
    | (?P<nested> `[^`]*` | [$<>]\( | ["'`] )
    | (?P<document> <<-?\s* (?P<escape>\\?) (?P<quote>['"]?) (?P<word>[\w.-]+) (?P=quote) )
    | (?P<break> \( | (?<![^\ \t\n;&|(])\#[^\n]* | [;&|\n] )
    | (?P<closing> \) )
    | .""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r'\\.|[^\\"`$]+|`[^`]*`|\$\(|.', re.DOTALL)
_OPENING = re.compile(
    r"\A(?:(?:if|then|elif|else|while|until|do|time|!|\{|function\s+\S+|\w[\w-]*\s*\(\s*\))"
    r"(?=\s|$|\()\s*)+"
)
_IDLE = re.compile(r"(?:(?:fi|done|esac|\})(?:\s*[<>].*)?|(?:for|case|select)\s.*|)", re.DOTALL)
_ASSIGNMENTS = re.compile(r"\A(?:\w+=(?:'[^']*'|\"[^\"]*\"|[^\s'\"])*\s*)+")


class _Unclear(Exception):
    """Quotes, brackets or here-documents that do not close."""


def patterns(line: str) -> tuple[list[str], list[str]]:
    """Return the single commands, and what "always" would allow of them (``git push *``)."""
    try:
        pieces = _Reader(line).pieces()
    except (_Unclear, RecursionError):
        return [line.strip()], []
    asked: dict[str, str] = {}
    for piece in pieces:
        command = _OPENING.sub("", piece.strip()).strip()
        words = _ASSIGNMENTS.sub("", command).split()
        if words and words[0] not in MOVES and not _IDLE.fullmatch(command):
            length = 2 if words[0] in _TWO else 1
            if not _THREE.isdisjoint((words[0], " ".join(words[:2]))):
                length = 3
            asked[command] = " ".join([*words[:length], "*"])
    return list(asked), list(dict.fromkeys(asked.values()))


class _Reader:
    """Reads a text from its beginning on; its methods raise _Unclear."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def pieces(self, *, closing: bool = False) -> list[str]:
        """Read up to the end or, with ``closing``, a closing bracket. Returns what is between
        operators, then what is so within substitutions and subshells."""
        own: list[str] = []
        inner: list[str] = []
        documents: list[re.Match[str]] = []
        start = self._at
        while found := _TOKEN.match(self._text, self._at):
            self._at = found.end()
            kind = found.lastgroup
            if kind == "nested":
                inner += self._nested(found[0])
            elif kind == "document":
                documents.append(found)
            elif kind == "break":
                own.append(self._text[start : found.start()])
                if found[0] == "(":
                    inner += self.pieces(closing=True)
                elif found[0] == "\n":
                    inner += self._skip(documents)
                    documents = []
                start = self._at
            elif kind == "closing" and closing:
                return [*own, self._text[start : found.start()], *inner]
        if closing:
            raise _Unclear
        return [*own, self._text[start:], *inner]

    def _nested(self, opening: str) -> list[str]:
        """Read a substitution, or a text in double quotes, from behind its opening."""
        if opening == '"':
            return self._quoted()
        if opening in ("'", "`"):
            raise _Unclear
        if opening.startswith("`"):
            return _Reader(opening[1:-1]).pieces()
        is_arithmetic = opening == "$(" and self._text.startswith("(", self._at)
        pieces = self.pieces(closing=True)
        return [] if is_arithmetic else pieces

    def _quoted(self) -> list[str]:
        inner: list[str] = []
        while found := _QUOTED.match(self._text, self._at):
            self._at = found.end()
            if found[0] == '"':
                return inner
            if found[0].startswith(("$(", "`")):
                inner += self._nested(found[0])
        raise _Unclear

    def _skip(self, documents: list[re.Match[str]]) -> list[str]:
        """Read here-documents; in unquoted ones there may be substitutions."""
        inner: list[str] = []
        for document in documents:
            ending = re.compile(rf"^\t*{re.escape(document['word'])}$", re.MULTILINE)
            end = ending.search(self._text, self._at)
            if not end:
                raise _Unclear
            if not document["escape"] and not document["quote"]:
                body = self._text[self._at : end.start()].replace('"', " ")
                inner += _Reader(body + '"')._quoted()
            self._at = end.end()
        return inner
