# ruff: noqa: E501 - a row of the table is a line
"""Documents that break a rule: every command that reads one says the place, the rule and the value in one
sentence.
"""

import pytest

# fmt: off
NETWORKS = {
    'UTF-16': (b'\xff\xfe{\x00"\x00l\x00a\x00y\x00e\x00r\x00s\x00"\x00:\x00 \x00[\x00{\x00"\x00n\x00a\x00m\x00e\x00"\x00:\x00 \x00"\x00h\x00i\x00s\x00t\x00o\x00r\x00y\x00"\x00,\x00 \x00"\x00k\x00i\x00n\x00d\x00"\x00:\x00 \x00"\x00i\x00n\x00p\x00u\x00t\x00"\x00,\x00 \x00"\x00f\x00i\x00e\x00l\x00d\x00"\x00:\x00 \x00"\x00i\x00t\x00e\x00m\x00s\x00"\x00}\x00,\x00 \x00{\x00"\x00n\x00a\x00m\x00e\x00"\x00:\x00 \x00"\x00t\x00a\x00s\x00t\x00e\x00"\x00,\x00 \x00"\x00u\x00n\x00i\x00t\x00s\x00"\x00:\x00 \x004\x00,\x00 \x00"\x00a\x00c\x00t\x00i\x00v\x00a\x00t\x00i\x00o\x00n\x00"\x00:\x00 \x00"\x00t\x00a\x00n\x00h\x00"\x00}\x00,\x00 \x00{\x00"\x00n\x00a\x00m\x00e\x00"\x00:\x00 \x00"\x00n\x00e\x00x\x00t\x00"\x00,\x00 \x00"\x00k\x00i\x00n\x00d\x00"\x00:\x00 \x00"\x00o\x00u\x00t\x00p\x00u\x00t\x00"\x00,\x00 \x00"\x00f\x00i\x00e\x00l\x00d\x00"\x00:\x00 \x00"\x00i\x00t\x00e\x00m\x00s\x00"\x00}\x00]\x00}\x00', ': byte 0 is not UTF-8 text. Save the file as UTF-8.'),
    'a NUL': (b'{"layers": \x00}', ': line 1, column 12: a value must stand here. Write a number, "text", true, false, null, a list or an object.'),
    'an empty file': ('', ': line 1, column 1: the text is empty. Write a JSON object.'),
    'an open brace': ('{"layers": [', ': line 1, column 13: the text ends before its brackets are closed. Complete it.'),
    'a comment': ('// layers\n{}', ': line 1, column 1: JSON has no comments. Remove this one.'),
    'a comma too many': ('{"layers": [],}', ': line 1, column 14: no comma may stand before "}". Remove it.'),
    'two documents': ('{} {}', ': line 1, column 4: nothing may follow the first value. Remove it.'),
    'a number': ('5', ' must be a JSON object with named fields; got 5.'),
    'a list': ('[1, 2]', ' must be a JSON object with named fields; got [1, 2].'),
    'nothing': ('null', ' must be a JSON object with named fields; got null.'),
    'a NaN literal': ('{"layers": [{"name": "a", "units": NaN}]}', ': NaN is not a JSON number. Write a finite number, or null for none.'),
    'an infinity': ('{"layers": [{"name": "a", "units": -Infinity}]}', ': -Infinity is not a JSON number. Write a finite number, or null for none.'),
    'a key twice': ('{"layers": [], "layers": []}', ': the key "layers" stands twice in one object. Keep one of them.'),
    'a key twice, within': ('{"layers": [{"name": "a", "name": "b"}]}', ': the key "name" stands twice in one object. Keep one of them.'),
    'half a character': ('{"layers": [{"name": "\\ud800", "units": 3}]}', ' must hold plain JSON values: unexpected end of hex escape at line 1 column 29.'),
    'no layers': ('{}', ': layers is missing. Add "layers".'),
    'empty layers': ('{"layers": []}', ': layers must be at least 1 long; got [].'),
    'layers that are none': ('{"layers": {}}', ': layers must be a list; got {}.'),
    'a layer that is none': ('{"layers": [1]}', ': layers[0] must be an object with named fields; got 1.'),
    'an unknown key': ('{"layer": []}', ': layer is not a known field. Did you mean "layers"?'),
    'a cycle of one': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh", "source": ["taste"]}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers must not feed themselves; got taste -> taste. Remove one source.'),
    'a cycle of two': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "a", "units": 3, "source": ["b"]}, {"name": "b", "units": 3, "source": ["a"]}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers must not feed themselves; got a -> b -> a. Remove one source.'),
    'a name twice': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "next", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[2].name must be unique; "next" is also layers[1]. Rename one.'),
    'a number in quotes': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": "4", "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be a whole number, without quotes; got "4".'),
    'a number with a point': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4.0, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be a whole number, without a decimal point; got 4.0.'),
    'true for a number': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": true, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be a whole number; got true.'),
    'null for a number': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": null, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be a whole number; got null.'),
    'a list for a number': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": [4], "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be a whole number; got [4].'),
    'no units': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 0, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be at least 1; got 0.'),
    'a negative number': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": -1, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be at least 1; got -1.'),
    'a huge number': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 1000000000000000000000000000000, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].units must be at most 2147483647; got 1000000000000000000000000000000.'),
    'a slash in a name': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "a/b", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].name must be text without "/", "\\" and control characters; got "a/b".'),
    'an empty name': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].name must be at least 1 long; got "".'),
    'a NUL in a name': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "a\\u0000", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].name must be text without "/", "\\" and control characters; got "a\\u0000".'),
    'an unknown activation': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tahn"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].activation must be a known name; got "tahn". Did you mean "tanh"?'),
    'an unknown kind': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh", "kind": "hiden"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].kind must be a known name; got "hiden". Did you mean "hidden"?'),
    'a number for a kind': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh", "kind": 5}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].kind must be a known name; got 5.'),
    'an unknown source': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh", "source": ["nope"]}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[1].source must name a layer; got "nope". Known: history, taste, next.'),
    'a layer that feeds none': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items", "source": ["history"]}]}', ': layers[1] ("taste") feeds no other layer. Name it as a "source", or remove it.'),
    "a width below the field's": ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items", "units": 5}]}', ': layers[2].units ("next") must be at least the width of the field "items", 9; got 5. Use "auto".'),
    'a width beyond 2^31': ('{"layers": [{"name": "history", "kind": "input", "field": "items", "units": 2147483648}, {"name": "taste", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[0].units must be at most 2147483647, or "auto"; got 2147483648.'),
    'a number below float32': ('{"layers": [{"name": "history", "kind": "input", "field": "items", "denoise": 1e-300}, {"name": "taste", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ': layers[0].denoise must be 0, or a number that a float32 can hold: of magnitude 1.2e-38 to 3.4e38; got 1e-300.'),
    'a number beyond a double': ('{"layers": [{"name": "a", "kind": "input", "field": "items", "denoise": 1e400}]}', ': layers[0].denoise must be a finite number; got Infinity.'),
    'deep nesting': ("[" * 100_000, ': lists and objects are nested too deeply. Check the file.'),
    'a number of 5,000 digits': ('{"layers": [{"name": "a", "units": ' + "9" * 5000 + "}]}", ': a number has too many digits to be read. Shorten it.'),
    'a name of 10 kB': ('{"layers": [{"name": "' + "x" * 10_000 + '", "units": 3}]}', ': layers[0].name must be at most 100 characters long; got "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx....'),
}
"""What is wrong: a network document, and what is said after its path."""

