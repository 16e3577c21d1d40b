"""What OpenCode is told at once: which events we want, and which of its own tools need no
question."""

EVENTS = ("session.created", "session.updated", "session.status", "session.idle", "session.deleted")

HARMLESS = (
    "invalid",
    "todowrite",
    "todoread",
    "task",
    "question",
    "plan_enter",
    "plan_exit",
    "webfetch",
    "websearch",
    "codesearch",
    "skill",
)
"""Built-in tools that touch nothing of the host but what the user gave OpenCode for that: its own
lists and questions, the network under the user's permissions, skills from the user's folders. Each
version of OpenCode adds some: all others are blocked."""
