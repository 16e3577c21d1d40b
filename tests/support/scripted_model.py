"""A language model that says what a test wrote down: the OpenAI chat-completions stream on
loopback."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, dict[str, Any]]
Step = str | list[Call] | Callable[[list[dict[str, Any]]], "Step"]
"""What the model answers: a text, tool calls, or what a function makes of the conversation so
far."""


@dataclass
class Model:
    """The scripts: words of the first user message → the answers to it, one after the other. Then
    it says ``done``."""

    scripts: dict[str, list[Step]] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The requests that offered tools, as they came."""
    port: int = 0
    title: str = "a title"
    """Of every session."""
    dialect: Callable[[Call], Call] = lambda call: call
    """What a host calls the tools that the scripts name as OpenCode 1 does."""

    def answer(self, body: dict[str, Any]) -> Step:
        messages = body["messages"]
        if not body.get("tools"):
            return self.title
        self.asked.append(body)
        turns = [place for place, each in enumerate(messages) if each["role"] == "user"]
        words = content(messages[turns[-1]])
        done = sum(each["role"] == "assistant" for each in messages[turns[-1] :])
        steps = next((steps for words_, steps in self.scripts.items() if words_ in words), [])
        step = steps[done] if done < len(steps) else "done"
        return step(messages) if callable(step) else step

    def results(self, words: str = "") -> list[str]:
        """What the tools gave (without blanks around it), in the last request whose first message
        holds the words."""
        for body in reversed(self.asked):
            if any(words in content(each) for each in body["messages"] if each["role"] == "user"):
                return [
                    _result(content(each).strip())
                    for each in body["messages"]
                    if each["role"] == "tool"
                ]
        return []


def _result(text: str) -> str:
    """A tool's result; of an error as OpenCode 2 reports it, the message. The first one in a
    sandbox says there that it is one."""
    text = re.sub(r"\A(Sandbox created|Connected): .*\n\n", "", text)
    if not text.startswith('{"error":{'):
        return text
    return str(json.loads(text)["error"]["message"])


def content(message: dict[str, Any]) -> str:
    value = message.get("content") or ""
    return value if isinstance(value, str) else "".join(part.get("text", "") for part in value)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model: Model = self.server.model  # type: ignore[attr-defined]
        step = model.answer(body)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if isinstance(step, str):
            deltas, end = [{"content": step}], "stop"
        else:
            calls = [
                {
                    "index": place,
                    "id": f"call_{len(body['messages'])}_{place}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for place, (name, arguments) in enumerate(map(model.dialect, step))
            ]
            deltas, end = [{"tool_calls": [call]} for call in calls], "tool_calls"
        for delta in [{"role": "assistant", "content": ""}, *deltas]:
            self._send({"index": 0, "delta": delta, "finish_reason": None})
        self._send(
            {"index": 0, "delta": {}, "finish_reason": end},
            usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        )
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, choice: dict[str, Any], **more: object) -> None:
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **more,
        }
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: Model

    def handle_error(self, request: object, client_address: object) -> None:
        """OpenCode went away in mid-answer."""


@contextlib.contextmanager
def scripted() -> Iterator[Model]:
    """A model without scripts yet, at its ``port`` until the block ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.model = Model(port=server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.model
        server.shutdown()
