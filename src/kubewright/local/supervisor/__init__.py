"""What stands for the kubelet and the container runtime on a local machine: static pod manifests run as supervised processes.

It knows nothing of the API server: `kubewright.local.daemon.static_pods` turns what it reports into mirror pods. It runs on the event loop of the
cluster's daemon and imports nothing heavy, because etcd's start waits for it. Commands look at /proc with `procfs` and have no event loop.
"""
