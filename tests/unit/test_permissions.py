"""OpenCode 2's permission rules, as the service applies them to our tools."""

import pytest

from git_daytona.service.permissions import Effect, Rule, decide, question, read

ALLOW, ASK, DENY = Effect


def rules(*rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    return read({"action": action, "resource": it, "effect": does} for action, it, does in rows)


USUAL = (("*", "*", "allow"), ("read", "*.env", "ask"), ("read", "*.env.example", "allow"))


@pytest.mark.parametrize(
    ("more", "action", "resources", "effect"),
    [
        ([], "bash", ["ls"], ALLOW),
        ([], "read", ["config/.env"], ASK),
        ([], "read", [".env.example"], ALLOW),
        ([("bash", "*", "ask"), ("bash", "git *", "allow")], "bash", ["git push"], ALLOW),
        ([("bash", "git *", "allow"), ("bash", "*", "ask")], "bash", ["git push"], ASK),
        ([("bash", "git *", "deny")], "bash", ["git"], DENY),
        ([("bash", "git *", "deny")], "bash", ["gitk"], ALLOW),
        ([("bash", "git push*", "deny")], "bash", ["ls", "git push origin"], DENY),
        ([("bash", "ls", "ask")], "bash", ["cat", "ls"], ASK),
        ([("edit", "secret/*", "deny")], "edit", ["secret/a/b"], DENY),
        ([("edit", "secret/?", "deny")], "edit", ["secret/ab"], ALLOW),
        ([("edit", "a.b", "deny")], "edit", ["axb"], ALLOW),
        ([("bash", "*rm*", "deny")], "bash", ["ls\nrm -r ."], DENY),
    ],
)
def test_the_last_rule_that_matches_counts(more, action, resources, effect):
    assert decide(rules(*USUAL, *more), action, resources).effect is effect


def test_what_no_rule_is_about_is_asked():
    assert decide((), "bash", ["ls"]).effect is ASK
    assert decide(rules(("*", "*", "allow")), "bash", []).effect is ASK


@pytest.mark.parametrize("broken", [{}, None, "allow", {"action": "bash", "resource": "*"}, 3])
def test_a_rule_that_cannot_be_read_makes_the_tool_ask(broken):
    allowed = {"action": "*", "resource": "*", "effect": "allow"}
    assert decide(read([allowed, broken]), "bash", ["ls"]).effect is ASK


def test_a_question_without_a_pattern_to_keep_has_no_always():
    assert [each["label"] for each in question("edit", ["a"], ["*"])["options"]] == [
        "Allow once",
        "Allow always",
        "Reject",
    ]
    assert "Allow always" not in str(question("edit", ["a"], []))
