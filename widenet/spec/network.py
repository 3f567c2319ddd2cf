"""network.json: the layers of a network, how they are wired, and their picture."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from widenet.extensions import document_forms
from widenet.pictures.curves import COLOURS
from widenet.pictures.graph import graph
from widenet.pictures.html import Html, brief
from widenet.spec.document import Document
from widenet.spec.layers import InputLayer, Layer, LayerField, OutputLayer, Trunk
from widenet.spec.losses import PopularitySample
from widenet.spec.optimizers import Optimizer, OptimizerSettings
from widenet.spec.rules import check_layers, feeding, in_order, sources_of

_KINDS = ("function", "activation", "loss")
"""Fields whose kinds are one line of a box."""
_COLOURS = {
    "hidden": 0,
    "output": 1,
    "input": 2,
    "recurrent": 3,
    "convolution": 4,
    "pooling": 6,
    "attention": 7,
}
"""The place of each kind's colour in `COLOURS`; all others have the one that is left."""


class NetworkSpec(Document):
    """A network: layers from sparse or dense inputs over hidden layers to outputs."""

    usual_name: ClassVar[str] = "network.json"
    name: str = ""
    """A name for people."""
    shared_gradient: Literal["sum", "mean"] = "sum"
    """Gradient of a weight that several layers share: the sum or the mean of their gradients."""
    optimizer: OptimizerSettings | None = None
    """Settings that the network needs of the training document's optimizer."""
    layers: Annotated[tuple[LayerField, ...], Field(min_length=1, strict=False)]
    """The layers. A layer without `source` takes the layer before it."""

    _notes: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """The plain values in some JSON text, in any form that is known."""
        for form in document_forms():
            text = form.plain(text)
        return super().values_of(text, where)

    @classmethod
    def of(cls, values: Any, where: str = "document") -> Self:
        """The document in plain values, in any form that is known."""
        form = next((form for form in document_forms() if form.owns(values)), None)
        if form is None:
            return super().of(values, where)
        translated = form.translated(values, where)
        document = super().of(translated.values, f"{where}, translated")
        document._notes = tuple(translated.notes)
        return document

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on a translated document; empty for others."""
        return self._notes

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_layers(self.layers)
        return self

    def unfitted(self) -> "NetworkSpec":
        """The same network, none of whose neighbourhood terms is fitted when training ends."""
        layers = tuple(
            layer.model_copy(update={"neighbourhood": layer.neighbourhood.model_copy(update={"fit": False})})
            if isinstance(layer, OutputLayer) and layer.neighbourhood is not None
            else layer
            for layer in self.layers
        )
        return self.model_copy(update={"layers": layers})

    @property
    def inputs(self) -> tuple[InputLayer, ...]:
        """The input layers, in document order."""
        return tuple(layer for layer in self.layers if isinstance(layer, InputLayer))

    @property
    def hidden(self) -> tuple[Trunk, ...]:
        """The layers between inputs and outputs, of every kind, each after those that feed it."""
        return tuple(
            layer for layer in in_order(self.layers) if not isinstance(layer, InputLayer | OutputLayer)
        )

    @property
    def outputs(self) -> tuple[OutputLayer, ...]:
        """The output layers, in document order."""
        return tuple(layer for layer in self.layers if isinstance(layer, OutputLayer))

    @property
    def fields(self) -> tuple[str, ...]:
        """The dataset fields that the network reads, without repeats, in document order."""
        return tuple(
            dict.fromkeys([*(layer.field for layer in self.inputs), *(layer.field for layer in self.outputs)])
        )

    @property
    def counted_fields(self) -> tuple[str, ...]:
        """The fields of which a training must know how often each feature occurs."""
        damped = [layer.field for layer in self.inputs if layer.popularity_damping]
        sampled = [layer.field for layer in self.outputs if isinstance(layer.sample, PopularitySample)]
        return tuple(dict.fromkeys([*damped, *sampled]))

    def layer(self, name: str) -> Layer:
        """The layer of that name."""
        return next(layer for layer in self.layers if layer.name == name)

    def sources(self, layer: Layer) -> tuple[str, ...]:
        """The names of the layers that a layer takes its input from."""
        return sources_of(self.layers, layer)

    def tuned(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer of a training document with the settings that this network needs."""
        return optimizer if self.optimizer is None else self.optimizer.applied_to(optimizer)

    def _repr_html_(self) -> str:
        """The layers as boxes and arrows, for notebooks."""
        return drawn(self)


def drawn(
    network: NetworkSpec, sizes: Mapping[str, str] | None = None, numbers: Mapping[str, int] | None = None
) -> Html:
    """Draw a network's layers as boxes, from inputs down to outputs.

    Args:
        network: The network.
        sizes: How many units each layer has, in words, by name; None: as the document says.
        numbers: Parameters that a layer owns, by name.
    """
    layers, boxes = [*network.inputs, *network.hidden, *network.outputs], {}
    arrows = [
        (start, layer.name) for layer in layers for start in dict.fromkeys(feeding(network.layers, layer))
    ]
    for layer in layers:
        of_field = f' of "{layer.field}"' if isinstance(layer, InputLayer | OutputLayer) else ""
        units = getattr(layer, "units", None)
        size = f", {brief(units)} units" if units is not None else ""
        size = f", {sizes[layer.name]}" if sizes and layer.name in sizes else size
        number = (numbers or {}).get(layer.name, 0)
        lines = [
            f"{layer.kind}{of_field}{size}",
            ", ".join(getattr(layer, name).kind.replace("_", " ") for name in _KINDS if hasattr(layer, name)),
            *(f"weights of {share.layer}{', transposed' * share.transposed}" for share in layer.shares),
            f"{number:,} parameters" if number else "",
        ]
        boxes[layer.name] = (COLOURS[_COLOURS.get(layer.kind, 5)], [line for line in lines if line])
    shared = [(share.layer, layer.name) for layer in layers for share in layer.shares]
    return graph(f"The network {network.name}".rstrip(), boxes, list(dict.fromkeys(arrows)), shared)
