"""Workflows of the end-to-end tests: branches around a parallel job, and templates of many kinds."""

from __future__ import annotations

# ruff: noqa: E501
BRANCHES = """
apiVersion: kurator.dev/v1alpha1
kind: AIGCWorkflow
metadata: {name: media}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: split, template: split}
      - {name: train, template: train, depends: split}
      - {name: score, template: score, depends: train}
      - {name: redo, template: say, depends: score, when: "{{tasks.score.outputs.result}} < 90"}
      - {name: keep, template: say, depends: score, when: "{{tasks.score.outputs.result}} >= 90"}
      - {name: publish, template: flaky, depends: redo || keep}
  - {name: split, script: {image: python, command: [python3], source: "print([1, 2])"}}
  - name: train
    job:
      parallel:
        strategy: hybrid
        degree: {data: 2, tensor: 2}
        gpusPerReplica: 2
        placement: {tensor: sameNode}
      template:
        spec:
          containers:
          - name: rank
            image: busybox
            command: [sh, -c, "echo rank $VC_TASK_INDEX of data $DATA_PARALLEL_SIZE x tensor $TENSOR_PARALLEL_SIZE"]
            resources: {limits: {nvidia.com/gpu: 1}}
  - {name: score, script: {image: python, command: [python3], source: print(87)}}
  - {name: say, container: {image: busybox, command: [echo, again]}}
  - name: flaky
    retryStrategy: {limit: 2}
    container: {image: busybox, command: [sh, -c, "test {{retries}} = 1"]}
"""


KINDS = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: kinds}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: server, template: server}
      - name: good
        template: request
        depends: server
        arguments: {parameters: [{name: url, value: "http://{{tasks.server.ip}}:8765/page"}, {name: code, value: "200"}]}
      - name: missing
        template: request
        depends: server
        arguments: {parameters: [{name: url, value: "http://{{tasks.server.ip}}:8765/none"}, {name: code, value: "404"}]}
      - name: refused
        template: plain
        depends: server
        arguments: {parameters: [{name: url, value: "http://{{tasks.server.ip}}:8765/none"}]}
      - {name: set, template: set}
      - name: call
        template: call
        depends: good && set && missing && refused.Failed
        arguments: {parameters: [{name: text, value: "{{tasks.good.outputs.result}}{{tasks.set.outputs.result}}"}, {name: times, value: "2"}]}
      - {name: resume, template: resume}
      - name: fetch
        template: fetch
        depends: server
        arguments: {artifacts: [{name: page, http: {url: "http://{{tasks.server.ip}}:8765/page"}}]}
      - name: side
        template: side
        depends: call
        arguments: {parameters: [{name: text, value: "{{tasks.call.outputs.parameters.twice}}"}]}
  - name: server
    daemon: true
    container:
      image: python
      command: [sh, -c, "mkdir -p /tmp/www; cd /tmp/www; printf 'page ' > page; exec python3 -m http.server 8765"]
      readinessProbe: {tcpSocket: {port: 8765}, periodSeconds: 1}
  - name: request
    inputs: {parameters: [{name: url}, {name: code}]}
    http: {url: "{{inputs.parameters.url}}", successCondition: "response.statusCode == {{inputs.parameters.code}}", timeoutSeconds: 20}
  - name: plain
    inputs: {parameters: [{name: url}]}
    http: {url: "{{inputs.parameters.url}}"}
  - name: set
    containerSet:
      volumeMounts: [{name: work, mountPath: /work}]
      containers:
      - {name: first, image: busybox, command: [sh, -c, "sleep 0.3; printf hello > /work/f"]}
      - {name: main, image: busybox, command: [cat, /work/f], dependencies: [first]}
    volumes: [{name: work, emptyDir: {}}]
  - name: call
    inputs: {parameters: [{name: text}, {name: times}]}
    outputs: {parameters: [{name: twice}]}
    function: {entryPoint: "flowfunctions:repeat", path: FOLDER}
  - name: fetch
    inputs: {artifacts: [{name: page, path: /tmp/page}]}
    container: {image: busybox, command: [cat, /tmp/page]}
  - name: resume
    retryStrategy: {limit: 2, resume: FromCheckpoint}
    container: {image: busybox, command: [sh, -c, "cat $WINDLASS_CHECKPOINT_DIR/* 2>/dev/null && exit 0; echo step {{retries}} > $WINDLASS_CHECKPOINT_DIR/at; exit 1"]}
  - name: side
    inputs: {parameters: [{name: text}]}
    podSpecPatch: '{"containers": [{"name": "main", "env": [{"name": "PATCHED", "value": "{{inputs.parameters.text}}"}]}]}'
    container: {image: busybox, command: [sh, -c, "echo $PATCHED"]}
    sidecars: [{name: never-ends, image: busybox, command: [sleep, "1000"]}]
