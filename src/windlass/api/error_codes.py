"""Every error code with its long text: what ``windlass help CODE`` prints, and the reference page shows.

A code is stable: ``WL-SUBJECT-NUMBER``, the number as HTTP would give it where HTTP has one. Codes of objects are made
of a subject (:data:`SUBJECTS`) and a number (:data:`GENERAL`); the others stand on their own. A test holds
that every code in the source is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """``exit_status`` is that of the command which ends with this error."""

    code: str
    title: str
    text: str
    exit_status: int


EXIT_MEANINGS: Mapping[int, str] = {
    0: "ok",
    1: "the job failed (while following it: the job's own exit status), or something else went wrong",
    2: "the command line or the manifest is not right",
    3: "not found",
    4: "forbidden",
    5: "conflict",
    6: "can never be scheduled as it is",
    7: "the server cannot be reached, or is not ready",
    65: "an input file or a scheduler configuration is not what it should be; nothing was done",
    130: "interrupted",
}

_BY_NUMBER = {
    "400": 2,
    "401": 4,
    "403": 4,
    "404": 3,
    "409": 5,
    "410": 5,
    "413": 6,
    "422": 2,
    "423": 6,
    "465": 65,
    "501": 2,
    "502": 7,
    "503": 7,
    "504": 7,
}


def exit_status_of(code: str) -> int:
    """By the number that the code ends in; 1 for any other."""
    return _BY_NUMBER.get(code.rpartition("-")[2], 1)


SUBJECTS: Mapping[str, str] = {
    "POD": "pod",
    "NODE": "node",
    "QUEUE": "queue",
    "JOB": "job",
    "GROUP": "pod group",
    "NAMESPACE": "namespace",
    "OBJECT": "object",
}
"""The subjects of codes that the server's answers are turned into."""

GENERAL: Mapping[str, tuple[str, str]] = {
    "400": (
        "the request about the {noun} is not understood",
        "The server could not make sense of the request: a field of the wrong type, an unknown field where "
        "strict checking was asked for, or a body that is no object. The message names the place.",
    ),
    "403": (
        "the {noun} is refused",
        "The server understood the request and refuses it: a quota of the namespace is used up, the object "
        "belongs to the system, or admission has a rule against it. `why` quotes the rule. A ResourceQuota "
        "is seen with `windlass get resourcequota -A`.",
    ),
    "404": (
        "there is no such {noun}",
        "Nothing of this name exists (in this namespace). `why` lists what there is, `try` the nearest names. "
        "Names are looked up in the namespace of -n, else of the kubeconfig's context, else `default`.",
    ),
    "409": (
        "the {noun} exists already, or was changed by another client",
        "Creating needs a name that is free. Changing needs the newest version of the object: read it again "
        "and repeat the change; `windlass apply` does so by itself.",
    ),
    "422": (
        "the {noun} is not valid",
        "A field has a value that cannot be. `why` names every such field with its path, and what would be "
        "right. Nothing was stored.",
    ),
}

