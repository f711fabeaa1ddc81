"""The store on a Milvus server: an index that many machines fill and search, ``milvus://host:19530/name``.

Milvus has neither transactions nor snapshots, so each row says from which generation on it is there and from which on
it is not, and one row, the head, says which generation counts. A step writes rows of the next generation, then the
head: it is there whole or not at all, and a view of a generation does not change. What a killed writer left of the next
generation is removed by the next one. All writes are upserts by a key, so that one that is sent again is there once.

Two collections: ``NAME`` has the head, values, videos, files and lines, ``NAME_WIDTH`` the segments. Nothing of them is
held in memory but what was asked for last."""

from .database import MilvusDatabase as MilvusDatabase
