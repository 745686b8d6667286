// Package cluster is the Kubernetes of a laboratory: the API server with its
// credentials, controllers, nodes with a kubelet, pods and Services.
//
// In the mode kube of the overlay laboratory there are etcd, kube-apiserver and
// kube-proxy only, and the laboratory registers the nodes itself. In laboratories
// whose nodes are kubelets there is all of a cluster, and culvert is installed by
// its manifest. Without a Kubernetes API, pods are attached by CNI (Attach) and
// Services are rules of nft (Serve).
//
// The programs of others are built by tools/cluster/build.sh.
package cluster
