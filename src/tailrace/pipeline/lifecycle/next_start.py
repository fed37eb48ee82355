"""What the next start of a pipeline would build anew, said before anything runs; decided without I/O."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.contracts.catalog import Catalog
from tailrace.declarations.app import App
from tailrace.pipeline.analysis.definitions import differences
from tailrace.pipeline.lifecycle.generations import parents_of


def consequences(app: App, definitions: Mapping[str, Mapping[str, object]], catalog: Catalog | None) -> list[str]:
    """A line for each view that is not what the catalog knows, and for those that read it; definitions by view."""
    known = catalog.views if catalog is not None else {}
    found, rebuilt = [], set[str]()
    for view in app.views:
        entry = known.get(view.name)
        if entry is None:
            found.append(f"view {view.name}: is new")
            continue
        definition = definitions[view.name]
        newest = entry.next or entry
        if definition not in (newest.definition, entry.definition):
            rebuilt.add(view.name)
            found.append(
                f"view {view.name}: its definition is not the one that generation {newest.generation} was built from; "
                f"`tailrace rebuild {app.name} {view.name} --execute` comes first:"
            )
            found += [f"    {line}" for line in differences(newest.definition, definition)]
        elif parents := [name for name in parents_of(view) if name in rebuilt]:
            rebuilt.add(view.name)
            found.append(f"view {view.name}: is built anew with it, because it reads {' and '.join(parents)}")
    gone = sorted(known.keys() - {view.name for view in app.views})
    return found + [f"view {name}: is not declared any more" for name in gone]
