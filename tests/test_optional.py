"""A missing library is one sentence that names what to install."""

import pytest

from widenet.errors import OptionError
from widenet.optional import optional


def test_a_missing_library_names_its_extra():
    rule = r"netCDF5 must be installed for this; .* Install it with `pip install 'widenet\[dsstne\]'`\."
    with pytest.raises(OptionError, match=rule), optional("netCDF5", "dsstne"):
        import netCDF5  # noqa: F401
