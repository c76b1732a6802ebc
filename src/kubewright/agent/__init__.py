"""The node agent: what a kubelet does on the wire, without running containers.

Pure decisions (`labels`, `resources`, `conditions`, `status`, `registration`, `reporting`, `lease`, `certificates`, `podlife`) are kept
apart from the code that talks (`joining`, `node`, `heartbeats`, `pods`, `mirror`, `kubelet_api`). The behaviour is the kubelet's of the
Kubernetes 1.36 line; docs/compat/kubelet.md says what is the same, what differs and what is simulated. Nothing here starts a thread, and
nothing starts before `run()`.
"""
