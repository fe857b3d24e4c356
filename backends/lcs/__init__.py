"""The Latent Color Subspace of FLUX: colour read and set in three directions of the latents; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "attention": ["AttentionMaps", "attention_mask", "first_token", "install"],
        "readout": ["AffineReadout", "hsl_of", "recolour"],
        "sampling": ["Steering", "denoise", "noise_levels"],
        "solids": ["Solids", "encode_solids", "explained_variance", "find", "fit", "flux1_dev"],
        "subspace": ["LCS", "StepStatistics"],
    },
)
