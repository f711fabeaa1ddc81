import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.cluster import Setting, SettingError, Stage


@pytest.mark.parametrize(
    ("text", "method", "stages"),
    [
        ("B6-4,49", "kmedoids", [(6, 4, 49)]),
        ("spectral:B6-3,49", "spectral", [(6, 3, 49)]),
        ("B4-6,49 B8-3,49", "kmedoids", [(4, 6, 49), (8, 3, 49)]),
        ("pooling:B6-4,49", "pooling", [(6, 4, 49)]),
        ("sampling:B6-4,49", "sampling", [(6, 4, 49)]),
        ("B6-4,1/3", "kmedoids", [(6, 4, 0, "1/3")]),
        ("means:B6-4,0.27", "means", [(6, 4, 0, "0.27")]),
        ("token-shift", "token-shift", []),
        ("temporal-shift", "temporal-shift", []),
        ("none", "none", []),
    ],
)
def test_the_papers_notation(text, method, stages):
    setting = Setting.parse(text)
    assert setting.method == method
    assert setting.stages == tuple(Stage(*stage) for stage in stages)
    assert str(setting) == text
    assert Setting.parse(setting) is setting


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        (" b6 - 4, 49 ", "B6-4,49"),
        ("B_6-4,49", "B6-4,49"),
        ("b6 - 4, 1 / 3", "B6-4,1/3"),
        ("k-medoids++:B6-4,49", "B6-4,49"),
        ("Spectral: B6-3,49", "spectral:B6-3,49"),
        ("NONE", "none"),
        ("spectral[ sigma = median , graph=dense]:B6-3,49", "spectral[sigma=median,graph=dense]:B6-3,49"),
        ("kmedoids[normalise]:B6-4,49", "kmedoids[normalise]:B6-4,49"),
        (
            "kmedoids[normalise=true,centre=nearest-to-mean]:B6-4,49",
            "kmedoids[normalise,centre=nearest-to-mean]:B6-4,49",
        ),
        ("spectral[sigma=2.50]:B6-4,49", "spectral[sigma=2.5]:B6-4,49"),
    ],
)
def test_loose_writing_prints_strictly(loose, strict):
    assert str(Setting.parse(loose)) == strict
    assert str(Setting.parse(strict)) == strict


