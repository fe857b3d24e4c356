"""What fatigue-index reads inside a model, against the library's own forward pass; little random decoders, no trained weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from backends.contract import InputError
from backends.fatigue_index import entropy, fatigue_index
from backends.fatigue_index.generation import Plan, Slice, Trace, generate
from backends.fatigue_index.reading import LibraryReader, QuickReader, Reading, read_prompts
from backends.fatigue_index.treatments import CADENCE, SCA_TAIL, Context, erd_temperature, treated
from backends.runtime.language_model import Decoder
from tests.decoders import small

PROMPTS = [[5, 17, 3, 88, 41, 9, 23], [61, 2, 30]]
PADS = [0, 4]


def decoder(model: Any) -> Decoder:
    tokenizer: Any = SimpleNamespace(eos_token_id=None)
    model.generation_config.eos_token_id = None
    return Decoder("little", model, tokenizer, "cpu", "a little random decoder", 0.0)


def whole(plan: Plan, model: Any = None, prompts: Any = PROMPTS[:1]) -> list[Trace]:
    *_, traces = generate(decoder(model or small("llama")), prompts, plan)
    return traces


def by_library(model: Any, ids: list[int]) -> Any:
    with torch.inference_mode():
        return model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)


def readers(model: Any) -> list[Any]:
    return [QuickReader(model, PADS, 20, 7), LibraryReader(model, PADS, 7)]


def assert_as_library(model: Any, at: Reading, texts: list[list[int]]) -> None:
    for place, ids in enumerate(texts):
        expected = by_library(model, ids)
        rows = expected.attentions[-1][0, :, -1].numpy()[:, :7]
        assert at.rows[place, :, : rows.shape[1]] == pytest.approx(rows, abs=1e-5)
        assert (at.rows[place, :, rows.shape[1] :] == 0).all(), "attention beyond the text"
        assert at.after[place] == pytest.approx(expected.hidden_states[-1][0, -1].numpy(), abs=1e-4)
        assert at.logits[place].numpy() == pytest.approx(expected.logits[0, -1].numpy(), abs=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("number", [0, 1])
def test_both_readers_see_what_the_library_shows(kind: str, number: int) -> None:
    model = small(kind)
    reader = readers(model)[number]
    assert_as_library(model, read_prompts(reader, PROMPTS, "cpu", lambda: None), PROMPTS)
    at = reader.read(torch.tensor([[7], [8]]))
    assert_as_library(model, at, [[*PROMPTS[0], 7], [*PROMPTS[1], 8]])
    reader.keep([1])
    assert_as_library(model, reader.read(torch.tensor([[9]])), [[*PROMPTS[1], 8, 9]])


def test_the_state_before_the_norm_is_what_enters_it() -> None:
    model = small("llama")
    entered: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    by_library(model, PROMPTS[0])
    hook.remove()
    at = read_prompts(QuickReader(model, [0], 20, 7), PROMPTS[:1], "cpu", lambda: None)
    assert at.before is not None
    assert at.before[0] == pytest.approx(entered[0][0, -1].numpy(), abs=1e-5)


def test_the_shared_model_keeps_no_hook() -> None:
    model = small("llama")
    whole(Plan(max_new=3), model)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_the_index_with_a_cache_is_that_by_full_recomputation(kind: str) -> None:
    model = small(kind)
    (trace,) = whole(Plan(max_new=12), model)
    cached = fatigue_index(trace.attention(Slice(prefix=4)), trace.entropy, trace.after, low=2, high=4, kappa=9)
    signals, anchor = [], None
    for step in range(12):
        seen = by_library(model, [*trace.prompt, *trace.ids[:step]])
        state = seen.hidden_states[-1][0, -1].double().numpy()
        anchor = state if anchor is None else anchor
        a = float(seen.attentions[-1][0, :, -1, :4].double().sum(-1).mean())
        signals.append((a, float(entropy(seen.logits[0, -1].numpy())), float(np.linalg.norm(state - anchor))))
    again = fatigue_index(*np.array(signals).T, low=2, high=4, kappa=9)
    assert cached == pytest.approx(again, abs=1e-4)
    assert trace.before == ([] if kind == "gpt_neox" else pytest.approx(trace.before))


def test_the_first_step_is_the_end_of_the_prompt() -> None:
    (trace,) = whole(Plan(max_new=2))
    assert trace.attention(Slice())[0] == pytest.approx(1, abs=1e-6), "all attention is on the prompt"
    assert trace.attention(Slice())[1] < 1
    assert trace.after[0] == trace.before[0] == 0


def test_signals_come_before_the_next_token_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = QuickReader.read

    def counted(self: QuickReader, tokens: torch.Tensor) -> Reading:
        reads.append(tokens.shape[1])
        return read(self, tokens)

    monkeypatch.setattr(QuickReader, "read", counted)
    for step, traces in enumerate(generate(decoder(small("llama")), PROMPTS[:1], Plan(max_new=5)), 1):
        assert len(traces[0].ids) == step
        assert len(reads) == step, "a later token was computed first"


def test_a_text_does_not_depend_on_its_neighbours() -> None:
    together = whole(Plan(max_new=10, temperature=0), prompts=PROMPTS)
    for prompt, trace in zip(PROMPTS, together, strict=True):
        (alone,) = whole(Plan(max_new=10, temperature=0), prompts=[prompt])
        assert alone.ids == trace.ids
        for name in ("entropy", "after", "before", "nll"):
            assert getattr(alone, name) == pytest.approx(getattr(trace, name), abs=1e-4)
        assert alone.attention(Slice(prefix=2)) == pytest.approx(trace.attention(Slice(prefix=2)), abs=1e-5)


def test_entropy_is_of_the_raw_logits() -> None:
    """Temperature and nucleus change what is drawn, never E of the first step."""
    first = [whole(Plan(max_new=1, temperature=t, top_p=p))[0].entropy[0] for t, p in ((1.0, 1.0), (0.2, 0.5), (0.0, 1.0))]
    assert first[0] == first[1] == first[2]


def test_texts_end_at_an_end_token_and_leave_the_batch() -> None:
    model = small("llama")
    free = whole(Plan(max_new=8, temperature=0), model, PROMPTS)
    watched = decoder(model)
    model.generation_config.eos_token_id = [free[0].ids[2]]
    *_, traces = generate(watched, PROMPTS, Plan(max_new=8, temperature=0))
    assert traces[0].ended
    assert len(traces[0].ids) == free[0].ids.index(free[0].ids[2]) + 1
    assert traces[1].entropy[:2] == pytest.approx(free[1].entropy[:2], abs=1e-4)


@pytest.mark.parametrize(
    ("prompts", "plan", "field", "problem"),
    [
        ([[]], Plan(max_new=2), "prompt", "empty"),
        ([], Plan(max_new=2), "prompt", "empty"),
        ([[1] * 30], Plan(max_new=5000), "prompt", "pass the model"),
        (PROMPTS, Plan(max_new=2, treatment="par"), "treatment", "2 texts"),
    ],
)
def test_generation_refuses_in_words(prompts: Any, plan: Plan, field: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        whole(plan, prompts=prompts)
    assert caught.value.field == field


def test_logits_that_are_not_numbers_stop_it_at_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = QuickReader.read, []

    def spoiled(self: QuickReader, tokens: torch.Tensor) -> Reading:
        calls.append(1)
        at = read(self, tokens)
        return replace(at, logits=at.logits * torch.nan) if len(calls) == 4 else at

    monkeypatch.setattr(QuickReader, "read", spoiled)
    with pytest.raises(InputError, match="logits of step 3"):
        whole(Plan(max_new=9))


def test_a_model_without_attention_weights_is_refused() -> None:
    model = small("gpt_neox")
    model.set_attn_implementation("sdpa")
    with pytest.raises(InputError, match="eager") as caught:
        whole(Plan(max_new=2), model)
    assert caught.value.field == "model"


# ------------------------------------------------------------------------------------------------------- treatments


def test_erd_steers_the_temperature_within_its_range() -> None:
    assert erd_temperature(1.0, 3.4) == pytest.approx(1.1)
    assert erd_temperature(1.0, 5.4) == pytest.approx(0.9)
    assert erd_temperature(1.5, 0.0) == 1.5
    assert erd_temperature(0.5, 9.0) == 0.5
    (trace,) = whole(Plan(max_new=6, treatment="erd"))
    expected, t = [], 1.0
    for e in trace.entropy:
        t = min(max(t + 0.1 * (4.4 - e), 0.5), 1.5)
        expected.append(t)
    assert trace.temperature == pytest.approx(expected)


def test_when_treatments_act() -> None:
    long = Context((1, 2), tuple(range(200)), 200)
    assert treated("none", long, 0.0, 99, ()) is None
    assert treated("sca", long, 0.010, 99, ()) is None, "not below"
    assert treated("sca", long, 0.009, 15, ()) is None, "rests"
    sca = treated("sca", long, 0.009, 16, ())
    assert sca is not None
    assert sca.ids == (1, 2, *range(200 - SCA_TAIL, 200))
    par = treated("par", long, 1.0, 1, ())
    assert par is not None
    assert par.ids == (1, 2, *range(72, 200))
    assert treated("par", Context((1,), (), 49), 1.0, 99, ()) is None
    pause = treated("pause", Context((1,), (4,), CADENCE), 1.0, 1, (8, 9))
    assert pause is not None
    assert pause.ids == (1, 4, 8, 9)


def test_a_rebuilt_context_is_read_as_if_it_were_new() -> None:
    """After PAUSE's words the model continues as it would after a prompt that holds them all."""
    model = small("llama")
    plan = Plan(max_new=CADENCE + 3, temperature=0, treatment="pause", self_check=(11, 12, 13))
    (trace,) = whole(plan, model)
    assert trace.acted == [(CADENCE, -3)]
    context = [*trace.prompt, *trace.ids[:CADENCE], 11, 12, 13]
    for step in range(CADENCE, CADENCE + 3):
        seen = by_library(model, context)
        assert int(seen.logits[0, -1].argmax()) == trace.ids[step]
        assert trace.entropy[step] == pytest.approx(float(entropy(seen.logits[0, -1].numpy())), abs=1e-4)
        context.append(trace.ids[step])


def test_a_treatment_that_drops_nothing_changes_nothing() -> None:
    plain, treated_text = (whole(Plan(max_new=CADENCE + 2, temperature=0, treatment=kind))[0] for kind in ("none", "par"))
    assert treated_text.acted == [(CADENCE, 0)]
    assert treated_text.ids == plain.ids
    assert treated_text.entropy == pytest.approx(plain.entropy, abs=1e-4)