"""
FUNCTION = """
def repeat(text: str, times: int) -> dict:
    print("a print is no result")
    return {"twice": text * times}
"""
JOBS = """
apiVersion: kurator.dev/v1alpha1
kind: AIGCWorkflow
metadata: {name: jobs}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: batch, template: batch}
      - {name: torch, template: torch}
      - {name: sets, template: sets}
      - {name: train, template: train}
      - {name: mpi, template: mpi}
      - {name: serve, template: serve}
      - {name: write, template: write}
      - {name: inner, template: inner}
    - - name: redo
        template: say
        when: "{{steps.write.outputs.parameters.score}} < 90"
        arguments: {parameters: [{name: text, value: "{{steps.write.outputs.parameters.done}} of {{steps.write.outputs.parameters.total}}, {{steps.batch.outputs.parameters.succeeded}}"}]}
  - name: batch
    outputs: {parameters: [{name: succeeded, valueFrom: {jsonPath: .status.succeeded}}]}
    job: {manifest: {apiVersion: batch/v1, kind: Job, spec: {completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}}}
  - name: torch
    job:
      parallel: {strategy: data, degree: {data: 2}}
      manifest: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: &t {spec: {containers: [{name: pytorch, image: busybox, command: ["true"]}]}}}, Worker: {replicas: 1, template: *t}}}}
  - name: sets
    job: {manifest: {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: a, replicas: 2, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ["true"]}]}}}}}]}}}
  - name: train
    job: {manifest: {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {name: torch-distributed}, trainer: {numNodes: 2, command: ["true"], image: busybox}}}}
  - name: mpi
    retryStrategy: {limit: 1}
    job: {manifest: {apiVersion: kubeflow.org/v1, kind: MPIJob, metadata: {name: mpi}, spec: {mpiReplicaSpecs: {Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi, image: busybox, command: [sh, -c, "test {{retries}} = 1"]}]}}}, Worker: {replicas: 1, template: {spec: {containers: [{name: mpi, image: busybox, command: [sleep, "1000"]}]}}}}, runPolicy: {backoffLimit: 0}}}}
  - name: serve
    daemon: true
    job: {manifest: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {replicas: 1, leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c, image: busybox, command: [sleep, "1000"]}]}}}}}}
  - name: write
    job:
      manifest:
        apiVersion: kurator.dev/v1alpha1
        kind: AIGCJob
        spec:
          input: {source: inline, format: jsonl, inline: '{"id": "a", "score": 80}'}
          runtimeRef: {name: process}
          template: {spec: {containers: [{name: w, image: busybox, command: [cat]}]}}
          outputs: {quality: {min: 90}}
  - name: inner
    job: {manifest: {apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {entrypoint: m, templates: [{name: m, container: {image: busybox, command: ["true"]}}]}}}
  - name: say
    inputs: {parameters: [{name: text}]}
    container: {image: busybox, command: [echo, "{{inputs.parameters.text}}"]}
"""
