"""Shows the memory of a running distributed job on PyTorch's debug server. Requires PyTorch 2.11 or later.

In each rank, start the server with this module instead of `torch.distributed.debug`::

    from torch_memviz import debug_server

    debug_server.start(port=25999)

The server, on rank 0, then also has these pages:

- `/memory` shows the output of `memviz triage` for a new snapshot of each rank.
- `/memory_summary` shows the allocator's statistics for each rank as JSON.
- `/memory_dump` has a button for each rank that downloads a snapshot.

Nothing is written to disk, except the text of `/memory` if you pass `dump_dir` and `enabled_dumps={"memory"}`.
A rank answers while it trains, and also while it waits for other ranks: a PyTorch thread takes the snapshot.

Like the rest of the debug server, the pages have no access control: anyone who can reach the port can read stacks and
file names.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import os
import pickle
import socket
from typing import Any

from ._commands import triage
from ._errors import MemvizError
from ._recording import release
from ._recording.recorder import current
from ._recording.release import RecordingError
from ._recording.snapshot import snapshot

__all__ = ["MemoryHandler", "register", "start"]

#: The name of the handler in each rank, and of the file of periodic dumps.
NAME = "memory"


def start(**options: Any) -> None:
    """Start PyTorch's debug server with the pages of this module. Call it in each rank, after `init_process_group`.

    Args:
        options: The options of `torch.distributed.debug.start_debug_server`. The pages are added to its `handlers`.

    Raises:
        RecordingError: if the installed PyTorch has no debug server that takes handlers.
    """
    server = _server()
    register()
    if os.environ.get("RANK") == "0":
        handlers = options.get("handlers")
        if handlers is None:
            handlers = importlib.import_module("torch.distributed.debug._debug_handlers").default_handlers()
        options["handlers"] = [*handlers, MemoryHandler()]
    server.start_debug_server(**options)


def register() -> None:
    """Let this rank answer requests about its memory. `start` does this before it starts the server.

    Raises:
        RecordingError: if the installed PyTorch has no debug server that takes handlers.
    """
    _server()
    importlib.import_module("torch._C._distributed_c10d")._register_handler(NAME, _answer)


class MemoryHandler:
    """The pages of the server, for `start_debug_server(handlers=[...])`. The ranks must have called `register`."""

    def routes(self) -> list[Any]:
        """Return the paths, each with its handler."""
        route = _frontend().Route
        pages = {"/memory": self._triage, "/memory_summary": self._summary, "/memory_dump": self._dumps}
        return [route(path, page) for path, page in pages.items()]

    def nav_links(self) -> list[Any]:
        """Return the links in the head of each page."""
        link = _frontend().NavLink
        return [link("/memory", "Memory"), link("/memory_summary", "Memory figures"), link("/memory_dump", "Snapshots")]

    def templates(self) -> dict[str, str]:
        """Return the templates of pages that the server does not have."""
        return {"memory_dump.html": _DUMPS}

    def dump(self) -> str | None:
        """Return the text of `/memory`, for periodic dumps."""
        addresses, answers = _frontend().fetch_all(NAME, "what=triage")
        parts = zip(addresses, answers, strict=True)
        return "\n".join(f"Rank {rank}: {address}\n{answer.text}" for rank, (address, answer) in enumerate(parts))

    def dump_filename(self) -> str:
        """Return the name for files of periodic dumps."""
        return NAME

    def _triage(self, request: Any) -> Any:
        return self._page(request, "Memory", "what=triage")

    def _summary(self, request: Any) -> Any:
        return self._page(request, "Memory figures", "what=summary")

    def _page(self, request: Any, title: str, what: str) -> Any:
        """Show the answer of each rank. The server's templates escape nothing, and file names may contain anything."""
        frontend = _frontend()
        addresses, answers = frontend.fetch_all(NAME, what)
        escaped = [frontend.Response(answer.status_code, html.escape(answer.text)) for answer in answers]
        return request.frontend.render_template("raw_resp.html", title=title, addrs=addresses, resps=escaped)

    def _dumps(self, request: Any) -> Any:
        addresses, _ = _frontend().fetch_all(NAME, "what=summary")
        addresses = [address.replace("what=summary", "what=dump") for address in addresses]
        return request.frontend.render_template("memory_dump.html", addrs=addresses)


_DUMPS = """
{% extends "base.html" %}
{% block header %}
    <h1>{% block title %}Snapshots{% endblock %}</h1>
{% endblock %}
{% block content %}
    {% for addr in addrs %}
        <form action="{{ addr | e }}" method="post">
            <button>Rank {{ loop.index0 }}</button> {{ addr | e }}
        </form>
    {% endfor %}
{% endblock %}
"""


def _answer(request: Any, response: Any) -> None:
    """Answer a request to this rank. A thread of the worker server calls this, so nothing may be raised."""
    try:
        what = request.get_param("what")
        if what == "dump":
            response.set_content(pickle.dumps(snapshot()), "application/octet-stream")
        elif what == "summary":
            response.set_content(json.dumps(_summary(), indent=2), "application/json")
        elif what == "triage":
            response.set_content(str(triage(snapshot())), "text/plain")
        else:
            raise RecordingError(f"expected what=triage, what=summary or what=dump, found what={what}")
        response.set_status(200)
    except Exception as error:
        is_ours = isinstance(error, (MemvizError, RecordingError))
        text = str(error) if is_ours else f"{type(error).__name__}: {error}"
        response.set_content(text, "text/plain")
        response.set_status(500)


def _summary() -> dict[str, Any]:
    """Return the allocator's statistics for each device that this process uses."""
    torch = release.torch()
    keys = {
        "allocated_bytes": "allocated_bytes.all.current",
        "max_allocated_bytes": "allocated_bytes.all.peak",
        "active_bytes": "active_bytes.all.current",
        "requested_bytes": "requested_bytes.all.current",
        "reserved_bytes": "reserved_bytes.all.current",
        "max_reserved_bytes": "reserved_bytes.all.peak",
        "ooms": "num_ooms",
        "retries": "num_alloc_retries",
    }
    devices = []
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    for device in range(count):
        stats = torch.cuda.memory_stats(device)
        if stats:
            devices.append({"device": device, **{name: stats.get(key, 0) for name, key in keys.items()}})
    recorder = current()
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "is_recording": recorder is not None and recorder.is_recording,
        "devices": devices,
    }


def _server() -> Any:
    """Return PyTorch's debug server."""
    torch = release.torch()
    found = f"found {torch.__version__}"
    try:
        server = importlib.import_module("torch.distributed.debug")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("torch.distributed"):
            raise
        raise RecordingError(f"expected PyTorch 2.11 or later, which has a debug server; {found}") from None
    if "handlers" not in inspect.signature(server.start_debug_server).parameters:
        raise RecordingError(f"expected PyTorch 2.11 or later, whose debug server accepts handlers; {found}")
    return server


def _frontend() -> Any:
    """Return the module with the parts of pages. The process that shows pages imports it, and needs its packages."""
    return importlib.import_module("torch.distributed.debug._frontend")
