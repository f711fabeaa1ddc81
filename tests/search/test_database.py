"""The file of an index: other versions of it, read-only folders, journals, full disks, and where its files are."""

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest

from centerclip.errors import DamagedIndex, DiskFull, IndexBusy, IndexNotFound, SearchError
from centerclip.search import sqlite
from centerclip.search.folder import IndexSettings, writer_lock
from centerclip.search.sqlite import MIGRATIONS, Database, SqliteStore, journal_mode, read_settings
from centerclip.search.store import File, Line
from tests.search.collection import cannot_open
from tests.search.conformance import WIDTH, file, unit, video

SETTINGS = IndexSettings("a/model", "abc", "B2-4,8", frames=4, segments=2, every=1.0, width=WIDTH, roots=["/videos"])
FIRST_VERSION = Path(__file__).with_name("index-1.sql")
SAID = Line(1.0, 2.5, "Over the bridge", "subtitle")


def write_settings(folder: Path, settings: IndexSettings) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Database(folder)) as database:
        database.save_settings(settings)


def fill(folder: Path) -> SqliteStore:
    """An index of three videos, one of them with a line."""
    write_settings(folder, replace(SETTINGS, roots=[str(folder / "videos")], ignore=["*.gif"]))
    store = SqliteStore(folder, WIDTH)
    files = [file(str(folder / "videos" / f"{n}.mp4"), n) for n in range(3)]
    store.add([video(0), video(1, lines=(SAID,)), video(2)], files)
    return store


def closed(folder: Path) -> Path:
    store = fill(folder)
    store.database.close()
    return folder / "index.db"


# ---- settings -------------------------------------------------------------------------------------------------------


def test_settings_come_back(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound, match="there is no index"):
        read_settings(tmp_path)
    write_settings(tmp_path / "new", SETTINGS)
    assert read_settings(tmp_path / "new") == SETTINGS
    changed = replace(SETTINGS, roots=["/other", "/videos"], ignore=["*.gif"])
    write_settings(tmp_path / "new", changed)
    assert set(read_settings(tmp_path / "new").roots) == {"/other", "/videos"}
    assert read_settings(tmp_path / "new").ignore == ["*.gif"]


def test_the_identity_of_vectors_depends_on_what_they_depend_on() -> None:
    other_names = replace(SETTINGS, model="the same by another name", roots=[], ignore=["x"])
    assert other_names.vectors_id == SETTINGS.vectors_id
    for change in ({"fingerprint": "d"}, {"clustering": "none"}, {"frames": 8}, {"every": 2.0}, {"width": 3}):
        assert replace(SETTINGS, **change).vectors_id != SETTINGS.vectors_id  # type: ignore[arg-type]


