"""What goes with a release: the lock file of development, a bill of materials, a check of what is installed.

    python deploy/release.py lock     requirements-dev.lock: what this virtualenv has, by exact version
    python deploy/release.py sbom     dist/mqworker-sbom.json: CycloneDX, of mqworker and all it may install
    python deploy/release.py audit    offline: is what is installed consistent, and is it what is locked;
                                      then, where pip-audit is installed and reaches its data, known flaws

Only the standard library: what makes the bill must not be on it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
BILL = ROOT / "dist" / "mqworker-sbom.json"
OWN = "mqworker"
_AUDIT_S = 120
_UNREACHABLE = ("ConnectionError", "NameResolution", "Max retries", "ServiceError", "timed out", "ProxyError")
_HEAD = (
    "# What development and CI run with, by exact version: `make lock` writes it, `make audit` compares.\n"
    "# Install with: pip install --editable '.[dev]' --constraint requirements-dev.lock\n"
)


def main(words: list[str]) -> int:
    """Carry out one command."""
    commands = {"lock": lock, "sbom": sbom, "audit": audit}
    if len(words) != 1 or words[0] not in commands:
        _say(f"accepted is one of {', '.join(commands)}")
        return 2
    return commands[words[0]]()


def lock() -> int:
    """Write down what is installed."""
    LOCK.write_text(_HEAD + "".join(f"{name}=={version}\n" for name, version in _installed().items()))
    _say(f"{LOCK.name}: {len(_installed())} packages")
    return 0


def sbom() -> int:
    """Write the bill of materials: what an installation of mqworker, with all its extras, brings."""
    found = {_normal(each.metadata["Name"]): each for each in distributions() if each.metadata["Name"]}
    wanted = dict(_closure(OWN, found))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": _component(OWN, found[OWN]),
        },
        "components": [_component(name, each) for name, each in sorted(wanted.items()) if name != OWN],
        "dependencies": [
            {
                "ref": _purl(name, each),
                "dependsOn": [_purl(other, found[other]) for other in _needs(each, found)],
            }
            for name, each in sorted(wanted.items())
        ],
    }
    BILL.parent.mkdir(exist_ok=True)
    text = json.dumps(document, indent=1)
    BILL.write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    _say(f"{BILL.relative_to(ROOT)}: {len(wanted)} components, sha256 {digest}")
    return 0


def audit() -> int:
    """Compare with the lock and ask for known flaws; what could not be asked is said, and is no failure."""
    consistent = subprocess.run(
        [sys.executable, "-m", "pip", "check"], check=False, capture_output=True, text=True
    )
    _say(f"consistent: {'yes' if consistent.returncode == 0 else consistent.stdout.strip()}")
    strays = sorted(_differences())
    _say(f"as locked: {'yes' if not strays else 'no: ' + ', '.join(strays[:20])}")
    flaws = _known_flaws()
    _say(f"known flaws: {flaws or 'none'}")
    is_bad = consistent.returncode != 0 or bool(strays) or bool(flaws and not flaws.startswith("skipped"))
    return int(is_bad)


def _differences() -> Iterator[str]:
    locked = dict(
        line.split("==") for line in LOCK.read_text().splitlines() if "==" in line and line[0] != "#"
    )
    installed = _installed()
    for name in locked.keys() | installed.keys():
        if locked.get(name) != installed.get(name):
            yield f"{name} {installed.get(name, 'missing')} (locked: {locked.get(name, 'not at all')})"


def _known_flaws() -> str:
    if importlib.util.find_spec("pip_audit") is None:
        return "skipped: pip-audit is not installed"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--no-deps", "--disable-pip"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_AUDIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"skipped: its data did not come within {_AUDIT_S} s"
    if any(sign in done.stderr for sign in _UNREACHABLE):
        return "skipped: its data cannot be reached from here"
    return "" if done.returncode == 0 else (done.stdout or done.stderr).strip()


def _installed() -> dict[str, str]:
    found = {
        _normal(each.metadata["Name"]): each.version for each in distributions() if each.metadata["Name"]
    }
    return dict(
        sorted((name, version) for name, version in found.items() if name not in {OWN, "pip", "setuptools"})
    )


def _closure(name: str, found: dict[str, Distribution]) -> Iterator[tuple[str, Distribution]]:
    """What is reached from a distribution, itself included; of others the extras are not followed."""
    seen, left = {name}, [name]
    while left:
        each = left.pop()
        yield each, found[each]
        new = [other for other in _needs(found[each], found) if other not in seen]
        seen.update(new)
        left += new


def _needs(each: Distribution, found: dict[str, Distribution]) -> list[str]:
    is_own = _normal(each.metadata["Name"]) == OWN
    wanted = [text for text in each.requires or () if is_own or "extra ==" not in text]
    if is_own:
        wanted = [
            text for text in wanted if not re.search(r"extra == ['\"](?:dev|docs|bench|testing)['\"]", text)
        ]
    names = [_normal(match[0]) for text in wanted if (match := re.match(r"[A-Za-z0-9._-]+", text))]
    return sorted({other for other in names if other in found and other != OWN})


def _component(name: str, each: Distribution) -> dict[str, Any]:
    licence = each.metadata.get("License-Expression") or each.metadata.get("License") or ""
    listed = [{"license": {"name": licence.splitlines()[0][:100]}}] if licence.strip() else []
    return {
        "type": "library",
        "bom-ref": _purl(name, each),
        "name": name,
        "version": each.version,
        "purl": _purl(name, each),
        **({"licenses": listed} if listed else {}),
    }


def _purl(name: str, each: Distribution) -> str:
    return f"pkg:pypi/{name}@{each.version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
