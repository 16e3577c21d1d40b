"""``git daytona status``: for people on any width of terminal, for scripts, with and without the
network."""

import json
import os
import shlex
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import wcwidth

from git_daytona.cli import table
from git_daytona.git import commit_counts
from git_daytona.git.refs import Names
from git_daytona.service.events import Events
from git_daytona.sessions import state
from git_daytona.sessions.status import Row
from support import tmux
from support.round_trip import BIN, Repo

MINUTE = 60_000
TITLES = (
    "Fix the login form",
    "認証フォームの修正とテストの追加、そして文書の更新",
    "a" * 120,
    "tabs\tand\nlines \x1b[31mred\x07 \u202eturned",
    "",
    "été: naïve café, e\u0301 combined",
)
STATES = ("synced", "failed", "pending", "setup-failed", "synced", "synced")


def populate(repo: Repo, coordinate, number: int) -> dict[int, int]:
    """A state file with so many sessions, and for each a branch with a few commits over its base.
    Returns number → commits ahead."""
    file = coordinate(repo.path).state
    head = repo.git("rev-parse", "HEAD")
    stream, ahead_of, now = [], {}, state.now()
    for each in range(1, number + 1):
        ahead_of[each] = each % 4
        stream.append(f"reset refs/daytona/base/{each}\nfrom {head}\n\n")
        stream.append(f"reset refs/heads/opencode/{each}\nfrom {head}\n\n")
        for commit in range(each % 4):
            stream.append(
                f"commit refs/heads/opencode/{each}\ncommitter A <a@example.invalid> "
                f"{1700000000 + commit} +0000\ndata 1\nx\n\n"
            )
    repo.git("fast-import", "--quiet", "--force", stdin="".join(stream))
    sessions = {
        f"ses_{each}": {
            "sandboxId": f"box-{each}",
            "branchNumber": each,
            "worktree": str(repo.path),
            "created": now,
            "lastAccessed": now - MINUTE,
            "gitReturn": {
                "state": STATES[each % len(STATES)],
                "message": f"opencode/{each} is at 0123456789",
                "updatedAt": now - each * 7 * MINUTE,
            },
            "title": TITLES[each % len(TITLES)],
        }
        for each in range(1, number + 1)
    }
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(
        json.dumps({"projectId": file.project_id, "worktree": str(repo.path), "sessions": sessions})
    )
    return ahead_of


def row(**fields) -> Row:
    given = {
        "number": 3,
        "branch": "opencode/3",
        "session_id": "ses_3",
        "sandbox_id": "box-3",
        "sandbox_state": "started",
        "sandbox_seen": 1_000_000,
        "git_return": "synced",
        "message": "nothing new in the sandbox",
        "updated_at": 1_000_000 - 5 * MINUTE,
        "needs_sync": False,
        "base": "0" * 40,
        "ahead": 2,
        "worktree": "/home/me/repository",
        "title": "Fix the login form",
        "created": 0,
        "last_accessed": 0,
    }
    return Row(**given | fields)


def staying(*words: str, size: tuple[int, int], cwd) -> tmux.Terminal:
    """``git daytona status`` on a terminal that stays open behind it: of a program's last words
    tmux may lose some."""
    line = (
        f'trap : INT; {shlex.quote(str(BIN / "git-daytona"))} status "$@"; echo "ended $?"; '
        "read -r _"
    )
    return tmux.start(["sh", "-c", line, "sh", *words], size=size, cwd=cwd)


