"""Procedural pictures with known truth: shapes on walls, their masks and captions; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "captions": ["WORDS", "caption"],
        "colours": ["COLOURS", "delta_e", "nearest_name", "vary"],
        "drawing": ["draw", "draw_detailed", "draw_one", "draw_solid", "draw_two", "draw_wall"],
        "judge": ["ShapeJudge"],
        "long_captions": ["long_caption"],
        "painting": ["render"],
        "scene": ["TEXTURES", "Background", "Rendered", "Scene", "Thing"],
        "segmentation": ["overlap", "segment"],
        "shapes": ["SHAPES", "coverage", "outline"],
    },
)
