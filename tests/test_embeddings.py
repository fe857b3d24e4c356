"""Sentence embeddings of the bundled encoder."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from backends.contract import InputError, Stopped
from backends.runtime import embeddings, model_files
from backends.runtime.models import Models

pytestmark = pytest.mark.skipif(not all(map(model_files.find, model_files.BUNDLED.values())), reason="the two model packages are not installed")


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
