"""The toolbox's files."""

from typing import Any

import httpx

from support.account import Box, Server
from support.rows import NUMBER, TEXT, By, Like, Row, Table, beginning, containing, having, one_of

TABLE = Table("files")


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


def get(box: Box, route: str, /, **query: Any) -> httpx.Response:
    return box.toolbox.get(route, params=query)


def post(box: Box, route: str, body: Any = None, /, **query: Any) -> httpx.Response:
    return box.toolbox.post(route, params=query, json=body)


def made(on: Server, script: str = "true") -> str:
    """A new folder in which a script has run."""
    folder = on.box.folder()
    on.box.sh(f"cd {folder} && {script}")
    return folder


# Errors.


def failed(answer: httpx.Response) -> dict[str, Any]:
    """The status of a refusal, and whether it says why."""
    return {
        "status": answer.status_code,
        "body": "" if not answer.content else "envelope" if "message" in answer.text else "text",
    }


def error(status: int) -> By:
    """0.190 has the status alone; newer servers say why."""
    return By(cloud={"status": status, "body": "envelope"}, v0_190={"status": status, "body": ""})


@TABLE.row("a missing file: download", error(404))
def missing_download(on: Server) -> Any:
    return failed(get(on.box, "/files/download", path="/no/such/file"))


@TABLE.row("a missing file: info", error(404))
def missing_info(on: Server) -> Any:
    return failed(get(on.box, "/files/info", path="/no/such/file"))


@TABLE.row("a missing folder: list", error(404))
def missing_list(on: Server) -> Any:
    return failed(get(on.box, "/files", path="/no/such/folder"))


@TABLE.row("a missing file: delete", error(404))
def missing_delete(on: Server) -> Any:
    return failed(on.box.toolbox.delete("/files", params={"path": "/no/such/file"}))


@TABLE.row("no path: 400", error(400))
def no_path(on: Server) -> Any:
    return failed(get(on.box, "/files/download"))


@TABLE.row("what may not be deleted is 400", {"status": 400, "there": True})
def denied(on: Server) -> Any:
    answer = on.box.toolbox.delete("/files", params={"path": "/etc/hosts"})
    return {
        "status": answer.status_code,
        "there": on.box.sh("test -e /etc/hosts && echo yes") == "yes\n",
    }


@TABLE.row(
    "a folder is deleted only with recursive",
    {"without": 400, "with": one_of(200, 204), "there": False},
)
def recursive(on: Server) -> Any:
    folder = made(on, "mkdir sub && touch sub/file")
    without = on.box.toolbox.delete("/files", params={"path": f"{folder}/sub"}).status_code
    recursive = on.box.toolbox.delete(
        "/files", params={"path": f"{folder}/sub", "recursive": "true"}
    ).status_code
    return {"without": without, "with": recursive, "there": "sub" in on.box.sh(f"ls {folder}")}


@TABLE.row(
    "bulk-download says why: a part named error, in the envelope",
    {"status": 200, "part": True, "code": "FILE_NOT_FOUND"},
)
def bulk_missing(on: Server) -> Any:
    answer = post(on.box, "/files/bulk-download", {"paths": ["/no/such/file"]})
    code = "FILE_NOT_FOUND" if "FILE_NOT_FOUND" in answer.text else answer.text[:200]
    return {"status": answer.status_code, "part": 'name="error"' in answer.text, "code": code}


# What a file is.


@TABLE.row(
    "info: the members",
    By(
        cloud=having(
            *(
                "name",
                "path",
                "size",
                "mode",
                "modTime",
                "modifiedAt",
                "isDir",
                "owner",
                "group",
                "permissions",
            )
        ),
        v0_190=[
            "group",
            "isDir",
            "modTime",
            "mode",
            "modifiedAt",
            "name",
            "owner",
            "permissions",
            "size",
        ],
    ),
)
def members(on: Server) -> Any:
    return sorted(get(on.box, "/files/info", path=f"{made(on, 'touch file')}/file").json())


@TABLE.row(
    "info: a file",
    {
        "name": "file",
        "size": 6,
        "mode": "-rwxr-x---",
        "isDir": False,
        "permissions": "0750",
        "owner": Like("the user's number", str.isdigit),
        "group": Like("the group's number", str.isdigit),
    },
)
def info(on: Server) -> Any:
    body = get(
        on.box, "/files/info", path=f"{made(on, 'echo hello >file; chmod 750 file')}/file"
    ).json()
    return {
        name: body.get(name)
        for name in ("name", "size", "mode", "isDir", "permissions", "owner", "group")
    }


