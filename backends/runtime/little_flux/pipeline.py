"""The little FLUX as an ordinary ``diffusers`` pipeline: put together, saved, loaded."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.runtime import model_files
from backends.runtime.folders import ROOT
from backends.runtime.little_flux.configuration import IMAGE_SIZE, MASK_BLOCK, SCHEDULER, SEQUENCE_LENGTH

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, FluxPipeline

    from backends.runtime.little_flux.flow import Flow
    from backends.runtime.models import Models

FOLDER = ROOT / "static" / "weights" / "little-flux"


def call_settings() -> dict[str, Any]:
    """What every call of the pipeline must name: without them it makes 512 pixels a side and pads to 512 text tokens."""
    return {"height": IMAGE_SIZE, "width": IMAGE_SIZE, "max_sequence_length": SEQUENCE_LENGTH}


def assemble(vae: AutoencoderKL, flow: Flow) -> FluxPipeline:
    """A pipeline of copies of these parts, on FLUX's own noise schedule, with FLUX's own attention everywhere."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline
    from diffusers.models.transformers.transformer_flux import FluxAttnProcessor

    from backends.runtime.little_flux.tokens import tokenizer

    parts = deepcopy({"transformer": flow.transformer, "text_encoder": flow.text_encoder, "text_encoder_2": flow.text_encoder_2, "vae": vae})
    parts["vae"].register_to_config(_name_or_path="")  # else the folder in which it was trained stands in what is shipped
    parts["transformer"].set_attn_processor(FluxAttnProcessor())
    pipe = FluxPipeline(scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER), tokenizer=tokenizer(), tokenizer_2=tokenizer(), **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def save(pipe: FluxPipeline, folder: Path) -> None:
    """Writes the pipeline's folder, and beside it ``lab.json``: what a reader of the weights must know that diffusers does not keep."""
    pipe.save_pretrained(folder)
    stated = {"mask_block": MASK_BLOCK, "image_size": IMAGE_SIZE, "sequence_length": SEQUENCE_LENGTH}
    (folder / "lab.json").write_text(json.dumps(stated, indent=2) + "\n")


def read(folder: Path = FOLDER, device: str = "cpu") -> FluxPipeline:
    """The pipeline of a folder, ready to sample."""
    model_files.quiet()  # before diffusers is imported, which warns of what it will not use
    from diffusers import FluxPipeline
    from diffusers.utils import logging

    logging.disable_progress_bar()
    pipe = FluxPipeline.from_pretrained(folder).to(device)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def load(models: Models, device: str = "cpu") -> FluxPipeline:
    """The shipped pipeline, loaded once per process and shared.

    Its weights are only read. The scheduler moves while it samples: whoever calls the pipeline gives each run a copy of it.
    """
    return models.load(f"the little FLUX on {device}", lambda say: read(FOLDER, device))
