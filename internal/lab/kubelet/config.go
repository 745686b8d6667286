package kubelet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// The settings that both versions of containerd get. There is no AppArmor in a node that
// is a namespace, no controller of huge pages, and a node's processes may not
// lower their oom_score_adj.
const criOptions = `  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  disable_apparmor = true
  enable_selinux = false
`

const containerd2 = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%s"
%s  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

const containerd3 = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "%s"
[plugins."io.containerd.cri.v1.runtime"]
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
%s  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

func (s Spec) containerdConfig() string {
	if s.ConfigVersion == 2 {
		return fmt.Sprintf(containerd2, s.Pause, criOptions)
	}
	return fmt.Sprintf(containerd3, s.Pause, criOptions)
}

// A node is a part of a machine: it takes no part in how full the machine's disk
// is, and rules of iptables are kube-proxy's and the plugins' alone.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s/ca.crt}}
authorization: {mode: Webhook}
resolvConf: /etc/resolv.conf
clusterDomain: cluster.local
clusterDNS: ["%s"]
volumePluginDir: /var/lib/kubelet/volumeplugins
evictionHard: {memory.available: 100Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 5s
oomScoreAdj: 0
`

func (s Spec) kubeletConfig() string {
	return fmt.Sprintf(kubeletConfig, Socket, s.Cgroup, kubeDir, s.DNS)
}

// The size of the table of connections is the machine's, not a namespace's.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clusterCIDR: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %s/proxy.conf}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func (s Spec) proxyConfig() string {
	return fmt.Sprintf(proxyConfig, s.ProxyMode, s.PodCIDRs, s.Name, kubeDir)
}

// SetAddresses writes the addresses that the node's kubelet has from its next start on.
func (s Spec) SetAddresses(all []netip.Addr) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return s.write(addressFile, text, 0o600)
}

// addresses are those that SetAddresses has written into the root file system.
func addresses(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, addressFile))
	var all []netip.Addr
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	words := make([]string, len(all))
	for i, a := range all {
		words[i] = a.String()
	}
	return strings.Join(words, ","), err
}

// services are the node's programs, in the order in which they are started. root is that of the
// node's file system.
func (s Spec) services(root string) []service {
	always := func(args ...string) func() ([]string, error) { return func() ([]string, error) { return args, nil } }
	return []service{
		{"containerd", always(s.Containerd+"/containerd", "--config", containerCfg)},
		{"kubelet", func() ([]string, error) {
			own, err := addresses(root)
			return []string{Bin + "/kubelet", "--config", kubeDir + "/kubelet.yaml", "--kubeconfig", kubeDir + "/kubelet.conf",
				"--hostname-override", s.Name, "--node-ip", own, "--cert-dir", "/var/lib/kubelet/pki", "--v", "2"}, err
		}},
		{"kube-proxy", always(Bin+"/kube-proxy", "--config", kubeDir+"/proxy.yaml")},
	}
}