_OWN: tuple[tuple[str, str, str], ...] = (
    # The command line.
    (
        "WL-USE-400",
        "the command line is not right",
        "A flag is unknown, misses its value, or has one that cannot be meant. `why` shows the usage; "
        "`windlass COMMAND --help` lists every flag.",
    ),
    (
        "WL-CONVERT-422",
        "a job cannot become a job of the other kind",
        "`why` says what the other kind cannot express at all. Single fields that are lost are named instead, and the "
        "job is converted.",
    ),
    (
        "WL-SDK-400",
        "map cannot run these calls on the item engine",
        "The item engine runs on the control plane of this machine and takes the options that `why` names. "
        "`map(…, engine='jobs')` takes all of them, and runs on clusters.",
    ),
    (
        "WL-SDK-413",
        "a function and its arguments are too large for a ConfigMap",
        "A function that `windlass.submit` runs on a cluster travels in a ConfigMap, with its arguments. Data belongs "
        "on a volume or in an object store; the function gets its name.",
    ),
    (
        "WL-SDK-422",
        "a function or its arguments cannot be pickled",
        "`why` says which object. Open files, locks and connections belong to one process: open them inside of the "
        "function.",
    ),
    (
        "WL-USE-404",
        "there is no such command, code or reason",
        "The word is none that Windlass knows. `try` shows the nearest ones; `windlass --help` lists all.",
    ),
    (
        "WL-USE-501",
        "this version does not have it",
        "The flag belongs to the command's contract, but this version cannot do what it asks for, and says "
        "so rather than do something else.",
    ),
    (
        "WL-KIND-404",
        "there is no such kind",
        "The apiVersion and kind of a manifest, or the kind on the command line, is none that is served. Look at "
        "the spelling and at the apiVersion: `kubectl api-resources` lists what is served.",
    ),
    (
        "WL-MANIFEST-400",
        "the manifest cannot be read",
        "The file is no YAML or JSON, or a document in it is no object (apiVersion and kind are missing). The "
        "message begins with file, line and column. Usual causes: tabs, a missing colon, wrong indentation; "
        "a fragment that has to be merged into a whole object first.",
    ),
    (
        "WL-MANIFEST-403",
        "the manifest file cannot be opened",
        "The file exists, but this user may not read it.",
    ),
    (
        "WL-MANIFEST-404",
        "there is no manifest",
        "The file does not exist, or the folder holds no *.yaml, *.yml or *.json with an object in it.",
    ),
    (
        "WL-MANIFEST-422",
        "the manifest contradicts the command line",
        "The manifest names another namespace than -n does. Leave one of them out.",
    ),
    (
        "WL-STRICT-422",
        "--strict refuses the manifest",
        "Unknown and duplicate fields, spellings that are understood as another field (`alias:`) and values "
        "that Windlass would fill in beyond Kubernetes' own defaults (`default:`) are refused, all of them "
        "told with file and line, before anything is written. Without --strict the same is only told.",
    ),
    # Running commands.
    (
        "WL-RUN-404",
        "the program cannot be run",
        "On this box, `windlass run` looks for the program and the working directory before it submits the job. "
        "The program is looked up in PATH, or relative to the working directory if its name has a slash.",
    ),
    (
        "WL-GPU-413",
        "there is no GPU",
        "GPUs were asked for, and no node has one. On a box without GPUs, simulated ones let everything but "
        "the computation on them be tried: `windlass up --gpus simulated:2`. If the box has GPUs, "
        "`windlass doctor` says why the driver does not show them.",
    ),
    (
        "WL-GPU-421",
        "the GPU that is held cannot be named",
        "A reservation pod requests one whole GPU from the kubelet and reports which one it got. "
        "It sees another number of GPUs than one, or something else than a whole GPU: containers of its runtime "
        "class are not given their GPUs, or the device plug-in hands out replicas or slices.",
    ),
    (
        "WL-JOB-405",
        "the job cannot be changed so",
        "The kind of the job, or its state, does not allow it: a job that has ended is not suspended, and the size of "
        "some kinds is fixed while they run. `why` names the reason, `try` another way.",
    ),
    (
        "WL-JOB-504",
        "pods of the job did not end in time",
        "The job was requeued, and some of its old pods are still in their grace period. New pods start when the old "
        "ones have ended.",
    ),
    (
        "WL-JOB-410",
        "the job was deleted while it was followed",
        "The job was deleted, so its outcome is not known.",
    ),
    (
        "WL-JOB-412",
        "there is nothing to resume",
        "`windlass run --resume` and `windlass submit --resume` create the next attempt of a job that has ended. The "
        "job does not exist, has not ended or has completed, or no checkpoint is at the place that it declares. "
        "`why` names the reason, `try` what to do instead.",
    ),
    (
        "WL-JOB-413",
        "the job can never run as it is",
        "One rank needs more than any node has even when empty, the gang more than the whole cluster, or no "
        "node satisfies its constraints. Waiting does not help: ask for less, or add nodes. "
        "`windlass explain JOB` lists every blocker with numbers.",
    ),
    (
        "WL-QUEUE-413",
        "the queue may never hold that much",
        "The job needs more of a resource than the queue's capability allows at all. Use another queue, ask "
        "for less, or raise the limit: `windlass queue set NAME capability.RESOURCE=AMOUNT`.",
    ),
    (
        "WL-QUEUE-423",
        "the queue is closed",
        "A closed queue takes no new work; what runs in it goes on. Open it with "
        "`windlass queue set NAME state=Open`.",
    ),
    (
        "WL-QUEUE-504",
        "the queue was not switched in time",
        "Opening and closing is done by the queue controller, which did not do it in time. "
        "`windlass status` tells whether it runs.",
    ),
    (
        "WL-GENERATE-400",
        "the file is not a file of rows",
        "Rows come from CSV, JSON Lines or Parquet files, or from a folder with one row for each file.",
    ),
    (
        "WL-GENERATE-403",
        "the outputs cannot be written",
        "The folder of the outputs is created and tried before the job. Name another one with --output, or change "
        "its rights, or free space on its disk.",
    ),
    (
        "WL-GENERATE-404",
        "the file of rows, the model or the file of --autoscaler does not exist",
        "The path is relative to the current directory of the command.",
    ),
    (
        "WL-GENERATE-409",
        "a job of that name exists",
        "Leave --name out, and each run gets a name of its own. Or delete the job first; its outputs stay, and the "
        "next job with the same output file takes their rows over.",
    ),
    (
        "WL-GENERATE-413",
        "the file is too large to travel with the job",
        "A cluster does not see the files of this machine. Small files become a part of the job; larger ones have to "
        "lie on a volume, at an address or in an object store, which a manifest names in spec.input.",
    ),
    (
        "WL-GENERATE-422",
        "the file has no row, or a column or a function does not exist",
        "The first row of the file tells the columns. A prompt names them in braces: {name}. A function is looked for "
        "in the current directory and among the packages of Python.",
    ),
    (
        "WL-GENERATE-424",
        "the engine of the model is not installed",
        "A model in a .gguf file is loaded by llama.cpp in the process of each worker. Windlass does not require the "
        "package with the engine; it has to be installed where the workers run.",
    ),
    (
        "WL-ITEMS-400",
        "the job has no items",
        "Items are the rows of an AIGCJob. Other jobs have pods only: `windlass show` lists them.",
    ),
    (
        "WL-ITEMS-404",
        "the outputs are on another machine, or were not written",
        "After its end, the dead letters of a job are rows with an error in its outputs. They can only be listed where "
        "the outputs are. `windlass items retry` works from everywhere.",
    ),
    (
        "WL-ITEMS-409",
        "single dead letters run again only while the job runs",
        "A job that has ended starts again with all its dead letters.",
    ),
    (
        "WL-ITEMS-503",
        "the driver of the job does not answer",
        "The driver keeps the items while the job runs. It does not run while the job waits, is suspended or starts.",
    ),
    (
        "WL-MODEL-404",
        "there is no such model",
        "No node has or fetches a model of this name. `windlass model ls` lists the models of all nodes.",
    ),
    (
        "WL-MODEL-500",
        "a model could not be fetched",
        "The node could not get the model, and the message says why: the source does not exist or does not "
        "answer, the checksum is another, or there is no room that models which are neither pinned nor in use "
        "could make. Fetches that may succeed later go on in the background: `windlass model ls` shows them.",
    ),
    (
        "WL-WORKFLOW-400",
        "the manifest is not a workflow",
        "`windlass workflow run` creates workflows, and templates that stand in the same file. Other objects are "
        "created by `windlass apply -f FILE`.",
    ),
    (
        "WL-WORKFLOW-404",
        "there is no such workflow or node",
        "`windlass workflow ls` lists the workflows of the namespace, `windlass workflow show WORKFLOW` the nodes "
        "of one. A node is named by its name, its whole path or its id.",
    ),
    (
        "WL-WORKFLOW-422",
        "the workflow is not valid",
        "A workflow that is built in Python is checked like a manifest before it runs. `why` lists further problems.",
    ),
    (
        "WL-WORKFLOW-409",
        "the workflow is not in a state for this",
        "Only a workflow that has ended is run again, only one that has not is stopped, and only suspended nodes "
        "are resumed. The message says what the state is.",
    ),
    (
        "WL-WORKFLOW-503",
        "no controller answers about the workflow",
        "The request stands in an annotation of the workflow, and the controller of workflows carries it out. "
        "`windlass status` says whether it runs.",
    ),
    (
        "WL-PRIORITY-404",
        "there is no such priority class",
        "The class named by --priority does not exist. `windlass get priorityclasses` lists them.",
    ),
    (
        "WL-RANK-404",
        "the job has no such rank or container",
        "--rank takes the index of a pod in its task, TASK-INDEX, or the pod's name; --task a task's name; "
        "--container one of the pod's containers.",
    ),
    (
        "WL-EXEC-409",
        "the job has no running pod to run the command in",
        "windlass show lists the pods of a job and their states; --rank chooses one of them.",
    ),
    (
        "WL-EXEC-500",
        "the command did not run",
        "The message is that of the node. A program that does not exist ends with exit code 127 instead.",
    ),
    (
        "WL-NODE-409",
        "pods would be lost",
        "On the node are pods that no controller would recreate on another node. Nothing was "
        "done: `--yes` evicts them all the same.",
    ),
    (
        "WL-NODE-410",
        "the node of this machine was deleted",
        "The node agent registers a deleted node again within 5 minutes, usually at once. `windlass down && "
        "windlass up` does so immediately, and ends the running pods.",
    ),
    (
        "WL-NODE-504",
        "the node was not drained in time",
        "Pods are evicted within what their PodDisruptionBudgets allow, and have their grace period to end. "
        "The node stays cordoned: go on later with the same command, or undo it with "
        "`windlass node uncordon`.",
    ),
    # The control plane of this box.
    (
        "WL-UP-409",
        "it runs already, with other options",
        "One control plane runs per state folder. Stop it and start it with the new options, or use another "
        "folder (--state).",
    ),
    (
        "WL-UP-500",
        "the control plane does not start",
        "One of its processes ends again and again. Its log, named in `why`, holds the cause.",
    ),
    (
        "WL-UP-504",
        "the control plane is not ready in time",
        "The processes run, but the server does not answer, or the node has not registered. The logs are in "
        "the `logs` folder of the state folder.",
    ),
    (
        "WL-PORT-409",
        "the port cannot be had",
        "Another program listens on it (`why` names it if it is yours), or it is one of root's. Without "
        "--port, Windlass takes 7443 or any free port.",
    ),
    (
        "WL-DOWN-403",
        "the control plane cannot be stopped",
        "The process belongs to another user, or does not end even when killed.",
    ),
    (
        "WL-DOWN-409",
        "a control plane was started meanwhile",
        "While `windlass down` was at work, another `windlass up` took the state folder. Run it again.",
    ),
    (
        "WL-DOWN-500",
        "the control plane did not say which process it is",
        "The state folder's lock is held, but `supervisor.json` names no process: it is just starting, or the "
        "file was removed. Wait a moment and try again.",
    ),
    (
        "WL-STATE-403",
        "the state folder cannot be written",
        "It is on a read-only file system, or belongs to another user. Choose another with --state or "
        "WINDLASS_STATE.",
    ),
    (
        "WL-STATE-409",
        "something is in the way",
        "Where the state folder, or the socket in it, should be, there is something else.",
    ),
    (
        "WL-STATE-410",
        "the state folder was removed under the running control plane",
        "The supervisor holds a lock in the state folder. When that file is gone, or is another one, nothing that "
        "runs could be found again: pods, agent, scheduler and server are ended within seconds. Stop with "
        "`windlass down` (`--purge` removes the folder as well) before you remove a folder.",
    ),
    (
        "WL-STATE-422",
        "the state folder is on a network file system",
        "SQLite's locks cannot be relied upon there, and a damaged database is the usual end. Choose a folder "
        "on a local disk. --allow-network-filesystem overrides this at your own risk.",
    ),
    (
        "WL-STATE-500",
        "the state folder cannot be used",
        "The operating system's message is in `why`.",
    ),
    (
        "WL-STATE-507",
        "the disk is full",
        "Nothing was written, and nothing was lost: what was acknowledged is on disk. Make room, then `windlass up`; "
        "what runs goes on meanwhile.",
    ),
    (
        "WL-IMAGES-400",
        "the image map is not right",
        "The file of `windlass up --images` maps image names, or patterns with `*`, to an environment on this "
        "machine: `path` (a directory; its `bin` comes first on PATH), `venv` (a Python virtual environment), `env` "
        "(variables), `command`. `why` names the entry. Nothing was started.",
    ),
    (
        "WL-IMAGES-404",
        "the image map cannot be read",
        "The file named by `windlass up --images` is not there, or this user may not read it. Nothing was started.",
    ),
    # The server.
    (
        "WL-AUTH-401",
        "the server does not know the identity of the client",
        "The token or the certificate in the kubeconfig is not the server's. After `windlass down --purge` "
        "and a new `windlass up`, old copies of the kubeconfig no longer fit.",
    ),
    (
        "WL-OBJECT-410",
        "the list went out of date",
        "While a long list was read in pages, the changes that it was based on were compacted. Run it again.",
    ),
    (
        "WL-OUTPUT-500",
        "the output cannot be written",
        "Standard output goes to a file on a full disk, or to a device that refuses it. What the command was "
        "asked to do may be done all the same: look with `windlass ps`.",
    ),
    (
        "WL-SERVER-413",
        "the object is larger than the server takes",
        "A request may have 3 MiB, as at any Kubernetes API server. Keep large data in files or a volume, and "
        "name them in the object.",
    ),
    ("WL-SERVER-429", "the server has too much to do", "It asks to be left alone for a moment. Try again."),
    (
        "WL-SERVER-500",
        "the server failed",
        "The server's log says why; in the embedded control plane it is `logs/server.log` of the state folder.",
    ),
    (
        "WL-SERVER-401",
        "the server does not accept the credentials",
        "The token or the certificate in use is not the server's, or no longer: log in to the cluster again, "
        "as you got the kubeconfig. After `windlass down --purge` and a new `windlass up`, old copies of the "
        "kubeconfig no longer fit: `windlass status` names the new one.",
    ),
    (
        "WL-SERVER-409",
        "the server cannot listen",
        "The address is in use, or may not be bound by this user.",
    ),
    (
        "WL-SERVER-495",
        "the TLS handshake failed",
        "The server does not speak TLS on this port, its certificate is for another name or has expired, or "
        "it is not signed by the authority in the kubeconfig. The message says which.",
    ),
    (
        "WL-INSTALL-403",
        "you may not put Windlass into this cluster",
        "`windlass install` asks the server about every object before it writes the first; it refuses some of them to "
        "this user, so nothing was written. It takes the rights of a cluster administrator. An "
        "administrator can also apply the output of `windlass install -o yaml`.",
    ),
    (
        "WL-INSTALL-409",
        "an object to be written is managed by another tool",
        "helm has installed Windlass there: the next `helm upgrade` would undo what `windlass install` or `uninstall` "
        "does, or fail; use helm, or take the release out first (queues, jobs and running pods stay). Or fields were "
        "changed by others, each of which is named: put them into the chart's values, or have them set back with "
        "`--force-conflicts`. Or an object, most often the namespace, is still being deleted: wait until it is gone. "
        "Nothing was written.",
    ),
    (
        "WL-INSTALL-504",
        "Windlass was put into the cluster, but does not come up",
        "The objects are there, but a CustomResourceDefinition is not served or a Deployment has not all its instances "
        "ready in time: most often the image cannot be pulled, or no node has room. The command may be repeated.",
    ),
    (
        "WL-ADOPT-409",
        "the cluster cannot be taken over as it is",
        "`windlass install --adopt` looks first and changes nothing when something stands against it: no Volcano or "
        "KAI is there, its configuration is not understood, it shards nodes; with `--finish` also queues that are "
        "still the other's, objects on which only Volcano's controllers work (CronJobs, JobFlows), or gangs that "
        "share GPUs by KAI's binder. The report above names each; [the guide](../guides/adopt.md) says what to do. "
        "The same code refuses a plain `windlass install` or `windlass uninstall` while Windlass runs "
        "next to another scheduler: then both would schedule every pod, or neither the pods that were handed "
        "over. It also refuses a plain `windlass install` while Volcano runs: its controllers work on the same "
        "jobs.",
    ),
    (
        "WL-ADOPT-504",
        "gangs did not change hands in time",
        "The queues are marked, but the controllers of Windlass have not handed all their gangs over (or back): most "
        "often they are not running yet. They go on as soon as they run; the command may be repeated, and undone with "
        "`windlass uninstall --adopted`.",
    ),
    (
        "WL-SERVER-502",
        "the control plane is not running",
        "No process listens on the API socket of this state directory. Start it with `windlass up`; `windlass run` "
        "does so by itself. If it was started with another folder, name it with --state or WINDLASS_STATE.",
    ),
    (
        "WL-SERVER-503",
        "the server cannot be reached",
        "The address is wrong, the network does not lead there, the server is down, or the connection broke.",
    ),
    (
        "WL-SERVER-505",
        "this is no Kubernetes API server",
        "What answers there does not speak HTTP/1.1 as an API server does. Look at the address: https://?",
    ),
    (
        "WL-PKI-500",
        "the certificates cannot be used",
        "The control plane's certificates, token or kubeconfig in the state folder cannot be read or written.",
    ),
    (
        "WL-CREDENTIALS-401",
        "the credentials cannot be had",
        "The kubeconfig names a file or a command that is to give the token or the certificate, and that "
        "failed. The message says how.",
    ),
    (
        "WL-PROXY-400",
        "the address of the proxy is not valid",
        "HTTPS_PROXY or HTTP_PROXY holds something else than http://[USER:PASSWORD@]HOST:PORT. Proxies that "
        "are reached by https:// or socks5:// are not supported. Unset the variable where the server is "
        "reached directly.",
    ),
    (
        "WL-PROXY-403",
        "the proxy refuses to connect to the server",
        "The proxy answered, but not with a connection: it does not allow the server's host or port, wants "
        "credentials (407), or is not a proxy. The message repeats its answer and says where the proxy's "
        "address was read: proxy-url of the cluster in the kubeconfig, HTTPS_PROXY or HTTP_PROXY. Servers "
        "that are reached directly belong into NO_PROXY.",
    ),
    (
        "WL-PROXY-503",
        "the proxy cannot be reached",
        "No connection to the proxy was made, or the proxy could not make one to the server. The message "
        "says where the proxy's address was read: proxy-url of the cluster in the kubeconfig, HTTPS_PROXY "
        "or HTTP_PROXY. Servers that are reached directly belong into NO_PROXY.",
    ),
    ("WL-KUBECONFIG-404", "there is no kubeconfig", "The file, or the context in it, does not exist."),
    (
        "WL-KUBECONFIG-422",
        "the kubeconfig is not right",
        "The file is no YAML, or an entry has a value that cannot be meant. The message names the entry.",
    ),
    # The store.
    (
        "WL-STORE-403",
        "the database cannot be written",
        "The file or its file system is read-only, or belongs to another user.",
    ),
    (
        "WL-STORE-409",
        "the database is in use",
        "Another process holds it. One server works on one database: `windlass status` tells which.",
    ),
    (
        "WL-STORE-422",
        "the database is on a network file system",
        "SQLite's locks cannot be relied upon there. Use a state folder on a local disk.",
    ),
    (
        "WL-STORE-500",
        "the database failed",
        "The operating system refused to read or write. `why` quotes it.",
    ),
    (
        "WL-STORE-505",
        "the database was written by a newer version",
        "Its format is newer than this version of Windlass knows. Use the newer version, or another folder.",
    ),
    (
        "WL-STORE-507",
        "the disk is full",
        "Nothing that was acknowledged is lost; nothing more is acknowledged until there is room again.",
    ),
    (
        "WL-STORE-510",
        "the database is damaged",
        "Its file is no longer a sound SQLite database. Restore a copy, or start over with "
        "`windlass down --purge`; look at the disk (`dmesg`).",
    ),
    # Dry runs and configurations.
    (
        "WL-INPUT-465",
        "an input file is not what it should be",
        "A file given to `windlass plan` is no YAML or JSON, holds something that is no object, or an object with a "
        "field that cannot be read. The message names file, document, object and field. Nothing was planned.",
    ),
    (
        "WL-CONFIG-465",
        "the scheduler configuration is not right",
        "The message names file, line and field. A configuration has Volcano's format: `actions`, `tiers` of "
        "`plugins` with switches and `arguments`, `configurations` of actions. A running scheduler keeps the "
        "configuration that it has.",
    ),
    # Processes on a cluster.
    (
        "WL-LEADER-409",
        "another instance leads",
        "Of several schedulers or controllers, the one that holds the lease decides. This one lost it and ends, "
        "and its supervisor starts it again.",
    ),
    (
        "WL-GUARD-400",
        "the bind guard cannot listen",
        "windlass scheduler --bind-guard takes HOST:PORT, and a folder with tls.crt, tls.key and token "
        "(--bind-guard-secret).",
    ),
    (
        "WL-PROGRESS-400",
        "the progress endpoint cannot listen",
        "The setting controllers.progressBind takes HOST:PORT, for instance :10443, with a port that is free.",
    ),
    (
        "WL-METRICS-400",
        "the metrics address is not right",
        "It reads HOST:PORT, for instance 127.0.0.1:9090.",
    ),
    (
        "WL-TRACE-400",
        "the address of the traces' collector is not right",
        "It is the URL of an OTLP/HTTP receiver, for instance http://collector:4318; /v1/traces is added.",
    ),
    (
        "WL-TRACE-424",
        "traces cannot be sent: OpenTelemetry is not installed",
        "Traces are sent by OpenTelemetry's SDK, which is an extra: pip install '.[otel]' in a checkout. "
        "The project's image has it. Without --otlp-endpoint and OTEL_EXPORTER_OTLP_ENDPOINT nothing is sent, "
        "and it is not needed.",
    ),
)


def _catalogue() -> dict[str, Code]:
    codes: dict[str, Code] = {}
    for word, noun in SUBJECTS.items():
        for number, (title, text) in GENERAL.items():
            code = f"WL-{word}-{number}"
            codes[code] = Code(code, title.format(noun=noun), text, exit_status_of(code))
    for code, title, text in _OWN:
        codes[code] = Code(code, title, text, exit_status_of(code))
    return dict(sorted(codes.items()))


CODES: Mapping[str, Code] = _catalogue()
