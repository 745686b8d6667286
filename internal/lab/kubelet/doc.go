// Package kubelet is a node of a Kubernetes cluster on a part of this machine: a
// root file system, host name, processes, mounts, BPF file system and cgroup of
// its own, with containerd, kubelet and kube-proxy in it.
//
// Write lays the node's files down, Command is the program that the laboratory
// starts in the node's network namespace as the node's first process, and Init
// what that does. When it ends the kernel ends every process of the node and
// unmounts all that they mounted, as when a machine loses its power: what is left
// is the root file system, and the cgroup.
package kubelet
