"""Photographs are found beside videos: read as they are meant to be seen, or refused with a reason."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from centerclip import VideoIndex
from centerclip.cli import app
from centerclip.files import PHOTO_SUFFIXES, VIDEO_SUFFIXES, find_videos
from centerclip.search.export import playlist, save_clip
from centerclip.video import TooLarge, TruncatedVideo, UnreadableVideo, UnsupportedCodec, VideoError
from centerclip.video.container import Limits
from centerclip.video.cut import codec_of, thumbnail
from centerclip.video.photo import read_photo
from tests.search.collection import clip, open_tiny

LEFT_RED = np.full((48, 64, 3), 40, np.uint8)
LEFT_RED[:, :32] = 200, 30, 30


def photo(path: Path, *, exif: Image.Exif | None = None, seed: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = LEFT_RED if seed is None else np.random.default_rng(seed).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(picture).save(path, **({"exif": exif} if exif else {}))
    return path


def camera_exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Canon", "Canon EOS R6"
    exif.get_ifd(0x8769).update({0x9003: "2023:05:01 12:00:00", 0x9011: "+02:00"})
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 22.0, 12.0), 3: "W", 4: (4.0, 30.0, 0.0)})
    return exif


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clip(tmp_path / "media/film.mp4", 0)
    photo(tmp_path / "media/taken.jpg", exif=camera_exif())
    photo(tmp_path / "media/deep/drawn.png", seed=1)
    for artwork in ("film.jpg", "poster.jpg", "film-fanart.png", ".thumbnails/taken.jpg"):
        photo(tmp_path / "media" / artwork, seed=2)
    return tmp_path / "media"


@pytest.fixture
def index(tmp_path: Path, folder: Path) -> VideoIndex:
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    report = index.add(folder)
    assert (report.added, report.failed) == (3, {})
    return index


def test_photographs_are_found_beside_videos(index: VideoIndex, folder: Path) -> None:
    entries = {entry.path.name: entry for entry in index.videos()}
    taken = entries["taken.jpg"]
    assert (taken.is_photo, taken.duration, taken.segments, taken.width, taken.height) == (True, 0, 1, 64, 48)
    assert index.segments(taken.video_id) == [(0.0, 0.0, 0.0)]
    assert (index.status().videos, index.status().photos) == (3, 2)
    # A photograph is the nearest to itself, as exactly as the store keeps vectors.
    best = index.search(image=folder / "taken.jpg")[0]
    assert (best.path.name, best.is_photo, best.start, best.end) == ("taken.jpg", True, 0, 0)
    assert best.score > 0.999
    assert {hit.path.name for hit in index.search("a dog", only="photos")} == {"taken.jpg", "drawn.png"}
    assert [hit.path.name for hit in index.search("a dog", only="videos", moments=True)][:1] == ["film.mp4"]
    assert [hit.path.name for hit in index.search("a dog", max_duration=60)] == ["film.mp4"]
    assert index.search("taken", where="text")[0].path.name == "taken.jpg"
    assert index.add().unchanged == 3
    # What EXIF says feeds the filters.
    for options in (
        {"recorded_after": "2023-04", "recorded_before": "2023-06"},
        {"camera": "eos r6"},
        {"near": (52.37, -4.5, 1.0)},
    ):
        assert [hit.path.name for hit in index.search("a dog", **options)] == ["taken.jpg"]
    assert (taken.recorded, taken.camera) == (1682935200.0, "Canon EOS R6")  # noon, two hours east of Greenwich


def test_one_kind_alone_is_remembered(index: VideoIndex, folder: Path) -> None:
    assert index.add(folder, only="videos").removed == 2
    photo(folder / "later.webp", seed=5)
    assert index.add().added == 0
    assert (index.status().photos, index.status().only) == (0, "videos")
    assert index.add(only="all").added == 3


def test_pictures_that_stand_for_a_film_are_left_out(folder: Path) -> None:
    both = VIDEO_SUFFIXES | PHOTO_SUFFIXES
    assert [path.name for path in find_videos(folder, suffixes=both)] == ["film.mp4", "taken.jpg", "drawn.png"]
    assert [path.name for path in find_videos(folder / "poster.jpg", suffixes=both)] == ["poster.jpg"]  # named itself


def test_photographs_are_saved_as_files_and_left_out_of_playlists(index: VideoIndex, tmp_path: Path) -> None:
    hits = list(index.search("a dog", only="photos"))
    saved = [save_clip(hit, tmp_path / "out") for hit in hits]
    assert [path.read_bytes() for path in saved] == [hit.path.read_bytes() for hit in hits]
    assert playlist(hits) == "#EXTM3U\n"
    run = CliRunner().invoke(app, ["search", "taken", "--in", "text", "--index", str(tmp_path / "index"), "--json"])
    assert json.loads(run.stdout)["hits"][0]["kind"] == "photo"
    assert codec_of(hits[0].path)[1:] == (True, True)
    assert max(thumbnail(hits[0].path, 0, 32).size) == 32


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_is_upright(tmp_path: Path, orientation: int) -> None:
    stored = {  # what a camera writes that is held so
        1: LEFT_RED, 2: LEFT_RED[:, ::-1], 3: LEFT_RED[::-1, ::-1], 4: LEFT_RED[::-1],
        5: LEFT_RED.transpose(1, 0, 2), 6: np.rot90(LEFT_RED), 7: np.rot90(LEFT_RED.transpose(1, 0, 2), 2),
        8: np.rot90(LEFT_RED, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    read = read_photo(tmp_path / "a.png")
    assert (read.rgb == LEFT_RED).all()
    assert (read.width, read.height) == (64, 48)


def test_unusual_pictures_have_an_answer(tmp_path: Path) -> None:
    grey = np.full((40, 40), 30_000, np.uint16)
    Image.fromarray(grey).save(tmp_path / "sixteen.png")
    assert abs(int(read_photo(tmp_path / "sixteen.png").rgb.mean()) - 117) <= 1
    Image.new("CMYK", (40, 40), (0, 255, 255, 0)).save(tmp_path / "print.jpg")
    red = read_photo(tmp_path / "print.jpg").rgb.mean((0, 1))
    assert red[0] > 200 > 60 > red[1]
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (read_photo(tmp_path / "clear.png").rgb == 255).all()
    frames = [Image.new("RGB", (40, 40), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.webp", save_all=True, append_images=frames[1:], lossless=True)
    moving = read_photo(tmp_path / "moving.webp")
    assert moving.rgb[0, 0].tolist() == [255, 0, 0]
    assert "animation" in str(moving.note)
    Image.new("RGB", (5000, 1)).save(tmp_path / "strip.png")
    assert read_photo(tmp_path / "strip.png", short_side=32).rgb.shape == (32, 512, 3)
    photo(tmp_path / "named.png").rename(tmp_path / "named.jpg")
    assert read_photo(tmp_path / "named.jpg").format == "png"  # the content counts


def test_bad_pictures_say_why(tmp_path: Path) -> None:
    whole = photo(tmp_path / "whole.jpg", seed=3).read_bytes()
    cases: dict[str, tuple[bytes, type[VideoError]]] = {
        "half.jpg": (whole[: len(whole) // 2], TruncatedVideo),
        "empty.jpg": (b"", VideoError),
        "text.png": (b"not a picture at all", UnreadableVideo),
    }
    for name, (content, error) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(error, match=name):
            read_photo(tmp_path / name)
    small = photo(tmp_path / "small.png").read_bytes()
    head = b"IHDR" + struct.pack(">II", 20_000, 20_000) + small[24:29]  # a few kB that claim to be 1.2 GB
    (tmp_path / "bomb.png").write_bytes(small[:12] + head + struct.pack(">I", zlib.crc32(head)) + small[33:])
    Image.new("L", (400, 300)).save(tmp_path / "large.png")
    with pytest.raises(TooLarge):
        read_photo(tmp_path / "bomb.png")
    with pytest.raises(TooLarge, match="400 x 300"):
        read_photo(tmp_path / "large.png", limits=Limits(pixels=10_000))
    for name in ("whole.jpg", "small.png"):
        (tmp_path / name).unlink()
    report = VideoIndex(tmp_path / "index", model=open_tiny()).add(tmp_path)
    assert len(report.failed) == 4
    assert report.added == 1  # large.png


def test_heic_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    Image.fromarray(LEFT_RED).save(tmp_path / "a.heic", format="HEIF")
    assert np.abs(read_photo(tmp_path / "a.heic").rgb.astype(int) - LEFT_RED)[:, 8:24].mean() < 12
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    with pytest.raises(UnsupportedCodec, match=r"centerclip\[heic\]"):
        read_photo(tmp_path / "a.heic")