# -- for people ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 200])
def test_200_sessions_on_a_terminal(repo, coordinate, width):
    ahead_of = populate(repo, coordinate, 200)
    with staying("--offline", "--color=always", size=(width, 230), cwd=repo.path) as screen:
        screen.wait_for("^ended 0$")
        # joined where the terminal wrapped: a wrapped line is longer than the width
        shown = screen.everything().splitlines()
    heading, *lines = shown[:201]
    assert heading.split() == (
        [
            "N",
            *(["AGE"] if width == 200 else []),
            "BRANCH",
            "SANDBOX",
            "WORK",
            "AHEAD",
            *(["WORKTREE"] if width == 200 else []),
            "TITLE",
        ]
        if width > 60
        else ["N", "SANDBOX", "WORK", "AHEAD", "TITLE"]
    )
    assert [int(line.split()[0]) for line in lines] == list(range(1, 201))
    for number, line in enumerate(lines, start=1):
        assert wcwidth.width(line) <= width, line
        assert f" +{ahead_of[number]}" in line
        assert STATES[number % len(STATES)] in line and "unknown" in line
        whole = state.one_line(TITLES[number % len(TITLES)])
        title = line[line.index(f" +{ahead_of[number]}") :]
        assert title.endswith((whole, table.CUT)) and (whole[:5] in title)
        assert "opencode/" not in line or f"opencode/{number} " in line
    assert any(table.CUT in line for line in lines)
    assert "session 1: opencode/1 is at 0123456789" in "".join(shown[201:])


def test_no_line_is_wider_than_the_window_at_any_width():
    rows = [
        row(number=number, branch=f"opencode/{number}", title=title)
        for number, title in enumerate(TITLES, start=998)
    ]
    rows += [
        row(number=None, branch=None, git_return="disabled", title="x", worktree="/" + "deep/" * 40)
    ]
    whole = table.lines(rows, width=None, now=1_000_000)
    assert not any(table.CUT in line for line in whole[1:] if "…" not in line)
    for width in range(1, 260):
        for line in table.lines(rows, width=width, now=1_000_000):
            assert wcwidth.width(line) <= width, (width, line)
        # what there is room for is whole: the number, the state and how the work came back
        if width >= 40:
            lines = table.lines(rows, width=width, now=1_000_000)
            assert all("started" in line and "synced" in line for line in lines[1:]), (width, lines)


def test_columns_go_in_an_order_that_leaves_what_matters():
    def headings(width):
        return table.lines([row(title="t" * 80)], width=width, now=1_000_000)[0].split()

    seen = [headings(width) for width in range(30, 200)]
    assert seen[-1] == ["N", "AGE", "BRANCH", "SANDBOX", "WORK", "AHEAD", "WORKTREE", "TITLE"]
    for narrow, wide in pairwise(seen):
        assert set(narrow) <= set(wide), (narrow, wide)
    assert {"N", "SANDBOX", "WORK"} <= set(seen[0])


def test_what_is_old_says_so():
    now = 1_000_000 + 3 * 60 * MINUTE
    assert "started 3h ago" in table.lines([row()], width=None, now=now)[1]
    assert "gone  " in table.lines([row(sandbox_state="gone")], width=None, now=now)[1]
    assert "synced 3h ago" in table.lines([row()], width=None, now=now)[1]
    assert [table.age(0, each * 1000) for each in (0, 59, 60, 3600, 90_000, 400 * 86_400)] == [
        "0s",
        "59s",
        "1m",
        "1h",
        "1d",
        "1y",
    ]


def test_colour(repo, coordinate, tell, monkeypatch):
    populate(repo, coordinate, 2)

    def coloured(*words: str, **environment: str) -> bool:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return "\x1b[" in tell("git-daytona", "status", "--offline", *words, cwd=repo.path).out

    assert not coloured()
    assert coloured("--color=always")
    repo.git("config", "color.ui", "always")
    assert coloured()
    assert not coloured("--color=never")
    assert not coloured("--color=auto")
    assert not coloured(NO_COLOR="1")
    assert coloured("--color=always", NO_COLOR="1")
    monkeypatch.setenv("NO_COLOR", "")  # which is as good as none
    with staying("--offline", size=(80, 24), cwd=repo.path) as screen:
        screen.wait_for("^ended 0$")
        assert "\x1b[" in screen._tmux("capture-pane", "-e", "-p", "-t", ":")


def test_a_failed_sync_says_what_and_what_to_do(repo, coordinate, tell):
    populate(repo, coordinate, 3)
    told = tell("git-daytona", "status", "--offline", cwd=repo.path)
    assert told.status == 0
    assert told.err.splitlines() == [
        "session 1: opencode/1 is at 0123456789",
        "session 3: opencode/3 is at 0123456789",
        "hint: try again: git daytona sync 1",
    ]
    assert tell("git-daytona", "status", "--offline", "--exit-code", cwd=repo.path).status == 10


