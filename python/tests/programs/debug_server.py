"""A rank that trains while PyTorch's debug server shows its memory. Prints what each page shows as JSON."""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist
from torch.distributed.debug import stop_debug_server

import torch_memviz
from torch_memviz import debug_server


def free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::", 0))
        return probe.getsockname()[1]


def fetch(url: str, method: str = "GET") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def fetch_when_up(url: str) -> tuple[int, bytes]:
    for _ in range(600):
        try:
            return fetch(url)
        except urllib.error.URLError:
            time.sleep(0.1)
    raise SystemExit("the server has not come up")


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    dist.init_process_group("gloo")
    page, worker = free_port(), free_port()
    said: dict[str, object] = {}
    with torch_memviz.record(sys.argv[1]):
        model = torch.nn.Linear(256, 256).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, optimizer)
        debug_server.start(
            port=page, worker_port=worker, start_method="spawn", dump_dir="dumps", enabled_dumps={"memory"}
        )
        said["triage"] = fetch_when_up(f"http://localhost:{page}/memory")[1].decode()
        said["summary"] = fetch(f"http://localhost:{page}/memory_summary")[1].decode()
        said["links"] = fetch(f"http://localhost:{page}/memory_dump")[1].decode()
        rank = f"http://localhost:{worker}/handler/memory"
        said["status"], dump = fetch(f"{rank}?what=dump", "POST")
        with open("dump.pickle", "wb") as file:
            file.write(dump)
        said["wrong"] = [fetch(f"{rank}?what=nothing", "POST")[0], fetch(rank, "POST")[0]]
        said["allocated"] = torch.cuda.memory_allocated()
        said["reserved"] = torch.cuda.memory_reserved()
        for _ in range(100):
            if os.listdir("dumps"):
                break
            time.sleep(0.1)
        said["files"] = os.listdir("dumps")
        stop_debug_server()
    print(json.dumps(said))


# The process of the server imports this file, too.
if __name__ == "__main__":
    main()
