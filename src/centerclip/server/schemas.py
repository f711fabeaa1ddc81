"""The responses of the API as the OpenAPI document describes them, and how they are made from the index's results."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..files import valid_text
from ..search import Hit, Results, VideoEntry
from ..search.text import marks_in
from ..video.subtitles import TextSource
from .library import Library

PREFIX = "/api/v1"
EXAMPLE_ID = "3f2a9c0d4b5e6f708192a3b4c5d6e7f8"
EXAMPLE_FOLDER = "a1b2c3d4e5f60718"
VideoId = Annotated[
    str, Field(description="Hash of the file's content: the same when it is moved or renamed.", examples=[EXAMPLE_ID])
]
Milliseconds = BeforeValidator(lambda seconds: round(max(0.0, seconds), 3))
Seconds = Annotated[
    float, Milliseconds, Field(ge=0, description="Seconds from the start of the video.", examples=[12.5])
]
Length = Annotated[float, Milliseconds, Field(description="Of the whole video, seconds.", examples=[93.4])]
Score = Annotated[
    float,
    BeforeValidator(lambda score: round(score, 5)),
    Field(
        description="Cosine similarity with the query: comparable within one search only. "
        "Of a hit found by text, the share of the query's words.",
        examples=[0.312],
    ),
]
Offline = Annotated[
    bool, Field(description="The folder of the file is not there now: a disk may not be connected.", examples=[False])
]


def shown(description: str, example: object, **rules: Any) -> Any:
    """A field as the OpenAPI document shows it."""
    return Field(description=description, examples=[example], **rules)


class ResponseModel(BaseModel):
    """Common to all responses."""

    model_config = ConfigDict(frozen=True)


class Span(ResponseModel):
    """A part of a video and how well it matches the query."""

    start: Seconds
    end: Seconds
    score: Score


class TextLine(ResponseModel):
    """What is said or written in a video."""

    start: Seconds
    end: Seconds
    text: str = shown("Plain text, of anyone's making: escape it.", "the bridge of spies")
    source: TextSource = Field(description='"spoken" was transcribed, "written" read from the picture.')
    marks: list[tuple[int, int]] = shown("The query's words in it: first and last place, in characters.", [(4, 10)])


class SearchHit(ResponseModel):
    """A video that matches a query, with its best moment; or, with ``moments``, one moment."""

    video_id: VideoId
    title: str = shown("The file's name without its extension.", "IMG_0412")
    kind: Literal["video", "photo"] = shown("A photograph has a length of 0.", "video")
    place: str = shown("The file's path from the indexed folder on.", "Videos/2023/IMG_0412.mp4")
    start: Seconds
    end: Seconds
    score: Score
    duration: Length
    grade: Literal["sure", "maybe", "unlikely"] = shown(
        "Whether it shows what was searched for, judged against unrelated queries.", "maybe"
    )
    moments: list[Span] = Field(description="Up to five, best first; the first is start to end.")
    found_by: Literal["video", "text"] = shown(
        "What it shows, or what is said or written in it; then `start` is when.", "video"
    )
    line: TextLine | None = Field(
        description="Has words of the query, also where the video was found by what it shows."
    )
    offline: Offline
    copies: list[str] = shown("Other files with the same content.", [])
    duplicates: list[str] = shown("Near-duplicate videos that were left out.", [])
    thumbnail: str = shown("A frame from the middle of the moment.", f"{PREFIX}/videos/{EXAMPLE_ID}/frames/14.0.jpg")
    stream: str = shown("The file itself.", f"{PREFIX}/videos/{EXAMPLE_ID}/stream")


class SearchResults(ResponseModel):
    """Hits, best first."""

    convincing: bool = Field(
        description="False when unrelated queries match as well: probably no video shows what was searched for."
    )
    confidence: float = Field(
        ge=0, le=1, description="Share of unrelated queries that match less well.", examples=[0.94]
    )
    likely: int = shown("How many hits come before the cut; those after it are less likely.", 3)
    seconds: float = shown("How long the search took, without encoding the query.", 0.012)
    query: str | None = Field(
        None,
        description="Name of a query by image or clip, valid for a while: pass it as `query` to search again.",
        examples=["9b1c5ab7d6e0f1a2b3c4d5e6"],
    )
    hits: list[SearchHit]


class Video(ResponseModel):
    """A video of the index."""

    video_id: VideoId
    title: str = Field(examples=["IMG_0412"])
    kind: Literal["video", "photo"] = shown("A photograph has a length of 0.", "video")
    place: str = Field(examples=["Videos/2023/IMG_0412.mp4"])
    copies: list[str] = Field(examples=[[]])
    duration: Length
    width: int = Field(examples=[1920])
    height: int = Field(examples=[1080])
    modified: float = shown("When the file was modified, seconds since 1970.", 1_714_000_000.0)
    added: float = shown("When it was indexed, seconds since 1970.", 1_715_000_000.0)
    recorded: float | None = shown("When it was recorded, seconds since 1970, if the file says so.", 1_713_000_000.0)
    camera: str = shown("Make and model, if the file says so.", "Canon EOS R6")
    latitude: float | None = shown("Where it was recorded, if the file says so.", 52.37)
    longitude: float | None = Field(examples=[4.89])
    offline: Offline
    segments: int = shown("Its vectors in the index.", 32)
    note: str = shown("A problem with the file that did not prevent indexing.", "")
    thumbnail: str = Field(examples=[f"{PREFIX}/videos/{EXAMPLE_ID}/frames/46.7.jpg"])
    stream: str = Field(examples=[f"{PREFIX}/videos/{EXAMPLE_ID}/stream"])


class VideoList(ResponseModel):
    """A page of the list of videos."""

    total: int = shown("Videos that match the filters.", 412)
    offset: int = Field(examples=[0])
    videos: list[Video]


class VideoDetail(Video):
    """A video with its segments."""

    file: str = shown('"there", "missing", "changed" (since it was indexed) or "unreadable".', "there")
    codec: str | None = shown("The video codec.", "h264")
    playable: bool = Field(
        description="Browsers play the file as it is. If not, request it in pieces: `stream?as=mp4&piece=0`."
    )
    audible: bool = Field(description="Browsers play its sound, or it has none.")
    piece_seconds: float = shown("Length of a converted piece.", 30.0)
    spans: list[Span] = Field(description="All segments in order of time; scores are 0 without a query.")
    moments: list[Span] = Field(description="With a query, those that answer it: up to five, best first.")


class FolderEntry(ResponseModel):
    """A folder with videos in it or below."""

    id: str = shown("For the filter `folder`.", EXAMPLE_FOLDER)
    name: str = Field(examples=["Videos/2023"])
    videos: int = shown("Files in it and below.", 120)


class FolderList(ResponseModel):
    """The folders of the index."""

    folders: list[FolderEntry]


class NewFolder(BaseModel):
    """A folder to index."""

    path: str | None = Field(
        None,
        max_length=4096,
        description="On the server's machine, below the folder that the server was started with. "
        "Without it, all folders of the index are updated.",
        examples=["2024/Summer"],
    )


class TimelineMoment(BaseModel):
    """A moment for a timeline."""

    video_id: str = shown("Of a hit.", EXAMPLE_ID, pattern="^[0-9a-f]{32}$")
    start: float = shown("Seconds.", 12.5, ge=0, le=1e6, allow_inf_nan=False)
    end: float = shown("Seconds.", 19.5, ge=0, le=1e6, allow_inf_nan=False)
    score: float = shown("Of the hit, for its marker.", 0.31, default=0.0, ge=-1, le=1)


class NewTimeline(BaseModel):
    """Moments for an editor."""

    format: Literal["edl", "fcpxml", "otio", "xml"] = shown("Those that `status` lists can be written.", "edl")
    name: str = shown("What was searched for.", "a dog runs", default="hits", max_length=1000)
    handles: float = shown("Seconds before and after each moment.", 0.5, default=0.5, ge=0, le=60)
    moments: list[TimelineMoment] = Field(min_length=1, max_length=200)


class FolderChoices(ResponseModel):
    """Folders that can be added."""

    path: str = shown('Where they are, below the allowed folder; "" is that folder.', "2024")
    folders: list[str] = shown("To add, or to look into.", ["2024/Spring", "2024/Summer"])


class IndexingState(ResponseModel):
    """How far indexing is."""

    running: bool = Field(description="Some process is writing to the index.")
    here: bool = Field(description="This server is; only then are the figures known.")
    finished: int = Field(examples=[40])
    total: int | None = Field(examples=[412])
    video_seconds: float = shown("Length of the video that was encoded.", 1800.0)
    seconds: float = shown("Since the start of the run.", 95.0)
    added: int | None = shown("By the last run.", None)
    failed: int | None = shown("Files that the last run could not read.", None)
    error: str | None = shown("Why the last run stopped early.", None)


class Unreadable(ResponseModel):
    """A file that could not be indexed."""

    place: str = Field(examples=["Videos/broken.mp4"])
    reason: str = Field(examples=["truncated: 40% of the file is missing at its end"])


class Limits(ResponseModel):
    """Limits of an upload."""

    bytes: int = Field(examples=[67_108_864])
    pixels: int = Field(examples=[64_000_000])
    clip_seconds: float = Field(examples=[120.0])


class ServerStatus(ResponseModel):
    """What is in the index, and what the server is doing."""

    version: str = Field(examples=["0.1.0"])
    index: bool = Field(description="False when there is no index yet.")
    ready: bool = Field(description="The model is open; searches are slower until then.")
    model: str | None = Field(examples=["openai/clip-vit-base-patch32"])
    clustering: str | None = Field(examples=["B6-4,49"])
    videos: int = Field(examples=[412])
    segments: int = Field(examples=[13_184])
    hours: float = Field(examples=[10.9])
    bytes: int = Field(examples=[28_000_000])
    has_text: bool = Field(description="Something is said or written in a video: see `in` of a search.")
    offline: int = shown("Videos on disks that are not connected.", 0)
    unreadable: int = shown("Files that could not be indexed.", 1)
    failures: list[Unreadable] = Field(description="The first hundred of them.")
    indexing: IndexingState
    timelines: list[str] = shown("Formats of timelines that can be written.", ["edl", "fcpxml"])
    can_add_folders: bool = Field(description="And remove videos and folders from the index.")
    can_reveal: bool = Field(description="Files can be shown in the file manager: the page is on the server's machine.")
    can_sharpen: bool = Field(description="Moments that are looked at can be indexed more finely: see `sharpen`.")
    add_command: str = shown("Adds videos, in a terminal of the server's machine.", "centerclip index ~/Videos")
    limits: Limits


class Health(ResponseModel):
    """The server is up."""

    status: str = Field(examples=["ok"])


class Token(BaseModel):
    """The token that the server printed when it started."""

    token: str = Field(max_length=1024, examples=["s3cr3t-from-the-terminal"])


def search_results(library: Library, results: Results, query: str | None = None, text: str = "") -> SearchResults:
    """Results of a search; ``query`` is the name of the query if it can be repeated, ``text`` what was typed."""
    return SearchResults(
        convincing=results.convincing,
        confidence=round(results.confidence, 4),
        likely=results.likely,
        seconds=round(results.seconds, 5),
        query=query,
        hits=[_search_hit(library, hit, text) for hit in results],
    )


def video_fields(library: Library, entry: VideoEntry) -> dict[str, object]:
    """The fields of a :class:`Video`."""
    return {**_shown(library, entry, entry.duration / 2), "camera": valid_text(entry.camera)}


def _search_hit(library: Library, hit: Hit, text: str) -> SearchHit:
    line = hit.line and {**vars(hit.line), "marks": marks_in(hit.line.text, text)}
    changes = {"line": line, "moments": [vars(moment) for moment in hit.moments]}
    fields = _shown(library, hit, (hit.start + hit.end) / 2)
    return SearchHit.model_validate({**fields, **changes, "duplicates": _places(library, hit.duplicates)})


def _shown(library: Library, found: Hit | VideoEntry, time: float) -> dict[str, object]:
    """What is known of a video, without paths of this machine; a response takes the fields that it names."""
    base = f"{library.root_path}{PREFIX}/videos/{found.video_id}"
    return {
        **vars(found),
        "video_id": found.video_id,
        "title": valid_text(found.title),
        "kind": "photo" if found.is_photo else "video",
        "place": library.place(found.path),
        "copies": _places(library, found.copies),
        "thumbnail": f"{base}/frames/{max(0.0, time):.1f}.jpg",
        "stream": f"{base}/stream",
    }


def _places(library: Library, paths: tuple[Path, ...]) -> list[str]:
    return [library.place(path) for path in paths]
