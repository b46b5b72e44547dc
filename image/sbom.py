"""The software bill of materials of the image, in CycloneDX 1.6: `python image/sbom.py LOCK` prints it.

Every component is a line of the lock with the hashes that the lock allows; the license is what the installed distribution says of
itself. The same lock and the same environment give the same bytes.
"""

import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def components(lock: str) -> list[dict[str, Any]]:
    """One component for each pinned distribution, in the order of the lock."""
    found = []
    for entry in lock.replace("\\\n", " ").splitlines():
        pinned = _PINNED.match(entry)
        if pinned is None:
            continue
        name, version = re.sub(r"[-_.]+", "-", pinned[1]).lower(), pinned[2]
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "properties": [
                {"name": "colo:lock:sha256", "value": digest}
                for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            ],
        }
        license_name = _license(name)
        if license_name:
            component["licenses"] = [{"license": {"name": license_name}}]
        found.append(component)
    return found


def bill(lock: str, version: str) -> dict[str, Any]:
    """The document. Its serial number is a function of the lock and the version."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, version + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/colo@{version}",
                "name": "colo",
                "version": version,
                "purl": f"pkg:pypi/colo@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components(lock),
    }


def _license(name: str) -> str:
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    text = found.get("License-Expression") or found.get("License") or ""
    first = text.strip().splitlines()
    return first[0][:80] if first else ""


def main(arguments: list[str]) -> int:
    """Print the bill of the lock that is named. Returns 0, or 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stderr.write("sbom: give the lock file and nothing else\n")
        return 2
    try:
        version = metadata.version("colo")
    except metadata.PackageNotFoundError:
        version = "0.0.0"
    json.dump(bill(Path(arguments[0]).read_text(), version), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
