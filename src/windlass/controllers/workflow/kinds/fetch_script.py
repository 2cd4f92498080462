"""Program of the init container that fetches artifacts over HTTP, from S3 and from git.

It needs Python alone, and ``git`` for artifacts from there.
"""

from __future__ import annotations

SHARED = r'''
import base64, datetime, hashlib, hmac, json, os, shutil, subprocess, sys, tarfile, tempfile, zipfile
import urllib.error, urllib.parse, urllib.request
import xml.etree.ElementTree as ElementTree

EMPTY = hashlib.sha256(b"").hexdigest()

def signed(method, url, headers, region, access, secret, now, digest=EMPTY):
    """Return the headers of a request of S3 with a signature of version 4. ``digest``: SHA-256 of the body."""
    parts = urllib.parse.urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    found = {**headers, "host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    lower = {name.lower(): value.strip() for name, value in found.items()}
    names = ";".join(sorted(lower))
    query = "&".join(sorted(parts.query.split("&"))) if parts.query else ""
    canonical = "\n".join(
        [method, parts.path or "/", query, *(f"{name}:{lower[name]}" for name in sorted(lower)), "", names, digest]
    )
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    found["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope},SignedHeaders={names},Signature={signature}"
    )
    return found

def secret_of(want, name):
    variable = (want.get("secrets") or {}).get(name)
    return os.environ.get(variable, "") if variable else ""

def login(want):
    """Return the headers of a request over HTTP."""
    headers = {one["name"]: one.get("value", "") for one in want.get("headers") or ()}
    user, password = secret_of(want, "username"), secret_of(want, "password")
    if user or password:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    return headers

def cause_of(want, problem):
    """Return why a server was not reached, and that a loopback address is the pod's own."""
    url = want.get("url") or (bucket_of(want) if want.get("endpoint") else want.get("repo") or "")
    host = urllib.parse.urlsplit(url).hostname or ""
    own = isinstance(problem, OSError) and "refused" in str(problem)
    if own and (host in ("localhost", "::1") or host.startswith("127.")):
        return f"{url}: {problem} ({host} is the pod itself, or its node with spec.hostNetwork: true)"
    return str(problem) or type(problem).__name__

def bucket_of(want):
    """Return the address of a bucket."""
    return f"{'http' if want.get('insecure') else 'https'}://{want['endpoint']}/{want['bucket']}"
'''
"""Beginning of the programs that fetch and send artifacts: signatures, and secrets from the environment."""