@TABLE.row(
    "info: sticky is in the mode, as Go writes it, and not in the permissions",
    {"mode": "dtrwxrwxrwx", "permissions": "0777"},
)
def sticky(on: Server) -> Any:
    body = get(on.box, "/files/info", path=f"{made(on, 'mkdir d; chmod 1777 d')}/d").json()
    return {"mode": body["mode"], "permissions": body["permissions"]}


@TABLE.row(
    "info: setuid is in the mode, as Go writes it, and not in the permissions",
    {"mode": "urwxr-xr-x", "permissions": "0755"},
)
def setuid(on: Server) -> Any:
    body = get(on.box, "/files/info", path=f"{made(on, 'touch f; chmod 4755 f')}/f").json()
    return {"mode": body["mode"], "permissions": body["permissions"]}


@TABLE.row("permissions: setuid asked for is left out", {"status": 200, "mode": "755"})
def set_setuid(on: Server) -> Any:
    folder = made(on, "touch f")
    answer = post(on.box, "/files/permissions", path=f"{folder}/f", mode="4755")
    return {"status": answer.status_code, "mode": on.box.sh(f"stat -c %a {folder}/f").strip()}


@TABLE.row("permissions: the owner by name or number", {"name": 200, "number": 200})
def owner(on: Server) -> Any:
    folder = made(on, "touch f")
    name, number = on.box.sh("id -un; id -u").split()
    return {
        "name": post(on.box, "/files/permissions", path=f"{folder}/f", owner=name).status_code,
        "number": post(on.box, "/files/permissions", path=f"{folder}/f", owner=number).status_code,
    }


# Lists and searches.


@TABLE.row("list: depth", By(cloud=["file", "sub", "sub/inner"], v0_190=["file", "sub"]))
def depth(on: Server) -> Any:
    folder = made(on, "mkdir sub; touch file sub/inner")
    found = get(on.box, "/files", path=folder, depth=2).json()
    return sorted(
        (one.get("path") or f"{folder}/{one['name']}").removeprefix(f"{folder}/") for one in found
    )


@TABLE.row("list: broken links are left out", ["file", "good"])
def broken_links(on: Server) -> Any:
    folder = made(on, "touch file; ln -s file good; ln -s nowhere broken")
    return sorted(one["name"] for one in get(on.box, "/files", path=folder).json())


@TABLE.row(
    "find and search on a missing folder: 200, nothing",
    {"find": {"status": 200, "found": 0}, "search": {"status": 200, "found": 0}},
)
def find_missing(on: Server) -> Any:
    find = get(on.box, "/files/find", path="/no/such/folder", pattern="x")
    search = get(on.box, "/files/search", path="/no/such/folder", pattern="x")
    searched = search.json().get("files") if search.status_code == 200 else None
    return {
        "find": {
            "status": find.status_code,
            "found": len(find.json() or []) if find.status_code == 200 else None,
        },
        "search": {"status": search.status_code, "found": len(searched or [])},
    }


SEARCHES = {
    "*.txt": ["a.txt", "sub/b.txt", "sub/deep/c.txt"],
    "*.TXT": [],
    "?.txt": ["a.txt", "sub/b.txt", "sub/deep/c.txt"],
    "[ab].txt": ["a.txt", "sub/b.txt"],
    "deep": ["sub/deep"],
    "sub/*.txt": [],
    "**/c.txt": [],
    "*.{txt,md}": [],
}


@TABLE.row("search: Go's Match on the base names, at any depth", SEARCHES)
def search(on: Server) -> Any:
    folder = made(on, "mkdir -p sub/deep; touch a.txt sub/b.txt sub/deep/c.txt d.md")
    return {pattern: found(on, folder, pattern) for pattern in SEARCHES}


@TABLE.row("search: the folder itself can match", ["top", "top/top.txt"])
def search_itself(on: Server) -> Any:
    folder = made(on, "mkdir top; touch top/top.txt")
    return sorted(
        path.removeprefix(f"{folder}/") for path in search_files(on, f"{folder}/top", "top*")
    )


def search_files(on: Server, folder: str, pattern: str) -> list[str]:
    answer = get(on.box, "/files/search", path=folder, pattern=pattern)
    return (
        (answer.json().get("files") or [])
        if answer.status_code == 200
        else [f"status {answer.status_code}"]
    )


def found(on: Server, folder: str, pattern: str) -> list[str]:
    return sorted(path.removeprefix(f"{folder}/") for path in search_files(on, folder, pattern))


