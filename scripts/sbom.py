"""The bill of materials, from the locks: requirements/run.txt and src/tailrace/dev/jars.lock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.bom_ref import BomRef
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

from tailrace import __version__
from tailrace.dev.jarlock import locked

PYTHON = Path("requirements/run.txt")
JARS = Path("src/tailrace/dev/jars.lock")
VERSION = SchemaVersion.V1_6


def bill() -> str:
    """The bill as JSON text, checked against its schema."""
    own = Component(
        name="tailrace",
        version=__version__,
        type=ComponentType.APPLICATION,
        bom_ref=f"pkg:pypi/tailrace@{__version__}",
        purl=PackageURL("pypi", None, "tailrace", __version__),
        licenses=[LicenseFactory().make_with_id("Apache-2.0")],
    )
    parts = [*_packages(PYTHON.read_text()), *_jars()]
    bom = Bom(
        components=parts,
        metadata=BomMetaData(component=own),
        # The same locks have the same number.
        serial_number=uuid5(NAMESPACE_URL, PYTHON.read_text() + JARS.read_text()),
        dependencies=[
            Dependency(own.bom_ref, [Dependency(one.bom_ref) for one in parts]),
            *(Dependency(one.bom_ref) for one in parts),
        ],
    )
    text = make_outputter(bom, OutputFormat.JSON, VERSION).output_as_string(indent=2)
    if (wrong := JsonStrictValidator(VERSION).validate_str(text)) is not None:
        raise RuntimeError(f"expected a bill that its schema takes, got: {wrong}")
    return text


def _packages(text: str) -> Iterator[Component]:
    for line in text.replace("\\\n", "").splitlines():
        requirement, *hashes = line.split(" --hash=")
        found = Requirement(requirement)
        version = next(iter(found.specifier)).version
        purl = PackageURL("pypi", None, found.name, version)
        # A version has several files, of which a machine takes one: a component's own hash is of one file.
        kept = [Property(name="tailrace:file", value=one.strip()) for one in hashes]
        if found.marker is not None:
            kept.append(Property(name="tailrace:only-if", value=str(found.marker)))
        yield Component(
            name=found.name,
            version=version,
            bom_ref=BomRef(str(purl)),
            purl=purl,
            properties=kept,
            licenses=_licenses(found.name, version),
        )


def _licenses(name: str, version: str) -> list[License]:
    """What the installed package says, if this version is installed."""
    try:
        said = metadata(name).json
    except PackageNotFoundError:
        return []
    text = str(said.get("license_expression") or said.get("license") or "").strip()
    if said["version"] != version or not text or "\n" in text:
        return []
    return [LicenseFactory().make_from_string(text)]


def _jars() -> Iterator[Component]:
    jars = {jar.coordinates: jar for set_name in ("broker", "spark") for jar in locked(set_name)}
    for coordinates, jar in sorted(jars.items()):
        group, artifact, version, *classifier = coordinates.split(":")
        qualifiers = {"classifier": classifier[0]} if classifier else None
        purl = PackageURL("maven", group, artifact, version, qualifiers)
        yield Component(
            group=group,
            name=artifact,
            version=version,
            bom_ref=BomRef(str(purl)),
            purl=purl,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=jar.sha256)],
        )


if __name__ == "__main__":
    sys.stdout.write(bill() + "\n")
