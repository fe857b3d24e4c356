"""One run of mirror-mfld as a stream of frames: the mirror cloud, the projected one and the peers move together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backends.contract import Context, Frame, InputError, MetricValue
from backends.mirror_mfld import picture, scene, sweeps
from backends.mirror_mfld.card import Params
from backends.mirror_mfld.dynamics import NotFiniteError, Settings, simulate
from backends.mirror_mfld.entropy import cloud_entropy, fitted_rate
from backends.mirror_mfld.exact_law import ExactLaw, fixed_point, spectraplex_purity
from backends.mirror_mfld.network import XorNetwork
from backends.mirror_mfld.scene import Scene
from backends.mirror_mfld.spectraplex import Spectraplex

Array = np.ndarray

RECORDS = 40  # states that are measured and drawn
ALIVE_S = 0.4  # at most, between two frames
PEER_PARTICLES = 500
LAW_FIELDS = ("domain", "functional", "q", "temperature", "barrier", "dimension", "csv")
SWEEP_FIELDS = (*LAW_FIELDS, "diffusion", "n_inner", "frozen_drift", "seed")
STREAMS = ("mirror", "projected", "unconstrained", "noise-free", "frozen")


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run."""
    yield from _Run(params, context).frames()


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {}
        self.metrics: dict[str, MetricValue] = {"particles": params.particles}
        self.trace: dict[str, list[Any]] = {}

    def key(self, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """The values of these fields; a file by its hash. A target cloud also depends on the seed."""
        upload = self.params.csv
        values = {name: getattr(self.params, name) for name in fields} | {"csv": upload.sha256 if upload else None}
        return (*values.values(), self.params.seed if self.params.functional == "mmd" else None)

    def frame(self, progress: float, message: str) -> Frame:
        return Frame(progress, message, self.metrics | {"seconds": time.perf_counter() - self.began}, dict(self.data))

    def frames(self) -> Iterator[Frame]:
        params = self.params
        found = scene.load(params)
        law = self.law(found)
        self.opening(found, law)
        yield self.frame(0.0, f"{params.particles} particles, uniform on the {params.domain}")
        try:
            yield from self.moving(found, law)
        except NotFiniteError as fault:
            raise InputError("step", str(fault), "choose a smaller step") from None
        self.summarise(found, law)
        if law is not None and sweeps.can_sweep(found.domain) and params.functional != "mmd":
            yield self.frame(0.8, "how the error depends on the size of the cloud")
            of_size = self.context.memo(
                "sizes", (*self.key(SWEEP_FIELDS), max(params.step, sweeps.SIZE_STEP), self.sweep_time), lambda: self.size_sweep(law, found)
            )
            self.data["sizes"] = asdict(of_size)
            yield self.frame(0.9, "how the error depends on the step")
            self.data["step_sizes"] = asdict(self.context.memo("steps", (*self.key(SWEEP_FIELDS), self.sweep_time), lambda: self.step_sweep(law, found)))
        yield self.frame(1.0, self.last_words(found, law))

    def law(self, found: Scene) -> ExactLaw | None:
        """mu*, where quadrature reaches it."""
        if isinstance(found.functional, XorNetwork) or (isinstance(found.domain, Spectraplex) and found.domain.size > 2):
            return None
        params = self.params
        return self.context.memo("law", self.key(LAW_FIELDS), lambda: fixed_point(found.domain, found.functional, params.temperature, params.barrier))

    @property
    def sweep_time(self) -> float:
        return min(sweeps.LONGEST, self.params.step * self.params.steps)

    def size_sweep(self, law: ExactLaw, found: Scene) -> sweeps.Sweep:
        return sweeps.particle_sweep(law, found.settings, self.sweep_time, self.params.seed, self.context.check)

    def step_sweep(self, law: ExactLaw, found: Scene) -> sweeps.Sweep:
        return sweeps.step_sweep(law, found.settings, self.sweep_time, self.params.seed, self.context.check)

    def opening(self, found: Scene, law: ExactLaw | None) -> None:
        params = self.params
        scheme = {"exact": "exact diffusion", "em": "plain Euler-Maruyama", "em-floor": "floored Euler-Maruyama"}[found.settings.diffusion]
        size = f"{params.particles} particles, {params.steps} steps of {params.step:g}"
        self.data |= {
            "made_by": {"model": f"mirror Langevin on the {params.domain}, {scheme}", "data": found.data, "size": size, "device": "cpu"},
            "notes": list(found.notes),
            "domain": params.domain,
            "size": params.dimension if params.domain == "spectraplex" else 2,
            "outline": picture.outline(found.domain),
            "names": picture.coordinate_names(found.domain),
            "scheme": scheme,
            "clouds": {name: picture.cloud(found.domain, found.start, name == "mirror") for name in self.main_clouds()},
            "time": 0.0,
        }
        if found.handle is not None:
            self.data["handle"] = _place(found)
        if found.target is not None:
            self.data["target"] = picture.flat(found.domain, found.target)
        if law is not None:
            self.data["exact"] = self.context.memo("law picture", self.key(LAW_FIELDS), lambda: picture.law(law))
            self.data["mean_place"] = picture.flat(found.domain, torch.as_tensor(law.mean)[None])[0]
        if isinstance(found.functional, XorNetwork):
            self.data["network"] = picture.network(found.functional, found.start)
        self.record(found, law, 0, {name: found.start if name in ("mirror", "projected") else found.start[:PEER_PARTICLES] for name in self.clouds()})

    def main_clouds(self) -> list[str]:
        return {"both": ["mirror", "projected"], "mirror": ["mirror"], "projected": ["projected"]}[self.params.optimiser]

    def clouds(self) -> list[str]:
        """All that move: the chosen clouds, then the peers; a frozen run is its own frozen peer, and matrices are frozen on demand only."""
        with_frozen = not self.params.frozen_drift and self.params.domain != "spectraplex" and self.params.functional != "linear"
        return [*self.main_clouds(), "unconstrained", "noise-free", *(["frozen"] if with_frozen else [])]

    def dynamics(self, found: Scene) -> dict[str, Iterator[Tensor]]:
        """One endless iterator a cloud, each with its own stream of the seed, so that none depends on which others run."""
        changes: dict[str, Settings] = {
            "mirror": found.settings,
            "projected": replace(found.settings, kind="projected"),
            "unconstrained": replace(found.settings, kind="unconstrained"),
            "noise-free": replace(found.settings, kind="noise-free"),
            "frozen": replace(found.settings, frozen=True),
        }
        return {
            name: simulate(
                found.domain,
                found.functional,
                changes[name],
                found.start if name in ("mirror", "projected") else found.start[:PEER_PARTICLES],
                scene.generator(self.params.seed, STREAMS.index(name)),
            )
            for name in self.clouds()
        }

    def moving(self, found: Scene, law: ExactLaw | None) -> Iterator[Frame]:
        """All clouds, step by step; 40 states are measured."""
        params, steps = self.params, self.params.steps
        moving = self.dynamics(found)
        marks = set(np.unique(np.linspace(1, steps, min(RECORDS, steps)).round().astype(int)).tolist())
        share = 0.8 if law is not None else 0.99
        shown = time.perf_counter()
        for number in range(1, steps + 1):
            now = {}
            for name, cloud in moving.items():
                self.context.check()
                now[name] = next(cloud)
            if number in marks:
                self.record(found, law, number, now)
            if number in marks or time.perf_counter() - shown > ALIVE_S:
                shown = time.perf_counter()
                yield self.frame(share * number / steps, f"step {number} of {steps}, time {number * params.step:.3g}")

    def record(self, found: Scene, law: ExactLaw | None, number: int, now: dict[str, Tensor]) -> None:
        """Measures every cloud and draws the chosen ones."""
        row: dict[str, Any] = {"time": number * self.params.step}
        for name, x in now.items():
            row[f"mean {name}"] = picture.coordinates(found.domain, x).mean(0) if self.known(name, found) else np.full(len(self.data["names"]), np.nan)
            if name in ("mirror", "projected"):
                distance = found.domain.wall_distance(x).numpy()
                row |= {f"near {name}": float((distance < picture.NEAR_WALL).mean()), f"on {name}": float((distance < 1e-12).mean())}
                row[f"energy {name}"] = self.energy(found, x)
        if "mirror" in now:
            x = now["mirror"]
            entropy = cloud_entropy(found.domain, x)
            row["entropy"] = np.nan if entropy is None else entropy
            row["free energy"] = row["energy mirror"] + self.params.temperature * row["entropy"]
            row["gap"] = row["free energy"] - self.data["exact"]["free_energy"] if law is not None else np.nan
            self.data["histograms"] = picture.histograms(found.domain, x)
            if law is not None:
                self.data["inside"] = picture.inside_share(law, [c["level"] for c in self.data["exact"]["contours"]], x)
            if isinstance(found.functional, XorNetwork):
                self.data["network"] = picture.network(found.functional, x)
        for name, value in row.items():
            self.trace.setdefault(name, []).append(value)
        self.data["clouds"] = {name: picture.cloud(found.domain, now[name], name == "mirror") for name in self.main_clouds()}
        self.data["time"] = row["time"]
        self.data["trace"] = {name: np.array(values, float) for name, values in self.trace.items()}
        self.measure(found, law)

    def known(self, name: str, found: Scene) -> bool:
        """Larger matrices that left the set have no place among the eigenvalues of those inside."""
        return not (name == "unconstrained" and isinstance(found.domain, Spectraplex) and found.domain.size > 2)

    def energy(self, found: Scene, x: Tensor) -> float:
        """F of a cloud with the barrier; NaN where a barrier meets an atom on the wall."""
        value = float(found.functional.value(x))
        if not self.params.barrier:
            return value
        if float(found.domain.wall_distance(x).min()) <= 0:
            return float("nan")
        return value + self.params.barrier * float(found.domain.barrier(x).mean())

    def measure(self, found: Scene, law: ExactLaw | None) -> None:
        """The metrics so far: means over the last third of the records."""
        trace = self.data["trace"]
        last = slice(-max(len(trace["time"]) // 3, 1), None)
        leading = self.main_clouds()[0]

        def mean(name: str) -> float | None:
            return float(trace[name][last].mean()) if name in trace and np.isfinite(trace[name][last]).all() else None

        rate = fitted_rate(trace["time"], trace["gap"]) if "gap" in trace else None
        self.metrics |= {
            "free_energy_gap": mean("gap"),
            "mean_error": float(np.linalg.norm(trace[f"mean {leading}"][last].mean(0) - self.data["exact"]["mean"])) if law is not None else None,
            "boundary_mass": mean("near mirror"),
            "boundary_mass_projected": mean("near projected"),
            "fitted_rate": rate[0] if rate else None,
        }
        self.data["rate"] = {"rate": rate[0], "start": rate[1]} if rate else None

    def summarise(self, found: Scene, law: ExactLaw | None) -> None:
        """What a whole run knows beside the law: the purity that Wishart matrices have."""
        if isinstance(found.domain, Spectraplex) and self.params.functional == "linear" and not any(self.params.q[:2]):
            exponent = self.params.barrier / self.params.temperature
            self.data["notes"] = [*self.data["notes"], f"the exact law has the mean purity {spectraplex_purity(found.domain.size, exponent):.4f}"]

    def last_words(self, found: Scene, law: ExactLaw | None) -> str:
        trace, metrics = self.data["trace"], self.metrics
        words = []
        if "mirror" in self.main_clouds():
            words.append(f"mirror: F {trace['energy mirror'][-1]:.4f}, {metrics['boundary_mass']:.1%} at the wall")
        if "projected" in self.main_clouds():
            words.append(f"projected: F {trace['energy projected'][-1]:.4f}, {trace['on projected'][-1]:.1%} exactly on the wall")
        if isinstance(found.functional, XorNetwork) and "network" in self.data:
            words.append(f"accuracy {self.data['network']['accuracy']:.3f}")
        if law is None:
            words.append("no quadrature reaches the exact law here, so the gap and the mean error are undefined")
        elif metrics["free_energy_gap"] is None:
            words.append(
                "the free energy is infinite or unknown: "
                + ("a projected law has atoms" if self.params.optimiser == "projected" else "too few points, or points that coincide")
            )
        if metrics["fitted_rate"] is None:
            words.append("the gap gives no rate")
        return "; ".join(words)


def _place(found: Scene) -> Array:
    """Where q stands in the picture."""
    handle = torch.from_numpy(np.asarray(found.handle, float))[None]
    x = found.domain.from_chart(handle) if isinstance(found.domain, Spectraplex) else handle
    return picture.flat(found.domain, x)[0]