@TABLE.row(
    "find: a substring, by line; files with NUL at their beginning are skipped",
    [["a.txt", 2, "the TODO: x.y"]],
)
def find(on: Server) -> Any:
    folder = made(
        on, r"printf 'one\nthe TODO: x.y\nTODO: xzy\n' >a.txt; printf 'TODO: x.y\0' >b.bin"
    )
    matches = get(on.box, "/files/find", path=folder, pattern="TODO: x.y").json()
    return [
        [one["file"].removeprefix(f"{folder}/"), one["line"], one["content"]] for one in matches
    ]


# Deletions, moves, replacements.


@TABLE.row("delete follows links: a broken one is 404 and stays", {"status": 404, "there": True})
def delete_broken(on: Server) -> Any:
    folder = made(on, "ln -s nowhere broken")
    status = on.box.toolbox.delete("/files", params={"path": f"{folder}/broken"}).status_code
    return {"status": status, "there": "broken" in on.box.sh(f"ls {folder}")}


@TABLE.row(
    "move: 409 onto anything that is there, 404 without a parent or a source",
    {"file": 409, "folder": 409, "no parent": 404, "no source": 404, "free": 200},
)
def move(on: Server) -> Any:
    folder = made(on, "mkdir d; touch a b")
    targets = {
        "file": ("a", "b"),
        "folder": ("a", "d"),
        "no parent": ("a", "x/y"),
        "no source": ("none", "c"),
        "free": ("a", "c"),
    }

    def moved(source: str, destination: str) -> int:
        return post(
            on.box,
            "/files/move",
            source=f"{folder}/{source}",
            destination=f"{folder}/{destination}",
        ).status_code

    return {name: moved(*pair) for name, pair in targets.items()}


@TABLE.row(
    "replace: plain text; bytes and mode stay",
    {"results": [["a", True], ["none", False]], "bytes": "61 62 ff 0d 0a 61 62", "mode": "640"},
)
def replace(on: Server) -> Any:
    folder = made(on, r"printf 'a.c\377\r\na.c' >a; chmod 640 a")
    body = {"files": [f"{folder}/a", f"{folder}/none"], "pattern": "a.c", "newValue": "ab"}
    results = post(on.box, "/files/replace", body).json()
    return {
        "results": [
            [one["file"].removeprefix(f"{folder}/"), one.get("success")] for one in results
        ],
        "bytes": on.box.sh(f"od -An -v -tx1 {folder}/a").strip(),
        "mode": on.box.sh(f"stat -c %a {folder}/a").strip(),
    }


@TABLE.row(
    "replace: 400 for an empty pattern, or without newValue",
    {"empty pattern": 400, "no newValue": 400},
)
def replace_nothing(on: Server) -> Any:
    folder = made(on, "echo a >a")
    return {
        "empty pattern": post(
            on.box, "/files/replace", {"files": [f"{folder}/a"], "pattern": "", "newValue": "x"}
        ).status_code,
        "no newValue": post(
            on.box, "/files/replace", {"files": [f"{folder}/a"], "pattern": "a"}
        ).status_code,
    }


@TABLE.row(
    "a folder that is made: 0755 under the umask, with its parents",
    {"status": 201, "modes": "755 755"},
)
def folder(on: Server) -> Any:
    folder = made(on)
    status = post(on.box, "/files/folder", path=f"{folder}/a/b", mode="0777").status_code
    return {
        "status": status,
        "modes": " ".join(on.box.sh(f"stat -c %a {folder}/a {folder}/a/b").split()),
    }


# Contents.


@TABLE.row(
    "download: whole, or a range of it",
    {
        "whole": [200, "0123456789"],
        "range": [206, "234"],
        "content-range": "bytes 2-4/10",
        "last-modified": True,
    },
)
def ranges(on: Server) -> Any:
    path = f"{made(on, 'printf 0123456789 >file')}/file"
    whole = get(on.box, "/files/download", path=path)
    part = on.box.toolbox.get(
        "/files/download", params={"path": path}, headers={"Range": "bytes=2-4"}
    )
    return {
        "whole": [whole.status_code, whole.text],
        "range": [part.status_code, part.text],
        "content-range": part.headers.get("content-range"),
        "last-modified": "last-modified" in whole.headers,
    }