TRAININGS = {
    'no epochs': ('{"epochs": 0}', ': epochs must be at least 1; got 0.'),
    'a number in quotes': ('{"epochs": "2"}', ': epochs must be a whole number, without quotes; got "2".'),
    'a number with a point': ('{"epochs": 2.0}', ': epochs must be a whole number, without a decimal point; got 2.0.'),
    'a negative batch': ('{"batch_size": -4}', ': batch_size must be at least 1; got -4.'),
    'a huge batch': ('{"batch_size": 1099511627776}', ': batch_size must be at most 2147483647; got 1099511627776.'),
    'an unknown key': ('{"epoch": 1}', ': epoch is not a known field. Did you mean "epochs"?'),
    'no shards': ('{"shards": 0}', ': shards must be at least 1; got 0.'),
    'a seed below 0': ('{"seed": -1}', ': seed must be at least 0; got -1.'),
    'a seed beyond 2^63': ('{"seed": 1180591620717411303424}', ': seed must be less than 9223372036854775808; got 1180591620717411303424.'),
    'an unknown precision': ('{"precision": "float8"}', ': precision must be one of float32, tf32, bfloat16; got "float8". "state_precision" takes it.'),
    'a rate below 0': ('{"optimizer": {"kind": "sgd", "learning_rate": -1}}', ': optimizer.learning_rate must be more than 0.0; got -1.'),
    'a word for a rate': ('{"optimizer": {"kind": "sgd", "learning_rate": "fast"}}', ': optimizer.learning_rate must be a number, without quotes; got "fast".'),
    'a rate beyond float32': ('{"optimizer": {"kind": "sgd", "learning_rate": 1e+39}}', ': optimizer.learning_rate must be 0, or a number that a float32 can hold: of magnitude 1.2e-38 to 3.4e38; got 1e+39.'),
    'an unknown key of the optimizer': ('{"optimizer": {"kind": "sgd", "learningrate": 1}}', ': optimizer.learningrate is not a known field. Did you mean "learning_rate"?'),
    'a list for an optimizer': ('{"optimizer": ["sgd"]}', ': optimizer must be an object with named fields; got ["sgd"].'),
    'an optimizer without a kind': ('{"optimizer": {}}', ': optimizer.kind is missing. Add "kind".'),
    'an unknown schedule': ('{"schedule": {"kind": "cosin"}}', ': schedule.kind must be a known name; got "cosin". Did you mean "cosine"?'),
    'a number for a metric': ('{"evaluation": {"metric": 7}}', ': evaluation.metric must be text in quotes; got 7.'),
    'an unknown part': ('{"evaluation": {"part": "test"}}', ': evaluation.part must be one of validation, heldout; got "test".'),
    'no checkpoints kept': ('{"checkpoints": {"keep_last": 0}}', ': checkpoints.keep_last must be at least 1; got 0.'),
}
"""The same of training documents."""

