"""Text from both engines: greedy and drawn, stopped, streamed, refused."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError, Stopped
from backends.runtime import language_model, llama_cpp, model_files, text_sampling, threads
from backends.runtime.language_model import Decoder, Sample
from backends.runtime.models import Models
from tests.conftest import ROOT

FRANCE, STORY = "The capital of France is", "Once upon a time"
ENGINES = ("llama.cpp", "transformers")
STOP_LIMIT_S = 1.0

pytestmark = pytest.mark.skipif(not all(map(model_files.find, model_files.BUNDLED.values())), reason="the two model packages are not installed")


def write(decoder: Decoder, models: Models, prompts: Sequence[str], engine: Any, **given: Any) -> list[Sample]:
    return language_model.sample(decoder, prompts, models=models, engine=engine, **{"max_new": 8, "temperature": 0.0, **given})


def test_engines_agree_on_the_first_greedy_tokens_up_to_a_near_tie(decoder: Decoder, models: Models) -> None:
    """llama.cpp multiplies 4-bit weights with 8-bit activations: where the texts part, float32 sees both tokens within 1.5 nats."""
    prompts = [FRANCE, STORY, "2 + 2 =", "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"]
    packed, exact = (write(decoder, models, prompts, engine, max_new=12) for engine in ENGINES)
    same = 0
    for prompt, one, other in zip(prompts, packed, exact, strict=True):
        a, b = (decoder.tokenizer(prompt + text).input_ids for text in (one.text, other.text))
        start = len(decoder.tokenizer(prompt).input_ids)
        part = next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), None)
        same += (part or min(len(a), len(b))) - start
        if part is not None:
            with torch.inference_mode():
                logits = decoder.model(torch.tensor([a[:part]])).logits[0, -1]
            assert abs(float(logits[a[part]] - logits[b[part]])) < 1.5, (one.text, other.text)
    assert packed[0].text.startswith(" Paris")
    assert same >= 3 * len(prompts)


def test_greedy_text_is_that_of_generate(decoder: Decoder, models: Models) -> None:
    ids = decoder.tokenizer(STORY, return_tensors="pt")
    peer = decoder.model.generate(**ids, max_new_tokens=10, do_sample=False)[0, ids.input_ids.shape[1] :]
    assert write(decoder, models, [STORY], "transformers", max_new=10)[0].text == decoder.tokenizer.decode(peer, skip_special_tokens=True)


def test_a_batch_of_unequal_prompts_gives_each_its_own_greedy_text(decoder: Decoder, models: Models) -> None:
    prompts = [FRANCE, "Water boils at a temperature of one hundred degrees, and it freezes at", STORY]
    together = write(decoder, models, prompts, "transformers", max_new=5)
    assert together == [write(decoder, models, [prompt], "transformers", max_new=5)[0] for prompt in prompts]
    assert write(decoder, models, prompts, "transformers", max_new=5, batch=2) == together


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_seed_equal_text_other_seed_and_other_place_other_text(engine: str, decoder: Decoder, models: Models) -> None:
    state = torch.random.get_rng_state()
    one, again, other = (write(decoder, models, [STORY] * 3, engine, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert len({s.text for s in one}) > 1
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_string_is_cut_off_and_never_streamed(engine: str, decoder: Decoder, models: Models) -> None:
    pieces: list[tuple[int, str]] = []
    (full,) = write(decoder, models, [FRANCE], engine)
    (cut,) = write(decoder, models, [FRANCE], engine, stop=["Paris is", ".\n"], emit=lambda i, piece: pieces.append((i, piece)))
    assert ".\n" in full.text
    assert (cut.text, cut.finish) == (" Paris", "stop")
    assert cut.tokens < full.tokens
    assert "".join(piece for _, piece in pieces) == " Paris"


@pytest.mark.parametrize("engine", ENGINES)
def test_streamed_pieces_make_the_text(engine: str, decoder: Decoder, models: Models) -> None:
    pieces: dict[int, list[str]] = {0: [], 1: []}
    made = write(decoder, models, [FRANCE, "Wörter: schön, größer, \U0001f600, \U0001f600,"], engine, emit=lambda i, piece: pieces[i].append(piece))
    assert ["".join(pieces[i]) for i in (0, 1)] == [s.text for s in made]
    assert len(pieces[0]) > 3
    assert all(s.tokens == 8 and s.finish == "length" for s in made)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_end_token_ends_a_text(engine: str, decoder: Decoder, models: Models) -> None:
    prompt = "<|im_start|>user\nSay only: yes<|im_end|>\n<|im_start|>assistant\nyes"
    (made,) = write(decoder, models, [prompt], engine, max_new=60)
    assert made.finish == "stop"
    assert "<|" not in made.text


@pytest.mark.parametrize("engine", ENGINES)
def test_stopped_within_a_second_while_reading_a_long_prompt_and_while_writing(engine: str, decoder: Decoder, models: Models) -> None:
    for prompt in ("word " * 1500, STORY):
        began, stopped_at = time.monotonic(), time.process_time()

        def check(began: float = began) -> None:
            nonlocal stopped_at
            if time.monotonic() > began + 0.5:
                raise Stopped
            stopped_at = time.process_time()  # of the last look; processor time, so that a busy host does not count

        with pytest.raises(Stopped):
            write(decoder, models, [prompt], engine, max_new=1000, check=check)
        assert time.process_time() - stopped_at < STOP_LIMIT_S


def test_stopped_engine_writes_for_the_next(decoder: Decoder, models: Models) -> None:
    def check() -> None:
        raise Stopped

    before = write(decoder, models, [FRANCE], "llama.cpp")
    for _ in range(2 * threads.cores() + 1):  # more than there are engines
        with pytest.raises(Stopped):
            write(decoder, models, [STORY], "llama.cpp", max_new=500, check=check)
    assert write(decoder, models, [FRANCE], "llama.cpp") == before


@pytest.mark.parametrize("engine", ENGINES)
def test_texts_do_not_depend_on_who_else_asks(engine: str, decoder: Decoder, models: Models) -> None:
    alone = [write(decoder, models, [prompt], engine, temperature=1.0, seed=3) for prompt in (FRANCE, STORY, "Red, green")]
    got: dict[int, list[Sample]] = {}

    def ask(i: int) -> None:
        got[i] = write(decoder, models, [(FRANCE, STORY, "Red, green")[i % 3]], engine, temperature=1.0, seed=3)

    asking = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert [got[i] for i in range(6)] == alone * 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompts": [""]}, "prompt"),
        ({"max_new": 0}, "max_new"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"batch": 0}, "batch"),
        ({"stop": [""]}, "stop"),
        ({"stop": "x"}, "stop"),
    ],
)
def test_bad_values_name_their_field(given: dict[str, Any], field: str, decoder: Decoder, models: Models) -> None:
    with pytest.raises(InputError) as caught:
        language_model.sample(decoder, **{"prompts": [FRANCE], "models": models, **given})
    assert caught.value.field == field


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("words", "max_new"), [(9000, 8), (10, 9000)])
def test_a_text_beyond_the_context_is_refused(engine: str, words: int, max_new: int, decoder: Decoder, models: Models) -> None:
    with pytest.raises(InputError, match="passes the model's limit"):
        write(decoder, models, ["word " * words], engine, max_new=max_new)


def test_llama_cpp_says_that_it_needs_a_gguf_file(models: Models, decoder: Decoder) -> None:
    other = Decoder("someone/other", decoder.model, decoder.tokenizer, "cpu", "", 0.0)
    with pytest.raises(InputError, match="no GGUF file"):
        write(other, models, [FRANCE], "llama.cpp")


def test_auto_takes_llama_cpp_where_there_is_a_gguf_file(models: Models, decoder: Decoder) -> None:
    assert write(decoder, models, [STORY], "auto") == write(decoder, models, [STORY], "llama.cpp")
    other = Decoder("someone/other", decoder.model, decoder.tokenizer, "cpu", "", 0.0)
    assert write(other, models, [STORY], "auto") == write(decoder, models, [STORY], "transformers")


def test_engine_listens_on_this_host_only_behind_a_key(models: Models) -> None:
    import urllib.error
    import urllib.request

    pool = llama_cpp.load(models, language_model.DEFAULT, model_files.packaged(model_files.BUNDLED[language_model.DEFAULT]))
    address = pool._idle[0].listening_address
    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address + "/props", timeout=5)


def frequencies(draws: Sequence[int], size: int) -> np.ndarray:
    counts = Counter(draws)
    return np.array([counts[i] for i in range(size)]) / len(draws)


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [(1.0, 1.0, [0.5, 0.3, 0.15, 0.05]), (1.0, 0.7, [0.625, 0.375, 0, 0]), (1.0, 0.5, [1, 0, 0, 0]), (0.5, 1.0, [0.6849, 0.2466, 0.0616, 0.0068])],
)
def test_drawn_tokens_have_the_stated_probabilities(temperature: float, top_p: float, expected: list[float]) -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    generator = torch.Generator().manual_seed(0)
    draws = [text_sampling.draw(logits, temperature, top_p, [generator])[0] for _ in range(4000)]
    assert frequencies(draws, 4) == pytest.approx(np.array(expected), abs=0.025)  # 3 standard errors
    assert not frequencies(draws, 4)[np.array(expected) == 0].any()


def test_llama_cpp_draws_within_the_nucleus_of_the_float32_model(decoder: Decoder, models: Models) -> None:
    with torch.inference_mode():
        probabilities = torch.softmax(decoder.model(torch.tensor([decoder.tokenizer(STORY).input_ids])).logits[0, -1], -1)
    made = write(decoder, models, [STORY] * 60, "llama.cpp", max_new=1, temperature=1.0, top_p=0.5)
    likely = {decoder.tokenizer.decode([int(i)]) for i in probabilities.topk(20).indices}
    assert {s.text for s in made} <= likely
    first = decoder.tokenizer.decode([int(probabilities.argmax())])
    assert np.mean([s.text == first for s in made]) >= float(probabilities.max()) - 0.2


@pytest.mark.parametrize("left", [True, False])
def test_a_process_ends_well_while_an_engine_still_writes(left: bool) -> None:
    code = f"""
import contextlib, threading
from backends.contract import Stopped
from backends.runtime import threads; threads.configure()
from backends.runtime import language_model
from backends.runtime.models import Models
begun = threading.Event()
def check():
    if {left} and begun.is_set(): raise SystemExit
def write():
    models = Models(lambda _: None, lambda: None)
    with contextlib.suppress(Stopped, SystemExit):
        language_model.sample(language_model.DEFAULT, ["{STORY}"], models=models, max_new=4000, emit=lambda i, piece: begun.set(), check=check)
threading.Thread(target=write, daemon=True).start()
begun.wait()
raise SystemExit(7)
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert time.monotonic() - began < 20  # 4000 tokens take a minute
