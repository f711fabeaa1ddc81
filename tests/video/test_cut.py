"""Parts of a video for people: pieces for browsers, thumbnails, and the codec that a player is told."""

from pathlib import Path

import av
import numpy as np
import pytest

from centerclip.video import cut
from centerclip.video.cut import codec_of, encode_clip, encode_piece, thumbnail

from .clips import add_cover, decoded, make_clip, numbered


def test_pieces_keep_the_sound_and_turn_the_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "PIECE_SECONDS", 1.0)
    source = tmp_path / "turned.mov"
    with av.open(str(source), "w") as container:
        video, sound = container.add_stream("mpeg4", rate=10), container.add_stream("pcm_s16le", rate=8000)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        video.set_display_matrix([0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30])
        for number in range(25):
            container.mux(video.encode(av.VideoFrame.from_ndarray(numbered(1), format="rgb24")))
            tone = (9000 * np.sin(np.arange(800) * 0.3)).astype(np.int16)[None]
            frame = av.AudioFrame.from_ndarray(tone, format="s16", layout="mono")
            frame.sample_rate, frame.pts = 8000, 800 * number
            container.mux(sound.encode(frame))
        for stream in (video, sound):
            container.mux(stream.encode(None))
    encode_piece(source, tmp_path / "out.mp4", 1)
    with av.open(str(tmp_path / "out.mp4")) as made:
        kinds = {stream.type: stream.codec_context.name for stream in made.streams}
        shape = (made.streams.video[0].width, made.streams.video[0].height)
        heard = sum(frame.samples for frame in made.decode(audio=0))
    assert kinds == {"video": "h264", "audio": "aac"}
    assert shape == (48, 64)
    assert 0.8 < heard / 48_000 < 1.3


def test_playable_codecs_are_known(tmp_path: Path) -> None:
    assert codec_of(make_clip(tmp_path / "a.mp4")) == ("h264", True, True)
    assert codec_of(make_clip(tmp_path / "b.webm", codec="libvpx")) == ("vp8", True, True)
    assert codec_of(make_clip(tmp_path / "c.mkv")) == ("h264", False, True)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_cover_image_is_not_taken_for_the_video(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "PIECE_SECONDS", 1.0)
    covered = add_cover(make_clip(tmp_path / "film.mp4", frames=90, g=30), tmp_path / f"covered{suffix}")
    with av.open(str(covered)) as container:
        assert container.streams.video[0].codec_context.name == "mjpeg"
    assert codec_of(covered) == ("h264", suffix == ".mp4", True)
    encode_piece(covered, tmp_path / "piece.mp4", 1)
    shown = decoded(tmp_path / "piece.mp4")
    assert len(shown) == 30
    assert np.abs(shown[0][1].astype(float) - numbered(30)).mean() < 20


def test_sound_stays_in_step_with_the_video(tmp_path: Path) -> None:
    """A flash and a beep at 2 s are both at 1 s in a clip that starts at 1 s."""
    source = tmp_path / "flash.mkv"
    with av.open(str(source), "w") as container:
        video, sound = container.add_stream("libx264", rate=10), container.add_stream("pcm_s16le", rate=8000)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        for number in range(40):
            light = number == 20
            image = np.full((48, 64, 3), 255 if light else 0, np.uint8)
            container.mux(video.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            tone = ((9000 if light else 0) * np.sin(np.arange(800) * 0.3)).astype(np.int16)[None]
            frame = av.AudioFrame.from_ndarray(tone, format="s16", layout="mono")
            frame.sample_rate, frame.pts = 8000, 800 * number
            container.mux(sound.encode(frame))
        for stream in (video, sound):
            container.mux(stream.encode(None))
    encode_clip(source, tmp_path / "clip.mp4", 1.0, 3.0)
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        flash = [frame.time for frame in clip.decode(video=0) if frame.to_ndarray(format="gray").mean() > 128]
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        beep = [frame.time for frame in clip.decode(audio=0) if np.abs(frame.to_ndarray()).max() > 0.1]
    assert flash == [pytest.approx(1.0, abs=0.01)]
    assert beep[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("box", "size"), [((32,), (32, 24)), ((128, 24), (32, 24)), ((128,), (128, 96))])
def test_a_thumbnail_fits_its_box(tmp_path: Path, box: tuple[int, ...], size: tuple[int, int]) -> None:
    image = thumbnail(make_clip(tmp_path / "a.mp4", frames=60, g=10), 1.0, *box)
    assert image.size == size
    assert np.abs(np.asarray(image.resize((64, 48)), float) - numbered(30)).mean() < 20
