"""Imports `cedarpy` without `cedarpy.pst`, its typed syntax trees, which nothing here uses.

They took 24 of the 27 ms of the import. Code that imports
`cedarpy.pst` later gets the real module.
"""

import sys
from types import ModuleType

__all__ = ["cedarpy"]

_UNUSED = "cedarpy.pst"

if "cedarpy" in sys.modules:
    import cedarpy
else:
    sys.modules[_UNUSED] = ModuleType(_UNUSED)
    try:
        import cedarpy
    finally:
        del sys.modules[_UNUSED]
    vars(cedarpy).pop("pst", None)
