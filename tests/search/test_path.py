"""The way of a query through the code: short enough to read in one go."""

import gc
import sys
from pathlib import Path
from types import FrameType

import centerclip
from centerclip import VideoIndex
from tests.search.collection import clip

PACKAGE = str(Path(centerclip.__file__).parent)
MOST_FILES = 11  # one more than we want: filters stand apart from results since every store works them out


def test_a_search_passes_few_files(model: Path, tmp_path: Path) -> None:
    for number in range(3):
        clip(tmp_path / "videos" / f"{number}.mp4", number)
    VideoIndex(tmp_path / "index", model=model).add(tmp_path / "videos")
    index = VideoIndex(tmp_path / "index")
    index.search("a dog")
    files: set[str] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))

    gc.collect()  # the index above is closed when it is collected, which is no part of a search
    sys.setprofile(profile)
    try:
        results = index.search("a dog", folder=tmp_path / "videos", name="*.mp4", collapse=False)
    finally:
        sys.setprofile(None)
    assert len(results) == 3
    assert "search/index.py" in files
    assert len(files) <= MOST_FILES, " ".join(sorted(files))
