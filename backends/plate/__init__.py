"""Adapters for continual learning without old data, from frozen weights alone; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "geometry": ["drift", "jacobians"],
        "hadamard": ["Rotation", "diagonal_energies", "estimated_width", "randomised_low_energy", "walsh_hadamard"],
        "layer": ["Plan", "PlateLinear", "adapters_of", "target_layers", "weight_of"],
        "learners": ["fisher_diagonal"],
        "plans": ["Choice", "choose"],
        "redundancy": ["movable", "projected_scores", "redundancy_scores", "redundant_rows"],
        "subspace": ["Spectrum", "low_energy", "protected_ratio", "random_directions", "width"],
    },
)
