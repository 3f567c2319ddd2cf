"""What a service says of its model."""

from widenet.predict.shares import why_no_shares
from widenet.runs import Model
from widenet.runs.person import item_field, reads_values
from widenet.serve.messages import About, AskedField, Category
from widenet.serve.people import People
from widenet.spec.network import NetworkSpec
from widenet.training.field_records import FieldRecord
from widenet.training.saved_facts import in_8_bits

_MOST_VALUES = 100
"""Values of an attribute that are named."""


def about_model(model: Model, people: People, fingerprint: str, run_name: str, num_items: int) -> About:
    """Return what a model says of itself."""
    run, spec = model.run, model.run.network
    items = item_field(run, people.output)
    if items is not None and run.fields[items].kind == "dense":
        items = None
    is_sparse = items is not None and run.fields[items].kind == "sparse"
    return About(
        fingerprint=fingerprint,
        run=run_name,
        num_items=num_items,
        in_8_bits=in_8_bits(model.facts),
        has_users=people.users is not None,
        parts=[*people.parts()],
        can_explain=is_sparse and why_no_shares(spec) is None,
        attributes=_categories(model, people.output),
        reads_items=items is not None,
        reads_values=items is not None and reads_values(run, items),
        fields=[
            _asked(spec, name, run.fields[name])
            for name in dict.fromkeys(layer.field for layer in spec.inputs)
            if name != items
        ],
    )


def _categories(model: Model, output: str) -> dict[str, Category]:
    attributes = model.run.attributes(model.network.outputs[output].spec.field)
    frequent = {} if attributes is None else attributes.frequent(_MOST_VALUES)
    return {name: Category(kind, values) for name, (kind, values) in frequent.items()}


def _asked(spec: NetworkSpec, name: str, record: FieldRecord) -> AskedField:
    shapes = (layer.shape for layer in spec.inputs if layer.field == name and layer.shape is not None)
    shape = [*next(shapes, ())]
    return AskedField(name, record.kind, record.width, shape, record.min_value, record.max_value)