def test_watch(repo, coordinate):
    populate(repo, coordinate, 40)
    file = coordinate(repo.path).state
    with staying("--watch", "--offline", size=(80, 12), cwd=repo.path) as screen:
        screen.wait_for(r"^1 +opencode/1 ")
        assert len(screen.screen().splitlines()) == 12
        screen.wait_for(r"^… and 3\d more, below the end of this window$")
        file.note("ses_2", state.SYNCED, "done")
        file.set_title("ses_2", "Another title")
        screen.wait_for(r"^2 .*synced \d+s ago .*Another title$")
        screen.resize(60, 30)
        screen.wait_for(r"^N  +SANDBOX  +WORK")
        screen.wait_for(r"^25 ")
        screen.send("C-c")
        screen.wait_for(r"^ended 0$")
        screen.wait_for(r"^40 ")  # what was shown last stays
        assert "interrupted" not in screen.everything()


# -- for scripts -----------------------------------------------------------------------------------


def test_porcelain(repo, coordinate, tell):
    ahead_of = populate(repo, coordinate, 6)
    told = tell("git-daytona", "status", "--porcelain", "--offline", cwd=repo.path)
    assert told.status == 0 and told.err == ""
    assert (
        told.out == tell("git-daytona", "status", "--porcelain=v1", "--offline", cwd=repo.path).out
    )
    lines = [line.split("\t") for line in told.out.splitlines()]
    assert [len(fields) for fields in lines] == [13] * 6
    now = state.now() // 1000
    for number, fields in enumerate(lines, start=1):
        assert fields[:5] == [
            str(number),
            f"opencode/{number}",
            "unknown",
            "-",
            STATES[number % len(STATES)],
        ]
        assert now - int(fields[5]) == pytest.approx(number * 420, abs=60)
        assert fields[6:8] == [
            str(ahead_of[number]),
            "no" if fields[4] == "synced" and number * 7 < 1 else "yes",
        ]
        assert fields[8:11] == [f"box-{number}", f"ses_{number}", str(repo.path)]
        assert fields[11] == (state.one_line(TITLES[number % len(TITLES)]) or "-")
        assert fields[12] == f"opencode/{number} is at 0123456789"


def test_porcelain_escapes_what_would_break_a_line():
    odd = os.fsdecode(b"/a\tb\nc\\d\xff\x1b\xc2\x9b")
    fields = table.porcelain(
        row(worktree=odd, title="-", number=None, branch=None, ahead=None)
    ).split("\t")
    assert fields[0:2] == ["-", "-"] and fields[6] == "-"
    assert fields[10] == "/a\\tb\\nc\\\\d\\xff\\u001b\\u009b"
    assert fields[11] == "\\x2d"
    assert all(field.isprintable() for field in fields)


def test_json(repo, coordinate, tell):
    populate(repo, coordinate, 2)
    first, _ = json.loads(tell("git-daytona", "status", "--json", "--offline", cwd=repo.path).out)
    assert (
        first["ahead"] == 1
        and first["base"] == repo.git("rev-parse", "HEAD")
        and first["sandboxSeenAt"] is None
    )
    assert first["title"] == state.one_line(TITLES[1])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--watch",), "--watch shows the list on a terminal"),
        (("--json", "--porcelain"), "--json and --porcelain exclude each other"),
        (("--porcelain=v2",), "'v2' is not"),
        (("--color=blue",), "'blue' is not"),
    ],
)
def test_wrong_arguments(repo, tell, words, says):
    told = tell("git-daytona", "status", *words, cwd=repo.path)
    assert told.status == 2 and says in told.complaint[0]


def test_a_slip_of_the_finger(tell):
    assert (
        tell("git-daytona", "statsu")
        .complaint[0]
        .startswith("git-daytona: error: no such command 'statsu'; did you mean 'status'?")
    )
    assert "did you mean" not in tell("git-daytona", "xyzzy").err


# -- the network -----------------------------------------------------------------------------------


