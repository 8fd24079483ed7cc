"""Commands of the port group, which `warpfront` finds by the entry point `warpfront.tasks`."""

MODULES = {"warpfront_port.tasks.porting": ("port", "preflight", "try", "scan", "compile", "check")}
