package lab

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// podRanges are those of a cluster whose nodes are kubelets, by family: each node
// gets a part of each. serviceRanges are those of Services.
var (
	podRanges     = map[string]string{topology.IPv4: "10.244.0.0/16", topology.IPv6: "fd00:10:244::/48"}
	serviceRanges = map[string]string{topology.IPv4: "10.96.0.0/16", topology.IPv6: "fd00:10:96::/112"}
)

// families that the cluster knows, that of kube-apiserver first. A variant that is
// called like a family has no other.
func families(in *instance.Instance) []string {
	if v := in.State.Variant; v == topology.IPv4 || v == topology.IPv6 {
		return []string{v}
	}
	if in.APIServer() != nil && in.Addresses(in.APIServer())[0].Is6() {
		return []string{topology.IPv6, topology.IPv4}
	}
	return []string{topology.IPv4, topology.IPv6}
}

// ranges are those of the cluster's families, with a comma between.
func ranges(in *instance.Instance, of map[string]string) string {
	var list []string
	for _, family := range families(in) {
		list = append(list, of[family])
	}
	return strings.Join(list, ",")
}

// known are the addresses of a node that the cluster knows.
func known(in *instance.Instance, n *topology.Node) []netip.Addr {
	return slices.DeleteFunc(in.Addresses(n), func(a netip.Addr) bool { return !slices.Contains(families(in), topology.FamilyOf(a)) })
}

// Users of kube-apiserver beside the administrator. Kubernetes gives them their
// rights by their names, and nodes theirs by their group.
const (
	controllerUser = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
	proxyUser      = "system:kube-proxy"
)

// nodeUser is who a node's kubelet is.
func nodeUser(n *topology.Node) string { return "system:node:" + n.Name }

// users are what kube-apiserver reads: token, name, number, groups.
func users(in *instance.Instance) string {
	var b strings.Builder
	line := func(name, group string) { fmt.Fprintf(&b, "%s,%s,%s,%q\n", name, name, name, group) }
	line(administrator, "system:masters")
	if len(in.Kubelets()) == 0 {
		return b.String()
	}
	for _, name := range []string{controllerUser, schedulerUser, proxyUser} {
		line(name, "")
	}
	for _, n := range in.Kubelets() {
		line(nodeUser(n), "system:nodes")
	}
	return b.String()
}

// kubeletOptions are what kube-apiserver is told where kubelets are its nodes:
// who it is to them, and that network plugins may do what they need.
func kubeletOptions(in *instance.Instance, n *topology.Node) []string {
	if len(in.Kubelets()) == 0 {
		return nil
	}
	return []string{"--allow-privileged=true", "--enable-admission-plugins", "NodeRestriction", "--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", in.File(n, "kubelet-client.crt"), "--kubelet-client-key", in.File(n, "kubelet-client.key")}
}

// startControllers starts what the API alone does not do: podCIDRs for nodes,
// accounts, pods of DaemonSets and Deployments, and nodes for pods.
func startControllers(in *instance.Instance, n *topology.Node) error {
	if len(in.Kubelets()) == 0 {
		return nil
	}
	for name, user := range map[string]string{controllerManagerProcess: controllerUser, schedulerProcess: schedulerUser} {
		if err := writeKubeconfig(in, n, user, in.File(n, name+".kubeconfig")); err != nil {
			return err
		}
	}
	certs := in.File(n, "certs")
	if err := in.Start(n, controllerManagerProcess, filepath.Join(clusterPrograms(), controllerManagerProcess),
		"--kubeconfig", in.File(n, controllerManagerProcess+".kubeconfig"), "--root-ca-file", certificate(in, n),
		"--service-account-private-key-file", in.File(n, "accounts.key"), "--use-service-account-credentials",
		"--allocate-node-cidrs", "--cluster-cidr", ranges(in, podRanges),
		"--service-cluster-ip-range", ranges(in, serviceRanges), "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs); err != nil {
		return err
	}
	config := in.File(n, schedulerProcess+".kubeconfig")
	return in.Start(n, schedulerProcess, filepath.Join(clusterPrograms(), schedulerProcess), "--kubeconfig", config,
		"--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs)
}

const (
	controllerManagerProcess = "kube-controller-manager"
	schedulerProcess         = "kube-scheduler"
)
