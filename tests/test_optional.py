"""A missing library is one sentence that names what to install."""

import pytest

from widenet.errors import OptionError
from widenet.optional import installed, optional


def test_a_missing_library_names_its_extra():
    rule = r"netCDF5 is not installed\. Install it with `pip install 'widenet\[dsstne\]'`\.$"
    with pytest.raises(OptionError, match=rule), optional("netCDF5", "dsstne"):
        import netCDF5  # noqa: F401


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (ModuleNotFoundError(name="google.none"), "is not installed: there is no module google.none"),
        (ImportError("no symbol"), "cannot be imported: no symbol"),
    ],
)
def test_a_library_that_lacks_a_module_or_fails_says_so(error, rule):
    with pytest.raises(OptionError) as refused, installed("protobuf"):
        raise error
    assert str(refused.value) == f"protobuf {rule}. Install it with `pip install protobuf`."
