"""The faces of the lab: browser page, command line, HTTP and MCP.

Thread counts and Gradio's switches are read when numpy, torch and gradio are imported: they are set here, first.
"""

import os

from backends.runtime import folders, threads

threads.configure()
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_SSR_MODE"] = "False"  # not for pages mounted by routes
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("GRADIO_TEMP_DIR", str(folders.cache() / "uploads"))