SCRIPT = (
    SHARED
    + r'''
def opened(url, headers):
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=60)

def over_http(want, target):
    with opened(want["url"], login(want)) as answer, open(target, "wb") as stream:
        shutil.copyfileobj(answer, stream)

class Bucket:
    def __init__(self, want):
        self.base = bucket_of(want)
        self.region = want.get("region") or "us-east-1"
        self.access, self.secret = secret_of(want, "access"), secret_of(want, "secret")

    def open(self, path, query=""):
        url = f"{self.base}{urllib.parse.quote(path, safe='/-_.~')}" + (f"?{query}" if query else "")
        headers = {}
        if self.access:
            now = datetime.datetime.now(datetime.timezone.utc)
            headers = signed("GET", url, {}, self.region, self.access, self.secret, now)
            headers.pop("host")
        return opened(url, headers)

    def keys(self, prefix):
        after = ""
        while True:
            fields = {"list-type": "2", "prefix": prefix, **({"continuation-token": after} if after else {})}
            query = "&".join(f"{name}={urllib.parse.quote(fields[name], safe='-_.~')}" for name in sorted(fields))
            with self.open("", query) as answer:
                root = ElementTree.fromstring(answer.read())
            space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
            yield from (one.text for one in root.iter(f"{space}Key"))
            token = root.find(f"{space}NextContinuationToken")
            if token is None or not token.text:
                return
            after = token.text

def from_s3(want, target):
    bucket, key = Bucket(want), want["key"].lstrip("/")
    try:
        with bucket.open(f"/{key}") as answer, open(target, "wb") as stream:
            shutil.copyfileobj(answer, stream)
        return
    except urllib.error.HTTPError as problem:
        if problem.code != 404:
            raise
    prefix = key.rstrip("/") + "/"
    keys = [one for one in bucket.keys(prefix) if not one.endswith("/")]
    if not keys:
        raise OSError(f"the bucket {want['bucket']} has no key {key}")
    for one in keys:
        place = os.path.normpath(os.path.join(target, one[len(prefix):]))
        if not place.startswith(target + os.sep):
            raise OSError(f"the key {one} leads out of the artifact")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with bucket.open(f"/{one}") as answer, open(place, "wb") as stream:
            shutil.copyfileobj(answer, stream)

def from_git(want, target):
    repository = want["repo"]
    user, password = secret_of(want, "username"), secret_of(want, "password")
    if user or password:
        parts = urllib.parse.urlsplit(repository)
        name = f"{urllib.parse.quote(user, safe='')}:{urllib.parse.quote(password, safe='')}"
        repository = parts._replace(netloc=f"{name}@{parts.netloc}").geturl()
    command = ["git", "clone", "--quiet"]
    if want.get("depth"):
        command += ["--depth", str(want["depth"])]
    if want.get("branch"):
        command += ["--branch", want["branch"]]
    if want.get("singleBranch"):
        command += ["--single-branch"]
    subprocess.run([*command, "--", repository, target], check=True)
    for reference in want.get("fetch") or ():
        subprocess.run(["git", "-C", target, "fetch", "--quiet", "origin", reference], check=True)
    if want.get("revision"):
        subprocess.run(["git", "-C", target, "checkout", "--quiet", want["revision"]], check=True)
    if not want.get("disableSubmodules"):
        subprocess.run(["git", "-C", target, "submodule", "--quiet", "update", "--init", "--recursive"], check=True)

def unpacked(target):
    """Put what an archive holds in its place; a single file of it takes the place itself."""
    if os.path.isdir(target):
        return
    kind = "tar" if tarfile.is_tarfile(target) else "zip" if zipfile.is_zipfile(target) else ""
    if not kind:
        return
    folder = target + ".unpacked"
    os.makedirs(folder)
    if kind == "tar":
        with tarfile.open(target) as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
    else:
        with zipfile.ZipFile(target) as archive:
            archive.extractall(folder)
    os.remove(target)
    entries = os.listdir(folder)
    os.rename(os.path.join(folder, entries[0]) if len(entries) == 1 else folder, target)
    shutil.rmtree(folder, ignore_errors=True)

WAYS = {"http": over_http, "s3": from_s3, "git": from_git}

def list_keys():
    """Print the keys of a ``data`` template as a JSON list."""
    (want,) = json.loads(os.environ["WINDLASS_FETCH"])
    try:
        json.dump(list(Bucket(want["from"]).keys(want["from"]["key"].lstrip("/"))), sys.stdout)
    except (OSError, ValueError, ElementTree.ParseError) as problem:
        sys.exit(f"the keys of {want['from']['bucket']} cannot be listed: {problem}")

def main(folder):
    for want in json.loads(os.environ["WINDLASS_FETCH"]):
        target = os.path.join(folder, want["name"])
        try:
            WAYS[want["way"]](want["from"], target)
            if not want["whole"]:
                unpacked(target)
            if want.get("mode") is not None and os.path.isfile(target):
                os.chmod(target, want["mode"])
        except (OSError, ValueError, subprocess.CalledProcessError, ElementTree.ParseError) as problem:
            if want.get("optional"):
                continue
            sys.exit(f"input artifact {want['name']!r} cannot be fetched: {cause_of(want['from'], problem)}")

if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) > 1 else list_keys()
'''
)
