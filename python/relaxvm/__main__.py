# SPDX-License-Identifier: Apache-2.0
"""`python -m relaxvm` is the command `relaxvm`."""

from .cli import main

main()
