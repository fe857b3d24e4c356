"""An OpenAI-compatible endpoint for tests: it answers with whatever the test wants and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """url: of the endpoint. asked: bodies with "path" and "key" beside. answer and status: what comes back."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.answer: Callable[[dict[str, Any]], str | None] = lambda body: "fine"


@contextmanager
def serving() -> Iterator[ChatServer]:
    """A server on a free port of this machine."""
    state = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            state.asked.append({"path": self.path, "key": self.headers["authorization"], **body})
            answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "", "usage": {}}
            answer["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": state.answer(body)}}]
            content = json.dumps(answer).encode()
            self.send_response(state.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield state
        server.shutdown()
        thread.join()
