package cluster

import (
	"path/filepath"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

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
	if err := in.Start(n, controllerManagerProcess, filepath.Join(Programs(), controllerManagerProcess),
		"--kubeconfig", in.File(n, controllerManagerProcess+".kubeconfig"), "--root-ca-file", certificate(in, n),
		"--service-account-private-key-file", in.File(n, "accounts.key"), "--use-service-account-credentials",
		"--allocate-node-cidrs", "--cluster-cidr", ranges(in, podRanges),
		"--service-cluster-ip-range", ranges(in, serviceRanges), "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs); err != nil {
		return err
	}
	config := in.File(n, schedulerProcess+".kubeconfig")
	return in.Start(n, schedulerProcess, filepath.Join(Programs(), schedulerProcess), "--kubeconfig", config,
		"--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs)
}

const (
	controllerManagerProcess = "kube-controller-manager"
	schedulerProcess         = "kube-scheduler"
)
