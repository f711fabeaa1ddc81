"""What is installed with CenterCLIP: the licences of all its dependencies, checked, and a software bill of materials.

    python scripts/supply_chain.py licences      a table; ends with 1 where a licence is unknown or not accepted
    python scripts/supply_chain.py sbom          CycloneDX 1.6 as JSON, on standard output

Only what is installed here is looked at: with all extras installed, everything is.
"""

import json
import re
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "centerclip"
DEVELOPMENT = {"dev", "docs"}  # extras that users do not install
# What anyone may use, change and redistribute, also in closed software; LGPL and MPL ask that changes to them
# are passed on. By how the name of a licence begins, in SPDX's words or those of the package index.
ACCEPTED = re.compile(
    r"MIT|0?BSD|[23]-Clause BSD|Apache|ISC|PSF|Python|Zlib|Unlicense|HPND|LGPL|MPL|Mozilla|CC0|BSL-1|CNRI"
)
NO_LICENCE = ("OSI Approved", "DFSG approved")  # what some say beside it
# Packages whose metadata names a licence in words of its own; read by hand.
READ_BY_HAND = {"instant-clip-tokenizer": "MIT OR Apache-2.0", "otio-fcp-adapter": "Apache-2.0"}
# Libraries inside wheels that stand under another licence than the wheel says.
BUNDLED = {"libx264": "GPL-2.0-or-later", "libx265": "GPL-2.0-or-later"}


def installed() -> list[tuple[Distribution, bool]]:
    """All packages that CenterCLIP and its extras bring, by name, each with whether only its developers need it."""
    found: dict[str, tuple[Distribution, bool]] = {}
    queue = [(ROOT, distribution(ROOT).metadata.get_all("Provides-Extra") or [], False)]
    while queue:
        name, extras, development = queue.pop()
        if name in found and found[name][1] <= development:
            continue
        try:
            found[name] = distribution(name), development
        except PackageNotFoundError:
            continue
        for line in found[name][0].requires or ():
            wanted = Requirement(line)
            by = {each for each in ("", *extras) if wanted.marker is None or wanted.marker.evaluate({"extra": each})}
            if by:
                only = development or (name == ROOT and by <= DEVELOPMENT)
                queue.append((canonicalize_name(wanted.name), list(wanted.extras), only))
    return [found[name] for name in sorted(found) if name != ROOT]


def licence_of(package: Distribution) -> str:
    """What a package says about its licence, as short as it can be said."""
    known = READ_BY_HAND.get(canonicalize_name(package.metadata["Name"]))
    said = known or package.metadata.get("License-Expression") or ""
    classifiers = [line for line in package.metadata.get_all("Classifier") or () if line.startswith("License ::")]
    text = (package.metadata.get("License") or "").strip()
    if not said and classifiers:
        said = " AND ".join(line.rpartition(" :: ")[2] for line in classifiers)
    return said or text.splitlines()[0][:60] if said or text else "unknown"


def is_accepted(licence: str) -> bool:
    """Whether all parts of a licence expression, or of one of its alternatives, are accepted."""
    choices = [re.split(r" AND ", choice) for choice in re.split(r" OR ", licence)]
    return any(
        all(ACCEPTED.match(part.strip("() ")) for part in parts if part.strip() not in NO_LICENCE) for parts in choices
    )


def inside(package: Distribution) -> dict[str, str]:
    """Libraries in a wheel that stand under another licence than it says."""
    names = {file.name for file in package.files or ()}
    return {library: licence for library, licence in BUNDLED.items() if any(n.startswith(library) for n in names)}


def licences() -> int:
    """Print them; returns how many are not accepted."""
    refused = 0
    for package, development in installed():
        licence, name = licence_of(package), package.metadata["Name"]
        accepted = is_accepted(licence)
        refused += not accepted and not development
        notes = [f"carries {library}: {their}" for library, their in inside(package).items()]
        notes += ["development only"] * development + ["NOT ACCEPTED: read it"] * (not accepted)
        print(f"{name} {package.version}: {licence}" + (f" ({'; '.join(notes)})" if notes else ""))
    print(f"{refused} licences of what users install are not accepted")
    return refused


def sbom() -> None:
    """Print a CycloneDX document."""
    components = []
    for package, development in installed():
        name = canonicalize_name(package.metadata["Name"])
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{package.version}",
                "name": name,
                "version": package.version,
                "scope": "excluded" if development else "required",
                "purl": f"pkg:pypi/{name}@{package.version}",
                "licenses": [{"license": {"name": licence_of(package)}}],
                "components": [
                    {"type": "library", "name": library, "licenses": [{"license": {"name": licence}}]}
                    for library, licence in inside(package).items()
                ],
            }
        )
    root = distribution(ROOT)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {"type": "application", "bom-ref": ROOT, "name": ROOT, "version": root.version},
        },
        "components": components,
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    if sys.argv[1:] == ["sbom"]:
        sbom()
    elif sys.argv[1:] == ["licences"]:
        sys.exit(bool(licences()))
    else:
        sys.exit(__doc__)
