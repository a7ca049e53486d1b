# SPDX-License-Identifier: Apache-2.0
"""Models written in Python; so far the parts of language models in `llm`."""
