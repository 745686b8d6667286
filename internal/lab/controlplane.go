package lab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// podCIDRs of a cluster whose nodes are kubelets: each node gets a part of each.
const podCIDRs = "10.244.0.0/16,fd00:10:244::/48"

// Users of kube-apiserver beside the administrator. Kubernetes gives them their
// rights by their names, and nodes theirs by their group.
const (
	controllerUser = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
	proxyUser      = "system:kube-proxy"
)

// nodeUser is who a node's kubelet is.
func nodeUser(n *Node) string { return "system:node:" + n.Name }

// users are what kube-apiserver reads: token, name, number, groups.
func (in *instance) users() string {
	var b strings.Builder
	line := func(name, group string) { fmt.Fprintf(&b, "%s,%s,%s,%q\n", name, name, name, group) }
	line(administrator, "system:masters")
	if len(in.kubelets()) == 0 {
		return b.String()
	}
	for _, name := range []string{controllerUser, schedulerUser, proxyUser} {
		line(name, "")
	}
	for _, n := range in.kubelets() {
		line(nodeUser(n), "system:nodes")
	}
	return b.String()
}

// kubeletOptions are what kube-apiserver is told where kubelets are its nodes:
// who it is to them, and that network plugins may do what they need.
func (in *instance) kubeletOptions(n *Node) []string {
	if len(in.kubelets()) == 0 {
		return nil
	}
	return []string{"--allow-privileged=true", "--enable-admission-plugins", "NodeRestriction", "--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", in.file(n, "kubelet-client.crt"), "--kubelet-client-key", in.file(n, "kubelet-client.key")}
}

// startControllers starts what the API alone does not do: podCIDRs for nodes,
// accounts, pods of DaemonSets and Deployments, and nodes for pods.
func (in *instance) startControllers(n *Node) error {
	if len(in.kubelets()) == 0 {
		return nil
	}
	for name, user := range map[string]string{controllerManagerProcess: controllerUser, schedulerProcess: schedulerUser} {
		if err := in.writeKubeconfig(n, user, in.file(n, name+".kubeconfig")); err != nil {
			return err
		}
	}
	certs := in.file(n, "certs")
	if err := in.start(n, controllerManagerProcess, filepath.Join(clusterPrograms(), controllerManagerProcess),
		"--kubeconfig", in.file(n, controllerManagerProcess+".kubeconfig"), "--root-ca-file", in.certificate(n),
		"--service-account-private-key-file", in.file(n, "accounts.key"), "--use-service-account-credentials",
		"--allocate-node-cidrs", "--cluster-cidr", podCIDRs, "--node-cidr-mask-size-ipv4", "24", "--node-cidr-mask-size-ipv6", "64",
		"--service-cluster-ip-range", in.serviceCIDRs(n), "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs); err != nil {
		return err
	}
	config := in.file(n, schedulerProcess+".kubeconfig")
	return in.start(n, schedulerProcess, filepath.Join(clusterPrograms(), schedulerProcess), "--kubeconfig", config,
		"--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs)
}

const (
	controllerManagerProcess = "kube-controller-manager"
	schedulerProcess         = "kube-scheduler"
)
