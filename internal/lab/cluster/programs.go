package cluster

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// errNotBuilt says that programs of others are missing.
var errNotBuilt = errors.New("is not there: tools/cluster/build.sh builds it, once: with `api` what the overlay laboratory runs, with `all` what the cluster does")

// Programs is where tools/cluster/build.sh leaves what it builds.
func Programs() string {
	cache, err := os.UserCacheDir()
	if err != nil { // neither HOME nor XDG_CACHE_HOME: build.sh has no place either
		cache = os.TempDir()
	}
	return filepath.Join(cache, "culvert", "cluster", "bin")
}

// HavePrograms wants programs to be there.
func HavePrograms(names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(Programs(), name)); err != nil {
			return fmt.Errorf("%s %w", name, errNotBuilt)
		}
	}
	return nil
}

// HaveCluster wants all programs to be there that a cluster with kubelets needs; chart: culvert is
// installed by it.
func HaveCluster(variant string, chart bool) error {
	names := []string{EtcdProcess, APIServerProcess, controllerManagerProcess, schedulerProcess, "kubelet", "kube-proxy", "kubectl", "loopback", "portmap", "bandwidth"}
	if chart {
		names = append(names, "helm")
	}
	errs := []error{HavePrograms(names...)}
	c := containers[variant]
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		program := filepath.Join(c.folder(), name)
		if _, err := os.Stat(program); err != nil {
			errs = append(errs, fmt.Errorf("%s of %s is not there: tools/need.sh e2e installs Debian's, tools/cluster/build.sh all builds the newer one", program, variant))
		}
	}
	for _, name := range []string{"runc", "iptables", "nft", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", name))
		}
	}
	return errors.Join(append(errs, isStatic(busybox))...)
}

// isStatic wants a program that runs in an image where nothing else is.
func isStatic(program string) error {
	f, err := elf.Open(program)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", program)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs libraries, and test pods have none: install busybox-static", program)
		}
	}
	return nil
}