@TABLE.row("bulk-download: the boundary", containing("boundary=DAYTONA-FILE-BOUNDARY"))
def boundary(on: Server) -> Any:
    kind = post(on.box, "/files/bulk-download", {"paths": [f"{made(on, 'touch a')}/a"]}).headers[
        "content-type"
    ]
    # Nothing random follows.
    return (
        kind.replace('"', "")
        if kind.replace('"', "").endswith("=DAYTONA-FILE-BOUNDARY")
        else f"another one: {kind}"
    )


@TABLE.row(
    "upload: a form makes the file", {"status": one_of(200, 201), "there": "hello", "mode": "644"}
)
def upload(on: Server) -> Any:
    folder = made(on)
    answer = on.box.toolbox.post(
        "/files/upload", params={"path": f"{folder}/file"}, files={"file": b"hello"}
    )
    content, mode = on.box.sh(f"cat {folder}/file; echo; stat -c %a {folder}/file").split()
    return {"status": answer.status_code, "there": content, "mode": mode}


@TABLE.row(
    "upload-v2",
    By(
        cloud={"status": 200, "there": "hello"},
        v0_190={"status": 404, "there": "", "text": "404 page not found", "type": "text/plain"},
    ),
)
def upload_v2(on: Server) -> Any:
    folder = made(on)
    answer = on.box.toolbox.post(
        "/files/upload-v2", params={"path": f"{folder}/file"}, content=b"hello"
    )
    told = {"status": answer.status_code, "there": on.box.sh(f"cat {folder}/file 2>/dev/null")}
    if answer.status_code == 404:
        told |= {
            "text": answer.text.strip(),
            "type": answer.headers["content-type"].partition(";")[0],
        }
    return told


def bulk(on: Server, *files: tuple[str, bytes]) -> httpx.Response:
    form: list[tuple[str, Any]] = []
    for number, (path, content) in enumerate(files):
        form += [(f"files[{number}].path", (None, path)), (f"files[{number}].file", ("x", content))]
    return on.box.toolbox.post("/files/bulk-upload", files=form)


@TABLE.row(
    "bulk-upload: folders are made with 0755, files with 0644, and the path is trimmed",
    {"status": 200, "content": "hello", "file": "644", "folder": "755"},
)
def bulk_upload(on: Server) -> Any:
    folder = made(on)
    answer = bulk(on, (f"  {folder}/new/file \n", b"hello"))
    content, file, parent = on.box.sh(
        f"cat {folder}/new/file; echo; stat -c %a {folder}/new/file {folder}/new"
    ).split()
    return {"status": answer.status_code, "content": content, "file": file, "folder": parent}


@TABLE.row(
    "bulk-upload: goes on after an error, and answers 400 with errors and files",
    {"status": 400, "members": ["errors", "files"], "there": "b"},
)
def bulk_error(on: Server) -> Any:
    folder = made(on, "mkdir d")
    answer = bulk(on, (f"{folder}/d", b"a"), (f"{folder}/b", b"b"))
    body = answer.json() if answer.content else {}
    return {
        "status": answer.status_code,
        "members": sorted(body),
        "there": on.box.sh(f"cat {folder}/b 2>/dev/null"),
    }


@TABLE.row("50 MB go in and come out", True)
def large(on: Server) -> Any:
    folder, content = made(on), bytes(range(256)) * 4096 * 50
    assert bulk(on, (f"{folder}/big", content)).status_code == 200
    return get(on.box, "/files/download", path=f"{folder}/big").content == content


# Places.


@TABLE.row(
    "work-dir, user-home-dir and project-dir",
    {"work": "/home/daytona", "home": "/home/daytona", "project": beginning("/")},
)
def directories(on: Server) -> Any:
    answers = {"work": "/work-dir", "home": "/user-home-dir", "project": "/project-dir"}
    return {name: get(on.box, path).json().get("dir") for name, path in answers.items()}


@TABLE.row("the list's path may end in a slash", 200)
def slash(on: Server) -> Any:
    return on.box.toolbox.get(
        "/files/", params={"path": on.box.folder()}, follow_redirects=True
    ).status_code


@TABLE.row(
    "system/metrics",
    By(cloud={"status": 200, "kind": "numbers"}, v0_190={"status": 404, "kind": "text"}),
)
def metrics(on: Server) -> Any:
    answer = get(on.box, "/system/metrics")
    return {
        "status": answer.status_code,
        "kind": "numbers"
        if answer.status_code == 200 and NUMBER.holds(*[*answer.json().values()][:1])
        else "text",
    }


@TABLE.row("version", {"status": 200, "version": TEXT})
def version(on: Server) -> Any:
    answer = get(on.box, "/version")
    return {"status": answer.status_code, "version": answer.json().get("version")}
