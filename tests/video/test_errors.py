"""Every file that cannot be read gives the reason as a type, and a sentence for a person."""

import os
import pickle
import wave
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.packet import Packet
from av.stream import Disposition
from PIL import Image

from centerclip.errors import CenterClipError
from centerclip.video import (
    EncryptedVideo,
    Limits,
    MissingFile,
    NotAVideo,
    NoVideoStream,
    TimedOut,
    TooLarge,
    TruncatedVideo,
    UnreadableVideo,
    UnsupportedCodec,
    VideoError,
    probe,
    read_frames,
)
from centerclip.video.container import Source, open_source
from centerclip.video.cut import copy_clip, encode_clip, thumbnail

from .clips import make_clip


def text(path: Path) -> None:
    path.write_text("This is a text.\n" * 50)


def empty(path: Path) -> None:
    path.touch()


def random_bytes(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(20_000))


def photo(path: Path) -> None:
    Image.new("RGB", (320, 180), (10, 200, 30)).save(path, format="JPEG")


def drawing(path: Path) -> None:
    Image.new("RGB", (320, 180)).save(path, format="PNG")


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def immense(path: Path) -> None:
    """Three terabytes without a block on the disk."""
    with path.open("wb") as file:
        try:
            file.truncate(3 * 2**40)
        except OSError:
            pytest.skip("this file system has no sparse files of this size")


def no_packet(path: Path) -> None:
    """Y4M, whose header is fine and whose first frame is not."""
    path.write_bytes(b"YUV4MPEG2 W16 H16 F25:1 Ip A1:1 C420jpeg\nXRAME\n" + bytes(384))


def play_list(path: Path) -> None:
    """Names another file, which must not be opened."""
    make_clip(path.parent / "part.ts", frames=10)
    path.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\npart.ts\n#EXT-X-ENDLIST\n")


def concat_script(path: Path) -> None:
    make_clip(path.parent / "part.mp4", frames=10)
    path.write_text("ffconcat version 1.0\nfile part.mp4\n")


def song(path: Path) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16_000))


def audio_track(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16_000, layout="mono")
        for _ in range(5):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate = 16_000
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def song_with_a_cover(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        sound, cover = container.add_stream("aac", rate=16_000, layout="mono"), container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt, cover.disposition = 64, 48, "yuvj420p", Disposition.attached_pic
        picture = av.VideoFrame(64, 48, "yuvj420p")
        picture.pts, picture.time_base = 0, Fraction(1)
        container.mux([*cover.encode(picture), *cover.encode(None)])
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 16_000
        container.mux([*sound.encode(silence), *sound.encode(None)])


def cut_before_its_index(path: Path) -> None:
    whole = make_clip(path.with_suffix(".mp4.part"), muxer="mp4", frames=60).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def cut_between_boxes(path: Path) -> None:
    whole = make_clip(path.with_suffix(".mp4.part"), muxer="mp4", frames=60).read_bytes()
    path.write_bytes(whole[: whole.index(b"moov") - 4])


def cut_after_its_index(path: Path) -> None:
    options = {"movflags": "faststart"}
    whole = make_clip(path.with_suffix(".part"), muxer="mp4", muxer_options=options, frames=60).read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])


def cut_matroska(path: Path) -> None:
    whole = make_clip(path.with_suffix(".part"), muxer="matroska", frames=60).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def cut_avi(path: Path) -> None:
    whole = make_clip(path.with_suffix(".part"), muxer="avi", codec="mpeg4", frames=60).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def encrypted(path: Path) -> None:
    key = "00112233445566778899aabbccddeeff"
    options = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": key, "encryption_kid": key}
    make_clip(path, muxer="mp4", muxer_options=options, frames=30)


def unknown_codec(path: Path) -> None:
    clip = make_clip(path, muxer="mp4", frames=30)
    clip.write_bytes(clip.read_bytes().replace(b"avc1", b"zzz1").replace(b"avcC", b"zzzC"))


def wiped(path: Path) -> None:
    """The index of the file is whole, its frames are gone."""
    clip = make_clip(path, muxer="mp4", frames=30)
    data = bytearray(clip.read_bytes())
    start = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4
    data[start:end] = np.random.default_rng(1).bytes(end - start)
    clip.write_bytes(data)


