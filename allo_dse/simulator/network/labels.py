"""How the parts of a network are called in texts and drawings."""

from __future__ import annotations

from typing import Protocol

from .network import Network


class Labels(Protocol):
    """Names of the tasks, streams and stream operations of a network."""

    def task(self, task: int) -> str: ...

    def stream(self, stream: int) -> str: ...

    def operation(self, task: int, op: int) -> str: ...


class Numbers:
    """Labels of a network that has no names."""

    def task(self, task: int) -> str:
        return f"task {task}"

    def stream(self, stream: int) -> str:
        return f"stream {stream}"

    def operation(self, task: int, op: int) -> str:
        return f"operation {op}"


def node_label(labels: Labels, network: Network, node: int) -> str:
    """A processing element is called by the tasks that it runs."""
    first, end = network.first[node : node + 2].tolist()
    if first == end:
        return f"processing element {node}"
    name = labels.task(int(network.order[first]))
    return name if end - first == 1 else f"{name} and {end - first - 1} more"


def stream_group(labels: Labels, stream: int) -> str:
    """What shares one depth with a stream: labels may have a method `array`, else the stream itself."""
    name = getattr(labels, "array", None)
    return str(name(stream)) if name is not None else labels.stream(stream)


def index_label(labels: Labels, task: int, check: int) -> str:
    """An index that a task checks when it runs: labels may have a method `index_check`."""
    name = getattr(labels, "index_check", None)
    return str(name(task, check)) if name is not None else f"index {check}"


def resource_label(labels: Labels, resource: int) -> str:
    """Labels may have a method `resource`."""
    name = getattr(labels, "resource", None)
    return str(name(resource)) if name is not None else f"resource {resource}"
