"""Methods that look at what changes from frame to frame, against slow and obvious forms; then inside models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import centerclip
from centerclip.cluster import (
    ClusterError,
    Setting,
    allot,
    centers,
    cluster_means,
    pack,
    patch_changes,
    run_lengths,
    segment_changes,
    temporal_matching,
)
from centerclip.model.engine import OnnxEncoder
from tests.cluster import reference
from tests.cluster.test_more_methods import pixels, points, vision  # noqa: F401 - a fixture
from tests.model import tiny


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 99), st.booleans(), st.data())
def test_run_lengths_are_those_of_the_definition(frames, frame, seed, still, data):
    k = data.draw(st.integers(frame, frames * frame))
    changes = np.random.default_rng(seed).integers(0, 1 if still else 5, (3, frames * frame)).astype(np.float64)
    ids, assignment = run_lengths(changes, k, frame=frame)
    as_tensor = run_lengths(torch.from_numpy(changes), k, frame=frame)
    assert np.array_equal(as_tensor.ids.numpy(), ids)
    assert np.array_equal(as_tensor.assignment.numpy(), assignment)
    for row in range(3):
        assert (ids[row].tolist(), assignment[row].tolist()) == reference.run_lengths(changes[row], k, frame)


def test_run_lengths_need_a_whole_first_frame():
    with pytest.raises(ClusterError, match="between the 4 patches of a frame and 8"):
        run_lengths(np.zeros((1, 8)), 3, frame=4)
    with pytest.raises(ClusterError, match="needs scores"):
        centers(points(), frames=3, segments=1, k=23, method="rlt")


def test_patch_changes_are_sums_over_the_pixels_of_a_patch():
    video = torch.randn(5, 3, 9, 8, generator=torch.Generator().manual_seed(0))  # a row of pixels is left over
    found = patch_changes(video, 4)
    assert found.tolist() == reference.patch_changes(video.numpy(), 4)
    assert torch.equal(patch_changes(video[1:3], 4)[1], found[2])
    assert np.array_equal(patch_changes(video.numpy(), 4), found.numpy())


@pytest.mark.parametrize(("frames", "k", "across"), [(2, 8, 0.7), (3, 5, 0.7), (4, 20, 0.5), (1, 3, 0.7), (3, 18, 1.0)])
def test_matching_across_frames_merges_what_the_definition_merges(frames, k, across):
    tokens = points(count=6 * frames)
    ids, assignment = temporal_matching(tokens, k, frame=6, across=across)
    for item in range(3):
        groups = reference.temporal_matching(tokens[item], k, 6, across)
        assert ids[item].tolist() == [group[0] for group in groups]
        assert [sorted(torch.where(assignment[item] == g)[0].tolist()) for g in range(k)] == [*map(sorted, groups)]


def test_matching_across_frames_refuses_what_it_cannot_cut():
    with pytest.raises(ClusterError, match="not a whole number of frames of 5"):
        temporal_matching(points(), 3, frame=5)
    with pytest.raises(ClusterError, match="across is a share"):
        temporal_matching(points(), 3, frame=6, across=1.5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 9))
def test_budgets_follow_the_change_and_keep_the_total(changes, k, more):
    most = k + more
    least = 1 + more * k // 18  # at most k
    found = allot(np.array([changes], dtype=np.float64), k, most, least)[0].tolist()
    assert found == reference.allot(changes, k, most, least)
    assert min(found) >= least
    assert sum(found) == k * len(changes)
    assert max(found) <= most


def test_a_segment_that_moves_gets_more():
    still, moving = points(batch=1).expand(3, -1, -1), points(batch=3)
    changes = segment_changes(torch.stack([torch.cat([still, moving])]), 2)  # one video of two segments
    assert changes[0, 0] == 0 < changes[0, 1]
    assert allot(changes, 8, 72).tolist() == [[4, 12]]
    assert allot(torch.zeros(1, 3), 8, 72).tolist() == [[8, 8, 8]]
    model = tiny.center_clip("rlt[budget=change]:B0-4,20", frames=12)  # 16 patches: each segment needs its first frame
    video = tiny.videos(1)[0].clone()
    video[:9] = video[:1]  # three segments stand still
    assert torch.isfinite(model.encode_video(video).vector).all()


@torch.no_grad()
def test_packed_segments_do_not_see_each_other(vision):  # noqa: F811
    """One sequence with a mask gives what the segments give one by one."""
    prefix = vision.embeddings(pixels()[:1]).shape[1] - 16
    if not prefix:
        return  # SigLIP has no [CLASS] token; that it is refused is tested below
    segments = [torch.randn(prefix + count, 32) for count in (3, 7, 5, 5)]
    tokens, bias = pack(segments, [torch.zeros(len(each)) for each in segments], per_video=2, prefix=prefix)
    assert tokens.shape == (2, 2 * (prefix + 5), 32)
    block = centerclip.model.attachment.transformer_blocks(vision)[0]
    found = block(tokens, bias[:, None])
    for number, segment in enumerate(segments):
        alone = block(segment[None], None)[0]
        at = number % 2 * prefix
        assert torch.allclose(found[number // 2, at : at + prefix], alone[:prefix], atol=1e-4)


SETTINGS = (
    "rlt:B0-3,20",
    "rlt:B0-3,20 kmedoids[proportional]:B2-3,8",
    "rlt[proportional=false]:B0-6,16 means:B2-2,9",
    "tempme:B1-6,12 B2-3,12 B3-1,10",
    "kmedoids[budget=change]:B2-3,10",
    "kmedoids[proportional,budget=change,class=kept]:B2-3,10",
    "rlt[budget=change]:B0-3,20",
    "random[proportional]:B2-3,10",
    "attention[proportional,class=kept]:B2-3,10",
)


@torch.no_grad()
@pytest.mark.parametrize("setting", SETTINGS)
def test_attach_and_detach(vision, setting):  # noqa: F811
    before = vision(pixels()).pooler_output
    segments = Setting.parse(setting).segments(6)
    attachment = centerclip.attach(vision, setting, frames=6)
    if attachment.prefix == 0 and "budget" in setting:
        with pytest.raises(ClusterError, match=r"a tower with a \[CLASS\] token"):
            vision(pixels())
        return
    found = vision(pixels()).pooler_output
    assert found.shape == (2 * segments, before.shape[1])
    assert torch.isfinite(found).all()
    # The same alone or beside another video: nothing of a pass stays for the next.
    assert torch.allclose(vision(pixels()[:6]).pooler_output, found[:segments], rtol=1e-4, atol=1e-4)
    centerclip.detach(vision)
    assert torch.equal(vision(pixels()).pooler_output, before)


@torch.no_grad()
@pytest.mark.parametrize(
    "setting",
    [
        "rlt:B0-3,16",
        "rlt:B0-2,16 means:B2-1,16",
        "rlt:B0-3,32",
        "tempme[across=0.5]:B1-3,16",
        "kmedoids[proportional,class=kept]:B2-3,16",
    ],
)
def test_a_still_video_stays_what_it_is(vision, setting):  # noqa: F811
    before = vision(pixels(still=True)).pooler_output[::6]
    centerclip.attach(vision, setting, frames=6)
    found = vision(pixels(still=True)).pooler_output
    assert torch.allclose(found, before.repeat_interleave(len(found) // 2, dim=0), atol=2e-4)


@torch.no_grad()
def test_equal_budgets_are_the_plain_setting(vision):  # noqa: F811
    """All segments of a still video change as little, so packing is all that is left of budget=change."""
    if vision.embeddings(pixels()[:1]).shape[1] == 16:
        return  # SigLIP
    found = []
    for setting in ("kmedoids[proportional]:B2-3,10", "kmedoids[proportional,budget=change]:B2-3,10"):
        centerclip.attach(vision, setting, frames=6)
        found.append(vision(pixels(still=True)).pooler_output)
        centerclip.detach(vision)
    assert torch.allclose(*found, atol=2e-4)


def test_class_tokens_weigh_as_much_as_is_kept_of_their_frames():
    hidden = points(batch=4, count=13)
    step = centers(hidden, frames=4, segments=2, k=5, options={"class": "kept"}, grid=(3, 4))
    for segment in range(2):
        share = torch.bincount(step.ids[segment] // 12, minlength=2) / 5
        assert torch.allclose(
            step.tokens[segment, 0], (hidden[2 * segment :][:2, 0] * share[:, None]).sum(0), atol=1e-6
        )


def test_methods_without_clusters_weigh_by_the_nearest_token():
    hidden = points(batch=4, count=13)
    step = centers(hidden, frames=4, segments=2, k=5, method="random", options={"proportional": True}, grid=(3, 4))
    patches = hidden[:, 1:].reshape(2, 24, 6)
    nearest = torch.cdist(patches, patches[torch.arange(2)[:, None], step.ids]).argmin(dim=2)
    assert torch.equal(step.assignment, nearest)
    assert step.sizes.sum(dim=1).tolist() == [24, 24]
    assert cluster_means(patches, step.assignment, 5)[1].equal(step.sizes)


@pytest.mark.parametrize("setting", ["tempme:B1-4,9 B2-2,9", "kmedoids[class=kept]:B1-4,5 random[proportional]:B2-2,4"])
def test_onnx_runtime_gives_the_same(tmp_path, setting):
    model = tiny.center_clip(setting)
    model.save_pretrained(tmp_path)
    rgb = np.random.default_rng(0).integers(0, 255, (2, model.frames, *(model.preprocess.size,) * 2, 3), dtype=np.uint8)
    mask = np.ones(rgb.shape[:2], dtype=bool)
    found = OnnxEncoder(tmp_path, device="cpu", precision="float32").encode_windows(rgb, mask)[0]
    assert np.allclose(found, model.encode_windows(rgb, mask)[0], atol=1e-4)


@pytest.mark.parametrize("setting", ["rlt:B0-4,1/2", "B0-4,9", "kmedoids[budget=change]:B1-4,9"])
def test_what_needs_torch_says_so(tmp_path, setting):
    model = tiny.center_clip("none")
    model.save_pretrained(tmp_path)
    with pytest.raises(centerclip.cluster.SettingError, match=r"needs torch.*pip install"):
        OnnxEncoder(tmp_path, clustering=setting, device="cpu", precision="float32")


@pytest.mark.parametrize(
    "text",
    [
        "rlt:B0-4,98 kmedoids[proportional]:B6-4,49",
        "B4-6,49 tome:B8-3,49 B10-1,49",
        "tempme[across=0.5]:B2-12,40 B4-6,56 B8-3,72",
        "kmedoids[proportional,class=kept,budget=change]:B6-4,49",
        "kmedoids[proportional]:B4-6,49 kmedoids:B8-3,49",
    ],
)
def test_each_stage_may_have_a_method_of_its_own(text):
    assert str(Setting.parse(text)) == text


def test_stages_know_their_method():
    setting = Setting.parse("rlt:B0-6,1/2 kmedoids [ proportional ] : B6-3,49 random:B8-1,9")
    assert [part.method for part in setting.parts] == ["rlt", "kmedoids", "random"]
    assert [part.proportional for part in setting.parts] == [True, True, False]
    assert setting.needs_torch
    assert not Setting.parse("tempme:B2-12,40 kmedoids:B6-3,49").needs_torch
    assert Setting.parse(str(setting)) == setting
    for wrong in ("rlt:B0-4,98 none", "rlt:B0-4,98 none:", "rlt:B0-4,98 token-shift:B6-4,49", "rlt:B0-4,98 kmedoids:"):
        with pytest.raises(centerclip.cluster.SettingError):
            Setting.parse(wrong)
