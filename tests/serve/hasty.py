"""`widenet` whose services wait a fifth of a second for slow clients."""

from tests.serve.copied import run
from widenet.serve import connections, guard

connections._SECONDS_TO_BEGIN = guard._SECONDS_TO_SEND = 0.2
run()
