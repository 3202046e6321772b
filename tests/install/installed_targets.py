#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the ninja targets of everything that `meson install` of a build folder needs built."""
import json
import pathlib
import subprocess
import sys

build = pathlib.Path(sys.argv[1]).resolve()
text = subprocess.run(["meson", "introspect", "--targets", str(build)], check=True, capture_output=True, text=True)
for target in json.loads(text.stdout):
    if target.get("installed") or target.get("install_filename"):
        for name in target["filename"]:
            print(pathlib.Path(name).relative_to(build))