CASES = {
    text: NotAVideo,
    empty: NotAVideo,
    random_bytes: NotAVideo,
    photo: NotAVideo,
    drawing: NotAVideo,
    folder: NotAVideo,
    pipe: NotAVideo,
    device: NotAVideo,
    immense: TooLarge,
    play_list: NotAVideo,
    concat_script: NotAVideo,
    song: NoVideoStream,
    audio_track: NoVideoStream,
    song_with_a_cover: NoVideoStream,
    cut_before_its_index: TruncatedVideo,
    cut_between_boxes: TruncatedVideo,
    cut_after_its_index: TruncatedVideo,
    cut_matroska: TruncatedVideo,
    cut_avi: TruncatedVideo,
    encrypted: EncryptedVideo,
    unknown_codec: UnsupportedCodec,
    wiped: UnreadableVideo,
    no_packet: UnreadableVideo,
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_the_error_says_why(make: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "film.mp4"
    make(path)
    with pytest.raises(CASES[make]) as caught:
        read_frames(path)
    error = caught.value
    assert type(error) is CASES[make]
    assert "film.mp4" in str(error)
    assert str(error).endswith(error.advice)
    assert capfd.readouterr() == ("", "")  # FFmpeg keeps quiet


@pytest.mark.parametrize("use", [probe, read_frames, lambda path: thumbnail(path, 0.5, 32)])
def test_a_file_that_gives_no_packet_is_a_video_error_whoever_reads_it(use: Callable, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    no_packet(path)
    with pytest.raises(UnreadableVideo):
        use(path)


def no_memory(source: Source) -> Iterator[Packet]:
    """What FFmpeg says of a packet whose header claims gigabytes."""
    raise av.error.MemoryError(12, "Cannot allocate memory", source.path)
    yield


@pytest.mark.parametrize("use", [probe, read_frames, lambda path: encode_clip(path, path.with_name("b.mp4"), 0, 1)])
def test_whatever_ffmpeg_raises_is_a_video_error(
    use: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=5)
    monkeypatch.setattr(Source, "packets", no_memory)
    with pytest.raises(UnreadableVideo, match="Cannot allocate memory"):
        use(clip)


@pytest.mark.parametrize("cut", [copy_clip, encode_clip])
def test_a_stream_that_appears_halfway_is_a_video_error(
    cut: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a damaged FLV file, whose packets say what streams there are: PyAV raises IndexError."""

    def unknown_stream(source: Source) -> Iterator[Packet]:
        return iter([source.container.streams[7]])  # type: ignore[list-item]

    monkeypatch.setattr(Source, "packets", unknown_stream)
    with pytest.raises(UnreadableVideo, match="cannot be converted"):
        cut(make_clip(tmp_path / "a.mp4", frames=5), tmp_path / "b.mp4", 0, 1)


def test_an_error_of_ffmpeg_while_a_file_is_open_is_a_video_error(tmp_path: Path) -> None:
    with (
        pytest.raises(UnreadableVideo, match=r"film.mp4'.* cannot be read further \(Cannot allocate memory\)"),
        open_source(make_clip(tmp_path / "film.mp4", frames=5), Limits()) as source,
    ):
        next(no_memory(source))


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG picture"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"%PDF-1.7", "a PDF document"),
        (b"PK\3\4", "a ZIP archive"),
        (b"<!DOCTYPE html><title>404</title>", "a web page"),
    ],
)
def test_what_is_named_as_a_video_is_called_by_its_name(tmp_path: Path, start: bytes, kind: str) -> None:
    (tmp_path / "film.mp4").write_bytes(start + bytes(200))
    with pytest.raises(NotAVideo, match=f"this is {kind}, not a video"):
        probe(tmp_path / "film.mp4")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no.mp4", "no/such.mp4", "http://127.0.0.1:9/a.mp4", "concat:a.mp4|b.mp4"):
        with pytest.raises(MissingFile, match="there is no such file"):
            read_frames(tmp_path / name)
        with pytest.raises(MissingFile):
            probe(name)


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "frame%03d.mp4", "-i.mp4", "a b\nc.mp4", "日本.mp4", "pipe:0"])
def test_names_are_never_taken_for_anything_else(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_clip(tmp_path / "plain.mp4", frames=5).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert len(read_frames(name, 3).rgb) == 3


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        (Limits(pixels=64 * 48 - 1), "pixels"),
        (Limits(duration=1.9), "duration"),
        (Limits(frames=59), "frames"),
        (Limits(bytes=500), "bytes"),
    ],
)
def test_a_limit_is_named_when_it_is_passed(tmp_path: Path, limits: Limits, setting: str) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=60)
    with pytest.raises(TooLarge, match=rf"Limits\({setting}="):
        read_frames(clip, limits=limits)


def test_a_stretched_picture_counts_as_shown(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=3)
    with pytest.raises(TooLarge, match="as shown"):
        read_frames(clip, short_side=10_000, limits=Limits(pixels=64 * 48))


def test_the_deadline_holds(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=60)
    with pytest.raises(TimedOut, match="longer than 0 seconds"):
        read_frames(clip, limits=Limits(seconds=0))


def test_an_error_crosses_processes_whole() -> None:
    error = TruncatedVideo("a.mp4", "half is missing")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is TruncatedVideo
    assert (str(copy), copy.path, copy.detail) == (str(error), "a.mp4", "half is missing")


def test_every_reason_is_an_error_of_the_project_with_its_own_name() -> None:
    kinds = VideoError.__subclasses__()
    assert issubclass(VideoError, CenterClipError)
    assert len({kind.reason for kind in kinds}) == len(kinds)


def test_control_codes_in_a_name_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in str(MissingFile("\x1b[31m.mp4", "there is no such file"))
