"""Small random decoders of several architectures, for tests that need no trained weights."""

from __future__ import annotations

from typing import Any

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 100, "pad_token_id": None}
GROUPED = ("llama", "qwen2", "mistral")  # two key-value heads for four query heads, unless said otherwise


def small(kind: str = "qwen2", **changes: Any) -> Any:
    """A random model: 3 layers, 4 heads, width 32, eager attention; the same each time, with biases and gains that are not 0 and 1."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    grouped = {"num_key_value_heads": 2} if kind in GROUPED else {}
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SIZES, **grouped, **changes}), attn_implementation="eager")
    for name, value in model.named_parameters():
        if "bias" in name or "norm" in name:
            torch.nn.init.normal_(value, 1.0 if "norm" in name else 0.0, 0.3)
    torch.random.set_rng_state(state)
    return model.eval().requires_grad_(False)
