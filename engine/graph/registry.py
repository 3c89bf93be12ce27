"""Which graph wires which architecture."""

from __future__ import annotations

from twofold.engine.graph import gemma3, llama
from twofold.engine.graph.stack import Graph
from twofold.profiles.errors import UnsupportedModel
from twofold.profiles.model_spec import ModelSpec

_GRAPHS = {name: Graph(family.decoder_layer) for family in (llama, gemma3) for name in family.ARCHITECTURES}


def graph_of(model: ModelSpec) -> Graph:
    """The wiring of the model's architecture.

    Raises:
        UnsupportedModel: when there is no graph, or the facts name another reason why the engine cannot run the model.
    """
    graph = _GRAPHS.get(model.architecture)
    if graph is None or model.runnable_reason is not None:
        reason = model.runnable_reason or f"no graph for {model.architecture!r}"
        raise UnsupportedModel(
            f"this version cannot run {model.name}: {reason}",
            needed=f"one of {', '.join(sorted(_GRAPHS))}",
            hint=f"twofold fit {model.name}",
        )
    return graph
