"""Where this host keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cache() -> Path:
    """The cache folder: ``$PLAYABLE_CACHE`` or ``.cache/`` beside the project; made when absent."""
    folder = Path(os.environ.get("PLAYABLE_CACHE") or ROOT / ".cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
