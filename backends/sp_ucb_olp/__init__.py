"""SP-UCB-OLP: which configuration to use and which requests to accept, learned together; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "instances": ["crossing_surpluses", "linear_surplus", "separate_resources", "separate_resources_saddle", "uniform_surplus"],
        "oracle": ["Oracle", "fluid_oracle"],
        "play": ["Play", "admit"],
        "policies": ["SaddlePointUCB", "SingleConfigurationUCB", "Terms", "known", "random_choice"],
        "radius": ["confidence_radius", "default_slack", "price_bound", "safe_budget"],
        "saddle": ["Saddle", "cutting_planes", "linear_program", "saddle_point"],
        "surplus": ["empirical_surplus"],
    },
)
