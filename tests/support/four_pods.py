"""The four pods by which colocation is shown: one Deployment of each class, as manifests are written for Koordinator."""

from __future__ import annotations

from typing import Any, Final

import yaml

__all__ = ["FOUR_PODS", "four_pods"]

FOUR_PODS: Final = {
    "LSE": """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-lse
  labels:
    app: nginx-lse
spec:
  replicas: 1
  selector:
    matchLabels:
      app: nginx-lse
  template:
    metadata:
      name: nginx-lse
      labels:
        app: nginx-lse
        koordinator.sh/qosClass: LSE
      annotations:
          scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'
    spec:
      schedulerName: koord-scheduler
      containers:
      - name: nginx
        image: release.daocloud.io/kpanda/nginx:1.25.3-alpine
        resources:
          limits:
            cpu: '2'
          requests:
            cpu: '2'
      priorityClassName: koord-prod
""",
    "LSR": """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-lsr
  labels:
    app: nginx-lsr
spec:
  replicas: 1
  selector:
    matchLabels:
      app: nginx-lsr
  template:
    metadata:
      name: nginx-lsr
      labels:
        app: nginx-lsr
        koordinator.sh/qosClass: LSR
      annotations:
          scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'
    spec:
      schedulerName: koord-scheduler
      containers:
      - name: nginx
        image: release.daocloud.io/kpanda/nginx:1.25.3-alpine
        resources:
          limits:
            cpu: '2'
          requests:
            cpu: '2'
      priorityClassName: koord-prod
""",
    "LS": """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-ls
  labels:
    app: nginx-ls
spec:
  replicas: 1
  selector:
    matchLabels:
      app: nginx-ls
  template:
    metadata:
      name: nginx-ls
      labels:
        app: nginx-ls
        koordinator.sh/qosClass: LS
      annotations:
          scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'
    spec:
      schedulerName: koord-scheduler
      containers:
      - name: nginx
        image: release.daocloud.io/kpanda/nginx:1.25.3-alpine
        resources:
          limits:
            cpu: '2'
          requests:
            cpu: '2'
      priorityClassName: koord-prod
""",
    "BE": """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-be
  labels:
    app: nginx-be
spec:
  replicas: 1
  selector:
    matchLabels:
      app: nginx-be
  template:
    metadata:
      name: nginx-be
      labels:
        app: nginx-be
        koordinator.sh/qosClass: BE
      annotations:
          scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'
    spec:
      schedulerName: koord-scheduler
      containers:
      - name: nginx
        image: release.daocloud.io/kpanda/nginx:1.25.3-alpine
        resources:
          limits:
            kubernetes.io/batch-cpu: 2k
          requests:
            kubernetes.io/batch-cpu: 2k
      priorityClassName: koord-batch
""",
}
"""The text of each manifest by its class."""


def four_pods() -> dict[str, dict[str, Any]]:
    """The manifests as mappings of their own, to change."""
    return {qos: yaml.safe_load(text) for qos, text in FOUR_PODS.items()}
