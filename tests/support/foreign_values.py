"""What foreign input is made of, for all the fuzzers. Each test here runs briefly by default, and
guided by coverage with ``bin/test -m fuzz`` (test_guided.py)."""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

settings.register_profile(
    "fuzz",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fuzz")

ODD = [
    "",
    "\0",
    "\n",
    "\r\n",
    "\u2028",
    "\x1b]0;x\x07",
    "²",
    "٣",
    "\U0001d7d9",
    "\ud800",
    "-x",
    "--",
    "..",
    "~",
    "$(x)",
    "%n",
    "é",
    "A" * 5000,
]
text = st.text(max_size=60) | st.sampled_from(ODD)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | text
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


def objects(*names: str) -> st.SearchStrategy[dict[str, object]]:
    """JSON objects that have some of these names, with anything behind them, and others."""
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(names, json_values))
    return st.tuples(known, st.dictionaries(text, json_values, max_size=2)).map(
        lambda pair: pair[1] | pair[0]
    )


def encoded(value: object) -> bytes:
    """As JSON, with what Python's json lets through besides (NaN, lone surrogates)."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def nested(depth: int, inner: str = "1") -> bytes:
    return (b'{"a":[' * depth) + inner.encode() + (b"]}" * depth)
