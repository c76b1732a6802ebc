"""The files and objects that kubeadm writes for a cluster, as pure functions: static pods, kubelet files, RBAC, ConfigMaps, add-ons.

Renderers take a configuration, a `Layout`, `Addresses` and `Detected`, and return plain maps or text, created again on
each call. They read nothing and write nothing. The fixed values are those of kubeadm v1.36; the reference cases verify
them.
"""
