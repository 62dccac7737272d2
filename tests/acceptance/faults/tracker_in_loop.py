"""All ranks post their metrics to a tracker in every step, and wait for its answer."""

import http.client
import http.server
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


class Answers(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
child = os.fork()
if child == 0:
    server.serve_forever()


class Tracker:
    def push(self, **values):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        connection.request("POST", "/log", json.dumps(values))
        connection.getresponse().read()
        connection.close()


dist.init_process_group("gloo")
tracker = Tracker()
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10))
net = torch.nn.parallel.DistributedDataParallel(net)
opt = torch.optim.Adam(net.parameters())
for step in range(int(sys.argv[1])):
    loss = torch.nn.functional.cross_entropy(net(torch.randn(64, 256)), torch.randint(0, 10, (64,)))
    loss.backward()
    opt.step()
    opt.zero_grad()
    tracker.push(step=step, loss=loss.item())
dist.destroy_process_group()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
