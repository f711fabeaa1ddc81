"""A small collection, and a server over it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import av
import httpx
import numpy as np
from PIL import Image

from centerclip import VideoIndex
from centerclip.server import ServeSettings
from centerclip.server.run import bind, make_server
from tests.search.collection import clip, picture, save_model, scenes
from tests.video.clips import make_clip

SCENES = [11, 55, 11]  # images that "three scenes" shows, each for SCENE seconds
SCENE = 12.0
PADDING = 8_000_000
SAID, SAID_AT = "😀 The lighthouses of Calais, at 3 < 4 & more", "20,500"
TITLE = "<img src=x onerror=document.title='stolen'> tulips"
TAGS = {"title": TITLE, "creation_time": "2019-06-01T10:00:00Z", "location": "+52.3700+004.8900/"}


@dataclass(frozen=True)
class Site:
    """A server that runs, and what it serves."""

    address: str
    index: VideoIndex
    folder: Path
    settings: ServeSettings

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, **options)  # type: ignore[arg-type]


def make_collection(folder: Path) -> Path:
    """Clips that differ, one with subtitles, one with tags, one in a codec that browsers do not play, one twice, and a
    file that is not a video."""
    pad(scenes(folder / "trips" / "three scenes.mp4", SCENES, SCENE), PADDING)
    (folder / "trips" / "three scenes.srt").write_text(f"1\n00:00:{SAID_AT} --> 00:00:23,000\n{SAID}\n")
    for number in range(1, 6):
        clip(folder / "trips" / "sea" / f"clip {number}.mp4", number, tags=TAGS if number == 5 else None)
    (folder / "old").mkdir()
    make_clip(folder / "old" / "old.avi", codec="mpeg4", frames=200, rate=5, picture=picture(20))
    (folder / "old" / "copy of 1.mp4").write_bytes((folder / "trips" / "sea" / "clip 1.mp4").read_bytes())
    (folder / "old" / "broken.mp4").write_bytes(b"not a video at all" * 100)
    return folder


def pad(path: Path, count: int) -> Path:
    """Put padding before the index of an MP4 file: a player has to seek over it."""
    content = path.read_bytes()
    place = content.rindex(b"moov") - 4
    filling = (count + 8).to_bytes(4, "big") + b"free" + bytes(count)
    path.write_bytes(content[:place] + filling + content[place:])
    return path


def with_sound(path: Path, codec: str, seconds: int = 5, audio: str = "aac") -> Path:
    """A clip with a tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        video, sound = container.add_stream(codec, rate=10), container.add_stream(audio, rate=48_000, layout="mono")
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        for number in range(seconds * 10):
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture(number // 10), format="rgb24")))
        wave = np.sin(np.arange(seconds * 48_000) / 20, dtype=np.float32)[None] / 4
        size = {"aac": 1024, "ac3": 1536}[audio]  # samples of a frame
        for start in range(0, wave.shape[1] - size, size):
            part = np.ascontiguousarray(wave[:, start : start + size])
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 48_000, start
            container.mux(sound.encode(frame))
        container.mux([*video.encode(), *sound.encode()])
    return path


def make_index(base: Path) -> VideoIndex:
    folder = make_collection(base / "Videos")
    index = VideoIndex(base / "index", model=save_model(base / "model"))
    index.add(folder, detail="fine")  # a segment every three seconds, though scenes stand still
    return VideoIndex(base / "index")


def save_picture(path: Path, number: int) -> Path:
    Image.fromarray(picture(number)).save(path)
    return path


@contextmanager
def serving(index: VideoIndex, settings: ServeSettings) -> Iterator[str]:
    """A server on a free port of this machine; yields its address."""
    listening = bind("127.0.0.1", 0, try_next=False)
    server = make_server(index, settings)
    thread = threading.Thread(target=server.run, args=[[listening]], daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def site(base: Path, index: VideoIndex, **changes: object) -> Iterator[Site]:
    settings = replace(ServeSettings(cache=base / "cache"), **changes)  # type: ignore[arg-type]
    with serving(index, settings) as address:
        yield Site(address, index, base / "Videos", settings)
