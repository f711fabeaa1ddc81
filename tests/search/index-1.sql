-- An index as the first version made it. Never edited: later versions have to open it.
CREATE TABLE setting (id INTEGER PRIMARY KEY CHECK (id = 1), content TEXT NOT NULL, vectors TEXT NOT NULL);
CREATE TABLE value (name TEXT PRIMARY KEY, content BLOB NOT NULL);
-- Paths are bytes, since names need not be text, with "/" between their parts.
CREATE TABLE root (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
    listed INTEGER NOT NULL);
-- Keys grow and rows do not change: what is new has a greater key than all that a reader knows.
CREATE TABLE video (key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, duration REAL NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, added REAL NOT NULL, note TEXT NOT NULL, detail TEXT NOT NULL,
    recorded REAL, camera TEXT NOT NULL, latitude REAL, longitude REAL);
-- Little-endian: times float32 [count], vectors float16 [count, width].
CREATE TABLE segments (video INTEGER PRIMARY KEY REFERENCES video ON DELETE CASCADE, count INTEGER NOT NULL,
    starts BLOB NOT NULL, ends BLOB NOT NULL, vectors BLOB NOT NULL);
CREATE TABLE file (key INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER NOT NULL REFERENCES root,
    path BLOB NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    video INTEGER REFERENCES video ON DELETE CASCADE, failure TEXT NOT NULL, UNIQUE (root, path));
CREATE INDEX file_video ON file (video);
CREATE TABLE line (key INTEGER PRIMARY KEY AUTOINCREMENT, video INTEGER NOT NULL REFERENCES video ON DELETE CASCADE,
    start REAL NOT NULL, end REAL NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX line_video ON line (video, source);
CREATE TABLE read_source (video INTEGER NOT NULL REFERENCES video ON DELETE CASCADE, source TEXT NOT NULL,
    PRIMARY KEY (video, source)) WITHOUT ROWID;
CREATE VIRTUAL TABLE line_words USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3');
CREATE VIRTUAL TABLE file_words USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3');
CREATE TRIGGER line_gone AFTER DELETE ON line BEGIN DELETE FROM line_words WHERE rowid = old.key; END;
CREATE TRIGGER file_gone AFTER DELETE ON file BEGIN DELETE FROM file_words WHERE rowid = old.key; END;
INSERT INTO setting (id, content, vectors) VALUES (1, '{"model": "a/model", "fingerprint": "abc", "clustering": "B2-4,8", "frames": 4, "segments": 2, "every": 1.0, "width": 16, "precision": "float32", "ignore": ["*.gif"]}', '8b278760e74376fb8e17ee2f');
INSERT INTO root (id, path, name, listed) VALUES (1, X'2f66697273742f766964656f73', 'videos', 1);
INSERT INTO video (key, id, duration, width, height, added, note, detail, recorded, camera, latitude, longitude) VALUES (1, '00000000000000000000000000000000', 5.0, 64, 48, 1000.0, '', '', NULL, '', NULL, NULL);
INSERT INTO video (key, id, duration, width, height, added, note, detail, recorded, camera, latitude, longitude) VALUES (2, '00000000000000000000000000000001', 5.0, 64, 48, 1001.0, 'a note', 'fine', 1500000000.0, 'Maker Model', -33.9, 18.4);
INSERT INTO segments (video, count, starts, ends, vectors) VALUES (1, 5, X'000000000000803ff3043540e246a64000000041', X'0000803f00000040f3047540e246c64000001041', X'61289aa894314f27aab04d2eae35203421b283b56eb1c22110b99fab6db561b24cb252afc3300836f3a9e737b2b311303a355a284db455b54cb1182dd7b5d7ac10a94c30d32aa62d32b11fa83b32ef3501b5043659353532342cfdaccb35ca372c373c35b12dd0b48a943a3121b54b2ed92e8b31b7b445b1f3aea8b4ed36e6af7f2c11ab69358334543087b7b021ac30dc3239b03a3683b485b064325d21d736');
INSERT INTO segments (video, count, starts, ends, vectors) VALUES (2, 5, X'000000000000803ff3043540e246a64000000041', X'0000803f00000040f3047540e246c64000001041', X'8b306635583048b8f335de310fb3a433cb30bc2ffa213033d7b448ac56b2df337f2023ac88b147ab5f17ccab94341f33cbb8aeb6f2a8f9ad0b2a262a7d37ddb32dafda3825324d32e2b0d5b75d2a2528d5b57eb27aa57db478a742276921d0b03332a734b32e46b4a4333cb1973499b5c634b49e85b68eae8524b32d21b5c8b5102cc1b0cc2cbc3332b82e2d3c360fae21b4a933292d903408af8bb77ba88ab0');
INSERT INTO file (key, root, path, size, modified, video, failure) VALUES (1, 1, X'302e6d7034', 10, 20, 1, '');
INSERT INTO file (key, root, path, size, modified, video, failure) VALUES (2, 1, X'646565702fff2e6d7034', 10, 20, 2, '');
INSERT INTO file (key, root, path, size, modified, video, failure) VALUES (3, 1, X'6261642e6d7034', 10, 20, NULL, 'why');
INSERT INTO line (key, video, start, end, source, text) VALUES (1, 2, 1.0, 2.5, 'subtitle', 'Over the bridge');
INSERT INTO line_words (rowid, words) VALUES (1, 'over the bridge');
INSERT INTO file_words (rowid, words) VALUES (1, 'videos 0');
INSERT INTO file_words (rowid, words) VALUES (2, 'videos deep');
INSERT INTO file_words (rowid, words) VALUES (3, 'videos bad');
PRAGMA user_version = 1;
PRAGMA application_id = 1128483920;
