"""The segmenter and the shape judge, against the renderer's truth."""

from __future__ import annotations

import numpy as np
import pytest

from backends.runtime import scenes


def one(count: int, seed: int) -> list[scenes.Scene]:
    rng = np.random.default_rng(seed)
    return [scenes.draw_one(rng) for _ in range(count)]


def test_the_segmenter_finds_what_the_renderer_painted():
    found = []
    for scene in one(150, 11):
        shown = scenes.render(scene)
        found.append(scenes.overlap(scenes.segment(shown.image), shown.masks[0]))
    assert np.mean(found) > 0.95
    assert np.mean(np.array(found) > 0.8) > 0.97


def test_the_segmenter_keeps_the_hole_of_a_ring_open():
    ring = scenes.Scene(scenes.Background("plain", (1, 1, 1)), (scenes.Thing("ring", (0, 0, 1), 0.5, 0.5, 0.35),))
    mask = scenes.segment(scenes.render(ring).image)
    assert not mask[32, 32]
    assert mask[32, 15]


def test_of_two_parts_the_larger_is_kept():
    image = np.full((64, 64, 3), 200, np.uint8)
    image[10:20, 10:20] = (200, 0, 0)
    image[30:55, 30:55] = (0, 0, 200)
    assert np.argwhere(scenes.segment(image)).min() >= 30


def test_a_plain_picture_has_no_object():
    assert not scenes.segment(np.full((20, 30, 3), 77, np.uint8)).any()


@pytest.mark.parametrize("shape", [(64, 64), (64, 64, 4), (3, 64, 64)])
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"not \(H, W, 3\)"):
        scenes.segment(np.zeros(shape, np.uint8))


def test_the_judge_names_rendered_shapes_at_other_sizes_and_places():
    judge, right = scenes.ShapeJudge(), []
    for scene in one(150, 12):
        shown = scenes.render(scene)
        right.append(judge(scenes.segment(shown.image)) == scene.things[0].shape)
    assert np.mean(right) > 0.97


def test_the_judge_is_not_fooled_by_colour_size_or_place():
    judge = scenes.ShapeJudge()
    for shape in scenes.SHAPES:
        for x, radius in ((0.35, 0.2), (0.6, 0.3)):
            assert judge(scenes.coverage(shape, 96, x, 0.5, radius, 4) > 0.5) == shape


def test_an_empty_mask_is_as_far_from_every_shape_as_nothing_is():
    distances = scenes.ShapeJudge().distances(np.zeros((64, 64), bool))
    assert min(distances.values()) > 0.05
