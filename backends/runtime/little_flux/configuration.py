"""Sizes of the little FLUX: every part is an ordinary class of diffusers or transformers, built from these figures."""

from __future__ import annotations

from typing import Any

from backends.runtime.scenes import WORDS

IMAGE_SIZE = 64  # pixels a side
SEQUENCE_LENGTH = 16  # text tokens, the end mark and the padding among them
MASK_BLOCK = 2  # the double-stream block that is trained to look at the named shape
LATENT_SIDE = 16  # latent pixels a side
GRID = 8  # tokens a side: each packs 2 x 2 latent pixels of 16 channels into 64 numbers

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
SPECIAL = (PAD, END, UNKNOWN)  # the end mark must not be token 2: CLIP then pools at the largest token id instead of at the end mark
VOCABULARY: tuple[str, ...] = tuple(sorted(WORDS))

VAE: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ("DownEncoderBlock2D",) * 3,
    "up_block_types": ("UpDecoderBlock2D",) * 3,
    "block_out_channels": (16, 32, 64),
    "layers_per_block": 1,
    "latent_channels": 16,
    "norm_num_groups": 8,
    "sample_size": IMAGE_SIZE,
    "mid_block_add_attention": False,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
TRANSFORMER: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 4,
    "num_single_layers": 2,
    "attention_head_dim": 32,
    "num_attention_heads": 4,
    "joint_attention_dim": 96,
    "pooled_projection_dim": 64,
    "guidance_embeds": False,
    "axes_dims_rope": (8, 12, 12),
}
_TOKENS = {"vocab_size": len(SPECIAL) + len(VOCABULARY), "pad_token_id": SPECIAL.index(PAD), "eos_token_id": SPECIAL.index(END)}
T5: dict[str, Any] = {
    **_TOKENS,
    "d_model": 96,
    "d_kv": 24,
    "d_ff": 256,
    "num_layers": 2,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
    "dropout_rate": 0.0,
}
CLIP: dict[str, Any] = {
    **_TOKENS,
    "bos_token_id": SPECIAL.index(PAD),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": SEQUENCE_LENGTH,
    "projection_dim": 64,
    "attention_dropout": 0.0,
}
# FLUX's own schedule: at 64 tokens the shift is e^0.4675, so that of 50 steps the tenth begins at sigma 0.879.
SCHEDULER: dict[str, Any] = {
    "num_train_timesteps": 1000,
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 1.15,
    "base_image_seq_len": 256,
    "max_image_seq_len": 4096,
}
