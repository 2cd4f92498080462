"""Program of the sidecar that sends output artifacts to S3 and over HTTP.

It needs Python alone. The shell around the main command puts each artifact into a folder
and waits for the file ``.NAME.told`` next to it: empty, or with the reason of a failure.
"""

from __future__ import annotations

from windlass.controllers.workflow.kinds.fetch_script import SHARED

SCRIPT = (
    SHARED
    + r'''
import signal, time

ATTEMPTS = 4
S3_LIMIT = 5 << 30  # bytes of one PUT

def put(url, headers, path):
    """Send a file. Raises OSError."""
    with open(path, "rb") as stream:
        fields = {**headers, "Content-Length": str(os.path.getsize(path)), "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(url, data=stream, headers=fields, method="PUT")
        urllib.request.urlopen(request, timeout=600).close()

def to_http(want, path, below=""):
    put(want["url"].rstrip("/") + below if below else want["url"], login(want), path)

def to_s3(want, path, below=""):
    url = bucket_of(want) + urllib.parse.quote("/" + want["key"].strip("/") + below, safe="/-_.~")
    headers = {}
    access = secret_of(want, "access")
    if access:
        digest = hashlib.sha256()
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        now = datetime.datetime.now(datetime.timezone.utc)
        region = want.get("region") or "us-east-1"
        headers = signed("PUT", url, {}, region, access, secret_of(want, "secret"), now, digest.hexdigest())
        headers.pop("host")
    put(url, headers, path)

def check_sizes(files):
    """Raise ValueError for a file that S3 refuses after its upload."""
    for path, _ in files:
        size, name = os.path.getsize(path), os.path.basename(path)
        if size > S3_LIMIT:
            raise ValueError(
                f"{name} has {size} bytes, and S3 takes {S3_LIMIT} in one upload: nothing was sent. Let the "
                f"artifact be a folder of parts with archive: {{none: {{}}}}: split -b 4G {name} FOLDER/"
            )

WAYS = {"s3": to_s3, "http": to_http}

def zipped(path):
    target = path + ".zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, below in files_of(path):
            archive.write(one, below.lstrip("/") or os.path.basename(path))
    return target

def files_of(path):
    """Return the files of an artifact, and their places below it."""
    if not os.path.isdir(path):
        return [(path, "")]
    found = []
    for folder, _, names in os.walk(path):
        found += [(os.path.join(folder, name), os.path.join(folder, name)[len(path):]) for name in names]
    return sorted(found)

def send(want, path):
    if want["form"] == "zip":
        path = zipped(path)
    if want["way"] == "s3":
        check_sizes(files_of(path))
    for one, below in files_of(path):
        for attempt in range(ATTEMPTS):
            try:
                WAYS[want["way"]](want["to"], one, below)
                break
            except OSError as problem:
                code = getattr(problem, "code", 500)
                if attempt == ATTEMPTS - 1 or (code < 500 and code not in (408, 429)):
                    raise
                time.sleep(2**attempt)

def main(folder):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    open_ones = {one["name"]: one for one in json.loads(os.environ["WINDLASS_SEND"])}
    while True:
        for name, want in list(open_ones.items()):
            path, told = os.path.join(folder, name), os.path.join(folder, f".{name}.told")
            if not os.path.exists(path) or os.path.exists(told):
                continue
            message = ""
            try:
                send(want, path)
            except (OSError, ValueError) as problem:
                message = cause_of(want["to"], problem)
            with open(told + ".new", "w") as stream:
                stream.write(message)
            os.chmod(told + ".new", 0o644)
            os.rename(told + ".new", told)
            del open_ones[name]
        time.sleep(0.2 if open_ones else 3600)

if __name__ == "__main__":
    main(sys.argv[1])
'''
)