def test_a_file_that_does_not_describe_an_index_says_so(tmp_path: Path) -> None:
    path = closed(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE setting SET content = '{}'")
    with pytest.raises(DamagedIndex, match=r"index\.db does not describe an index"):
        read_settings(tmp_path)
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(DamagedIndex, match="--reindex"):
        read_settings(tmp_path)
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("PRAGMA user_version = 7")
    for use in (lambda: read_settings(tmp_path), lambda: write_settings(tmp_path, SETTINGS)):
        with pytest.raises(DamagedIndex, match="a database of another program"):
            use()


def test_a_file_that_was_only_made_is_no_index_yet(tmp_path: Path) -> None:
    (tmp_path / "index.db").touch()  # as by a process that was killed at its first step
    with pytest.raises(IndexNotFound):
        read_settings(tmp_path)
    write_settings(tmp_path, SETTINGS)
    assert read_settings(tmp_path) == SETTINGS


# ---- other versions of the schema -----------------------------------------------------------------------------------


def test_an_index_of_the_first_version_opens(tmp_path: Path) -> None:
    """The statements were written by the first version and do not change; every later version has to open them."""
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        connection.executescript(FIRST_VERSION.read_text(encoding="utf-8"))
    settings = read_settings(tmp_path)
    assert (settings.model, settings.roots, settings.ignore) == ("a/model", ["/first/videos"], ["*.gif"])
    view = SqliteStore(tmp_path, WIDTH, settings.vectors_id).view()
    assert view.videos == {video(n)[0].id: video(n)[0] for n in range(2)}
    paths = [f"/first/videos/{name}" for name in ("0.mp4", "deep/\udcff.mp4", "bad.mp4")]
    assert list(view.files.values()) == [file(paths[0], 0), file(paths[1], 1), file(paths[2], None, "why")]
    np.testing.assert_array_equal(view.segments(video(1)[0].id).vectors, unit(5, 1))
    assert view.lines(video(1)[0].id) == [SAID]
    assert [hit.text for hit in view.search_lines('"bridge"', 5)] == [SAID.text]
    assert [path for path, _, _ in view.search_names('"videos" "0"', 5)] == ["/first/videos/0.mp4"]
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_older_schema_is_brought_up_to_date_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(tmp_path)
    newer = "ALTER TABLE video ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';", "CREATE TABLE extra (a);"
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, newer[0], "CREATE TABLE extra (a); nonsense;"))
    with pytest.raises(SearchError, match="cannot be brought up to date here"):
        read_settings(tmp_path)
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)  # as it was
        assert "mood" not in str(connection.execute("SELECT sql FROM sqlite_master").fetchall())
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, *newer))
    assert SqliteStore(tmp_path, WIDTH).view().count() == 15
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        assert connection.execute("SELECT DISTINCT mood FROM video").fetchall() == [("calm",)]
        assert connection.execute("SELECT * FROM extra").fetchall() == []


def test_a_reader_changes_no_schema_while_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(tmp_path)
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE extra (a);"))
    with (
        writer_lock(tmp_path),
        pytest.raises(SearchError, match=r"older version of centerclip .* another process .*is writing"),
    ):
        read_settings(tmp_path)
    assert read_settings(tmp_path).ignore == ["*.gif"]


# ---- what is open, where nothing can be written ---------------------------------------------------------------------


def test_an_index_is_one_file_when_nobody_has_it_open(tmp_path: Path) -> None:
    closed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.db"]


def test_a_read_only_index_opens_and_its_changes_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, connect, modes = closed(tmp_path), sqlite.connect, list[str]()

    def connect_where_nothing_can_be_written(path: Path, mode: str) -> sqlite3.Connection:
        modes.append(mode)
        if mode == "mode=rw":
            raise cannot_open()
        return connect(path, mode)

    monkeypatch.setattr(sqlite, "connect", connect_where_nothing_can_be_written)
    reader = SqliteStore(tmp_path, WIDTH)
    assert reader.view().search(unit(5, 1)[2], 1).videos == [video(1)[0].id]
    assert modes == ["mode=rw", "mode=ro&immutable=1"]
    assert [path.name for path in tmp_path.iterdir()] == ["index.db"]
    # Another machine, which may write, adds a video: until it is done there is a WAL, which has to be read too.
    writer = SqliteStore(tmp_path, WIDTH)
    writer.add([video(7)], [])
    assert path.with_name("index.db-wal").stat().st_size > 0
    assert reader.view().count() == 20
    assert modes[-1] == "mode=ro"
    reader.database.close()
    writer.database.close()
    assert reader.view().count() == 20
    assert modes[-1] == "mode=ro&immutable=1"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_to_write_is_searched_and_a_writer_told(tmp_path: Path) -> None:
    closed(tmp_path)
    (tmp_path / "index.db").chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert SqliteStore(tmp_path, WIDTH).view().count() == 15
        with pytest.raises(SearchError, match="check that you may read and write"):
            SqliteStore(tmp_path, WIDTH).add([video(7)], [])
    finally:
        tmp_path.chmod(0o755)


def test_what_a_killed_writer_left_is_recovered_by_a_reader(tmp_path: Path) -> None:
    store = fill(tmp_path / "index")
    copy = tmp_path / "copy"  # as the disk is after a kill: the WAL has what was committed
    copy.mkdir()
    for name in ("index.db", "index.db-wal"):
        (copy / name).write_bytes((tmp_path / "index" / name).read_bytes())
    assert (copy / "index.db-wal").stat().st_size > 0
    with closing((reader := SqliteStore(copy, WIDTH)).database):
        assert reader.view().count() == 15
    assert [path.name for path in copy.iterdir()] == ["index.db"]
    store.database.close()


