package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// frrDir is where the frr package puts the daemons.
const frrDir = "/usr/lib/frr"

// StartFRR starts zebra, and the other daemons of the node, with everything
// that they write in the node's directory.
func StartFRR(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if n.FRR == nil {
		return nil
	}
	dir := in.File(n, "frr")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := chownFRR(dir); err != nil {
		return err
	}
	config := filepath.Join(dir, "frr.conf")
	if err := os.WriteFile(config, []byte(frrText(n.FRR, in.Topology, n)), 0o644); err != nil {
		return err
	}
	for _, daemon := range frrDaemons(n.FRR) {
		if err := startFRRDaemon(ctx, in, n, daemon, dir, config); err != nil {
			return err
		}
	}
	return nil
}

// frrDaemons are all that run, zebra first.
func frrDaemons(f *topology.FRRConfig) []string {
	list := append([]string{"zebra"}, f.Daemons...)
	if f.ISIS != nil {
		list = append(list, "isisd")
	}
	return list
}

// frrText is their configuration.
func frrText(f *topology.FRRConfig, t *topology.Topology, n *topology.Node) string {
	if f.ISIS == nil {
		return f.Config
	}
	return isisText(f.ISIS, t, n) + f.Config
}

func startFRRDaemon(ctx context.Context, in *instance.Instance, n *topology.Node, daemon, dir, config string) error {
	path := filepath.Join(frrDir, daemon)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: install the package frr", err)
	}
	err := in.Start(n, daemon, path, "-f", config,
		"-i", filepath.Join(dir, daemon+".pid"), "-z", filepath.Join(dir, "zserv.api"), "--vty_socket", dir,
		"-A", "127.0.0.1", "-P", "0", "--log", "stdout", "--log-level", "notifications")
	if err != nil {
		return err
	}
	// The daemon's command socket appears when it is ready.
	return in.AwaitProcess(ctx, n, daemon, 10*time.Second, func() error {
		_, err := os.Stat(filepath.Join(dir, daemon+".vty"))
		return err
	})
}

// chownFRR gives a directory to the user that the daemons drop to.
func chownFRR(dir string) error {
	u, err := user.Lookup("frr")
	if err != nil {
		return fmt.Errorf("%w: install the package frr", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}
