"""Hooks of the documentation site (mkdocs.yml): pages from outside docs/, and links to them."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")  # also on the site
FILES = ("Dockerfile", *(f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.ipynb"))))
FENCE = re.compile(r"^(```\w+) [a-z ]+$", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>~?([\w.]+)</code>")  # Sphinx's, in docstrings


def on_files(files: Any, config: Any) -> Any:
    """Add what is outside docs/."""
    for name in (*PAGES, *FILES):
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on the site, where docs/ is the root; code without the words that tell tests how to run it."""
    markdown = FENCE.sub(r"\1", markdown)
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](").replace("](../docs/", "](../")
    return re.sub(r"\]\(\.\./(" + "|".join(map(re.escape, (*PAGES, *FILES))) + r")", r"](\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """References between docstrings as code."""
    return ROLE.sub(lambda match: f"<code>{match[1].rpartition('.')[2]}</code>", html)