def test_no_transaction_outlives_a_call(tmp_path: Path) -> None:
    store = fill(tmp_path)
    store.view().search(unit(1, 0)[0], 3)
    store.view().search_lines('"bridge"', 3)
    with closing(sqlite3.connect(tmp_path / "index.db", timeout=0)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert (tmp_path / "index.db-wal").stat().st_size == 0  # which a reader in a transaction prevents
        other.execute("BEGIN EXCLUSIVE")
        assert store.view().count() == 15


def test_errors_of_the_disk_have_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    for code, kind in (
        (sqlite3.SQLITE_FULL, DiskFull),
        (sqlite3.SQLITE_IOERR_WRITE, DiskFull),
        (sqlite3.SQLITE_BUSY, IndexBusy),
        (sqlite3.SQLITE_READONLY, SearchError),
        (sqlite3.SQLITE_CORRUPT, DamagedIndex),
    ):

        def fail(*arguments: object, code: int = code) -> None:
            error = sqlite3.OperationalError("what SQLite says")
            error.sqlite_errorcode = code
            raise error

        monkeypatch.setattr(sqlite, "_add_lines", fail)
        with pytest.raises(kind, match="what SQLite says" if kind is not IndexBusy else "wait until it is done"):
            store.add([video(8)], [file("/v/8.mp4", 8)])
        assert store.view().count() == 15  # nothing of it


def test_another_file_of_the_same_name_is_another_index(tmp_path: Path) -> None:
    reader = SqliteStore(tmp_path, WIDTH)
    closed(tmp_path)
    assert reader.view().count() == 15
    Database(tmp_path).remove()
    assert reader.view().count() == 0
    SqliteStore(tmp_path, WIDTH).add([video(5)], [file("/v/5.mp4", 5)])
    assert list(reader.view().videos) == [video(5)[0].id]
    assert reader.view().search(unit(5, 5)[0], 1).videos == [video(5)[0].id]
    assert list(reader.view().files) == ["/v/5.mp4"]


def test_a_reader_keeps_to_the_vectors_it_knows(tmp_path: Path) -> None:
    """Between reading the settings and searching, an index may have been made again with another model."""
    store = fill(tmp_path)
    reader = SqliteStore(tmp_path, WIDTH, read_settings(tmp_path).vectors_id)
    before = reader.view()
    store.database.save_settings(replace(SETTINGS, width=3, fingerprint="other"), clear=True)
    known, segments, _ = video(0)
    SqliteStore(tmp_path, 3).add([(known, replace(segments, vectors=np.ones((5, 3), np.float32)), ())], [])
    assert reader.view() is before
    assert before.search(unit(1, 0)[0], 3).videos == []  # its vectors are gone, and the new ones are not comparable


def test_only_what_is_new_is_read_and_dead_rows_are_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("centerclip.search.matrix.MIN_DEAD_ROWS", 10)
    store = fill(tmp_path)
    first = store.view()
    memory = first.block.vectors.base
    store.remove([video(0)[0].id], [])
    second = store.view()
    assert second.block.vectors.base is memory
    assert (len(second.block.owners), second.count(), len(second.sample(100))) == (15, 10, 10)
    store.add([video(3)], [])
    assert [view.search(unit(5, 3)[1], 1).videos for view in (store.view(), second)] != [[video(3)[0].id]] * 2
    for number in range(4, 30):
        store.add([video(number)], [])
        store.remove([video(number)[0].id], [])
        assert len(store.view().block.owners) < 60
    assert store.view().count() == 15
    assert first.search(unit(5, 0)[1], 1).videos == [video(0)[0].id]  # an earlier view still has its own


# ---- the journal ----------------------------------------------------------------------------------------------------

MOUNTS = """/dev/sda1 / ext4 rw 0 0
server:/films /mnt/my\\040films nfs4 rw 0 0
//nas/home /home/me/nas cifs rw 0 0
me@host: /home/me/nas/ssh fuse.sshfs rw 0 0
/dev/sdb1 /home/me/nas/usb vfat rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "mode"),
    [
        ("/home/me", "wal"),
        ("/home/me/nas", "delete"),
        ("/home/me/nas/index", "delete"),
        ("/home/me/nas-old", "wal"),
        ("/home/me/nas/ssh/x", "delete"),
        ("/home/me/nas/usb/index", "wal"),
        ("/mnt/my films/index", "delete"),
    ],
)
def test_the_journal_of_a_network_disk_needs_no_shared_memory(
    folder: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CENTERCLIP_JOURNAL", raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path, **_: MOUNTS if str(path) == "/proc/self/mounts" else "")
    monkeypatch.setattr(os.path, "realpath", str)
    assert journal_mode(Path(folder)) == mode
    monkeypatch.setenv("CENTERCLIP_JOURNAL", "DELETE" if mode == "wal" else "WAL")
    assert journal_mode(Path(folder)) != mode


def test_the_journal_follows_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mode() -> str:
        with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
            return str(connection.execute("PRAGMA journal_mode").fetchone()[0])

    monkeypatch.setenv("CENTERCLIP_JOURNAL", "wal")
    closed(tmp_path)
    assert mode() == "wal"
    monkeypatch.setenv("CENTERCLIP_JOURNAL", "delete")  # copied to a network disk: the first reader sees to it
    reader = SqliteStore(tmp_path, WIDTH)
    assert reader.view().count() == 15
    assert mode() == "delete"
    writer = SqliteStore(tmp_path, WIDTH)
    writer.add([video(7)], [])
    assert reader.view().count() == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.db"]
    monkeypatch.setenv("CENTERCLIP_JOURNAL", "paper")
    with pytest.raises(SearchError, match="set it to wal or delete"):
        SqliteStore(tmp_path, WIDTH).view()


# ---- where files are ------------------------------------------------------------------------------------------------


def roots(folder: Path) -> list[tuple[str, str, int]]:
    with closing(sqlite3.connect(folder / "index.db")) as connection:
        rows = connection.execute("SELECT path, name, listed FROM root ORDER BY path").fetchall()
    return [(os.fsdecode(path), name, listed) for path, name, listed in rows]


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    write_settings(tmp_path, replace(SETTINGS, roots=["/disk/videos", "/disk/old/videos", "/disk/one.mp4"]))
    store = SqliteStore(tmp_path, WIDTH)
    paths = ["/disk/videos/a.mp4", "/disk/videos/deep/b.mp4", "/disk/old/videos/c.mp4", "/disk/one.mp4", "/else/d.mp4"]
    store.add([video(n) for n in range(5)], [file(path, n) for n, path in enumerate(paths)])
    return store


def paths(store: SqliteStore) -> dict[str, str]:
    """Path and root of every file."""
    return {path: each.root for path, each in store.view().files.items()}


def test_files_are_kept_below_named_roots(store: SqliteStore, tmp_path: Path) -> None:
    assert roots(tmp_path) == [
        ("/", "/", 0),
        ("/disk/old/videos", "videos 2", 1),
        ("/disk/one.mp4", "one.mp4", 1),
        ("/disk/videos", "videos", 1),
    ]
    assert [store.database.root_named(name) for name in ("videos 2", "none")] == ["/disk/old/videos", ""]
    assert paths(store) == {
        "/disk/videos/a.mp4": "/disk/videos",
        "/disk/videos/deep/b.mp4": "/disk/videos",
        "/disk/old/videos/c.mp4": "/disk/old/videos",
        "/disk/one.mp4": "/disk/one.mp4",
        "/else/d.mp4": "",
    }
    store.remove([], ["/else/d.mp4"])
    assert len(roots(tmp_path)) == 3


@pytest.mark.parametrize("path", ["s3://bucket/b.mp4", "C:/v/c.mp4"])
def test_what_begins_with_no_slash_is_not_below_the_root_of_all(store: SqliteStore, tmp_path: Path, path: str) -> None:
    assert ("/", "/", 0) in roots(tmp_path)
    store.add([], [file(path, 1)])
    assert store.view().files[path].video == video(1)[0].id
    store.remove([], [path])
    assert path not in store.view().files


def test_a_root_within_a_root_holds_what_comes_later(store: SqliteStore, tmp_path: Path) -> None:
    settings = read_settings(tmp_path)
    write_settings(tmp_path, replace(settings, roots=[*settings.roots, "/disk/videos/deep"]))
    assert paths(store)["/disk/videos/deep/b.mp4"] == "/disk/videos"
    store.add([], [file("/disk/videos/deep/b.mp4", 3), file("/disk/videos/deep/e.mp4", 4)])
    assert len(store.view().files) == 6
    assert store.view().files["/disk/videos/deep/b.mp4"].video == video(3)[0].id
    write_settings(tmp_path, settings)
    assert paths(store)["/disk/videos/deep/e.mp4"] == ""  # no longer among the roots, still there
    store.remove([], ["/disk/videos/deep/b.mp4", "/disk/videos/deep/e.mp4"])
    assert len(store.view().files) == 4


@pytest.mark.parametrize(
    ("old", "new", "moved", "expected"),
    [
        ("/disk/videos", "/media/v", 2, {"/media/v/a.mp4": "/media/v", "/media/v/deep/b.mp4": "/media/v"}),
        ("/disk", "/media", 4, {"/media/videos/a.mp4": "/media/videos", "/media/one.mp4": "/media/one.mp4"}),
        ("/disk/videos/deep", "/disk/videos/down", 1, {"/disk/videos/down/b.mp4": "/disk/videos"}),
        ("/disk/videos/deep", "/media", 1, {"/media/b.mp4": "/media", "/disk/videos/a.mp4": "/disk/videos"}),
        ("/disk/one.mp4", "/disk/videos/one.mp4", 1, {"/disk/videos/one.mp4": "/disk/videos/one.mp4"}),
        ("/disk/old/videos", "/disk/videos", 1, {"/disk/videos/c.mp4": "/disk/videos"}),  # onto another root
        ("/else", "/other", 1, {"/other/d.mp4": ""}),
        ("/disk/vid", "/media", 0, {}),
        ("/", "/mnt", 5, {"/mnt/disk/videos/a.mp4": "/mnt/disk/videos", "/mnt/else/d.mp4": ""}),
    ],
)
def test_roots_parts_of_them_and_what_is_above_them_move(
    store: SqliteStore, tmp_path: Path, old: str, new: str, moved: int, expected: dict[str, str]
) -> None:
    before = {each.video for each in store.view().files.values()}
    assert store.move(old, new) == moved
    after = paths(store)
    assert expected.items() <= after.items()
    assert {each.video for each in store.view().files.values()} == before
    if moved and old != "/":
        assert not any(path == old or path.startswith(old + "/") for path in {*after, *read_settings(tmp_path).roots})
    for path in expected:
        assert path in {found for found, _, _ in store.view().search_names(f'"{Path(path).stem}"', 9)}


def test_an_index_made_on_windows_is_used_elsewhere(tmp_path: Path) -> None:
    write_settings(tmp_path, replace(SETTINGS, roots=[r"D:\Videos", r"\\nas\films", "E:\\"]))
    store = SqliteStore(tmp_path, WIDTH)
    names = [PureWindowsPath("D:/Videos/2019/a.mp4"), PureWindowsPath("//nas/films/b.mp4"), PureWindowsPath("E:/c.mp4")]
    store.add([video(n) for n in range(3)], [File(str(name), 1, 1, video(n)[0].id) for n, name in enumerate(names)])
    assert [path for path, _, _ in roots(tmp_path)] == ["//nas/films", "D:/Videos", "E:/"]
    if os.name != "nt":
        assert sorted(store.view().files) == ["//nas/films/b.mp4", "D:/Videos/2019/a.mp4", "E:/c.mp4"]
        assert store.move(r"D:\Videos", "/mnt/videos") == 1
        assert store.move("E:\\", "/mnt/usb") == 1
        assert paths(store) == {
            "/mnt/videos/2019/a.mp4": "/mnt/videos", "//nas/films/b.mp4": "//nas/films", "/mnt/usb/c.mp4": "/mnt/usb",
        }  # fmt: skip
