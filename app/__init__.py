"""The faces of the lab: browser page, command line, HTTP and MCP."""
