"""Pure rendering: static pods, kubelet files, cluster objects. Configuration in, plain maps and text out."""
