"""Which frames are taken to be indexed, what decoding them costs, and the segments that they make."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.video import Window, stream_segments
from centerclip.video.container import DEFAULT_LIMITS, open_source
from centerclip.video.decode import _SeekingDecoder, runs_of, seek_frames
from centerclip.video.selection import (
    DETAILS,
    Cut,
    Detail,
    SegmentWriter,
    StillFrames,
    choose_frames,
    even_frames,
    is_cut,
    is_still,
    thumbnail_of,
)
from centerclip.video.timeline import Keyframe, PacketTable, Timeline, read_packet_table
from tests.video.clips import make_clip, numbers_of

NORMAL = Detail(thin=4.0, limit=4.0, closest=1.0, least=1, together=3)
FAST = Detail(thin=4.0, limit=30.0, closest=1.0, least=1, together=3)


def make_table(
    groups: list[int], *, gaps: list[int] | None = None, reordered: bool = False, rate: int = 10
) -> PacketTable:
    """Packets of groups of pictures: a keyframe and so many frames after it, every other one stored after the next."""
    order: list[int] = []
    keyframes = []
    for length in groups:
        first = len(order)
        keyframes.append(first)
        rest = list(range(first + 1, first + length))
        if reordered:  # P before the B that is shown before it
            rest = [number for pair in zip(rest[1::2], rest[::2], strict=False) for number in pair] + rest[
                len(rest) // 2 * 2 :
            ]
        order += [first, *rest]
    positions = np.argsort(order)
    shown = np.cumsum([0, *(gaps or [1] * len(order))])[: len(order)].tolist()
    sizes = np.full(len(order), 100)
    sizes[keyframes] = 1000
    timeline = Timeline(shown, shown[-1] + 1, Fraction(1, 10))
    return PacketTable(
        timeline,
        [Keyframe(number, shown[number], shown[number]) for number in keyframes],
        positions,
        sizes,
        reordered,
        None,
    )


def packets_decoded(table: PacketTable, frames: list[int]) -> int:
    total = 0
    for run in runs_of(table, frames):
        total += int(table.positions[run].max()) - table.keyframe_before(table.timeline.pts[run[0]]).packet + 1
    return total


tables = st.builds(
    lambda groups, seed, variable, reordered: make_table(
        groups,
        gaps=np.random.default_rng(seed).integers(1, 30, sum(groups)).tolist() if variable else None,
        reordered=reordered,
    ),
    st.lists(st.sampled_from([1, 2, 3, 10, 40, 83, 300]), min_size=1, max_size=12),
    st.integers(0, 100),
    st.booleans(),
    st.booleans(),
)


@settings(deadline=None, max_examples=150)
@given(table=tables, detail=st.sampled_from([NORMAL, FAST, *DETAILS.values()]))
def test_frames_are_never_further_apart_than_the_limit(table: PacketTable, detail: Detail) -> None:
    frames, limit = choose_frames(table, detail).frames, detail.for_length(table.timeline.duration).limit
    assert frames == sorted(set(frames))
    assert frames[0] == 0
    times = [*map(table.timeline.seconds, range(len(table.timeline))), table.timeline.duration]
    for first, last in pairwise([*frames, len(table.timeline)]):
        assert times[last] - times[first] <= limit + 1e-8 or last - first == 1  # there is nothing between


@settings(deadline=None, max_examples=150)
@given(table=tables, detail=st.sampled_from([NORMAL, FAST]))
def test_no_frame_can_be_left_out_and_no_other_end_of_a_group_costs_less(table: PacketTable, detail: Detail) -> None:
    frames, timeline = choose_frames(table, detail).frames, table.timeline
    keyframes = {timeline.find(keyframe.pts) for keyframe in table.keyframes}
    ends = [*sorted(keyframes & set(frames)), len(timeline)]
    times = [*map(timeline.seconds, range(len(timeline))), timeline.duration]
    for first, last in pairwise(ends):
        inside = [frame for frame in frames if first < frame < last]
        if not inside:
            continue
        assert times[last] - times[first] > detail.limit  # nothing is taken where keyframes are near enough
        if len(set(np.diff(timeline.pts))) == 1:  # else there may be no choice
            # Of those that are near enough to the next keyframe, the one that needs the fewest packets.
            gap = times[last] - times[first]
            closing = [
                n
                for n in range(first + 1, last)
                if times[last] - times[n] <= detail.limit + 1e-9
                and times[n] - times[first] >= 0.75 * gap / np.ceil(gap / detail.limit) - 1e-9
            ]
            assert max(table.positions[inside]) == min(table.positions[closing])
            assert len(inside) <= np.ceil((times[last] - times[first]) / detail.limit) + 1


def test_all_intra_is_thinned_and_keyframes_alone_are_enough_where_they_are_near() -> None:
    intra = choose_frames(make_table([1] * 600), NORMAL).frames  # a minute at 10 frames a second
    assert intra == list(range(0, 600, 40))
    web = make_table([38] * 20)
    assert choose_frames(web, NORMAL).frames == list(range(0, 760, 38))
    assert packets_decoded(web, choose_frames(web, NORMAL).frames) == 20


def test_a_single_keyframe_is_enough_for_fast_and_costs_normal_no_more_than_it_must() -> None:
    table = make_table([200])
    assert choose_frames(table, FAST).frames == [0]
    frames = choose_frames(table, NORMAL).frames
    assert frames[-1] == 160  # the first that is four seconds from the end
    assert len(frames) == 5
    assert packets_decoded(table, frames) == 161


def test_a_short_clip_has_its_least_number_of_frames() -> None:
    table = make_table([80])
    frames = choose_frames(table, Detail(4.0, 30.0, 1.0, 4, 3)).frames
    assert (len(frames), frames[-1]) == (4, 60)


def test_keyframes_that_come_too_soon_begin_scenes_and_are_kept() -> None:
    """A keyframe a second, and one more where a scene begins."""
    table = make_table([10, 10, 10, 10, 10, 5, 10, 10, 10, 10])
    choice = choose_frames(table, NORMAL)
    assert 55 in choice.frames
    assert choice.cuts[choice.frames.index(55)] == (pytest.approx(5.5), True)
    assert sum(cut.hinted for cut in choice.cuts) == 1


def test_a_packet_of_unusual_size_hints_at_a_cut() -> None:
    table = make_table([40, 40])
    table.sizes[23] = 900
    assert choose_frames(table, NORMAL).cuts[1] == (pytest.approx(2.3), True)


def test_without_a_hint_a_cut_is_at_the_keyframe() -> None:
    assert choose_frames(make_table([40, 40]), NORMAL).cuts[1] == (pytest.approx(4.0), False)


def test_without_packets_frames_are_at_equal_distances() -> None:
    timeline = make_table([1] * 100).timeline
    assert even_frames(timeline, NORMAL).frames == [16, 50, 83]
    assert even_frames(timeline, FAST).frames == [50]


# ---- segments ---------------------------------------------------------------------------------------------------


def noise(seed: int) -> np.ndarray:
    blocks = np.random.default_rng(seed).integers(0, 255, (4, 4, 3))
    return np.kron(blocks, np.ones((32, 32, 1))).astype(np.uint8)


def slightly(rgb: np.ndarray, amount: int) -> np.ndarray:
    return np.clip(rgb.astype(int) + amount, 0, 255).astype(np.uint8)


def segments_of(
    frames: list[tuple[float, np.ndarray]], end: float, together: int = 3, cuts: dict[float, float] | None = None
):
    segments: list[np.ndarray] = []

    def deliver(number: int, rgb: np.ndarray, end: float, lengths: tuple[int, ...]) -> None:
        assert sum(lengths) == len(rgb)
        segments.extend(np.split(rgb, np.cumsum(lengths)[:-1]))

    writer = SegmentWriter(4, together, deliver)
    for time, rgb in frames:
        writer.add(time, rgb, Cut((cuts or {}).get(time, time - 1), hinted=time in (cuts or {})))
    writer.finish(end)
    return writer.spans, segments


def test_segments_cover_the_video_and_none_crosses_a_cut() -> None:
    scene = [slightly(noise(1), 5 * step) for step in range(4)], [slightly(noise(2), 5 * step) for step in range(2)]
    frames = [(4.0 * place, rgb) for place, rgb in enumerate([*scene[0], *scene[1]])]
    spans, segments = segments_of(frames, 24.0, cuts={16.0: 15.2})
    assert spans == [(0.0, 10.0), (10.0, 15.2), (15.2, 24.0)]
    assert len(segments) == 3
    for segment, expected in zip(segments, (scene[0][:3], scene[0][3:], scene[1]), strict=True):
        assert np.array_equal(segment, np.stack(expected))


def test_a_still_scene_is_one_segment_however_long() -> None:
    random = np.random.default_rng(0)
    grain = [np.clip(noise(3) + random.normal(0, 3, (128, 128, 3)), 0, 255).astype(np.uint8) for _ in range(50)]
    frames = [(float(place), rgb) for place, rgb in enumerate([*grain, noise(4)])]
    spans, segments = segments_of(frames, 51.0)
    assert spans == [(0.0, 49.0), (49.0, 51.0)]
    assert np.array_equal(segments[0], grain[0][None])
    repeated = StillFrames()(np.stack(grain[:12]))
    assert np.array_equal(repeated, np.stack([grain[0]] * 12))


def test_something_small_that_comes_is_no_still_scene() -> None:
    before, after = noise(5), noise(5)
    after[40:48, 40:48] = 255 - after[40:48, 40:48]  # a 256th of the picture
    assert not is_still(thumbnail_of(before), thumbnail_of(after))
    assert not is_cut(thumbnail_of(before), thumbnail_of(after), hinted=True)
    assert is_cut(thumbnail_of(before), thumbnail_of(noise(6)), hinted=True)


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("keyframes.mp4", {"g": 30, "sc_threshold": 0}),
        ("open.mkv", {"g": 30, "x264_params": "open-gop=1:bframes=3:scenecut=0"}),
        ("one.mp4", {"g": 999, "sc_threshold": 0}),
        ("hevc.mp4", {"codec": "libx265", "x265_params": "keyint=40:log-level=none"}),
        ("intra.avi", {"codec": "mjpeg", "color_range": 2, "strict": -1}),
        ("b.avi", {"codec": "mpeg4", "g": 50, "bf": 2}),
    ],
)
@pytest.mark.parametrize("detail", [Detail(1.0, 1.0, 0.2, 1, 3), Detail(1.0, 30.0, 0.2, 1, 3)])
def test_the_frames_that_come_are_exactly_those_chosen(
    tmp_path: Path, name: str, options: dict, detail: Detail, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = make_clip(tmp_path / name, frames=200, **options)
    with open_source(clip, DEFAULT_LIMITS) as source:
        table = read_packet_table(source)
        frames = choose_frames(table, detail).frames
        decoded: list[object] = []
        original = _SeekingDecoder._decode
        monkeypatch.setattr(
            _SeekingDecoder, "_decode", lambda self, packet: decoded.append(packet) or original(self, packet)
        )
        got: list[int] = []

        def keep(frame: av.VideoFrame) -> None:
            got.extend(numbers_of(frame.to_ndarray(format="rgb24")[None]))

        seek_frames(source, table, frames, keep)
    assert got == frames
    assert sum(packet is not None for packet in decoded) <= packets_decoded(table, frames) + 1


@pytest.mark.parametrize("threads", [0, 3])
def test_a_film_is_the_same_however_many_threads_read_it(tmp_path: Path, threads: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    clip = make_clip(tmp_path / "film.mp4", frames=900, g=10, sc_threshold=0)
    detail = Detail(0.3, 0.3, 0.1, 1, 3)

    def read(pool: ThreadPoolExecutor | None):
        windows: list[Window] = []
        found = stream_segments(clip, detail, 12, 3, windows.append, short_side=48, pool=pool)
        return found, [window.number for window in windows], np.concatenate([window.rgb for window in windows])

    alone, numbers, rgb = read(None)
    with ThreadPoolExecutor(threads or 1) as pool:
        found, others, pixels = read(pool)
    assert (found, others) == (alone, numbers)
    assert np.array_equal(pixels, rgb)
    assert numbers == list(range(len(numbers)))
    assert found.spans[0][0] == 0
    assert found.spans[-1][1] == pytest.approx(30)
    assert all(before[1] == after[0] for before, after in pairwise(found.spans))


def test_a_damaged_film_is_read_the_careful_way(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.avi", frames=200, codec="mpeg4", g=20)
    content = bytearray(clip.read_bytes())
    middle = content.find(b"00dc", len(content) * 3 // 4)
    content[middle + 8 : middle + 200] = bytes(192)  # a packet of zeros
    clip.write_bytes(content)
    kept: dict[int, Window] = {}
    detail = Detail(0.2, 0.2, 0.1, 1, 3)
    found = stream_segments(clip, detail, 12, 3, lambda window: kept.update({window.number: window}))
    assert sorted(kept) == list(range(found.windows))
    assert found.spans[-1][1] == pytest.approx(found.duration)
