"""pynng (nng for Python) behind the streams described in ../README.md, one SP socket."""

import json
import sys

import pynng

KINDS = {
    "pub": pynng.Pub0,
    "sub": pynng.Sub0,
    "push": pynng.Push0,
    "pull": pynng.Pull0,
    "req": pynng.Req0,
    "rep": pynng.Rep0,
}
# Of one send or receive; a passing test never waits so long.
TIMEOUT_MS = 15_000


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def opened(command):
    socket = KINDS[command["kind"]](send_timeout=TIMEOUT_MS, recv_timeout=TIMEOUT_MS)
    for topic in command.get("topics", []):
        socket.subscribe(topic.encode("latin-1"))
    if "dial" in command:
        socket.dial("tcp://" + command["dial"], block=True)
        tell("open")
    else:
        listener = socket.listen("tcp://" + command["listen"])
        tell("open", address=str(listener.local_address))
    return socket


def main():
    socket = None
    for line in sys.stdin:
        command = json.loads(line)
        do = command["do"]
        if do == "open":
            socket = opened(command)
        elif do == "send":
            socket.send(command["body"].encode("latin-1"))
            tell("sent")
        elif do == "receive":
            tell("received", body=socket.recv().decode("latin-1"))
        elif do == "close":
            socket.close()
            tell("closed")


main()
