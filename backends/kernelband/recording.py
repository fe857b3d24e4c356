"""What was measured on a machine, kept in a file: every schedule's result, with the machine's name and the date."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backends.kernelband.bench import Entry
from backends.kernelband.substrate import Failure, Profile, Roofline, Timing
from backends.runtime import folders

FOLDER = folders.ROOT / "static" / "data" / "kernelband"
TEXT_LIMIT = 400  # characters of a compiler's or checker's words that are kept


@dataclass(frozen=True)
class Recorded:
    """One schedule, as the values of its fields, with the key of its program and its result."""

    values: Mapping[str, Any]
    key: str
    entry: Entry


@dataclass(frozen=True)
class Recording:
    """Results of one kernel at one size. machine: processor, threads and compiler in words. date: YYYY-MM-DD. The first schedule is the baseline."""

    substrate: str
    kernel: str
    size: int
    threads: int
    machine: str
    date: str
    roofline: Roofline
    schedules: tuple[Recorded, ...]

    @property
    def made(self) -> str:
        """Where and when, for people."""
        return f"recorded on {self.machine}, {self.date}"

    def save(self, folder: Path | None = None) -> Path:
        """Writes the recording under its name, into the shipped data without a folder, and returns the path."""
        path = (folder or FOLDER) / f"{self.substrate}-{self.kernel}.json"
        head = {k: getattr(self, k) for k in ("substrate", "kernel", "size", "threads", "machine", "date")}
        lines = ",\n".join(json.dumps(_plain(s), allow_nan=False) for s in self.schedules)
        path.parent.mkdir(parents=True, exist_ok=True)
        # One schedule a line: a new recording is then read in a diff.
        path.write_text(f'{json.dumps(head | {"roofline": asdict(self.roofline)})[:-1]},\n"schedules": [\n{lines}\n]}}\n', encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Recording:
        """The recording that ``save`` wrote."""
        given = json.loads(path.read_text(encoding="utf-8"))
        schedules = tuple(_recorded(s) for s in given.pop("schedules"))
        return cls(**{**given, "roofline": Roofline(**given["roofline"]), "schedules": schedules})


def find(substrate: str, kernel: str, size: int, threads: int, folder: Path | None = None) -> Recording | None:
    """The shipped recording of this kernel, if it was made at this size and number of threads."""
    path = (folder or FOLDER) / f"{substrate}-{kernel}.json"
    if not path.is_file():
        return None
    recording = Recording.load(path)
    return recording if (recording.size, recording.threads) == (size, threads) else None


def _plain(recorded: Recorded) -> dict[str, Any]:
    entry = recorded.entry
    given: dict[str, Any] = {"values": dict(recorded.values), "key": recorded.key}
    if entry.failure is not None:
        return given | {"failure": [entry.failure.kind, entry.failure.text[:TEXT_LIMIT]]}
    assert entry.timing is not None, "an entry has a failure or a time"
    assert entry.profile is not None, "what has a time has a profile"
    profile = entry.profile
    numbers = {"phi": np.round(profile.phi, 6).tolist(), "h": np.round(profile.h, 4).tolist(), "flops": profile.flops, "bytes": profile.bytes}
    return given | asdict(entry.timing) | numbers | {"facts": dict(profile.facts)}


def _recorded(given: Mapping[str, Any]) -> Recorded:
    if "failure" in given:
        failure = Failure(*given["failure"])
        return Recorded(given["values"], given["key"], Entry(failure, log=failure.text))
    profile = Profile(np.array(given["phi"], float), np.array(given["h"], float), given["flops"], given["bytes"], given["facts"])
    return Recorded(given["values"], given["key"], Entry(None, Timing(given["ms"], given["runs"], given["cv"]), profile))
