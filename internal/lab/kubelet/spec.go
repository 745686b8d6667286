package kubelet

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Spec says what a node is.
type Spec struct {
	Name      string       `json:"name"` // of the Node, and the host's
	Root      string       `json:"root"` // folder that becomes the root file system
	Addresses []netip.Addr `json:"addresses"`
	Cgroup    string       `json:"cgroup"` // name in each hierarchy: see MakeCgroup
	// Programs is what tools/cluster/build.sh filled, and Images a folder of image
	// archives, which containerd has when pods come.
	Programs string `json:"programs"`
	Images   string `json:"images"`
	// Containerd is the folder of containerd, its shim and ctr as the node sees it,
	// and ConfigVersion the one that they read: 2 (containerd 1.6) or 3 (2.x).
	Containerd    string `json:"containerd"`
	ConfigVersion int    `json:"config_version"`
	Pause         string `json:"pause"`      // image of each pod's sandbox
	ProxyMode     string `json:"proxy_mode"` // of kube-proxy: nftables or iptables
	DNS           string `json:"dns"`        // address of the cluster's
	PodCIDRs      string `json:"pod_cidrs"`  // of the whole cluster, with a comma between
	ClientCA      string `json:"-"`          // PEM: who signs kube-apiserver's certificate as a client
	// Kubeconfigs of kubelet and kube-proxy.
	Kubelet string `json:"-"`
	Proxy   string `json:"-"`
}

// What a node sees of a Spec.
const (
	programDir = "/opt/culvert-cluster"
	// Bin is where a node has the programs.
	Bin          = programDir + "/bin"
	imageDir     = "/opt/images"
	pluginDir    = "/opt/cni/bin"
	kubeDir      = "/etc/kubernetes"
	addressFile  = kubeDir + "/addresses.json"
	containerCfg = "/etc/containerd/config.toml"
	// Socket is containerd's.
	Socket = "/run/containerd/containerd.sock"
)

// plugins that a node has before a network is installed, as from the package
// kubernetes-cni.
var plugins = []string{"loopback", "portmap", "bandwidth"}

// Write makes the node's root file system. What is in it stays: a node that is
// started anew is the same one.
func (s Spec) Write() error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	files := map[string]string{
		containerCfg:              s.containerdConfig(),
		kubeDir + "/ca.crt":       s.ClientCA,
		kubeDir + "/kubelet.conf": s.Kubelet,
		kubeDir + "/proxy.conf":   s.Proxy,
		kubeDir + "/kubelet.yaml": s.kubeletConfig(),
		kubeDir + "/proxy.yaml":   s.proxyConfig(),
		"/etc/hosts":              "127.0.0.1 localhost\n::1 localhost\n",
		"/etc/resolv.conf":        "",
		"/etc/machine-id":         hex.EncodeToString(id) + "\n",
	}
	for name, text := range files {
		if err := s.write(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, name := range plugins {
		program, err := os.ReadFile(filepath.Join(s.Programs, "bin", name))
		if err != nil {
			return err
		}
		if err := s.write(filepath.Join(pluginDir, name), program, 0o755); err != nil {
			return err
		}
	}
	return s.SetAddresses(s.Addresses)
}

func (s Spec) write(name string, text []byte, mode os.FileMode) error {
	name = filepath.Join(s.Root, name)
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, text, mode))
}

// Command is the node's first process: program is this one, with the arguments
// that make it call Init, and the node's network namespace is that of the thread
// that starts it. The Spec is written to a file of that name.
func (s Spec) Command(file, program string, args ...string) (*exec.Cmd, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append(args, file)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	return cmd, nil
}
