"""Damaged media give frames or a VideoError, and media that name other files or addresses never open them."""

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import av
import pytest

from tests.video.clips import make_clip

from .media import fuzz, originals, use

IN_OPEN, IN_NONBLOCK = 0x20, 0o4000
EVENT = struct.calcsize("iIII")


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    outcome = fuzz(originals(tmp_path / "originals"), tmp_path / "damaged", seed=1, count=60)
    print(outcome)
    assert outcome.files == 60
    assert not outcome.faults
    assert outcome.became["read"] < 60, "nothing was damaged"


@contextmanager
def opened(folder: Path) -> Iterator[set[str]]:
    """The names of the files in a folder that are opened meanwhile, by whatever library: inotify tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(IN_NONBLOCK)
    assert libc.inotify_add_watch(handle, os.fsencode(folder), IN_OPEN) >= 0
    names: set[str] = set()
    try:
        yield names
        with suppress(BlockingIOError):
            while events := os.read(handle, 1 << 16):
                while events:
                    (length,) = struct.unpack_from("I", events, EVENT - 4)
                    names.add(os.fsdecode(events[EVENT : EVENT + length].rstrip(b"\0")))
                    events = events[EVENT + length :]
    finally:
        os.close(handle)


def external_reference(clip: Path) -> bytes:
    """A QuickTime file whose frames are in another file, by name."""
    data, name = bytearray(clip.read_bytes()), b"canary.mp4\0"
    place = data.index(b"url \0\0\0\1")
    data[place : place + 8] = b"url \0\0\0\0" + name
    for box in (b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref", b"url "):
        start = data.index(box, data.index(b"moov")) - 4
        data[start : start + 4] = (int.from_bytes(data[start : start + 4], "big") + len(name)).to_bytes(4, "big")
    return bytes(data)


def movie_reference(place: str) -> bytes:
    """A QuickTime file that only says where the film is."""
    address = place.encode() + b"\0"
    content = b"\0\0\0\0url " + len(address).to_bytes(4, "big") + address
    for box in (b"rdrf", b"rmda", b"rmra", b"moov"):
        content = (8 + len(content)).to_bytes(4, "big") + box + content
    return content


@pytest.mark.skipif(not Path("/proc").exists(), reason="inotify is Linux's")
def test_media_that_refer_elsewhere_open_nothing_else(tmp_path: Path) -> None:
    canaries, files = tmp_path / "canaries", tmp_path / "files"
    for folder in (canaries, files):
        folder.mkdir()
    canary = make_clip(canaries / "canary.mp4", frames=10)
    (canaries / "canary.ts").write_bytes(make_clip(tmp_path / "a.ts", frames=10).read_bytes())
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/canary.ts"
    segment = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"
    stream = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
    manifest = (
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT1S"><Period><AdaptationSet mimeType="video/mp4">'
        '<Representation id="1" bandwidth="1"><BaseURL>{}</BaseURL>'
        "</Representation></AdaptationSet></Period></MPD>"
    )
    contents = {
        "list.m3u8": segment.format(canaries / "canary.ts").encode(),
        "web.m3u8": segment.format(address).encode(),
        "key.m3u8": segment.format(f'#EXT-X-KEY:METHOD=AES-128,URI="{address}"\n{canaries}/canary.ts').encode(),
        "script.ffconcat": f"ffconcat version 1.0\nfile '{canary}'\n".encode(),
        "stream.sdp": f"{stream}a=rtpmap:96 H264/90000\n".encode(),
        "manifest.mpd": manifest.format(canary).encode(),
        "web.mpd": manifest.format(address).encode(),
        "reference.mov": movie_reference(str(canary)),
        "web.mov": movie_reference(address),
        "tracks.mov": external_reference(canary),
        "image%03d.mp4": b"%03d",
        "playlist.asx": f'<asx version="3.0"><entry><ref href="{address}"/></entry></asx>'.encode(),
    }
    with opened(canaries) as seen:  # a way of opening that follows names is seen here
        (files / "control.ffconcat").write_bytes(contents["script.ffconcat"])
        with av.open(str(files / "control.ffconcat"), options={"safe": "0"}) as followed:
            next(followed.decode(video=0))
    assert "canary.mp4" in seen
    count = 0
    with opened(canaries) as seen:
        for name, content in contents.items():
            for suffix in {Path(name).suffix, ".mp4", ".mkv", ".ts", ".jpg"}:
                path = files / Path(name).with_suffix(suffix)
                path.write_bytes(content)
                became = use(path, files)
                # Frames that the file holds itself are read, whatever it says about others.
                assert became != "read" or name == "tracks.mov", f"{path.name} passes for a video"
                count += 1
    assert seen == set(), "another file was opened"
    with pytest.raises(BlockingIOError):
        listening.accept()
    listening.close()
    assert count > 40
