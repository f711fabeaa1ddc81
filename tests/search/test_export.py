"""Hits as files."""

import shutil
from dataclasses import replace
from pathlib import Path

import av
import pytest

from centerclip.search import Hit, Moment, SearchError
from centerclip.search.export import playlist, save_chapters, save_clip
from centerclip.search.store import File
from centerclip.video import probe, read_frames, read_times
from tests.video.clips import add_cover, make_clip, numbers_of, remux


def hit(path: Path, start: float, end: float, duration: float = 10.0) -> Hit:
    return Hit("f" * 32, path, start, end, 0.5, (Moment(start, end, 0.5),), duration)


def first_number(path: Path) -> int:
    return numbers_of(read_times(path, [0.0]).rgb)[0]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds, a keyframe every second."""
    return make_clip(tmp_path_factory.mktemp("film") / "My film: 1.mp4", frames=300, g=30)


def test_a_copy_starts_at_the_keyframe_before_and_holds_the_moment(film: Path, tmp_path: Path) -> None:
    saved = save_clip(hit(film, 4.0, 6.0), tmp_path / "clips")
    assert saved == tmp_path / "clips" / "My film_ 1 0.03-0.06.mp4"
    assert first_number(saved) == 90  # 3 s, for a lead of half a second before 4
    assert probe(saved).duration == pytest.approx(3.5, abs=0.2)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_clip_is_cut_out_of_the_file_that_was_indexed_or_not_at_all(film: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(film, tmp_path / "film.mp4"))
    status = path.stat()
    found = replace(hit(path, 4.0, 6.0), file=File(str(path), status.st_size, status.st_mtime_ns, "f" * 32))
    assert save_clip(found, tmp_path / "clips").exists()
    make_clip(tmp_path / "other.mp4", frames=300, g=30).replace(path)
    for options in ({}, {"exact": True}):
        with pytest.raises(SearchError, match="has changed since it was indexed: index its folder again"):
            save_clip(found, tmp_path / "none", **options)
    photo = replace(found, duration=0.0)
    with pytest.raises(SearchError, match="has changed since it was indexed"):
        save_clip(photo, tmp_path / "none")
    assert not list((tmp_path / "none").iterdir())


def test_a_clip_is_not_cut_out_of_what_names_other_files(film: Path, tmp_path: Path) -> None:
    script = tmp_path / "film.mp4"
    script.write_text(f"ffconcat version 1.0\nfile {film.name}\n")
    shutil.copy(film, tmp_path)
    with pytest.raises(SearchError, match="not a video"):
        save_clip(hit(script, 1.0, 2.0), tmp_path / "clips")


def test_a_copy_out_of_matroska_with_b_frames_starts_at_the_keyframe_before(film: Path, tmp_path: Path) -> None:
    """Its first packets after a seek have no decoding timestamps, and must not be lost."""
    matroska = remux(film, tmp_path / "film.mkv", lambda number, packet: packet)
    saved = save_clip(hit(matroska, 4.1, 6.0), tmp_path / "out")
    frames = read_frames(saved, 200)
    numbers = numbers_of(frames.rgb[frames.mask])
    assert saved.suffix == ".mkv"
    assert numbers == list(range(90, 90 + len(numbers)))
    assert frames.duration == pytest.approx(3.5, abs=0.2)


def test_an_exact_clip_starts_at_the_very_frame(film: Path, tmp_path: Path) -> None:
    saved = save_clip(hit(film, 4.1, 6.0), tmp_path, exact=True)
    assert saved.suffix == ".mp4"
    assert first_number(saved) == 108  # 3.6 s
    assert probe(saved).duration == pytest.approx(2.9, abs=0.1)


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "libx264"), ("a.avi", "mpeg4"), ("a.webm", "libvpx"), ("a.mpg", "mpeg1video")]
)
def test_containers_keep_their_kind_or_become_matroska(tmp_path: Path, name: str, codec: str) -> None:
    clip = make_clip(tmp_path / name, frames=90, codec=codec, g=10)
    saved = save_clip(hit(clip, 1.0, 2.0, duration=3.0), tmp_path / "out")
    assert saved.suffix == (".mkv" if name == "a.mpg" else Path(name).suffix)
    assert probe(saved).codec == probe(clip).codec
    assert 0.9 <= probe(saved).duration <= 2.6


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_clip_shows_the_video_and_not_its_cover_image(film: Path, tmp_path: Path, suffix: str, exact: bool) -> None:
    covered = add_cover(film, tmp_path / f"covered{suffix}")
    saved = save_clip(hit(covered, 4.1, 6.0), tmp_path / "out", exact=exact)
    with av.open(str(saved)) as container:
        assert [(stream.width, stream.height) for stream in container.streams] == [(64, 48)]
    assert first_number(saved) == (108 if exact else 90)


def test_sound_comes_along(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        picture, sound = container.add_stream("libx264", rate=10), container.add_stream("aac", rate=16000)
        picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
        for number in range(50):
            image = np.full((48, 64, 3), number * 5, np.uint8)
            container.mux(picture.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            wave = av.AudioFrame.from_ndarray(np.zeros((1, 1600), np.float32), format="fltp", layout="mono")
            wave.sample_rate = 16000
            container.mux(sound.encode(wave))
        container.mux(picture.encode(None))
        container.mux(sound.encode(None))
    for exact in (False, True):
        with av.open(str(save_clip(hit(path, 1, 3, duration=5), tmp_path / f"{exact}", exact=exact))) as saved:
            length = sum(frame.samples / frame.sample_rate for frame in saved.decode(audio=0))
            assert length == pytest.approx(3, abs=1.1)


def test_what_is_no_video_any_more_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    with pytest.raises(SearchError, match=r"a\.mp4.*cannot be cut out"):
        save_clip(hit(tmp_path / "a.mp4", 0, 1), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_clips_of_one_name_and_moment_do_not_replace_each_other(film: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(film, tmp_path / film.name))
    saved = [
        save_clip(hit(path, start, 6.0), tmp_path / "out") for path, start in ((film, 4.0), (other, 4.0), (film, 4.1))
    ]
    stem = "My film_ 1 0.03-0.06"
    assert [path.name for path in saved] == [f"{stem}.mp4", f"{stem} (2).mp4", f"{stem} (3).mp4"]
    assert sorted(saved) == sorted((tmp_path / "out").iterdir())


def test_a_playlist_names_files_and_times() -> None:
    lines = playlist([hit(Path("/v/a.mp4"), 61.5, 65.25), hit(Path("/v/b\n#x\r.mp4"), 0, 3)]).splitlines()
    assert lines[:5] == [
        "#EXTM3U",
        "#EXTINF:4,a 1.01",
        "#EXTVLCOPT:start-time=61.50",
        "#EXTVLCOPT:stop-time=65.25",
        "/v/a.mp4",
    ]
    assert lines[5] == "#EXTINF:3,b_#x_ 0.00"
    assert lines[8:] == ["file:///v/b%0A%23x%0D.mp4"]  # one line, and not a comment


def test_a_playlist_for_mpv_has_the_times_in_its_addresses() -> None:
    """By the length of the path in bytes, whatever its characters."""
    lines = playlist([hit(Path("/v/ö, 1%;.mp4"), 61.5, 65.25)], mpv=True).splitlines()
    assert lines[1:] == ["#EXTINF:4,ö, 1%; 1.01", "edl://%14%/v/ö, 1%;.mp4,61.50,3.75"]


def test_moments_are_chapters_of_their_video(tmp_path: Path) -> None:
    moments = (Moment(3661.5, 3665.0, 0.5), Moment(2.0, 9.0, 0.4), Moment(5.0, 6.0, 0.3))
    hits = [Hit("f" * 32, Path("/v/a.mp4"), 3661.5, 3665.0, 0.5, moments, 4000.0), hit(Path("/w/a.mp4"), 0, 1)]
    saved = save_chapters(hits, tmp_path / "out", "tulips --> & <b>")
    assert [path.name for path in saved] == ["a.chapters.vtt", "a (2).chapters.vtt"]
    title = "tulips --&gt; &amp; &lt;b&gt;"
    assert saved[0].read_text().split("\n\n") == [
        "WEBVTT",
        f"00:00:02.000 --> 00:00:05.000\n{title} (0.400)",  # until the next begins
        f"00:00:05.000 --> 00:00:06.000\n{title} (0.300)",
        f"01:01:01.500 --> 01:01:05.000\n{title} (0.500)\n",
    ]
