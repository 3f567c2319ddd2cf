"""network.json: the layers of a network and how they are wired."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from widenet.extensions import document_forms
from widenet.spec.document import Document
from widenet.spec.drawing import drawn
from widenet.spec.layers import InputLayer, Layer, LayerField, Neighbourhood, OutputLayer, Trunk
from widenet.spec.losses import PopularitySample
from widenet.spec.optimizers import Optimizer, OptimizerSettings
from widenet.spec.rules import check_layers, check_wiring, in_order, sources_of


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
        place = f"{where}, translated"
        document = super().of(translated.values, place)
        document._notes = tuple(translated.notes)
        return document

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on a translated document; empty for others."""
        return self._notes

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_wiring(self.layers)
        check_layers(self.layers)
        return self

    def unfitted(self) -> "NetworkSpec":
        """The same network, none of whose neighbourhood terms is fitted when training ends."""

        def unfitted(layer: Layer) -> Layer:
            term: Neighbourhood | None = getattr(layer, "neighbourhood", None)
            own = None if term is None else term.model_copy(update={"fit": False})
            return layer if own is None else layer.model_copy(update={"neighbourhood": own})

        return self.model_copy(update={"layers": tuple(map(unfitted, self.layers))})

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
        return drawn(self.name, self.layers)