DSSTNE = {
    'another document': ('{"layers": [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 4, "activation": "tanh"}, {"name": "next", "kind": "output", "field": "items"}]}', ' must be a DSSTNE network: at least one layer needs a "DataSet". Use other documents as they are.'),
    'a word for N': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": "many", "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ": Layers[1].N must be a whole number of at least 1, or a list of up to 4; got 'many'."),
    'no units': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 0, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[1].N must be a whole number of at least 1, or a list of up to 4; got 0.'),
    'a huge N': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 1e+300, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[1].N must be a whole number of at least 1, or a list of up to 4; got 1e+300.'),
    'an unknown activation': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmod"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[1].Activation must be a known name; got "Sigmod". Did you mean "Sigmoid"?'),
    'an unknown kind': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Inpt", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[0].Kind must be a known name; got "Inpt". Did you mean "Input"?'),
    'a name twice': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "In", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ', translated: layers[1].name must be unique; "In" is also layers[0]. Rename one.'),
    'an unknown source': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid", "Source": "Nope"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ', translated: layers[1].source must name a layer; got "Nope". Known: In, H, Out.'),
    'an output for a source': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid", "Source": ["Out"]}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers: the output "Out" feeds other layers, so its N must be the number of units. Write all sides.'),
    'a probability of 2': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid", "pDropout": 2}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[1].pDropout must be less than 1; got 2.'),
    'a number for a data set': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": 5, "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[2].DataSet must be text in quotes; got 5.'),
    'an unknown scheme': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid", "WeightInit": {"Scheme": "x"}}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}]}', ': Layers[1].WeightInit.Scheme must be a known name; got "x". Known: Xavier, CaffeXavier, Gaussian, Uniform, UnitBall, Constant, SELU.'),
    'an unknown error function': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}], "ErrorFunction": "x"}', ': ErrorFunction must be a known name; got "x". Known: L1, L2, L2Hinge, Hinge, CrossEntropy, Cross Entropy, ScaledMarginalCrossEntropy, DataScaledMarginalCrossEntropy.'),
    'an unknown key': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}], "Nope": 1}', ': Nope is not a known key of DSSTNE\'s here. Did you mean "Slope"?'),
    'a number for an object': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}], "Denoising": 5}', ': Denoising must be an object with named fields; got 5.'),
    'a word for a version': ('{"Name": "x", "Layers": [{"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "gl_input", "Sparse": true}, {"Name": "H", "Kind": "Hidden", "N": 4, "Activation": "Sigmoid"}, {"Name": "Out", "Kind": "Output", "DataSet": "gl_output", "N": "auto", "Activation": "Sigmoid", "Sparse": true}], "Version": "x"}', ": Version must be a number; got 'x'."),
    'a key twice': ('{"Layers": [], "Layers": []}', ': the key "Layers" stands twice in one object. Keep one of them.'),
}
"""The same of DSSTNE's network documents."""
# fmt: on

TABLES = [
    ("plan bad/a.json training.json --width items=9", NETWORKS),
    ("plan network.json bad/a.json --width items=9", TRAININGS),
    ("dsstne translate bad/a.json", DSSTNE),
]


@pytest.mark.parametrize(
    ("line", "text", "said"), [(line, *table[wrong]) for line, table in TABLES for wrong in table]
)
def test_a_bad_document_is_one_sentence(line, text, said, refused, desk):
    (desk / "bad" / "a.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refused(line) == f"widenet: bad/a.json{said}"


def test_a_byte_order_mark_is_passed_over(widenet, desk):
    (desk / "bad" / "a.json").write_bytes(b"\xef\xbb\xbf" + (desk / "network.json").read_bytes())
    assert widenet("plan", "bad/a.json", "training.json", "--width", "items=9").status == 0
