"""The node agent: what a kubelet does on the wire, without running containers.

Pure decisions (the package `status`, `registration`, `pods.lifecycle` and `pods.status`, and functions next to the
controllers) are separate from code that does I/O (`node`, `node_status`, `leases`, `certificates`, `pods.manager`,
`pods.mirrors`, `server`). The behaviour is that of the kubelet of Kubernetes 1.36; docs/compat/kubelet.md lists what
is the same, what differs and what is simulated. Nothing here starts a thread, and nothing starts before `run()`.
"""
