"""Videos, a model, and what one machine makes of them."""

from pathlib import Path

from centerclip.search import VideoIndex
from tests.search.collection import clip, content, save_model

VIDEOS = 24


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.videos = folder, folder / "videos"
        for number in range(VIDEOS):
            clip(self.videos / f"{number}.mp4", number, seconds=1 + number % 3)
        (self.videos / "copy.mp4").write_bytes((self.videos / "0.mp4").read_bytes())
        self.model = save_model(folder / "model")
        alone = VideoIndex(folder / "alone", model=self.model)
        alone.add(self.videos)
        self.expected = content(alone)
