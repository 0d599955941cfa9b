#!/bin/sh
# Runs the agent's tests under a bare Python 3.8 ($PYTHON38): what travels must run on such a host.
set -eu
cd "$(dirname "$0")/../.."
if [ -z "${PYTHON38:-}" ]; then
    echo "No Python 3.8 here (make test-agent PYTHON38=/path/to/python3.8): the agent's tests under it are skipped"
    [ "${POTATO_REQUIRE_SERVICES:-}" = 1 ] && exit 1
    exit 0
fi
if [ ! -e .venv38/.installed-xdist ]; then
    "$PYTHON38" -m venv .venv38
    .venv38/bin/python -m pip install -q -q --disable-pip-version-check 'pytest>=8,<8.4' 'pytest-xdist>=3.6,<3.7'
    touch .venv38/.installed-xdist
fi
# No configuration and no conftest of the other tests: they want Django, which such a host has not.
PYTHONPATH=.:tests exec .venv38/bin/python -m pytest -q -c /dev/null --rootdir tests/agent --confcutdir tests/agent \
    -p no:cacheprovider -n "${JOBS:-2}" --dist worksteal tests/agent