@given(
    st.sampled_from(["kmedoids", "spectral", "sampling"]),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 99), st.integers(1, 999)), min_size=1, max_size=3),
)
def test_printing_and_reading_are_inverse(method, stages):
    setting = Setting(method, tuple(Stage(*stage) for stage in stages))
    assert Setting.parse(str(setting)) == setting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a clustering setting is a string such as"),
        ("B6", 'cannot read "B6"; a stage is B<block>-<segments>,<centres per segment>'),
        ("B6-4", 'cannot read "B6-4"'),
        ("B6-4,1/3/5", "or with a share of the segment's tokens (B6-4,1/3)"),
        ("B6-4,4/3", "a share of the tokens is more than 0 and at most 1, not 4/3"),
        ("B6-4,0.0", "not 0.0"),
        ("B6-4,1/0", "not 1/0"),
        ("B6-4,49 C8-3,49", 'cannot read "C8-3,49"'),
        ("spectrl:B6-4,49", 'did you mean "spectral"?'),
        ("nonsense", 'no method "nonsense"'),
        ("spectral", 'needs a stage, for example "spectral:B6-4,49"'),
        ("none:B6-4,49", 'none takes no blocks, write just "none"'),
        ("spectral[width=3]:B6-4,49", 'no option "width"; spectral takes sigma, graph'),
        ("pooling[x=1]:B6-4,49", "pooling takes no options"),
        ("spectral[sigma=-1]:B6-4,49", 'sigma must be a positive number or "median", got "-1"'),
        ("spectral[sigma=wide]:B6-4,49", "sigma must be a positive number"),
        ("kmedoids[metric=l1]:B6-4,49", "metric must be euclidean or cosine"),
        ("kmedoids[normalise=1]:B6-4,49", "normalise must be true or false"),
    ],
)
def test_what_cannot_be_read_is_explained(text, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        Setting.parse(text)


@pytest.mark.parametrize(
    ("text", "frames", "patches", "message"),
    [
        (
            "B12-4,49",
            12,
            49,
            "has 12 blocks, so clustering can come after block 1 to 11, or before the first (B0), not 12",
        ),
        ("rlt:B1-4,49", 12, 49, "rlt compares pixels"),
        ("attention:B0-4,49", 12, 49, "comes after one"),
        ("rlt:B0-4,48", 12, 49, "K can be 49 to 147"),
        ("kmedoids[budget=change]:B4-6,49 B8-3,49", 12, 49, "no other stage can follow"),
        ("B6-5,49", 12, 49, "12 frames cannot be cut into 5 equal segments; choose 1, 2, 3, 4, 6, 12"),
        ("B6-0,49", 12, 49, "0 equal segments"),
        ("B6-4,148", 12, 49, "K = 148, but a segment has 147 tokens (3 x 49); K can be 1 to 147"),
        ("B6-4,0", 12, 49, "K = 0"),
        ("B4-3,49 B8-6,49", 12, 49, "segments cannot grow from 3 to 6; choose 1, 3"),
        ("B4-6,49 B8-4,49", 12, 49, "6 segments cannot be cut into 4 equal segments; choose 1, 2, 3, 6"),
        ("B8-6,49 B4-3,49", 12, 49, "blocks must increase, but B4 follows B8"),
        ("B4-6,10 B8-3,49", 12, 49, "K = 49, but a segment has 20 tokens (2 x 10)"),
        ("pooling:B6-4,49", 12, 196, "write pooling:B6-4,196"),
        ("none", 0, 49, "at least 1 frame"),
    ],
)
def test_what_does_not_fit_is_explained(text, frames, patches, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        Setting.parse(text).check(blocks=12, frames=frames, patches=patches)


def test_what_fits_passes_and_says_how_many_segments():
    for text, frames, patches, segments in [
        ("B6-4,49", 12, 49, 4),
        ("B6-4,160", 12, 196, 4),
        ("B6-15,49", 60, 49, 15),
        ("B4-6,49 B8-3,49", 12, 49, 3),
        ("none", 12, 49, 12),
        ("token-shift", 12, 49, 12),
        ("pooling:B6-4,49", 12, 49, 4),
    ]:
        setting = Setting.parse(text)
        setting.check(blocks=12, frames=frames, patches=patches)
        assert setting.segments(frames) == segments


@pytest.mark.parametrize(
    ("text", "frames", "patches", "centres"),
    [
        ("B6-4,1/3", 12, 49, [49]),  # the paper's K for ViT-B/32
        ("B6-4,0.27", 12, 196, [159]),  # and about its K, 160, for ViT-B/16
        ("B6-4,1/3", 12, 256, [256]),
        ("B6-12,0.5", 12, 49, [24]),
        ("B6-4,0.001", 12, 49, [1]),  # never none
        ("B4-6,1/2 B8-3,1/2", 12, 49, [49, 49]),  # of the tokens that the first stage left
        ("pooling:B6-4,1/3", 12, 49, [49]),
    ],
)
def test_a_share_becomes_a_number_once_the_model_is_known(text, frames, patches, centres):
    setting = Setting.parse(text).check(blocks=12, frames=frames, patches=patches)
    assert [stage.k for stage in setting.stages] == centres
    assert str(setting) == text
    follows = setting.check(blocks=12, frames=frames, patches=2 * patches)
    assert follows.stages[0].k == pytest.approx(2 * centres[0], abs=1), "it follows another model"


def test_a_segment_alone_keeps_as_many_tokens_as_one_of_a_window():
    of_window = Setting.parse("kmedoids[proportional]:B6-4,1/3").check(blocks=12, frames=12, patches=49).stages[0].k
    for frames in (1, 2, 3, 5):
        for text in ("kmedoids[proportional]:B6-4,1/3", "kmedoids[proportional]:B6-4,49"):
            alone = Setting.parse(text).for_segment(frames, window=12, blocks=12, patches=49)
            assert alone is not None
            (stage,) = alone.stages
            assert (stage.segments, stage.k) == (1, min(of_window, 49 * frames))
