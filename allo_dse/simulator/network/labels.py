"""Names of the parts of a network in texts and drawings."""

from __future__ import annotations

from .network import Network


class Labels:
    """Names of the parts of a network: their numbers, unless a class that derives from this knows better."""

    def task(self, task: int) -> str:
        return f"task {task}"

    def stream(self, stream: int) -> str:
        return f"stream {stream}"

    def array(self, stream: int) -> str:
        """Return the name of the streams that share one depth with a stream."""
        return self.stream(stream)

    def operation(self, task: int, op: int) -> str:
        """A stream operation of a task."""
        return f"operation {op}"

    def index_check(self, task: int, check: int) -> str:
        """An index that a task checks when it runs."""
        return f"index {check}"

    def resource(self, resource: int) -> str:
        """A shared resource."""
        return f"resource {resource}"


def node_label(labels: Labels, network: Network, node: int) -> str:
    """A processing element is called by the tasks that it runs."""
    first, end = network.first[node : node + 2].tolist()
    if first == end:
        return f"processing element {node}"
    name = labels.task(int(network.order[first]))
    return name if end - first == 1 else f"{name} and {end - first - 1} more"
