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
	daemons := append([]string{"zebra"}, n.FRR.Daemons...)
	text := n.FRR.Config
	if n.FRR.ISIS != nil {
		daemons = append(daemons, "isisd")
		text = isisText(n.FRR.ISIS, in.Topology, n) + text
	}
	if err := os.WriteFile(filepath.Join(dir, "frr.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	for _, daemon := range daemons {
		if err := startFRRDaemon(ctx, in, n, daemon, dir); err != nil {
			return err
		}
	}
	return nil
}

func startFRRDaemon(ctx context.Context, in *instance.Instance, n *topology.Node, daemon, dir string) error {
	path := filepath.Join(frrDir, daemon)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: install the package frr", err)
	}
	isReady := func() error { // then its command socket appears
		_, err := os.Stat(filepath.Join(dir, daemon+".vty"))
		return err
	}
	return in.StartAwait(ctx, n, daemon, 10*time.Second, isReady, path, "-f", filepath.Join(dir, "frr.conf"),
		"-i", filepath.Join(dir, daemon+".pid"), "-z", filepath.Join(dir, "zserv.api"), "--vty_socket", dir,
		"-A", "127.0.0.1", "-P", "0", "--log", "stdout", "--log-level", "notifications")
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
