"""The node agent: what a kubelet does on the wire, without running containers.

Pure decisions (the package `status`, `registration`, `pods.lifecycle` and `pods.status`, and functions beside the
controllers) are kept apart from the code that does I/O (`node`, `node_status`, `leases`, `certificates`,
`pods.manager`, `pods.mirrors`, `server`). The behaviour is the kubelet's of the Kubernetes 1.36 line;
docs/compat/kubelet.md lists what is the same, what differs and what is simulated. Nothing here starts a thread, and
nothing starts before `run()`.
"""