def test_without_the_network_it_shows_what_was_seen_last(local, repo, begin, tell, monkeypatch):
    session = begin(repo)

    def shown(*words: str) -> tuple[dict, str]:
        told = tell("git-daytona", "status", "--json", *words, cwd=repo.path)
        assert told.status == 0
        return json.loads(told.out)[0], told.err

    before = session.coordinator.state.path.read_bytes()
    assert shown("--offline")[0]["sandboxState"] == "unknown"
    seen, _ = shown()
    assert seen["sandboxState"] == "started" and abs(seen["sandboxSeenAt"] - state.now()) < 120_000
    assert session.coordinator.state.path.read_bytes() == before  # looking writes nothing there
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    again, said = shown()
    assert (again["sandboxState"], again["sandboxSeenAt"]) == ("started", seen["sandboxSeenAt"])
    assert (
        said.startswith("git-daytona: warning: ")
        and "cannot reach Daytona at" in said
        and said.count("\n") == 1
    )
    assert "the sandboxes' states are those seen last" in said
    assert shown("--offline") == (again, "")
    monkeypatch.delenv("DAYTONA_API_KEY")
    again, said = shown()
    assert again["sandboxState"] == "started" and "no API key" in said


def test_an_api_that_does_not_answer_is_left_after_a_moment(local, repo, begin, tell):
    begin(repo)
    with local.faults.call(route="^list$", hang=True) as held:
        told = tell("git-daytona", "status", cwd=repo.path)
        held.release()
    assert told.status == 0 and told.out.splitlines()[1].startswith("1 ")
    assert held.seen and "did not answer within 3 seconds" in told.err


def test_a_sandbox_that_the_list_does_not_have_is_looked_up(local, repo, begin, tell):
    """The existing plugin's sandboxes carry no labels, and only the API's own 404 says that one is
    gone."""
    session = begin(repo)
    state_file = session.coordinator.state
    found = state_file.get(session.coordinator.find("1").id)
    state_file.put(
        state.Session(
            "ses_gone", "no-such-box", 2, found.worktree, 1, 1, found.git_return, found.git_dir
        )
    )
    rows = json.loads(tell("git-daytona", "status", "--json", cwd=repo.path).out)
    assert [each["sandboxState"] for each in rows] == ["started", "gone"]


# -- commits ahead ---------------------------------------------------------------------------------


def counted_calls(repository, monkeypatch) -> list[str]:
    calls = []
    kind = type(repository)
    plain = kind.git
    monkeypatch.setattr(
        kind,
        "git",
        lambda self, *words, **options: (calls.append(words[0]), plain(self, *words, **options))[1],
    )
    return calls


def test_commits_ahead_as_git_counts_them(repo, coordinate, monkeypatch):
    """Merged sessions, sessions that began on another's branch, merges back and forth, unrelated
    history: the same as rev-list says, with a bounded number of calls."""
    repository = coordinate(repo.path).repository

    def commit(*parents: str, date: int) -> str:
        env = {
            "GIT_COMMITTER_DATE": f"{1_700_000_000 + date} +0000",
            "GIT_AUTHOR_DATE": "1700000000 +0000",
        }
        words = [word for parent in parents for word in ("-p", parent)]
        return repo.git(
            "commit-tree", "HEAD^{tree}", *words, "-m", f"{date} {time.monotonic_ns()}", env=env
        )

    main = [repo.git("rev-parse", "HEAD")]
    for number in range(30):
        main.append(commit(main[-1], date=number * 10))
    side = commit(main[3], date=500)
    merged = commit(main[10], side, date=501)
    orphan = commit(date=1)
    older = commit(main[2], date=600)
    pairs = [
        (main[5], main[5]),
        (main[5], commit(commit(main[5], date=700), date=701)),
        (main[5], main[12]),  # merged, and the local branch followed
        (main[4], merged),
        (side, commit(merged, date=702)),
        (main[20], commit(main[20], merged, date=703)),
        (main[20], older),
        (main[12], main[5]),
        # side by side, whichever of them comes first
        (one := commit(main[16], date=705), two := commit(main[16], date=706)),
        (two, one),
        (commit(two, date=707), commit(one, date=708)),
        (main[29], orphan),
        (orphan, main[8]),
        (main[7], commit(main[30], orphan, date=704)),
    ]
    for number, (base, tip) in enumerate(pairs, start=1):
        repo.git("update-ref", Names(number).base, base)
        repo.git("update-ref", Names(number).ref, tip)
    calls = counted_calls(repository, monkeypatch)
    found = commit_counts.branch_positions(
        repository, [Names(number) for number in range(1, len(pairs) + 2)]
    )

    assert calls == ["for-each-ref", "merge-base", "rev-list", "for-each-ref", "for-each-ref"]
    expected = {
        number: int(repo.git("rev-list", "--count", f"{base}..{tip}"))
        for number, (base, tip) in enumerate(pairs, start=1)
    }
    assert {number: each.ahead for number, each in found.items()} == expected | {
        len(pairs) + 1: None
    }


