"""Language models, one loader for work inside them and one ``sample`` for text; loaded once per process, shared by all runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backends.contract import InputError
from backends.runtime import model_files
from backends.runtime.models import Models
from backends.runtime.text_sampling import Sample, sample

__all__ = ["DEFAULT", "Decoder", "Sample", "load", "sample"]

DEFAULT = "bundled:smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Decoder:
    """A loaded causal language model. All runs share it: never change its weights, nor leave a hook that acts on others' calls.

    model: of transformers, in float32 with eager attention, eval mode, no gradients. tokenizer: also of transformers; safe from
    several threads as long as nobody asks it for padding or truncation. device: "cpu" or "cuda". description: name, size and
    precision in words. oracle_error: what the check at load measured (see ``decoder_checks``).
    """

    name: str
    model: Any
    tokenizer: Any
    device: str
    description: str
    oracle_error: float

    def in_turns(self, request: str) -> str:
        """The request as this model was taught to read one, up to where its answer begins; unchanged for a model without turns."""
        if not self.tokenizer.chat_template:
            return request
        turns: str = self.tokenizer.apply_chat_template([{"role": "user", "content": request}], tokenize=False, add_generation_prompt=True)
        return turns


def load(models: Models, name: str = DEFAULT, device: str = "cpu") -> Decoder:
    """The decoder of this name on this device, for work inside it.

    name: a bundled model (``model_files.BUNDLED``), or an id of the Hugging Face hub on a host with access. The first load of a
    bundled one on a host takes up to 40 s, each later process under 3 s after the imports. Raises InputError for the field
    ``model``: unknown, out of reach, too large, or one whose attention does not pass the checks of ``decoder_checks``.
    """
    return models.load(f"decoder {name} {device}", lambda say: _load(name, device, say))


def _load(name: str, device: str, say: model_files.Say) -> Decoder:
    say(f"loading {name.removeprefix('bundled:')}")  # before the imports, which take seconds
    folder = model_files.folder(name, say)
    with model_files.ticking(say, f"loading {name.removeprefix('bundled:')}"):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from backends.runtime import decoder_checks, token_loop

        model_files.quiet()
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", use_safetensors=True, local_files_only=True)
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (ValueError, KeyError, ImportError, OSError) as error:  # unknown architecture, own code wanted, no eager attention
            short = " ".join(str(error).split())[:200]
            raise InputError("model", f"{name} cannot be opened as a language model ({short})", "choose another model") from None
        model = model.eval().requires_grad_(False).to(device)
        token_loop.by_columns(model)
        oracle_error = decoder_checks.check(name, model)
    package = model_files.BUNDLED.get(name)
    size = package.weights if package else f"{model.num_parameters() / 1e6:,.0f} M parameters"
    return Decoder(name, model, tokenizer, device, f"{package.title if package else name}, {size}, computed in float32", oracle_error)
