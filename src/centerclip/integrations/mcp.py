"""Search as tools of an agent, by the Model Context Protocol: over standard input and output, or HTTP.

The tools stand on the parts of the web server, so the limits of the REST API are theirs: bounded queues, files that are
as they were indexed and nothing else, and over HTTP the token, the host names and the size of a request.
"""

import base64
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.types import ASGIApp

from .. import __version__
from ..errors import CenterClipError, extras_named
from ..search import Hit, Query, Results, VideoEntry, VideoIndex
from ..search.export import HANDLES, save_clip
from ..search.filters import Filters, near_of, seconds_of
from ..server.media import frame
from ..server.middleware import MCP_PATH, AccessControl, BodyLimits, RequestLimits
from ..server.problems import Problem, problem_of
from ..server.search_routes import SECOND, encode_query
from ..server.service import Service
from ..server.settings import ServeSettings
from ..server.video_routes import MAX_CLIP_SECONDS, Sorting, list_entries

with extras_named():
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

INSTRUCTIONS = """A collection of videos, searched by what they show and by what is said and written in them.
Times are seconds from the start of a video. `grade` says how sure a hit is; "unlikely" ones are shown since nothing is
nearer. A `video_id` from one tool is what the others take."""
MAX_HITS, MAX_IMAGES, MAX_LIST = 50, 12, 200
IMAGE_WIDTH = 320  # pixels
READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

Top = Annotated[int, Field(ge=1, le=MAX_HITS, description="Hits at most.")]
Images = Annotated[int, Field(ge=0, le=MAX_IMAGES, description="For how many of the first hits to send a frame.")]
VideoId = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="A video's id, from another tool.")]
Second = Annotated[float, Field(**SECOND)]
Folder = Annotated[
    str | None, Field(max_length=4096, description="Only below this folder, as describe_index names it.")
]
Name = Annotated[str | None, Field(max_length=200, description="Part of the file's name, or a pattern: IMG_*.")]
Date = Annotated[str | None, Field(max_length=40, description="Recorded since / before: 2024, 2024-05 or 2024-05-31.")]


class FoundMoment(BaseModel):
    """A moment of a video that answers a query."""

    video_id: str
    file: str = Field(
        description="Path of the file; from the indexed folder on where the client is on another machine."
    )
    start: float
    end: float
    score: float = Field(description="Comparable within one search only.")
    grade: Literal["sure", "maybe", "unlikely"]
    duration: float = Field(description="Of the whole video, seconds.")
    text: str | None = Field(None, description="What is said or written there.")


class FoundMoments(BaseModel):
    """Moments, best first."""

    convincing: bool = Field(description="False when unrelated queries match as well: probably nothing shows this.")
    moments: list[FoundMoment]


class ListedVideo(BaseModel):
    """A video of the index."""

    video_id: str
    file: str
    duration: float
    width: int
    height: int
    recorded: float | None = Field(description="Seconds since 1970, if the file says so.")
    camera: str
    offline: bool = Field(description="Its disk is not connected now.")


class ListedVideos(BaseModel):
    """A part of the list of videos."""

    total: int
    videos: list[ListedVideo]


class IndexDescription(BaseModel):
    """What can be searched."""

    videos: int
    hours: float
    folders: list[str] = Field(description="For the filter `folder`.")
    model: str
    has_text: bool = Field(description="Something is said or written in the videos.")
    can_save_clips: bool


class SavedClip(BaseModel):
    """A clip that was written."""

    file: str


