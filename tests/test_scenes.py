"""The renderer: what its truth says is what the picture shows, and the captions say it in words of the vocabulary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.runtime import scenes
from backends.runtime.scenes.drawing import APART, LEFT_OUT


def star(**changes: object) -> scenes.Scene:
    thing = scenes.Thing("star", (0.9, 0.1, 0.1), 0.5, 0.5, 0.3)
    return scenes.Scene(scenes.Background("plain", (0.1, 0.2, 0.8)), (replace(thing, **changes),))


def drawn(maker, count: int, seed: int = 3) -> list[scenes.Scene]:
    rng = np.random.default_rng(seed)
    return [maker(rng) for _ in range(count)]


def test_the_same_scene_gives_the_same_picture_and_another_seed_another_texture():
    rough = scenes.Scene(scenes.Background("rough", (0.5, 0.5, 0.5)), seed=1)
    assert np.array_equal(scenes.render(rough).image, scenes.render(rough).image)
    assert not np.array_equal(scenes.render(rough).image, scenes.render(replace(rough, seed=2)).image)


@pytest.mark.parametrize("shape", scenes.SHAPES)
def test_a_shapes_area_agrees_with_its_outline(shape: str):
    def area(contour: np.ndarray) -> float:
        x, y = contour.T
        return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2

    outer, *holes = [area(contour) * 0.3**2 for contour in scenes.outline(shape)]
    assert scenes.coverage(shape, 64, 0.5, 0.5, 0.3, 7).mean() == pytest.approx(outer - sum(holes), rel=0.04)


def test_coverage_scales_with_the_picture_and_moves_with_the_centre():
    small, large = scenes.coverage("heart", 32, 0.4, 0.6, 0.3), scenes.coverage("heart", 128, 0.4, 0.6, 0.3)
    assert np.abs(large.reshape(32, 4, 32, 4).mean((1, 3)) - small).mean() < 0.01
    rows, columns = np.nonzero(scenes.coverage("circle", 64, 0.3, 0.7, 0.2) > 0.5)
    assert (columns.mean() + 0.5) / 64 == pytest.approx(0.3, abs=0.01)
    assert (rows.mean() + 0.5) / 64 == pytest.approx(0.7, abs=0.01)


def test_an_angle_turns_clockwise():
    rows, columns = np.nonzero(scenes.coverage("triangle", 64, 0.5, 0.5, 0.4, 30) > 0.5)
    top = columns[rows == rows.min()].mean()
    assert top > 32 + 5  # the upper corner went to the right


def test_a_thing_is_painted_in_its_colour_inside_its_mask_and_nowhere_else():
    shown = scenes.render(star())
    inside = shown.image[shown.masks[0]].mean(0) / 255
    far = np.ones((64, 64), bool)
    far[8:-8, 8:-8] = False
    assert float(scenes.delta_e(inside, (0.9, 0.1, 0.1))) < 5
    assert float(scenes.delta_e(shown.image[far].mean(0) / 255, (0.1, 0.2, 0.8))) < 2


def test_light_and_shadow_give_one_object_several_lightnesses():
    shown = scenes.render(star(shape="square"))
    grey = shown.image.mean(-1)
    rows, columns = np.nonzero(shown.masks[0])
    lit, dark = grey[rows.min() + 2, columns.min() + 2], grey[rows.max() - 2, columns.max() - 2]
    assert lit > dark + 15
    assert grey[rows.max() + 2, columns.max() - 4] < grey[2, 2] - 5  # the shadow on the wall


@pytest.mark.parametrize("texture", scenes.TEXTURES)
def test_a_texture_keeps_the_mean_colour_of_its_wall(texture: str):
    colour = (0.45, 0.55, 0.4)
    image = scenes.render(scenes.Scene(scenes.Background(texture, colour), seed=5)).image
    assert float(scenes.delta_e(image.reshape(-1, 3).mean(0) / 255, colour)) < 3
    assert (image.std() > 0.5 + image.mean((0, 1)).std()) == (texture != "plain")


def test_what_lies_in_front_is_taken_off_the_mask_behind():
    behind, before = star().things[0], replace(star().things[0], shape="circle", radius=0.15)
    cover = scenes.render(replace(star(), things=(behind, before))).cover
    assert float(cover.sum(0).max()) <= 1 + 1e-6
    assert cover[0, 32, 32] == 0
    assert cover[1, 32, 32] == 1


def test_unknown_shapes_and_textures_are_refused_with_what_there_is():
    with pytest.raises(ValueError, match="circle, square"):
        scenes.render(star(shape="moon"))
    with pytest.raises(ValueError, match="plain, graded"):
        scenes.render(scenes.Scene(scenes.Background("silk", (0, 0, 0))))


def test_the_mixture_has_the_shares_that_it_states():
    some = drawn(scenes.draw, 1500)
    kinds = [len(s.things) or (0.5 if s.background.second is not None else 0) for s in some]
    shares = [np.mean(np.equal(kinds, kind)) for kind in (0, 0.5, 1, 2)]
    assert shares == pytest.approx([0.15, 0.10, 0.60, 0.15], abs=0.04)


def test_colour_words_are_left_out_of_object_and_wall_independently():
    some = drawn(scenes.draw_one, 1500)
    told = np.array([(s.things[0].named, s.background.named) for s in some])
    assert told.mean(0) == pytest.approx([1 - LEFT_OUT] * 2, abs=0.04)
    assert abs(np.corrcoef(told.T)[0, 1]) < 0.08
    for scene in some:
        said = sorted(word for word in scene.caption.split() if word in scenes.COLOURS)
        assert said == sorted(part.name for part in (scene.things[0], scene.background) if part.named)


def test_a_thing_stands_out_from_its_wall_and_a_told_colour_is_near_its_name():
    apart, near = [], []
    for scene in drawn(scenes.draw_one, 300):
        thing, wall = scene.things[0], scene.background
        apart.append(float(scenes.delta_e(thing.colour, wall.colour)))
        near += [float(scenes.delta_e(part.colour, scenes.COLOURS[part.name])) for part in (thing, wall) if part.named]
    assert min(apart) >= APART
    assert max(near) < 9


def test_spread_scales_how_sizes_places_and_angles_differ():
    def deviations(spread: float) -> np.ndarray:
        rng = np.random.default_rng(4)
        things = [scenes.draw_one(rng, spread=spread).things[0] for _ in range(200)]
        return np.array([(t.radius, t.x, t.y, t.angle) for t in things]).std(axis=0)

    assert deviations(0.0) == pytest.approx(0, abs=1e-12)
    assert deviations(0.5) == pytest.approx(deviations(1.0) / 2, rel=0.1)


@pytest.mark.parametrize("maker", [scenes.draw_wall, scenes.draw_solid, scenes.draw_one, scenes.draw_two])
def test_short_captions_stay_in_the_vocabulary_and_name_every_shape(maker):
    for scene in drawn(maker, 300):
        words = scene.caption.split()
        assert len(words) <= 15
        assert set(words) <= set(scenes.WORDS)
        assert [w for w in words if w in scenes.SHAPES] in ([t.shape for t in scene.things], [t.shape for t in scene.things][::-1])
        assert "a orange" not in scene.caption
        assert bool(words) == (maker is not scenes.draw_solid)


def test_places_in_a_caption_are_true():
    seen = set()
    for scene in drawn(scenes.draw_two, 400):
        first, second = scene.things
        for words, holds in (("left of", first.x < second.x), ("right of", first.x > second.x), ("above", first.y < second.y), ("below", first.y > second.y)):
            if f" {words} " in scene.caption:
                assert holds, scene.caption
                seen.add(words)
    assert len(seen) == 4


def test_long_captions_tell_every_colour_shape_and_place_in_at_most_four_sentences():
    for scene in drawn(scenes.draw_detailed, 200):
        text = scene.caption
        assert 2 <= text.count(". ") + 1 <= 4
        assert f"{scene.background.name} wall" in text
        for thing in scene.things:
            assert f"{thing.name} {thing.shape}" in text
        named = [w.strip(".,") for w in text.split() if w.strip(".,") in scenes.SHAPES]
        assert set(named) == {t.shape for t in scene.things}
        assert ("upper" in text) <= any(t.y < 0.4 for t in scene.things)


def test_things_of_a_detailed_scene_do_not_hide_each_other():
    hidden = [float(cover.max()) for scene in drawn(scenes.draw_detailed, 60) for cover in scenes.render(scene).cover]
    assert min(hidden) == 1.0


def test_a_named_colour_is_its_own_nearest_name_and_variation_stays_near():
    rng = np.random.default_rng(0)
    assert len(scenes.COLOURS) == 26
    for name, colour in scenes.COLOURS.items():
        assert scenes.nearest_name(colour) == name
        assert float(scenes.delta_e(scenes.vary(name, rng), colour)) < 9