def test_200_sessions_cost_a_bounded_number_of_processes(repo, coordinate, monkeypatch):
    ahead_of = populate(repo, coordinate, 200)
    repository = coordinate(repo.path).repository
    calls = counted_calls(repository, monkeypatch)
    assert {
        number: each.ahead
        for number, each in commit_counts.branch_positions(
            repository, map(Names, range(1, 201))
        ).items()
    } == ahead_of
    assert calls == ["for-each-ref", "merge-base", "rev-list", "for-each-ref", "for-each-ref"]


def test_histories_too_long_to_walk_together_are_counted_singly(repo, coordinate, monkeypatch):
    ahead_of = populate(repo, coordinate, 5)
    monkeypatch.setattr(commit_counts, "WALKED", 3)
    found = commit_counts.branch_positions(coordinate(repo.path).repository, map(Names, ahead_of))
    assert {number: each.ahead for number, each in found.items()} == ahead_of


def test_an_object_that_is_missing_leaves_the_other_sessions_counted(repo, coordinate):
    ahead_of = populate(repo, coordinate, 3)
    (repo.path / ".git/refs/heads/opencode/9").write_text("1" * 40 + "\n")
    repo.git("update-ref", "refs/daytona/base/9", "HEAD")
    numbers = [*ahead_of, 9]
    found = commit_counts.branch_positions(coordinate(repo.path).repository, map(Names, numbers))
    assert {number: each.ahead for number, each in found.items()} == {**ahead_of, 9: None}


# -- titles ----------------------------------------------------------------------------------------


def test_opencodes_title_is_shown_once_the_session_has_a_record(repo, coordinate, tell):
    coordinator = coordinate(repo.path)
    file = coordinator.state

    def nothing(_root: str) -> None:
        pass

    workspace = SimpleNamespace(coordinator=lambda: coordinator)
    told = Events(None, workspace, SimpleNamespace(begun=nothing, ended=nothing, delete=nothing))

    def happened(kind: str, session: str = "ses_1", **info) -> None:
        told.handle(kind, {"sessionID": session, "info": {"id": session, **info}})
        assert told._notes.wait(time.monotonic() + 30)

    happened("session.created", title="New session - 2026-01-01")
    happened("session.created", session="ses_child", parentID="ses_1", title="A sub-agent")
    happened("session.updated", title="Mend the\nlogin \x1b[31mform")
    assert not file.sessions()  # a chat that used no tool yet has no record, and gets none
    file.put(
        state.Session(
            "ses_1",
            "box",
            1,
            str(repo.path),
            1,
            1,
            state.GitReturn(state.PENDING),
            coordinator.git_dir,
        )
    )
    happened("session.idle")
    assert file.get("ses_1").title == "Mend the login [31mform"
    before = file.path.stat().st_mtime_ns
    happened("session.updated", title="Mend the\nlogin \x1b[31mform")
    happened("session.idle")
    assert file.path.stat().st_mtime_ns == before  # said often, written once
    happened("session.updated", title="é" * 300)
    assert file.get("ses_1").title == "é" * state.TITLE
    assert "Mend" not in tell("git-daytona", "status", "--offline", cwd=repo.path).out


def test_a_title_of_ones_own(local, repo, tell):
    assert tell("git-daytona", "start", "--title", "Try the new parser", cwd=repo.path).status == 0
    assert (
        tell("git-daytona", "status", cwd=repo.path)
        .out.splitlines()[1]
        .endswith("Try the new parser")
    )