class Tools:
    """The tools, over the parts of a server.

    Args:
        service: the index, its worker threads and caches.
        local: the client is on this machine, and may know full paths.
        clips: the folder that clips may be saved in; None: nothing may be written.
    """

    def __init__(self, service: Service, local: bool, clips: Path | None) -> None:
        self.service, self.library, self.local, self.clips = service, service.library, local, clips

    async def search_moments(
        self,
        query: Annotated[str, Field(min_length=1, max_length=1000, description="What the video shows, or its words.")],
        top: Top = 10,
        look_at: Annotated[
            Literal["all", "video", "text"], Field(description="What is shown, what is said and written, or both.")
        ] = "all",
        folder: Folder = None,
        name: Name = None,
        recorded_after: Date = None,
        recorded_before: Date = None,
        near: Annotated[str | None, Field(max_length=80, description="latitude,longitude,kilometres")] = None,
        images: Images = 3,
    ) -> Annotated[CallToolResult, FoundMoments]:
        """Find moments in the videos that show what a sentence says, or in which it is said or written."""
        filters = {
            "folder": await self.service.info_pool.run(self._folder, folder),
            "name": name or None,
            "recorded_after": seconds_of(recorded_after or None, option="recorded_after"),
            "recorded_before": seconds_of(recorded_before or None, option="recorded_before"),
            "near": near_of(near or None, option="near"),
        }
        encoded: Query | None = await encode_query(self.service, query, None)
        if encoded is None:
            raise ToolError("the query is empty; say what the video shows")
        options: dict[str, Any] = {"query": encoded, "top": top, "where": look_at, "moments": True, **filters}
        return await self._found(await self.service.search_pool.run(self.library.index.search, **options), images)

    async def find_similar(
        self,
        video_id: VideoId,
        start: Annotated[
            float | None, Field(description="Like the moment here; else the whole video.", **SECOND)
        ] = None,
        top: Top = 10,
        images: Images = 3,
    ) -> Annotated[CallToolResult, FoundMoments]:
        """Find other videos that look like a video, or like a moment of it."""
        results = await self.service.search_pool.run(self.library.index.similar, video_id, start, top=top)
        return await self._found(results, images)

    async def list_videos(
        self,
        folder: Folder = None,
        name: Name = None,
        sort: Sorting = "place",
        offset: Annotated[int, Field(ge=0, description="How many to skip.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_LIST, description="How many at most.")] = 50,
    ) -> ListedVideos:
        """List the videos, by folder or name, or the newest or longest first."""

        def listed() -> ListedVideos:
            below = self._folder(folder)
            filters = Filters(folder=None if below is None else str(below), name=name or None)
            total, entries = list_entries(self.library, filters, sort, offset, limit)
            return ListedVideos(total=total, videos=[self._video(entry) for entry in entries])

        return await self.service.info_pool.run(listed)

    async def describe_index(self) -> IndexDescription:
        """How many videos there are, in which folders, and by what they can be searched."""

        def described() -> IndexDescription:
            status = self.library.index.status()
            return IndexDescription(
                videos=status.videos,
                hours=round(status.hours, 3),
                folders=[folder.name for folder in self.library.folders()][:MAX_LIST],
                model=Path(status.model).name if Path(status.model).is_absolute() else status.model,
                has_text=status.has_lines,
                can_save_clips=self.clips is not None,
            )

        return await self.service.info_pool.run(described)

    async def save_clip(
        self,
        video_id: VideoId,
        start: Second,
        end: Second,
        handles: Annotated[float, Field(ge=0, le=60, description="Seconds kept before and after.")] = HANDLES,
        exact: Annotated[bool, Field(description="Start at the very frame: slower, encodes it again.")] = False,
    ) -> SavedClip:
        """Cut a moment out of its video and save it as a file, in the folder that the server was started with."""

        def saved() -> SavedClip:
            entry = self.library.index.video(video_id)
            if not 0 < end - start <= MAX_CLIP_SECONDS or start >= entry.duration:
                limits = f"`end` after `start`, at most {MAX_CLIP_SECONDS:g} seconds later"
                raise ToolError(f"the video is {entry.duration:.1f} seconds long; give a part of it, {limits}")
            path = self.library.path_of(video_id)
            file = next(each for each in self.library.index.files(video_id) if each.path == str(path))
            hit = Hit(video_id, path, start, min(end, entry.duration), 0.0, (), entry.duration, file=file)
            assert self.clips is not None
            made = save_clip(hit, self.clips, exact=exact, handles=handles)
            return SavedClip(file=str(made) if self.local else made.name)

        return await self.service.piece_pool.run(saved)

    def _folder(self, name: str | None) -> Path | None:
        if not name:
            return None
        for folder in self.library.folders():
            if name in (folder.name, str(folder.path)):
                return folder.path
        raise ToolError(f"there is no folder {name!r} in the index; describe_index lists them")

    def _file(self, path: Path) -> str:
        """A path as the client may see it: whole only on this machine, and only below the index's folders."""
        status = self.library.status()
        below = status is not None and any(path.is_relative_to(root) for root in status.roots)
        return str(path) if self.local and below else self.library.place(path)

    def _video(self, entry: VideoEntry) -> ListedVideo:
        facts = {
            name: getattr(entry, name) for name in ("video_id", "width", "height", "recorded", "camera", "offline")
        }
        return ListedVideo(file=self._file(entry.path), duration=round(entry.duration, 3), **facts)

    async def _found(self, results: Results, images: int) -> CallToolResult:
        """Hits as data, as text, and the first of them as images."""

        def listed() -> FoundMoments:
            return FoundMoments(convincing=results.convincing, moments=[self._moment(hit) for hit in results])

        found = await self.service.info_pool.run(listed)
        content: list[Any] = [TextContent(type="text", text=found.model_dump_json(exclude_none=True))]
        for hit in results.hits[:images]:
            try:
                picture = await self.service.frame_pool.run(self._picture, hit)
            except (CenterClipError, Problem):  # the disk may not be connected
                continue
            content += [TextContent(type="text", text=f"{hit.video_id} at {hit.start:.1f} s:"), picture]
        return CallToolResult(content=content, structured_content=found.model_dump())

    def _moment(self, hit: Hit) -> FoundMoment:
        return FoundMoment(
            video_id=hit.video_id,
            file=self._file(hit.path),
            start=round(hit.start, 3),
            end=round(hit.end, 3),
            score=round(hit.score, 5),
            grade=hit.grade,
            duration=round(hit.duration, 3),
            text=hit.line.text if hit.line is not None else None,
        )

    def _picture(self, hit: Hit) -> ImageContent:
        middle = min((hit.start + hit.end) / 2, max(0.0, hit.duration - 0.05))
        made = frame(self.service.frames, self.library, hit.video_id, middle, IMAGE_WIDTH)
        return ImageContent(type="image", data=base64.b64encode(made).decode(), mime_type="image/jpeg")


def make_mcp(
    index: VideoIndex, settings: ServeSettings | None = None, *, local: bool = True, clips: Path | None = None
) -> tuple[MCPServer[None], Service]:
    """An MCP server over an index, and the parts that it works with.

    Args:
        index: the index to search.
        settings: limits, caches and the token.
        local: the client is on this machine, and may know full paths.
        clips: the folder that clips may be saved in; None: the server only reads.
    """
    service = Service(index, settings or ServeSettings())
    tools = Tools(service, local, clips)

    service.warm_up()
    server = MCPServer[None](
        "centerclip", "CenterCLIP", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool in (tools.search_moments, tools.find_similar, tools.list_videos, tools.describe_index):
        server.add_tool(_explained(tool), annotations=READ)
    if clips is not None:
        server.add_tool(_explained(tools.save_clip), annotations=WRITE)
    return server, service


def mcp_app(server: MCPServer[None], service: Service) -> ASGIApp:
    """The server for HTTP, at ``/mcp``, behind the limits and the access control of the REST API."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=MCP_PATH, host="")  # AccessControl checks host names
    app = BodyLimits(app, service.settings)
    app = AccessControl(app, service.settings, service.tokens)
    return RequestLimits(app, service.settings, service.metrics)


def _explained(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A tool whose errors are sentences for the model, without paths of this machine."""

    @wraps(tool)
    async def explained(*args: Any, **named: Any) -> Any:
        try:
            return await tool(*args, **named)
        except Problem as problem:
            raise ToolError(f"{problem.title}: {problem.detail}") from problem
        except CenterClipError as error:
            reason = problem_of(error)
            raise ToolError(f"{reason.title}: {reason.detail}") from error

    return explained
