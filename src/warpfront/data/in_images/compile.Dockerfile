FROM installed
RUN --network=none --mount=type=bind,target=/run/sources start=$(date +%s) && \
    site=$(/opt/venv/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
    { PYTHONHASHSEED=0 /opt/venv/bin/python /run/sources/compile.py "$site" || true; } && \
    { find / -xdev -newermt "@$((start - 1))" -exec touch -hd @315532800 {} + 2>/dev/null || true; }
