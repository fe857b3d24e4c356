"""llama.cpp in this process, for text from a GGUF file: a pool of single-sequence engines that share the mapped weights."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from backends.contract import Stopped
from backends.runtime import memo, threads
from backends.runtime.models import Models
from backends.runtime.text_sampling import too_long

CONTEXT_TOKENS = 4096
READ_TOKENS = 64  # of a prompt between two looks at Stop: about half a second on one core
LOOPBACK = "127.0.0.1"
Piece = tuple[str, int, Literal["stop", "length"] | None]


def load(models: Models, name: str, path: Path) -> Pool:
    """The pool for the GGUF file of this model, once per process; its first engine is started here."""
    return models.load(f"llama.cpp {name}", lambda say: Pool(path, say))


class Pool:
    """At most one engine a core, each with one sequence and ``threads.COMPUTE_THREADS`` threads.

    One sequence, not many slots in one engine: measured, 16 slots gave 1.2 times the tokens of one, and a text then depended on
    what others asked at the same moment, because the rounding changes with the number of rows.
    """

    def __init__(self, path: Path, say: Callable[[str], None] = lambda _: None) -> None:
        say(f"starting llama.cpp on {path.name}")
        self.path, self.limit = path, threads.cores()
        self._free = threading.Condition()
        self._idle, self._number = [_engine(path)], 1

    @contextlib.contextmanager
    def stream(self, prompt: str, max_new: int, temperature: float, top_p: float, seed: int, check: Callable[[], None]) -> Iterator[Iterator[Piece]]:
        """An iterator of (text, tokens, finish); leaving the block ends the computation at its next token.

        Raises InputError for a prompt beyond ``CONTEXT_TOKENS``, RuntimeError with llama.cpp's own words for all else.
        """
        engine = self._lease(check)
        answers: queue.Queue[Any] = queue.Queue()
        left = threading.Event()
        request = {
            "prompt": prompt,
            "max_tokens": max_new,
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed,
            # This order, and nothing else. The likeliest token is found quicker (measured, 5 % of a text) than drawn at temperature 0.
            "samplers": ["temperature", "top_p"] if temperature > 0 else ["top_k"],
            "top_k": 1,
            "cache_prompt": False,  # a kept prefix changes the rounding, hence the text
            "stream": True,
            "return_progress": True,
            "timings_per_token": True,
        }

        def hear(chunk: Any) -> bool:
            answers.put(chunk)
            return left.is_set() or _ending()

        def work() -> None:
            try:
                engine.handle_completions(request, hear)
                answers.put(Stopped() if _ending() else None)
            except BaseException as error:  # noqa: BLE001 - raised again in the asker's thread
                answers.put(error)
            finally:
                self._give_back(engine)

        # Not a daemon: Python would end it inside llama.cpp when the process ends, which aborts; so ``hear`` looks for the end.
        threading.Thread(target=work, name="llama.cpp", daemon=False).start()
        try:
            yield _pieces(answers, max_new, check)
        finally:
            left.set()

    def _lease(self, check: Callable[[], None]) -> Any:
        while True:
            check()  # not under the lock: it waits while its run is paused
            with self._free:
                if self._idle:
                    return self._idle.pop()
                if self._number < self.limit:
                    self._number += 1
                    break
                self._free.wait(memo.POLL_S)
        try:
            return _engine(self.path)
        except BaseException:
            with self._free:
                self._number -= 1
            raise

    def _give_back(self, engine: Any) -> None:
        with self._free:
            self._idle.append(engine)
            self._free.notify()


def _ending() -> bool:
    """True while Python waits for the last threads of this process."""
    return not threading.main_thread().is_alive()


def _engine(path: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, 1
    params.n_batch = params.n_ubatch = READ_TOKENS
    for part in (params.cpuparams, params.cpuparams_batch):
        part.n_threads, part.poll = threads.COMPUTE_THREADS, 0  # waiting threads do not spin
    params.n_gpu_layers = 0
    params.fit_params = params.warmup = False
    params.cache_ram_mib = 0
    params.verbosity = 0
    # The engine is llama.cpp's server, which cannot do without a port: on this host only, behind a key that nobody knows.
    params.hostnames, params.port, params.api_keys = [LOOPBACK], 0, [secrets.token_hex(32)]
    params.n_threads_http, params.ui, params.endpoint_slots = 1, False, False
    return xllamacpp.Server(params)


def _pieces(answers: queue.Queue[Any], max_new: int, check: Callable[[], None]) -> Iterator[Piece]:
    counted = 0
    while True:
        check()
        try:
            chunk = answers.get(timeout=memo.POLL_S)
        except queue.Empty:
            continue
        if isinstance(chunk, BaseException):
            raise chunk
        if chunk is None:
            raise RuntimeError("llama.cpp ended without an answer")
        if "error" in chunk:
            raise _error(chunk["error"], max_new)
        progress = chunk.get("prompt_progress")
        if progress is not None and progress["total"] + max_new > CONTEXT_TOKENS:
            raise too_long(progress["total"], max_new, CONTEXT_TOKENS)
        choice = chunk["choices"][0]
        total = chunk.get("timings", {}).get("predicted_n", counted)
        yield choice["text"], total - counted, choice["finish_reason"]
        counted = total
        if choice["finish_reason"] is not None:
            return


def _error(error: dict[str, Any], max_new: int) -> Exception:
    if error.get("type") == "exceed_context_size_error":
        return too_long(error["n_prompt_tokens"], max_new, CONTEXT_TOKENS)
    return RuntimeError(f"llama.cpp: {error.get('message', 'unknown error')}")
