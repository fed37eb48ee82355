"""Tailrace: Kafka topics as live views that every client can read, follow and resume."""

from tailrace.declarations.app import App
from tailrace.declarations.topics import Table, Topic
from tailrace.declarations.views import Feed, View

__all__ = ["App", "Feed", "Table", "Topic", "View", "__version__"]

__version__ = "0.1.0"
