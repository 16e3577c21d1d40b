"""Copies of sandboxes. Only refusals: machines that can be forked are not to be had everywhere, and
a snapshot takes minutes."""

from typing import Any

from support.account import Server
from support.rows import Row, Table, containing

TABLE = Table("copies")


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


def refused(on: Server, what: str, **body: object) -> dict[str, Any]:
    answer = on.api.post(f"/sandbox/{on.box.id}/{what}", json=body)
    return {"status": answer.status_code, "message": answer.json().get("message")}


@TABLE.row(
    "a container is not forked: 422",
    {"status": 422, "message": "Forking is not supported for this sandbox"},
)
def fork(on: Server) -> Any:
    return refused(on, "fork")


@TABLE.row(
    "a snapshot with memory is of Windows alone: 400",
    {"status": 400, "message": containing("includeMemory is only supported for")},
)
def memory(on: Server) -> Any:
    return refused(on, "snapshot", name=f"conf-{on.run}", includeMemory=True)
