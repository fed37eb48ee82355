"""Tailrace: Kafka topics as live views that every client can read, follow and resume."""

from tailrace.app import App
from tailrace.topics import Topic
from tailrace.views import View

__all__ = ["App", "Topic", "View", "__version__"]

__version__ = "0.1.0"
