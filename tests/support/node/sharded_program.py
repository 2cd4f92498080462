"""Program of a worker of several pods: each rank adds up its part of the numbers of a row, over sockets."""

SHARDED = """
import json, os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def part(row):
    return sum(row["numbers"][rank::world])


if rank:
    while True:
        try:
            link = socket.create_connection(address, 10)
            break
        except OSError:
            time.sleep(0.1)
    link.settimeout(None)
    stream = link.makefile("rw")
    for line in stream:
        row = json.loads(line)
        while row.get("hold") and not os.path.exists(sys.argv[1]):
            time.sleep(0.05)
        print(part(row), file=stream, flush=True)
    sys.exit("rank 0 has closed the connection")
server = socket.create_server(("", address[1]))
peers = [server.accept()[0].makefile("rw") for _ in range(world - 1)]
for line in sys.stdin:
    row = json.loads(line)
    for peer in peers:
        print(json.dumps(row), file=peer, flush=True)
    total = part(row) + sum(int(peer.readline()) for peer in peers)
    print(json.dumps({"id": row["id"], "total": total}), flush=True)
"""
