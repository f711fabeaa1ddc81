"""The wheel alone, with what it depends on and nothing else, and no network: bundled clips are indexed without a word
about the model, searched and served.

To stay quick and offline, the packages that the wheel's metadata asks for are linked from this environment into the
clean one. ``CENTERCLIP_INSTALL=index`` (``make test-install``) installs them for real from the package index instead,
and prints what there is to download, which has a limit, and what it takes on the disk.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distribution, distributions, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from centerclip.model.known import DEFAULT_MODEL

ROOT = Path(__file__).parent.parent
CLIPS = ("reel-03.mp4", "reel-21.mp4", "reel-28.mp4")
SENTENCE = "a red panda in a tree"  # reel-03
NO_HUB = "http://127.0.0.1:9"  # the port "discard": nobody listens there
FOR_REAL = os.environ.get("CENTERCLIP_INSTALL") == "index"
MAX_DOWNLOAD = 300_000_000  # bytes, the wheel and all that it asks for
# The modules of a run, after it.
MODULES = """
import sys
from centerclip.cli import main

sys.argv[0] = "centerclip"
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@dataclass(frozen=True)
class Installed:
    """A clean environment, and a folder with a few clips in ``videos``, indexed in ``index``; what indexing said."""

    python: Path
    folder: Path
    said: list[str] = field(default_factory=list)

    def run(self, *arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """Run Python."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done

    def command(self, *arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """Run ``centerclip``."""
        return self.run(str(self.python.with_name("centerclip")), *arguments, fails=fails)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        own = {
            "HOME": str(self.folder),
            "HF_HOME": str(self.folder / "hub"),
            "CENTERCLIP_CACHE": str(self.folder / "cache"),
        }
        return inherited | own | {"HF_ENDPOINT": NO_HUB, "COLUMNS": "100"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("install")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT], check=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=100)
    place = Installed(environment / "bin" / "python", folder)
    extent = ["--no-deps"]
    if FOR_REAL:
        wheels = folder / "wheels"
        constraints = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, "download", *constraints, "-d", wheels, wheel], check=True, timeout=600)
        extent = ["--no-index", "--find-links", wheels, "--no-compile"]
    subprocess.run([*pip, "--python", place.python, "install", *extent, wheel], check=True, timeout=600)
    if FOR_REAL:
        download, size = (_size(each) for each in (wheels, environment))
        print(f"\nThe core: {download / 1e6:.0f} MB to download, {size / 1e6:.0f} MB on the disk.")
        assert download < MAX_DOWNLOAD
    else:
        _link_packages(environment)
    clips = place.run("-c", "from centerclip.bundled import film_clips; print(film_clips())").stdout.strip()
    assert Path(clips).is_relative_to(environment)
    (folder / "videos").mkdir()
    for name in CLIPS:
        shutil.copy(Path(clips) / name, folder / "videos")
    place.said.extend(place.command("index", "videos", "--index", "index").stderr.splitlines())
    return place


def _link_packages(environment: Path) -> None:
    """Link the packages of this environment that the core depends on, and no others, into another one."""
    (packages,) = environment.glob("lib/python*/site-packages")
    (built,) = distributions(name="centerclip", path=[str(packages)])
    core = _below(built, {})
    assert not {"torch", "transformers", "matplotlib", "scikit-learn", "pytest"} & set(core)
    for package in core.values():
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(package.locate_file(name))))


def _below(package: Distribution, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """All that a package depends on, by name, without extras, beside what was found before."""
    for requirement in map(Requirement, package.requires or ()):
        name, marker = _plain(requirement.name), requirement.marker
        if name not in found and (marker is None or marker.evaluate({"extra": ""})):
            found[name] = distribution(name)
            _below(found[name], found)
    return found


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def test_without_a_connection_the_small_model_is_taken_and_one_line_says_so(installed: Installed) -> None:
    (line,) = (line for line in installed.said if "cannot be reached" in line)
    assert 'the index is made with "small", the small model that comes with CenterCLIP' in line
    assert line.endswith("For a better one, with a connection: centerclip index --reindex --model " + DEFAULT_MODEL)
    again = installed.command("index", "videos", "--index", "index")
    assert "cannot be reached" not in again.stderr  # it keeps its model, and asks nobody


def test_clips_are_found(installed: Installed) -> None:
    hits = json.loads(installed.command("search", SENTENCE, "--index", "index", "--json").stdout)["hits"]
    assert len(hits) == len(CLIPS)
    assert Path(hits[0]["path"]).name == CLIPS[0]
    status = json.loads(installed.command("status", "--index", "index", "--json").stdout)
    assert (status["videos"], status["model"]) == (len(CLIPS), "small")
    assert "runs on onnxruntime (cpu) in int8" in installed.command("doctor", "--index", "index").stdout


def test_clips_are_served(installed: Installed) -> None:
    command = [installed.python.with_name("centerclip"), "serve", "--index", "index", "--port", "0", "--no-open"]
    server = subprocess.Popen(
        command,
        cwd=installed.folder,
        env=installed.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}api/search?q={SENTENCE.replace(' ', '+')}", timeout=100) as answer:
            hits = json.load(answer)["hits"]
        assert f"{hits[0]['title']}.mp4" == CLIPS[0]
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.mark.parametrize(
    "arguments", [("evaluate", "demo", "folder", "--root", "videos"), ("train", "minivtt/demo", "--root", "videos")]
)
def test_a_command_of_an_extra_says_what_to_type(installed: Installed, arguments: tuple[str, ...]) -> None:
    assert "pip install 'centerclip[torch]'" in installed.command(*arguments, fails=True).stderr


def test_the_library_says_what_to_type(installed: Installed) -> None:
    code = (
        "from centerclip import VideoIndex; print(len(VideoIndex('index').videos())); from centerclip import CenterCLIP"
    )
    done = installed.run("-c", code, fails=True)
    assert done.stdout.strip() == str(len(CLIPS))
    assert "MissingExtra: this needs torch" in done.stderr


def test_a_few_modules_are_imported(installed: Installed) -> None:
    """Bounds what a person waits for at the first action, without a clock."""
    code = "import centerclip, sys; print(len(sys.modules)); from centerclip import VideoIndex; print(*sys.modules)"
    first, modules = installed.run("-I", "-c", code).stdout.splitlines()
    assert int(first) < 120
    assert _packages(modules) <= {"numpy"}

    wanted = {"typer", "rich", "markdown_it", "mdurl", "pygments", "shellingham", "platformdirs", "annotated_doc"}
    assert _packages(installed.run("-c", MODULES, "--help").stderr) <= wanted

    # typer reads arguments with pydantic.
    wanted |= {"numpy", "onnxruntime", "tokenizers", "pydantic", "pydantic_core", "annotated_types"}
    wanted |= {"typing_extensions", "typing_inspection"}
    modules = installed.run("-c", MODULES, "search", SENTENCE, "--index", "index").stderr
    assert _packages(modules) <= wanted
    assert len(modules.split()) < 600


def _packages(modules: str) -> set[str]:
    """The installed packages among modules, without our own."""
    return {name.partition(".")[0] for name in modules.split()} & set(packages_distributions()) - {"centerclip"}
