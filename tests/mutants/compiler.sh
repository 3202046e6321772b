#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The compiler of run.py: what the tree is made of comes out of ccache where build/ has been compiled; a mutant does not,
# and its warnings are no errors.
if [ -n "$UPCIE_MUTANT" ]; then exec c++ "$@" -Wno-error; fi
if command -v ccache > /dev/null; then exec ccache c++ "$@"; fi
exec c++ "$@"
