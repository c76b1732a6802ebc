"""What kubeadm writes for a cluster, as pure functions: static pods, kubelet files, RBAC, ConfigMaps, the add-ons.

Renderers take a configuration, a `Layout`, `Addresses` and `Detected`, and return plain maps or text, made afresh on each call. They look at
nothing and write nothing. The fixed values are those of kubeadm v1.36; the reference cases hold them in place.
"""
