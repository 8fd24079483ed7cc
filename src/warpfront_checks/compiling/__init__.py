"""Inside an image: sources compiled for a target, one check each. No device is needed.

`python -m warpfront_checks.compiling --job FILE --results FOLDER`; the job is made by
`warpfront_port.compile.job_document` on the host.
"""
